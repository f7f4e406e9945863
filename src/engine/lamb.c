/* LAMB: Adam's direction with weight decay in it, as long as the tensor itself. A step moves a
 * tensor by the same share of its norm, whatever the size of its gradient, which batches of
 * tens of thousands of sequences need. As in the paper, without a clip of |p|, and with the
 * corrections of the moments' start that Adam has.
 *
 * You, Li, Reddi, Hseu, Kumar, Bhojanapalli, Song, Demmel, Keutzer, Hsieh, "Large batch
 * optimization for deep learning: training BERT in 76 minutes", ICLR 2020, algorithm 2. */
#include "engine/adam.h"
#include "engine/backends/cpu/kernels/kernel_square_sum.h"

extern const rpi_optimizer rpi_optimizer_lamb;

static rp_status check(const rpi_optimizer_rates *rates) {
    return rpi_optimizer_check_means(rates, "lamb");
}

static double squares_of(const rpi_kernel_run *run, const float *x, int64_t count) {
    rpi_square_sum sum = {0};
    rpi_kernel_square_sum(run, x, count, &sum);
    return rpi_square_sum_value(&sum);
}

/* The direction overwrites the gradient. */
static void update(const rpi_optimizer_rates *rates, uint64_t step, int64_t count,
                   float *values, float *gradients, float *const *slots) {
    rpi_kernel_run run = {.threads = rates->threads, .isa = rpi_cpu_isa()};
    rpi_kernel_adam it = rpi_adam_step(rates, step, count, values, gradients, slots);
    it.direction = gradients;
    rpi_kernel_lamb_direction(&run, &it);
    rpi_kernel_lamb_step(
        &run, &(rpi_kernel_lamb){.count = count,
                                 .values = values,
                                 .direction = gradients,
                                 .learning_rate = (double)rates->learning_rate,
                                 .value_squares = squares_of(&run, values, count),
                                 .direction_squares = squares_of(&run, gradients, count)});
}

const rpi_optimizer rpi_optimizer_lamb = {
    .name = "lamb",
    .summary =
        "adamw's direction d, decay in it, as long as its tensor: p -= rate * |p| / |d| * d",
    .usual_rate = 1e-3,
    .slot_count = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .whole_tensors = true,
    .check = check,
    .update = update,
};
