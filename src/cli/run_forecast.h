/* A forecast of a run of `redpoll train` on a machine that was measured, made from the record
 * of the run as if it had not run yet. */
#ifndef RPI_CLI_RUN_FORECAST_H
#define RPI_CLI_RUN_FORECAST_H

#include "cli/run_record.h"

/* The quantities that a forecast and a run are compared by; the catalogue has a row for
 * each. */
typedef enum rpi_run_item {
    RPI_RUN_STEP,
    RPI_RUN_COMPUTE,
    RPI_RUN_EXPOSED,
    RPI_RUN_MEMORY,
    RPI_RUN_SENT,
    RPI_RUN_RATE,
    RPI_RUN_ITEMS
} rpi_run_item;

typedef struct rpi_run_item_info {
    const char *name; /* for people */
    const char *key;  /* of JSON and CSV */
    const char *unit; /* "s", "bytes" or "tokens/s" */
} rpi_run_item_info;
const rpi_run_item_info *rpi_run_item_at(int index); /* NULL past the end */

enum { RPI_RUN_CPU = 96, RPI_RUN_REMARK = 200 };
typedef struct rpi_run_forecast {
    double values[RPI_RUN_ITEMS];
    double low[RPI_RUN_ITEMS], high[RPI_RUN_ITEMS]; /* NaN: no interval */
    char cpu[RPI_RUN_CPU];
    int ranks, threads;          /* that the machine was measured with */
    char remark[RPI_RUN_REMARK]; /* why it may be far off; "": nothing is known */
} rpi_run_forecast;

/* machine: a file of `redpoll bench machine -o`. RP_INVALID: such a run cannot be predicted,
 * and why; RP_CORRUPT, RP_NOT_FOUND: of the file. */
rp_status rpi_run_forecast_make(const rpi_run_record *record, const char *machine,
                                rpi_run_forecast *out);

#endif
