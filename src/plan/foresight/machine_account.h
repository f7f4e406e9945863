/* The measurements of a machine (`redpoll bench machine`) as data: an item for each kind of
 * work and size, with its spread; and the device that a planner makes of them. */
#ifndef RPI_PLAN_MACHINE_ACCOUNT_H
#define RPI_PLAN_MACHINE_ACCOUNT_H

#include "plan/foresight/device_table.h"
#include "plan/foresight/measured_rates.h"

#include <stdint.h>

typedef enum rpi_machine_work {
    RPI_WORK_PRODUCT,   /* of matrices, m x k by k x n */
    RPI_WORK_ATTENTION, /* of a layer */
    RPI_WORK_REST,      /* the rest of a layer: norms, sums, everything that is not fused */
    RPI_WORK_HEAD,      /* logits with their loss, and everything else outside of layers */
    RPI_WORK_LAYER,     /* a layer with almost no work in it */
    RPI_WORK_STEP,      /* the time of a step without passes and optimizer */
    RPI_WORK_GRADIENTS, /* looking at each gradient: is it a number? */
    RPI_WORK_OPTIMIZER, /* AdamW */
    RPI_WORK_COPY,      /* a copy of memory */
    RPI_WORK_SUM,       /* an all-reduce over the ranks of this host */
    RPI_WORK_LAYER_SUM, /* one between the products of a layer */
    RPI_WORK_CODEC,     /* encoding, and decoding with a sum */
    RPI_WORK_DISK,      /* writing a file until it is safe on the disk, and reading it */
    RPI_WORK_PROGRAM,   /* memory of a rank that trains a tiny model */
    RPI_WORKS
} rpi_machine_work;

/* A row of the catalogue of works. */
typedef struct rpi_machine_work_info {
    const char *name, *help;
    const char *unit;                  /* "flop/s", "bytes/s", "s" or "bytes" */
    const char *sides[RPI_RATE_SIDES]; /* the names of sizes in files; NULL: no more */
    const char *passes[3]; /* "forward", "backward"; NULL: no more; first NULL: one pass */
    bool has_name;         /* a dtype or a codec */
} rpi_machine_work_info;
/* NULL past the end. */
const rpi_machine_work_info *rpi_machine_work_at(int index);

enum { RPI_MACHINE_ITEMS = 448, RPI_MACHINE_NAME = 48 };
typedef struct rpi_machine_item {
    rpi_machine_work work;
    int pass;
    char name[RPI_MACHINE_NAME]; /* "" if it has none */
    double at[RPI_RATE_SIDES];
    double value, low, high; /* the median, and the range of 8 of 10 repeats */
    int repeats;
} rpi_machine_item;

typedef struct rpi_machine_account {
    int ranks, threads; /* ranks that measured at the same time, and threads of each */
    double memory_bytes;
    char cpu[96];
    int count;
    rpi_machine_item items[RPI_MACHINE_ITEMS];
} rpi_machine_account;

/* RP_INVALID: the item is not valid, or there are too many. */
rp_status rpi_machine_account_add(rpi_machine_account *account, const rpi_machine_item *item);
/* The first item of this work, pass and name ("": any name); NULL: there is none. */
const rpi_machine_item *rpi_machine_account_find(const rpi_machine_account *account,
                                                 rpi_machine_work work, int pass,
                                                 const char *name);

/* The device of a rank, called "here". Measured facts have `source` as their source, the others
 * are assumed. `source` must outlive the device. RP_INVALID: no product, or no memory, was
 * measured. */
rp_status rpi_machine_account_device(const rpi_machine_account *account, const char *source,
                                     rpi_plan_device *out_device,
                                     rpi_measured_rates *out_rates);

/* A factor of the interval, for errors that no item has and no repeat shows. */
#define RPI_MACHINE_FORM       1.1
/* The share of a link's rate in sums over hosts. */
#define RPI_MACHINE_LINK_SHARE .97
/* Bytes of a rank that trains a tiny model, if they were not measured. */
#define RPI_MACHINE_PROGRAM    25e6
/* Bytes that redpoll train sums at once: --bucket-mb 4. */
#define RPI_MACHINE_BUCKET     4194304.

/* Seconds to write so many bytes to the disk; negative: not measured. */
double rpi_machine_account_save_s(const rpi_machine_account *account, double bytes);
/* Seconds to encode and decode an element of 4 bytes; negative: not measured. */
double rpi_machine_account_codec_s(const rpi_machine_account *account, const char *codec);

#endif
