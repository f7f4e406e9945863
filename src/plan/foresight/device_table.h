/* The rates and sizes of devices, as a table of facts: one line a fact, with its source.
 *
 *     a100-80g   memory_bytes   80e9   published   A100 80GB datasheet, SXM
 *     my-a100    like           a100-80g   assumed   the same card
 *     my-a100    gemm_share     0.66   measured   here, 3 May
 *
 * share/redpoll/devices.txt has the known devices, and is built into the program; users add
 * files of their own. A later line replaces an earlier one. */
#ifndef RPI_PLAN_DEVICE_TABLE_H
#define RPI_PLAN_DEVICE_TABLE_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum rpi_fact {
    RPI_FACT_MEMORY_BYTES,
    RPI_FACT_MEMORY_RATE,
    RPI_FACT_BF16,
    RPI_FACT_FP16,
    RPI_FACT_FP32,
    RPI_FACT_WATTS,
    RPI_FACT_LOCAL_RATE,
    RPI_FACT_LOCAL_LATENCY,
    RPI_FACT_LOCAL_START,
    RPI_FACT_GEMM_SHARE,
    RPI_FACT_GEMM_HALF_SIDE,
    RPI_FACT_GEMM_POWER,
    RPI_FACT_TILE_ROWS,
    RPI_FACT_TILE_COLUMNS,
    RPI_FACT_TILES_AT_ONCE,
    RPI_FACT_TILE_HALF_SHARE,
    RPI_FACT_ATTENTION_SHARE,
    RPI_FACT_MEMORY_SHARE,
    RPI_FACT_MEMORY_BACKWARD,
    RPI_FACT_LAYER_HOST,
    RPI_FACT_SUM_HOST,
    RPI_FACT_SOFTMAX_HOST,
    RPI_FACT_SOFTMAX_MULTIPLE,
    RPI_FACT_SUM_HIDDEN,
    RPI_FACT_STEP_HOST,
    RPI_FACT_SHARD_HOST,
    RPI_FACT_LINK_SHARE,
    RPI_FACT_OVERLAP,
    RPI_FACT_BUCKET,
    RPI_FACT_HOP_BLOCKS,
    RPI_FACT_CONTEXT_BYTES,
    RPI_FACT_FRAGMENT_SHARE,
    RPI_FACT_RESIDUAL,
    RPI_FACT_RESIDUAL_FAR,
    RPI_FACT_FITTED_RANKS,
    RPI_FACT_FITTED_PASS,
    RPI_FACTS
} rpi_fact;

/* The name of a fact, and its range. */
typedef struct rpi_fact_info {
    const char *name, *help;
    double least, most;
    bool needed; /* there is no forecast without it */
    bool fitted; /* fitted, so that forecasts meet measurements */
} rpi_fact_info;
/* NULL past the end. */
const rpi_fact_info *rpi_fact_at(int index);

/* How a fact is known; assumed if nobody has measured it. */
typedef enum rpi_fact_kind {
    RPI_KNOWN_PUBLISHED,
    RPI_KNOWN_MEASURED,
    RPI_KNOWN_FITTED,
    RPI_KNOWN_ASSUMED,
    RPI_KNOWN_GIVEN, /* by the user, in a command's options */
    RPI_KNOWN_KINDS
} rpi_fact_kind;
extern const char *const rpi_fact_kinds[RPI_KNOWN_KINDS];

enum { RPI_DEVICE_NAME = 48 };
typedef struct rpi_plan_device_fact {
    double value;
    rpi_fact_kind kind;
    const char *source; /* NULL: not known */
} rpi_plan_device_fact;
typedef struct rpi_plan_device {
    char name[RPI_DEVICE_NAME];
    rpi_plan_device_fact facts[RPI_FACTS];
} rpi_plan_device;

typedef struct rpi_plan_device_table rpi_plan_device_table;

/* The known devices. RP_NOMEM. */
rp_status rpi_plan_device_table_make(rpi_plan_device_table **out_table);
/* Adds lines; `name` is the file's, for messages. RP_INVALID: a line is wrong; the message has
 * its number and what to write. The table must then not be used any more. */
rp_status rpi_plan_device_table_add(rpi_plan_device_table *table, const char *text,
                                    const char *name);
void rpi_plan_device_table_destroy(rpi_plan_device_table *table); /* NULL is fine */

/* The i-th device; NULL past the end. Lives as long as the table. */
const rpi_plan_device *rpi_plan_device_at(const rpi_plan_device_table *table, int index);
/* RP_INVALID: there is no such device, and the message suggests the nearest; or it lacks a fact
 * that forecasts need. */
rp_status rpi_plan_device_find(const rpi_plan_device_table *table, const char *name,
                               rpi_plan_device *out);

static inline double rpi_plan_device_value(const rpi_plan_device *device, rpi_fact fact) {
    return device->facts[fact].value;
}
/* The rate of matrix products in "bf16", "fp16" or "fp32", in operations a second. RP_INVALID:
 * the device has none in that type. */
rp_status rpi_plan_device_peak(const rpi_plan_device *device, const char *dtype,
                               rpi_fact *out_fact);

/* Prints the fitted facts into `text`, as lines of a table that all have this source. */
void rpi_plan_device_print(const rpi_plan_device *device, const char *source, char *text,
                           size_t bytes);

#endif
