#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/cpu_op.h"
#include "engine/backends/cpu/kernels/kernel_activation.h"
#include "engine/backends/cpu/kernels/kernel_embedding.h"
#include "engine/layers.h"

#include <string.h>

extern const rpi_op rpi_op_embedding, rpi_op_position_embedding;
extern const rpi_cpu_op rpi_cpu_embedding, rpi_cpu_position_embedding;

/* ---- rows of a table by token ---- */

enum { TOKENS, TABLE, POSITION };

static rpi_kernel_embedding describe_call(const rpi_unit *unit, const rpi_kernel_io *io) {
    const rpi_embedding_attributes *part = unit->nodes[0]->attributes;
    const int64_t *table = unit->inputs[TABLE].shape.size;
    return (rpi_kernel_embedding){.tokens = rpi_shape_count(&unit->inputs[TOKENS].shape),
                                  .cols = table[1],
                                  .vocabulary = table[0],
                                  .first = part->first,
                                  .whole = part->whole,
                                  .ids = io->inputs[TOKENS],
                                  .scale = 1};
}

static rp_status embed(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_embedding it = describe_call(&kernel->unit, io);
    char text[128];
    it.table = rpi_kernel_f32(io->inputs[TABLE], it.cols);
    it.out = rpi_kernel_f32(io->outputs[0], it.cols);
    int64_t bad = rpi_kernel_embedding_forward(&kernel->run, &it);
    if (bad < 0) return RP_OK;
    return RP_FAIL(
        INVALID, "token %d at %s; the table '%s' has tokens 0 to %lld", (int)it.ids[bad],
        rpi_cpu_element_text(&kernel->unit.inputs[TOKENS], bad, text, sizeof text),
        kernel->unit.inputs[TABLE].name, (long long)(it.whole ? it.whole : it.vocabulary) - 1);
}

static size_t touched_bytes(int64_t tokens) {
    return rpi_align_up((size_t)tokens * sizeof(int32_t));
}

/* The gradient is dense; only the rows of tokens that occur are added to. */
static rp_status embed_backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_embedding it = describe_call(&kernel->unit, io);
    int64_t touched = 0;
    it.dout = rpi_kernel_f32(io->grad_outputs[0], it.cols);
    it.dense = true;
    it.sums = io->grad_inputs[TABLE];
    it.touched = io->workspace;
    it.scratch = (uint64_t *)((char *)io->workspace + touched_bytes(it.tokens));
    if (!rpi_cpu_accumulates(io, TABLE))
        memset(it.sums, 0, (size_t)(it.vocabulary * it.cols) * sizeof *it.sums);
    rpi_kernel_embedding_backward(&kernel->run, &it, &touched);
    return RP_OK;
}

static void describe_embed(const rpi_unit *unit, rpi_kernel *kernel) {
    int64_t tokens = rpi_shape_count(&unit->inputs[TOKENS].shape);
    kernel->backward_workspace = touched_bytes(tokens) + 2 * (size_t)tokens * sizeof(uint64_t);
}

const rpi_cpu_op rpi_cpu_embedding = {.op = &rpi_op_embedding,
                                      .forward = embed,
                                      .backward = embed_backward,
                                      .describe = describe_embed};

/* ---- positions: rows of the table, as one long row, to each sequence ---- */

typedef struct positions {
    int64_t sequences, elements; /* of a sequence */
} positions;

static positions positions_of(const rpi_unit *unit) {
    const rpi_shape *shape = &unit->outputs[0].shape;
    int64_t elements = shape->size[shape->dims - 2] * rpi_op_width(shape);
    return (positions){rpi_shape_count(shape) / elements, elements};
}

/* The first element of the table that is read; of tokens that are pieces of a sequence, where
 * that begins. */
static rp_status find_first(const rpi_unit *unit, const rpi_kernel_io *io, positions p,
                            int64_t *out_first) {
    const rpi_position_attributes *embedding = unit->nodes[0]->attributes;
    const rpi_shape *table = &unit->inputs[TABLE].shape;
    int64_t width = rpi_op_width(table);
    int64_t length = rpi_token_whole(&embedding->pieces, p.elements / width);
    int64_t rows = rpi_shape_count(table) / width;
    int64_t at = unit->input_count > POSITION ? *(const int32_t *)io->inputs[POSITION] : 0;
    if (at < 0 || at + length > rows)
        return RP_FAIL(INVALID, "%lld tokens at position %lld; the table '%s' has %lld",
                       (long long)length, (long long)at, unit->inputs[TABLE].name,
                       (long long)rows);
    *out_first = at * width;
    return RP_OK;
}

/* The index-th run of tokens that follow each other, in elements of a sequence and the table.
 */
static rpi_token_run run_at(const rpi_unit *unit, positions p, int index) {
    const rpi_position_attributes *embedding = unit->nodes[0]->attributes;
    int64_t width = rpi_op_width(&unit->inputs[TABLE].shape);
    rpi_token_run run = rpi_token_run_at(&embedding->pieces, p.elements / width, index);
    return (rpi_token_run){run.first * width, run.count * width, run.place * width};
}

static int runs_of(const rpi_unit *unit) {
    const rpi_position_attributes *embedding = unit->nodes[0]->attributes;
    return rpi_token_runs(&embedding->pieces);
}

static void copy_padding(const rpi_unit *unit, positions p, const float *x, float *y) {
    const rpi_position_attributes *embedding = unit->nodes[0]->attributes;
    int64_t length = unit->outputs[0].shape.size[unit->outputs[0].shape.dims - 2];
    if (!rpi_token_is_padded(&embedding->pieces, length) || x == y) return;
    memcpy(y, x, (size_t)(p.sequences * p.elements) * sizeof *y);
}

static rp_status add_positions(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    positions p = positions_of(&kernel->unit);
    const float *x = io->inputs[0], *table = io->inputs[TABLE];
    float *y = io->outputs[0];
    int64_t first = 0;
    RP_TRY(find_first(&kernel->unit, io, p, &first));
    copy_padding(&kernel->unit, p, x, y);
    for (int i = 0; i < runs_of(&kernel->unit); i++) {
        rpi_token_run run = run_at(&kernel->unit, p, i);
        if (!run.count) continue;
        rpi_kernel_add_bias(&kernel->run,
                            &(rpi_kernel_add){.rows = p.sequences,
                                              .cols = run.count,
                                              .a = rpi_kernel_f32(x + run.first, p.elements),
                                              .bias = table + first + run.place,
                                              .y = rpi_kernel_f32(y + run.first, p.elements)});
    }
    return RP_OK;
}

/* What no token reaches is zero: in front of each run, and behind the last. */
static void sum_runs(const rpi_cpu_kernel *kernel, positions p, int64_t first,
                     const float *gradients, bool accumulate, float *sums) {
    int64_t all = rpi_shape_count(&kernel->unit.inputs[TABLE].shape), end = 0;
    for (int i = 0; i < runs_of(&kernel->unit); i++) {
        rpi_token_run run = run_at(&kernel->unit, p, i);
        int64_t at = first + run.place;
        if (!run.count) continue;
        if (!accumulate) memset(sums + end, 0, (size_t)(at - end) * sizeof *sums);
        rpi_kernel_column_sums(
            &kernel->run,
            &(rpi_kernel_sums){.rows = p.sequences,
                               .cols = run.count,
                               .x = rpi_kernel_f32(gradients + run.first, p.elements),
                               .sums = sums + at,
                               .accumulate = accumulate});
        end = at + run.count;
    }
    if (!accumulate) memset(sums + end, 0, (size_t)(all - end) * sizeof *sums);
}

static rp_status position_gradient(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    positions p = positions_of(&kernel->unit);
    float *sums = io->grad_inputs[TABLE];
    int64_t first = 0;
    RP_TRY(find_first(&kernel->unit, io, p, &first));
    if (io->grad_inputs[0])
        memcpy(io->grad_inputs[0], io->grad_outputs[0],
               (size_t)(p.sequences * p.elements) * sizeof *sums);
    if (sums)
        sum_runs(kernel, p, first, io->grad_outputs[0], rpi_cpu_accumulates(io, TABLE), sums);
    return RP_OK;
}

static void describe_positions(const rpi_unit *unit, rpi_kernel *kernel) {
    (void)unit;
    kernel->gradient_from[0] = RPI_GRADIENT_OF_OUTPUT;
}

const rpi_cpu_op rpi_cpu_position_embedding = {.op = &rpi_op_position_embedding,
                                               .forward = add_positions,
                                               .backward = position_gradient,
                                               .describe = describe_positions};
