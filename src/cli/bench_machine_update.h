/* What a step of training does with the gradients of a model, timed by `redpoll bench machine`:
 * it looks at each of them, and AdamW steps the parameters. */
#ifndef RPI_CLI_BENCH_MACHINE_UPDATE_H
#define RPI_CLI_BENCH_MACHINE_UPDATE_H

#include "cli/bench_machine.h"
#include "engine/weights.h"

/* What the models share: AdamW's state, as large as that of the largest, and a communicator of
 * this rank alone, whose progress thread is in the way of a step's threads as in training. */
typedef struct rpi_machine_trainer {
    float *means, *squares;
    int64_t count;
    rp_comm *alone;
    int ranks; /* that measure at the same time */
} rpi_machine_trainer;

rp_status rpi_machine_trainer_open(const rpi_machine_bench *bench,
                                   rpi_machine_trainer *trainer);
/* Its state is long enough for so many parameters. RP_NOMEM. */
rp_status rpi_machine_trainer_reach(rpi_machine_trainer *trainer, int64_t count);
void rpi_machine_trainer_close(rpi_machine_trainer *trainer);

typedef struct rpi_machine_update {
    int gradients, optimizer;        /* items */
    double gradients_s, optimizer_s; /* of this step */
    rp_request *request;             /* of a bucket that travels to nobody */
    int64_t gathered;                /* gradients that are final, and in no bucket yet */
} rpi_machine_update;

/* Its items, of a model of these weights. */
rp_status rpi_machine_update_open(rpi_machine_bench *bench, const rpi_weights *weights,
                                  rpi_machine_update *update);
/* In the backward pass: gradients in [first, first + count) are final. They are looked at, and
 * handed to the progress thread. */
rp_status rpi_machine_update_take(const rpi_machine_trainer *trainer, rpi_weights *weights,
                                  int64_t first, int64_t count, rpi_machine_update *update);
/* Behind it: the parameters are stepped. */
rp_status rpi_machine_update_run(const rpi_machine_bench *bench,
                                 const rpi_machine_trainer *trainer, rpi_weights *weights,
                                 rpi_machine_update *update);
void rpi_machine_update_close(rpi_machine_update *update);
void rpi_machine_update_note(rpi_machine_bench *bench, const rpi_machine_update *update);

#endif
