/* Optimizer steps over ranges of a parameter arena.
 *
 * All arrays [count] f32, side by side; any cut of a tensor into ranges gives the same bits,
 * and so does every instruction set and any number of threads: replicas on different machines
 * stay equal. Therefore no multiply is fused with an add, division and root are true ones, and
 * there is no definition in double: the scalar form is the arithmetic that is promised. g
 * stands for gradient_scale gradients[i]: the clipping factor is applied on the fly.
 *
 *   SGD      g += decay p; m = momentum m + g; p -= rate m (Nesterov: rate (g + momentum m))
 *   AdamW    p *= 1 - rate decay; m += (1 - beta1) (g - m); v = beta2 v + (1 - beta2) g g;
 *            p -= rate / (1 - beta1^t) m / (sqrt v / sqrt(1 - beta2^t) + epsilon)
 *   LAMB     m, v as AdamW; d = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay
 * p; p -= rate trust d, trust = |p| / |d| over the whole tensor, 1 where either is 0
 *
 * Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR 2019. You et al., "Large
 * batch optimization for deep learning", ICLR 2020. SGD and AdamW as in PyTorch. */
#ifndef RPI_ENGINE_KERNEL_OPTIMIZER_H
#define RPI_ENGINE_KERNEL_OPTIMIZER_H

#include "engine/backends/cpu/kernels/kernel.h"

typedef struct rpi_kernel_sgd {
    int64_t count;
    float *values;
    const float *gradients;
    float gradient_scale;
    float *momentum_buffer; /* NULL where momentum is 0; zeros before the first step */
    float learning_rate, momentum, weight_decay;
    bool nesterov;
    uint16_t *copy; /* the new values in bf16; NULL: not wanted */
} rpi_kernel_sgd;

void rpi_kernel_sgd_step(const rpi_kernel_run *run, const rpi_kernel_sgd *it);

typedef struct rpi_kernel_adam {
    int64_t count;
    float *values;
    const float *gradients;
    float gradient_scale;
    float *first, *second; /* moments; zeros before step 1 */
    double learning_rate, beta1, beta2, epsilon, weight_decay;
    uint64_t step;    /* 1 for the first */
    uint16_t *copy;   /* the new values in bf16; NULL: not wanted */
    float *direction; /* LAMB: d, out; may be gradients */
} rpi_kernel_adam;

void rpi_kernel_adamw_step(const rpi_kernel_run *run, const rpi_kernel_adam *it);
/* LAMB's first half: m, v and d; values are read. */
void rpi_kernel_lamb_direction(const rpi_kernel_run *run, const rpi_kernel_adam *it);

/* LAMB's second half, with |p|^2 and |d|^2 of the whole tensor (kernel_square_sum.h). */
typedef struct rpi_kernel_lamb {
    int64_t count;
    float *values;
    const float *direction;
    double learning_rate, value_squares, direction_squares;
    uint16_t *copy;
} rpi_kernel_lamb;

void rpi_kernel_lamb_step(const rpi_kernel_run *run, const rpi_kernel_lamb *it);

/* ---- inside ---- */

/* What all elements share, computed in double without libm's pow, which may differ by machine.
 */
typedef struct rpi_adam_factors {
    float decay;   /* AdamW: 1 - rate decay; LAMB: decay */
    float rate;    /* AdamW: rate / (1 - beta1^t); LAMB: 1 / (1 - beta1^t) */
    float toward1; /* 1 - beta1 */
    float beta2, toward2;
    float root; /* sqrt(1 - beta2^t) */
    float epsilon;
} rpi_adam_factors;

typedef struct rpi_adam_call {
    const rpi_kernel_adam *it;
    rpi_adam_factors factors;
} rpi_adam_call;

typedef struct rpi_lamb_call {
    const rpi_kernel_lamb *it;
    float rate; /* times trust */
} rpi_lamb_call;

RPI_KERNEL_DECLARE(sgd_step);
RPI_KERNEL_DECLARE(adamw_step);
RPI_KERNEL_DECLARE(lamb_direction);
RPI_KERNEL_DECLARE(lamb_step);

#endif
