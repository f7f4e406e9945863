#include "engine/backends/cpu/kernels/kernel_optimizer.h"

#include "engine/backends/cpu/kernels/simd.h"

SIMD void put(float *values, uint16_t *copy, int64_t i, vf value, int64_t live) {
    vf_store_n(values + i, value, live);
    if (copy) vf_store_bf16_n(copy + i, value, live);
}

RPI_SIMD_BODY(sgd_step)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_sgd *it = args;
    const vf momentum = vf_set(it->momentum);
    EACH_VECTOR(k, live, end - begin) {
        int64_t i = begin + k;
        vf p = vf_load_n(it->values + i, live);
        vf g = vf_mul(vf_set(it->gradient_scale), vf_load_n(it->gradients + i, live));
        g = vf_add(g, vf_mul(vf_set(it->weight_decay), p));
        if (it->momentum != 0) {
            vf m = vf_add(vf_mul(momentum, vf_load_n(it->momentum_buffer + i, live)), g);
            vf_store_n(it->momentum_buffer + i, m, live);
            g = it->nesterov ? vf_add(g, vf_mul(momentum, m)) : m;
        }
        put(it->values, it->copy, i, vf_sub(p, vf_mul(vf_set(it->learning_rate), g)), live);
    }
}

/* rate m / (sqrt v / root + epsilon), with the moments brought up to date. */
SIMD vf step_of(const rpi_adam_call *call, int64_t i, int64_t live) {
    const rpi_kernel_adam *it = call->it;
    const rpi_adam_factors *f = &call->factors;
    vf g = vf_mul(vf_set(it->gradient_scale), vf_load_n(it->gradients + i, live));
    vf m = vf_load_n(it->first + i, live);
    m = vf_add(m, vf_mul(vf_set(f->toward1), vf_sub(g, m)));
    vf v = vf_mul(vf_set(f->beta2), vf_load_n(it->second + i, live));
    v = vf_add(v, vf_mul(vf_mul(vf_set(f->toward2), g), g));
    vf_store_n(it->first + i, m, live);
    vf_store_n(it->second + i, v, live);
    vf size = vf_add(vf_div(vf_sqrt(v), vf_set(f->root)), vf_set(f->epsilon));
    return vf_div(vf_mul(vf_set(f->rate), m), size);
}

RPI_SIMD_BODY(adamw_step)(const void *args, int64_t begin, int64_t end) {
    const rpi_adam_call *call = args;
    EACH_VECTOR(k, live, end - begin) {
        int64_t i = begin + k;
        vf step = step_of(call, i, live);
        vf p = vf_mul(vf_set(call->factors.decay), vf_load_n(call->it->values + i, live));
        put(call->it->values, call->it->copy, i, vf_sub(p, step), live);
    }
}

RPI_SIMD_BODY(lamb_direction)(const void *args, int64_t begin, int64_t end) {
    const rpi_adam_call *call = args;
    EACH_VECTOR(k, live, end - begin) {
        int64_t i = begin + k;
        vf step = step_of(call, i, live);
        vf decay = vf_mul(vf_set(call->factors.decay), vf_load_n(call->it->values + i, live));
        vf_store_n(call->it->direction + i, vf_add(step, decay), live);
    }
}

RPI_SIMD_BODY(lamb_step)(const void *args, int64_t begin, int64_t end) {
    const rpi_lamb_call *call = args;
    const rpi_kernel_lamb *it = call->it;
    EACH_VECTOR(k, live, end - begin) {
        int64_t i = begin + k;
        vf step = vf_mul(vf_set(call->rate), vf_load_n(it->direction + i, live));
        put(it->values, it->copy, i, vf_sub(vf_load_n(it->values + i, live), step), live);
    }
}
