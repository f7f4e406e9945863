/* `redpoll bench machine`: measures a rank of this machine item by item, in rounds. */
#ifndef RPI_CLI_BENCH_MACHINE_H
#define RPI_CLI_BENCH_MACHINE_H

#include "cli/world.h"
#include "plan/foresight/machine_account.h"

enum {
    RPI_MACHINE_ROUNDS = 101,
    RPI_MACHINE_TIMES = 512,
    RPI_MACHINE_TIMINGS = RPI_MACHINE_ITEMS + 32
};

/* An item, and the times of its repeats: one or more in a round. */
typedef struct rpi_machine_timing {
    rpi_machine_item item;
    double amount; /* operations or bytes of a repeat; 0: the item is its seconds */
    bool is_whole; /* not an item of its own: other items are its parts */
    const struct rpi_machine_timing *whole; /* the whole of which this is a part; NULL: none */
    int count;
    double seconds[RPI_MACHINE_TIMES];
} rpi_machine_timing;

typedef struct rpi_machine_bench {
    rp_comm *comm; /* all of its ranks measure at the same time */
    int ranks, threads;
    int rounds;
    bool thorough;
    const char *folder; /* for a file that is written and read again */
    int count;
    const rpi_machine_timing *whole; /* of what is opened now */
    rpi_machine_timing items[RPI_MACHINE_TIMINGS];
} rpi_machine_bench;

/* Opens an item to be timed; at: its sizes, or NULL. *out_index is its number. RP_INVALID:
 * there are too many. */
rp_status rpi_machine_item_open(rpi_machine_bench *bench, rpi_machine_work work, int pass,
                                const char *name, const double *at, double amount,
                                int *out_index);
/* Opens a whole, whose parts are the items that are opened before the next whole. A disturbance
 * that each part meets rarely is in every whole. One repeat of a part belongs to one of the
 * whole. */
rp_status rpi_machine_whole_open(rpi_machine_bench *bench, int *out_index);
void rpi_machine_whole_close(rpi_machine_bench *bench);
/* Adds the time of one repeat. */
void rpi_machine_item_time(rpi_machine_bench *bench, int index, double seconds);
/* The items as an account, each with the range of 8 of 10 repeats: medians, but for parts the
 * mean of the repeats whose whole was in the middle half by time, so that parts add up to a
 * usual whole. Items that were never timed are left out. */
rp_status rpi_machine_bench_account(rpi_machine_bench *bench, rpi_machine_account *account);

/* A part of the measurement: it is opened, then run once in each round, on all ranks at the
 * same time. */
typedef struct rpi_machine_part {
    const char *what; /* what it measures, in a line */
    rp_status (*open)(rpi_machine_bench *bench, void **out_self);
    rp_status (*run)(rpi_machine_bench *bench, void *self);
    void (*close)(void *self); /* NULL is fine */
} rpi_machine_part;

extern const rpi_machine_part rpi_machine_layers; /* bench_machine_layers.c */
extern const rpi_machine_part rpi_machine_memory; /* bench_machine_parts.c: copies */
extern const rpi_machine_part rpi_machine_codecs;
extern const rpi_machine_part rpi_machine_sums; /* bench_machine_ranks.c */
extern const rpi_machine_part rpi_machine_disk;
extern const rpi_machine_part rpi_machine_steps;

#endif
