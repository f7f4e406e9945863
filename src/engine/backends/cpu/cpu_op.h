/* Ops that our own kernels (kernels/) run: cpu_ops.c is the catalogue.
 *
 * One file says how a unit of one node is put to the kernels, and both backends use it: the
 * reference with the plain definitions (RPI_ISA_SCALAR, one thread), the fast one with the
 * vector forms. All values lie row-major. */
#ifndef RPI_ENGINE_CPU_OP_H
#define RPI_ENGINE_CPU_OP_H

#include "engine/backend.h"
#include "engine/backends/cpu/kernels/kernel.h"
#include "engine/backends/cpu/kernels/kernel_dropout.h"

struct rpi_cpu_op;

typedef struct rpi_cpu_kernel {
    const struct rpi_cpu_op *op;
    rpi_kernel_run run;
    rpi_unit unit;
    void *prepared;
} rpi_cpu_kernel;

typedef struct rpi_cpu_op {
    const rpi_op *op; /* of the engine's catalogue */
    rp_status (*forward)(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io);
    /* Makes the gradients that io->grad_inputs asks for: it serves both halves. */
    rp_status (*backward)(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io);
    /* Optional: workspaces, and what else differs from the op's contract. */
    void (*describe)(const rpi_unit *unit, rpi_kernel *kernel);
    /* Optional: what all runs share, one allocation, freed with the kernel. */
    rp_status (*prepare)(const rpi_unit *unit, void **out_prepared);
} rpi_cpu_op;

/* NULL when there is none for this op. */
const rpi_cpu_op *rpi_cpu_op_of(const rpi_op *op);

/* As rpi_backend.plan, for a unit of one node of this op. */
rp_status rpi_cpu_op_plan(const rpi_cpu_op *op, rpi_kernel_run run, const rpi_unit *unit,
                          rpi_kernel *kernel);

/* "tokens[3][17]": an element of a value, for messages. Returns text. */
const char *rpi_cpu_element_text(const rpi_unit_value *value, int64_t index, char *text,
                                 size_t bytes);

/* Row-major elements as a matrix whose rows are the last axis. */
static inline rpi_kernel_rows rpi_cpu_rows(const void *data, const rpi_shape *shape) {
    return rpi_kernel_f32(data, rpi_op_width(shape));
}

static inline int64_t rpi_cpu_row_count(const rpi_shape *shape) {
    return rpi_shape_count(shape) / rpi_op_width(shape);
}

/* The mask of dropout by the unit's first node in this run; drawn anew, the same, backward.
 * Without an effect in evaluation: probability 0. */
rpi_dropout_mask rpi_cpu_mask(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io,
                              float probability);

/* Which of the whole batch's samples an input begins with; 0: it is the same for all samples.
 */
static inline int64_t rpi_cpu_first_sample(const rpi_cpu_kernel *kernel,
                                           const rpi_kernel_io *io, int input) {
    return kernel->unit.inputs[input].has_samples ? io->first_sample : 0;
}

static inline bool rpi_cpu_accumulates(const rpi_kernel_io *io, int input) {
    return io->accumulate >> input & 1u;
}

#endif
