/* What a step of training does with the gradients of a model, timed by `redpoll bench machine`:
 * it looks at each of them, and AdamW steps the parameters. */
#ifndef RPI_CLI_BENCH_MACHINE_UPDATE_H
#define RPI_CLI_BENCH_MACHINE_UPDATE_H

#include "cli/bench_machine.h"
#include "engine/weights.h"

/* AdamW's state, as large as that of the largest model; the models share it. */
typedef struct rpi_machine_slots {
    float *means, *squares;
    int64_t count;
} rpi_machine_slots;

/* Long enough for so many parameters. RP_NOMEM. */
rp_status rpi_machine_slots_reach(rpi_machine_slots *slots, int64_t count);
void rpi_machine_slots_free(rpi_machine_slots *slots);

typedef struct rpi_machine_update {
    int gradients, optimizer;        /* items */
    double gradients_s, optimizer_s; /* of the last run */
} rpi_machine_update;

/* Its items, of a model of these weights. */
rp_status rpi_machine_update_open(rpi_machine_bench *bench, const rpi_weights *weights,
                                  rpi_machine_update *update);
rp_status rpi_machine_update_run(const rpi_machine_bench *bench, rpi_weights *weights,
                                 const rpi_machine_slots *slots, rpi_machine_update *update);
void rpi_machine_update_note(rpi_machine_bench *bench, const rpi_machine_update *update);

#endif
