#include "cli/bench_machine_update.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/finite.h"
#include "engine/optimizer.h"

/* Bytes that AdamW reads and writes of an element of fp32, as a forecast counts them. */
#define ADAMW_BYTES 24.
enum { LATER_STEP = 1000 }; /* whose means need no correction */

void rpi_machine_slots_free(rpi_machine_slots *s) {
    rpi_free(s->means);
    rpi_free(s->squares);
    *s = (rpi_machine_slots){0};
}

rp_status rpi_machine_slots_reach(rpi_machine_slots *s, int64_t count) {
    if (count <= s->count) return RP_OK;
    rpi_machine_slots_free(s);
    RP_TRY(rpi_alloc_array((size_t)count, sizeof(float), "an optimizer", &s->means));
    RP_TRY(rpi_alloc_array((size_t)count, sizeof(float), "an optimizer", &s->squares));
    s->count = count;
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

static rp_status look(rpi_weights *weights) {
    for (int i = 0; i < rpi_weights_parameter_count(weights); i++) {
        const rpi_weight *w = rpi_weights_parameter(weights, i);
        if (rpi_first_nonfinite(rpi_weights_gradient_at(weights, i), w->count) >= 0)
            return RP_FAIL(INTERNAL, "a gradient of %s is no number", w->name);
    }
    return RP_OK;
}

/* Parameter by parameter, as training has it. */
static rp_status step(const rpi_machine_bench *b, rpi_weights *weights,
                      const rpi_machine_slots *slots) {
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
                      (float *const[]){slots->means + w->first, slots->squares + w->first});
    }
    return RP_OK;
}

rp_status rpi_machine_update_run(const rpi_machine_bench *b, rpi_weights *weights,
                                 const rpi_machine_slots *slots, rpi_machine_update *update) {
    int64_t start = rpi_now_ns();
    RP_TRY(look(weights));
    int64_t middle = rpi_now_ns();
    RP_TRY(step(b, weights, slots));
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
    update->gradients_s = rpi_seconds(middle - start);
    update->optimizer_s = rpi_seconds(rpi_now_ns() - middle);
    return RP_OK;
}

void rpi_machine_update_note(rpi_machine_bench *b, const rpi_machine_update *update) {
    rpi_machine_item_time(b, update->gradients, update->gradients_s);
    rpi_machine_item_time(b, update->optimizer, update->optimizer_s);
}
