/* The reference backend: plain loops over row-major elements, sums in double. It is the
 * definition of what each op computes; other backends are compared with it. Ops that have
 * kernels of our own (backends/cpu) are defined there, by the plain form of the kernel. */
#ifndef RPI_ENGINE_REF_H
#define RPI_ENGINE_REF_H

#include "engine/backend.h"

/* One op's kernels: a row of reference.c. The unit is one node of this op. */
typedef struct rpi_ref_op {
    const rpi_op *op;
    rp_status (*forward)(const rpi_unit *unit, const rpi_kernel_io *io);
    rp_status (*backward)(const rpi_unit *unit, const rpi_kernel_io *io); /* NULL: unneeded */
    bool accumulates; /* all gradients go through rpi_ref_store */
    bool at_once;     /* all gradients in one call: the same sums serve them */
    bool is_product;  /* of inputs 0 and 1; input 2 is a bias: see rpi_unit.compute */
    size_t (*workspace_bytes)(const rpi_unit *unit); /* of either; NULL: none */
} rpi_ref_op;

/* ref_bf16.c: the kernel of a product whose inputs are rounded to bf16 before. */
rp_status rpi_ref_bf16_plan(const rpi_ref_op *op, const rpi_unit *unit, rpi_kernel *kernel);

/* Write one element of a gradient, or add to it where gradients accumulate. */
static inline void rpi_ref_store(const rpi_kernel_io *io, int input, int64_t index,
                                 double sum) {
    float *gradient = io->grad_inputs[input];
    if (io->accumulate >> input & 1u) sum += (double)gradient[index];
    gradient[index] = (float)sum;
}

#endif
