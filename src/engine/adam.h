/* What optimizers with Adam's running means of g and g^2 share (adamw.c, lamb.c). */
#ifndef RPI_ENGINE_ADAM_H
#define RPI_ENGINE_ADAM_H

#include "engine/backends/cpu/kernels/kernel_optimizer.h"
#include "engine/optimizer.h"

/* The kernels' form of an update's arguments; the means are slots 0 and 1. */
static inline rpi_kernel_adam rpi_adam_step(const rpi_optimizer_rates *rates, uint64_t step,
                                            int64_t count, float *values,
                                            const float *gradients, float *const *slots) {
    return (rpi_kernel_adam){.count = count,
                             .values = values,
                             .gradients = gradients,
                             .gradient_scale = rpi_optimizer_gradient_scale(rates),
                             .first = slots[0],
                             .second = slots[1],
                             .learning_rate = (double)rates->learning_rate,
                             .beta1 = rates->beta1,
                             .beta2 = rates->beta2,
                             .epsilon = rates->epsilon,
                             .weight_decay = (double)rates->weight_decay,
                             .step = step + 1};
}

#endif
