/* Adam with decoupled weight decay, as in PyTorch: moments corrected for their start at zero,
 * and epsilon added to the corrected root.
 *
 * Kingma, Ba, "Adam: a method for stochastic optimization", ICLR 2015. Loshchilov, Hutter,
 * "Decoupled weight decay regularization", ICLR 2019. */
#include "engine/adam.h"

extern const rpi_optimizer rpi_optimizer_adamw;

static rp_status check(const rpi_optimizer_rates *rates) {
    return rpi_optimizer_check_means(rates, "adamw");
}

static void update(const rpi_optimizer_rates *rates, uint64_t step, int64_t count,
                   float *values, float *gradients, float *const *slots) {
    rpi_kernel_run run = {.threads = rates->threads, .isa = rpi_cpu_isa()};
    rpi_kernel_adam it = rpi_adam_step(rates, step, count, values, gradients, slots);
    rpi_kernel_adamw_step(&run, &it);
}

const rpi_optimizer rpi_optimizer_adamw = {
    .name = "adamw",
    .summary =
        "m, v: running means of g, g^2; p -= rate * (m / (sqrt(v) + epsilon) + decay * p)",
    .usual_rate = 1e-3,
    .slot_count = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .check = check,
    .update = update,
};
