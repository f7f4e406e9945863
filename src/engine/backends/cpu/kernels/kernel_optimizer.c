#include "engine/backends/cpu/kernels/kernel_optimizer.h"

#include <math.h>

static void put(float *values, uint16_t *copy, int64_t i, float value) {
    values[i] = value;
    if (copy) copy[i] = rpi_f32_to_bf16(value);
}

void rpi_sgd_step_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_sgd *it = args;
    for (int64_t i = begin; i < end; i++) {
        float p = it->values[i];
        float g = it->gradient_scale * it->gradients[i] + it->weight_decay * p;
        if (it->momentum != 0) {
            float m = it->momentum * it->momentum_buffer[i] + g;
            it->momentum_buffer[i] = m;
            g = it->nesterov ? g + it->momentum * m : m;
        }
        put(it->values, it->copy, i, p - it->learning_rate * g);
    }
}

/* The moments of element i; *out_first, *out_second are the new ones. */
static void update_moments(const rpi_adam_call *call, int64_t i, float *out_first,
                           float *out_second) {
    const rpi_kernel_adam *it = call->it;
    const rpi_adam_factors *f = &call->factors;
    float g = it->gradient_scale * it->gradients[i];
    float m = it->first[i] + f->toward1 * (g - it->first[i]);
    float v = f->beta2 * it->second[i] + f->toward2 * g * g;
    it->first[i] = *out_first = m;
    it->second[i] = *out_second = v;
}

void rpi_adamw_step_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_adam_call *call = args;
    const rpi_adam_factors *f = &call->factors;
    for (int64_t i = begin; i < end; i++) {
        float m, v;
        update_moments(call, i, &m, &v);
        float p = f->decay * call->it->values[i];
        put(call->it->values, call->it->copy, i,
            p - f->rate * m / (sqrtf(v) / f->root + f->epsilon));
    }
}

void rpi_lamb_direction_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_adam_call *call = args;
    const rpi_adam_factors *f = &call->factors;
    for (int64_t i = begin; i < end; i++) {
        float m, v;
        update_moments(call, i, &m, &v);
        call->it->direction[i] =
            f->rate * m / (sqrtf(v) / f->root + f->epsilon) + f->decay * call->it->values[i];
    }
}

void rpi_lamb_step_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_lamb_call *call = args;
    const rpi_kernel_lamb *it = call->it;
    for (int64_t i = begin; i < end; i++)
        put(it->values, it->copy, i, it->values[i] - call->rate * it->direction[i]);
}

/* ---- calls ---- */

void rpi_kernel_sgd_step(const rpi_kernel_run *run, const rpi_kernel_sgd *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(sgd_step);
    rpi_kernel_parallel(run, it->count, RPI_KERNEL_PIECE, bodies, it);
}

/* By squaring: the same products on every machine. */
static double power(double base, uint64_t exponent) {
    double result = 1;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

static rpi_adam_factors factors_of(const rpi_kernel_adam *it) {
    return (rpi_adam_factors){.toward1 = (float)(1 - it->beta1),
                              .beta2 = (float)it->beta2,
                              .toward2 = (float)(1 - it->beta2),
                              .root = (float)sqrt(1 - power(it->beta2, it->step)),
                              .epsilon = (float)it->epsilon};
}

void rpi_kernel_adamw_step(const rpi_kernel_run *run, const rpi_kernel_adam *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(adamw_step);
    rpi_adam_call call = {it, factors_of(it)};
    call.factors.decay = (float)(1 - it->learning_rate * it->weight_decay);
    call.factors.rate = (float)(it->learning_rate / (1 - power(it->beta1, it->step)));
    rpi_kernel_parallel(run, it->count, RPI_KERNEL_PIECE, bodies, &call);
}

void rpi_kernel_lamb_direction(const rpi_kernel_run *run, const rpi_kernel_adam *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(lamb_direction);
    rpi_adam_call call = {it, factors_of(it)};
    call.factors.decay = (float)it->weight_decay;
    call.factors.rate = (float)(1 / (1 - power(it->beta1, it->step)));
    rpi_kernel_parallel(run, it->count, RPI_KERNEL_PIECE, bodies, &call);
}

void rpi_kernel_lamb_step(const rpi_kernel_run *run, const rpi_kernel_lamb *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(lamb_step);
    double trust = 1;
    if (it->value_squares > 0 && it->direction_squares > 0)
        trust = sqrt(it->value_squares / it->direction_squares);
    rpi_lamb_call call = {it, (float)(it->learning_rate * trust)};
    rpi_kernel_parallel(run, it->count, RPI_KERNEL_PIECE, bodies, &call);
}
