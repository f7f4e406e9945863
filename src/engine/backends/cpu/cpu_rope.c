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

static bool has_position(const rpi_unit *unit) {
    return unit->input_count > 1;
}

static size_t tables_bytes(const rpi_unit *unit) {
    return 2 * (size_t)table_size(unit) * sizeof(float);
}

/* Cosines, then sines, of the tokens' positions. */
static void make_tables(const rpi_unit *unit, int64_t first, float *tables) {
    const rpi_rope_attributes *rope = unit->nodes[0]->attributes;
    int64_t half = rotary_of(unit) / 2, length = unit->inputs[0].shape.size[1];
    for (int i = 0; i < rpi_token_runs(&rope->pieces); i++) {
        rpi_token_run run = rpi_token_run_at(&rope->pieces, length, i);
        float *cosines = tables + run.first * half;
        rpi_kernel_rope_tables(rope->base, &rope->stretch, first + run.place, run.count,
                               2 * half, cosines, cosines + table_size(unit));
    }
}

/* Once, unless each run says where it begins. */
static rp_status prepare(const rpi_unit *unit, void **out_prepared) {
    if (has_position(unit)) return RP_OK;
    float *tables = NULL;
    RP_TRY(rpi_alloc(tables_bytes(unit), "angles", &tables));
    make_tables(unit, 0, tables);
    *out_prepared = tables;
    return RP_OK;
}

static rp_status find_tables(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io,
                             const float **out_tables) {
    *out_tables = kernel->prepared;
    if (!has_position(&kernel->unit)) return RP_OK;
    int64_t position = *(const int32_t *)io->inputs[1];
    if (position < 0)
        return RP_FAIL(INVALID, "position is %lld; 0 or more", (long long)position);
    make_tables(&kernel->unit, position, io->workspace);
    *out_tables = io->workspace;
    return RP_OK;
}

static rp_status rotate(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io, const void *x,
                        void *y, bool inverse) {
    const rpi_rope_attributes *rope = kernel->unit.nodes[0]->attributes;
    const int64_t *size = kernel->unit.inputs[0].shape.size;
    const float *tables = NULL;
    RP_TRY(find_tables(kernel, io, &tables));
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
    return RP_OK;
}

static rp_status forward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    return rotate(kernel, io, io->inputs[0], io->outputs[0], false);
}

static rp_status backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    return rotate(kernel, io, io->grad_outputs[0], io->grad_inputs[0], true);
}

static void describe(const rpi_unit *unit, rpi_kernel *kernel) {
    if (!has_position(unit)) return;
    kernel->forward_workspace = kernel->backward_workspace = tables_bytes(unit);
}

const rpi_cpu_op rpi_cpu_rope = {.op = &rpi_op_rope,
                                 .forward = forward,
                                 .backward = backward,
                                 .describe = describe,
                                 .prepare = prepare};
