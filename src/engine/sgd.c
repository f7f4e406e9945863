/* Stochastic gradient descent with momentum, in PyTorch's form: the learning rate multiplies
 * the buffer and is not accumulated in it, and there is no dampening.
 *
 * Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in deep
 * learning", ICML 2013, for Nesterov's variant. */
#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_optimizer.h"
#include "engine/optimizer.h"

extern const rpi_optimizer rpi_optimizer_sgd;

static rp_status check(const rpi_optimizer_rates *rates) {
    if (!(rates->momentum >= 0))
        return RP_FAIL(INVALID, "momentum is %g; 0 or more is allowed",
                       (double)rates->momentum);
    if (rates->nesterov && rates->momentum == 0)
        return RP_FAIL(INVALID, "Nesterov's variant needs a momentum above 0");
    return RP_OK;
}

/* The buffer is zero before step 0, so that the first step makes it the gradient. */
static void update(const rpi_optimizer_rates *rates, uint64_t step, int64_t count,
                   float *values, float *gradients, float *const *slots) {
    (void)step;
    rpi_kernel_run run = {.threads = rates->threads, .isa = rpi_cpu_isa()};
    rpi_kernel_sgd_step(
        &run, &(rpi_kernel_sgd){.count = count,
                                .values = values,
                                .gradients = gradients,
                                .gradient_scale = rpi_optimizer_gradient_scale(rates),
                                .momentum_buffer = rates->momentum > 0 ? slots[0] : NULL,
                                .learning_rate = rates->learning_rate,
                                .momentum = rates->momentum,
                                .weight_decay = rates->weight_decay,
                                .nesterov = rates->nesterov});
}

const rpi_optimizer rpi_optimizer_sgd = {
    .name = "sgd",
    .summary =
        "g += decay * p; m = momentum * m + g; p -= rate * m (Nesterov: g + momentum * m)",
    .usual_rate = 0.05,
    .slot_count = 1,
    .slot_names = {"momentum"},
    .check = check,
    .update = update,
};
