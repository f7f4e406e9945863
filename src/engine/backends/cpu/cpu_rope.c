#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/cpu_op.h"
#include "engine/backends/cpu/kernels/kernel_rope.h"
#include "engine/layers.h"

extern const rpi_op rpi_op_rope;
extern const rpi_cpu_op rpi_cpu_rope;

static int64_t head_size_of(const rpi_unit *unit) {
    const rpi_rope_attributes *rope = unit->nodes[0]->attributes;
    return unit->inputs[0].shape.size[2] / rope->heads;
}

static int64_t rotary_of(const rpi_unit *unit) {
    const rpi_rope_attributes *rope = unit->nodes[0]->attributes;
    return rope->rotary ? rope->rotary : head_size_of(unit);
}

/* Elements of each table. */
static int64_t table_size(const rpi_unit *unit) {
    return unit->inputs[0].shape.size[1] * (rotary_of(unit) / 2);
}

/* Cosines, then sines. */
static rp_status prepare(const rpi_unit *unit, void **out_prepared) {
    const rpi_rope_attributes *rope = unit->nodes[0]->attributes;
    int64_t size = table_size(unit);
    float *tables = NULL;
    RP_TRY(rpi_alloc_array(2 * (size_t)size, sizeof *tables, "angles", &tables));
    rpi_kernel_rope_tables(rope->base, unit->inputs[0].shape.size[1], rotary_of(unit), tables,
                           tables + size);
    *out_prepared = tables;
    return RP_OK;
}

static void rotate(const rpi_cpu_kernel *kernel, const void *x, void *y, bool inverse) {
    const rpi_rope_attributes *rope = kernel->unit.nodes[0]->attributes;
    const int64_t *size = kernel->unit.inputs[0].shape.size;
    const float *tables = kernel->prepared;
    rpi_kernel_heads heads = {.batch = size[1] * size[2],
                              .token = size[2],
                              .head = head_size_of(&kernel->unit),
                              .dtype = RP_F32};
    rpi_kernel_rope it = {.batch = size[0],
                          .length = size[1],
                          .heads = rope->heads,
                          .head_size = heads.head,
                          .rotary = rotary_of(&kernel->unit),
                          .cosines = tables,
                          .sines = tables + table_size(&kernel->unit),
                          .inverse = inverse,
                          .pairs = rope->pairs,
                          .x = heads,
                          .y = heads};
    it.x.data = (void *)x;
    it.y.data = y;
    rpi_kernel_rope_apply(&kernel->run, &it);
}

static rp_status forward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rotate(kernel, io->inputs[0], io->outputs[0], false);
    return RP_OK;
}

static rp_status backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rotate(kernel, io->grad_outputs[0], io->grad_inputs[0], true);
    return RP_OK;
}

const rpi_cpu_op rpi_cpu_rope = {
    .op = &rpi_op_rope, .forward = forward, .backward = backward, .prepare = prepare};
