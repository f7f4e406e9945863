#include "cli/bench_machine_update.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/finite.h"
#include "engine/optimizer.h"

/* Bytes that AdamW reads and writes of an element of fp32, as a forecast counts them. */
#define ADAMW_BYTES 24.
enum { LATER_STEP = 1000 }; /* whose means need no correction */

rp_status rpi_machine_trainer_open(const rpi_machine_bench *b, rpi_machine_trainer *t) {
    const rp_comm_options options = RP_COMM_OPTIONS(.progress_thread = 1);
    t->ranks = b->ranks;
    return rp_comm_create(NULL, 0, 1, &options, &t->alone);
}

static void free_state(rpi_machine_trainer *t) {
    rpi_free(t->means);
    rpi_free(t->squares);
    t->means = t->squares = NULL;
    t->count = 0;
}

void rpi_machine_trainer_close(rpi_machine_trainer *t) {
    free_state(t);
    rp_comm_destroy(t->alone);
    t->alone = NULL;
}

rp_status rpi_machine_trainer_reach(rpi_machine_trainer *t, int64_t count) {
    if (count <= t->count) return RP_OK;
    free_state(t);
    RP_TRY(rpi_alloc_array((size_t)count, sizeof(float), "an optimizer", &t->means));
    RP_TRY(rpi_alloc_array((size_t)count, sizeof(float), "an optimizer", &t->squares));
    t->count = count;
    return RP_OK;
}

rp_status rpi_machine_update_open(rpi_machine_bench *b, const rpi_weights *weights,
                                  rpi_machine_update *update) {
    double count = (double)rpi_weights_count(weights);
    const double looked_at = count * sizeof(float), stepped = count * ADAMW_BYTES;
    RP_TRY(rpi_machine_item_open(b, RPI_WORK_GRADIENTS, 0, "", &looked_at, looked_at,
                                 &update->gradients));
    return rpi_machine_item_open(b, RPI_WORK_OPTIMIZER, 0, "", &stepped, stepped,
                                 &update->optimizer);
}

static rp_status wait(rpi_machine_update *update) {
    return update->request ? rp_request_wait(&update->request) : RP_OK;
}

/* A rank alone sums buckets, as redpoll train does: each wakes the progress thread for a
 * moment, which takes a processor from those that compute. Among others that thread is awake
 * for most of a backward pass: one sum after the other, as few as are needed for that. */
static bool is_due(const rpi_machine_trainer *t, const rpi_machine_update *update) {
    if (t->ranks > 1) return !update->request || rp_request_test(update->request) != RP_PENDING;
    return (double)update->gathered * sizeof(float) >= RPI_MACHINE_BUCKET;
}

/* Gradients become final from the last parameter to the first, so that those of a bucket lie
 * behind each other. */
static rp_status hand_over(const rpi_machine_trainer *t, rpi_weights *weights, int64_t first,
                           rpi_machine_update *update) {
    int64_t rest = rpi_weights_count(weights) - first;
    int64_t count = update->gathered < rest ? update->gathered : rest;
    const rp_segment segment = {.data = rpi_weights_gradients(weights) + first,
                                .count = (size_t)count,
                                .dtype = RP_F32};
    RP_TRY(wait(update));
    update->gathered = 0;
    return rp_all_reduce_start(t->alone, &segment, 1, NULL, &update->request);
}

rp_status rpi_machine_update_take(const rpi_machine_trainer *t, rpi_weights *weights,
                                  int64_t first, int64_t count, rpi_machine_update *update) {
    float *gradients = rpi_weights_gradients(weights) + first;
    int64_t start = rpi_now_ns();
    if (rpi_first_nonfinite(gradients, count) >= 0)
        return RP_FAIL(INTERNAL, "a gradient of a model that is measured is no number");
    update->gradients_s += rpi_seconds(rpi_now_ns() - start);
    update->gathered = t->ranks > 1 ? count : update->gathered + count;
    return is_due(t, update) ? hand_over(t, weights, first, update) : RP_OK;
}

/* Parameter by parameter, as training has it. */
static rp_status step(const rpi_machine_bench *b, rpi_weights *weights,
                      const rpi_machine_trainer *trainer) {
    const rpi_optimizer *adamw = NULL;
    rpi_optimizer_rates rates = {.learning_rate = 1e-6f,
                                 .beta1 = .9,
                                 .beta2 = .999,
                                 .epsilon = 1e-8,
                                 .threads = b->threads};
    RP_TRY(rpi_optimizer_find("adamw", &adamw));
    for (int i = 0; i < rpi_weights_parameter_count(weights); i++) {
        const rpi_weight *w = rpi_weights_parameter(weights, i);
        adamw->update(&rates, LATER_STEP, w->count, rpi_weights_values(weights) + w->first,
                      rpi_weights_gradients(weights) + w->first,
                      (float *const[]){trainer->means + w->first, trainer->squares + w->first});
    }
    return RP_OK;
}

rp_status rpi_machine_update_run(const rpi_machine_bench *b, const rpi_machine_trainer *trainer,
                                 rpi_weights *weights, rpi_machine_update *update) {
    if (b->ranks == 1 && update->gathered) RP_TRY(hand_over(trainer, weights, 0, update));
    RP_TRY(wait(update));
    int64_t start = rpi_now_ns();
    RP_TRY(step(b, weights, trainer));
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
    update->optimizer_s = rpi_seconds(rpi_now_ns() - start);
    return RP_OK;
}

void rpi_machine_update_close(rpi_machine_update *update) {
    (void)wait(update);
}

void rpi_machine_update_note(rpi_machine_bench *b, const rpi_machine_update *update) {
    rpi_machine_item_time(b, update->gradients, update->gradients_s);
    rpi_machine_item_time(b, update->optimizer, update->optimizer_s);
}
