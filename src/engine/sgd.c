/* Stochastic gradient descent with momentum, in PyTorch's form: the learning rate multiplies
 * the buffer and is not accumulated in it, and there is no dampening.
 *
 * Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in deep
 * learning", ICML 2013, for Nesterov's variant. */
#include "base/status.h"
#include "engine/optimizer.h"

extern const rpi_optimizer rpi_optimizer_sgd;

static rp_status check(const rpi_optimizer_rates *rates) {
    if (!(rates->learning_rate >= 0))
        return RP_FAIL(INVALID, "learning rate is %g; 0 or more is allowed",
                       (double)rates->learning_rate);
    if (!(rates->momentum >= 0))
        return RP_FAIL(INVALID, "momentum is %g; 0 or more is allowed",
                       (double)rates->momentum);
    if (!(rates->weight_decay >= 0))
        return RP_FAIL(INVALID, "weight decay is %g; 0 or more is allowed",
                       (double)rates->weight_decay);
    if (rates->nesterov && rates->momentum == 0)
        return RP_FAIL(INVALID, "Nesterov's variant needs a momentum above 0");
    return RP_OK;
}

/* The buffer is zero before step 0, so that the first step makes it the gradient. */
static void update(const rpi_optimizer_rates *rates, uint64_t step, int64_t count,
                   float *values, const float *gradients, float *const *slots) {
    (void)step;
    const float rate = rates->learning_rate, momentum = rates->momentum;
    const float decay = rates->weight_decay;
    float *restrict p = values, *restrict buffer = slots[0];
    const float *restrict g = gradients;
    if (momentum == 0) {
        for (int64_t i = 0; i < count; i++) p[i] -= rate * (g[i] + decay * p[i]);
    } else if (!rates->nesterov) {
        for (int64_t i = 0; i < count; i++) {
            buffer[i] = momentum * buffer[i] + (g[i] + decay * p[i]);
            p[i] -= rate * buffer[i];
        }
    } else {
        for (int64_t i = 0; i < count; i++) {
            float gradient = g[i] + decay * p[i];
            buffer[i] = momentum * buffer[i] + gradient;
            p[i] -= rate * (gradient + momentum * buffer[i]);
        }
    }
}

const rpi_optimizer rpi_optimizer_sgd = {
    .name = "sgd",
    .summary =
        "g += decay * p; m = momentum * m + g; p -= rate * m (Nesterov: g + momentum * m)",
    .slot_count = 1,
    .slot_names = {"momentum"},
    .check = check,
    .update = update,
};
