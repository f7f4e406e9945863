/* One rank: its gradients are the sums over all ranks. */
#include "train/strategies/strategy.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/strategies/gradients_seen.h"

typedef struct single {
    rpi_strategy_setup setup;
    rpi_gradients_seen seen;
} single;

static rp_status open_single(const rpi_strategy_setup *setup, void **out_self) {
    single *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "a strategy", &self));
    self->setup = *setup;
    *out_self = self;
    return RP_OK;
}

static void begin(void *context, int64_t step) {
    single *self = context;
    (void)step;
    self->seen = (rpi_gradients_seen){0};
}

/* The backward pass may still read parameters: the update waits for its end. */
static rp_status gradient_final(void *context, int64_t first, int64_t count) {
    single *self = context;
    return rpi_gradients_seen_add(&self->seen, first, count);
}

static rp_status finish(void *context, int64_t *out_exposed_ns) {
    const single *self = context;
    const rpi_strategy_setup *s = &self->setup;
    int64_t count = rpi_weights_count(s->weights);
    RP_TRY(rpi_gradients_seen_check(&self->seen, count));
    if (s->measure) {
        s->measure(s->context, 0, count);
        RP_TRY(s->measured(s->context, NULL));
    }
    s->update(s->context, 0, count);
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
