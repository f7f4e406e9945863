/* One rank: its gradients are the world's. */
#include "train/strategies/strategy.h"

#include "base/memory.h"
#include "base/status.h"

static rp_status open_single(const rpi_strategy_setup *setup, void **out_self) {
    rpi_strategy_setup *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "a strategy", &self));
    *self = *setup;
    *out_self = self;
    return RP_OK;
}

static void begin(void *self, int64_t step) {
    (void)self, (void)step;
}

/* Parameters may still be read by the backward pass: the update waits for its end. */
static rp_status gradient_final(void *self, int64_t first, int64_t count) {
    (void)self, (void)first, (void)count;
    return RP_OK;
}

static rp_status finish(void *context, int64_t *out_exposed_ns) {
    rpi_strategy_setup *self = context;
    int64_t count = rpi_weights_count(self->weights);
    if (self->measure) {
        self->measure(self->context, 0, count);
        self->measured(self->context);
    }
    self->update(self->context, 0, count);
    *out_exposed_ns = 0;
    return RP_OK;
}

const rpi_strategy rpi_strategy_single = {
    .name = "single",
    .summary = "one rank, no communication",
    .most_ranks = 1,
    .open = open_single,
    .close = rpi_free,
    .begin = begin,
    .gradient_final = gradient_final,
    .finish = finish,
};
