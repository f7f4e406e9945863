#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/cpu_op.h"
#include "engine/backends/cpu/kernels/kernel_attention.h"
#include "engine/backends/cpu/kernels/kernel_rope.h"
#include "engine/layers.h"

#include <math.h>
#include <string.h>

extern const rpi_op rpi_op_concat_tokens, rpi_op_sinusoids, rpi_op_relative_attention;
extern const rpi_cpu_op rpi_cpu_concat_tokens, rpi_cpu_sinusoids, rpi_cpu_relative_attention;

/* ---- concat_tokens ---- */

/* Copy `count` tokens of each sequence between places `length` tokens apart. */
static void copy_tokens(const float *from, int64_t from_length, float *to, int64_t to_length,
                        int64_t batch, int64_t count, int64_t width) {
    for (int64_t b = 0; b < batch; b++)
        memcpy(to + b * to_length * width, from + b * from_length * width,
               (size_t)(count * width) * sizeof *to);
}

/* Lengths that the graph could only name are known here. */
static rp_status check_concat(const rpi_unit *unit, void **out_prepared) {
    int64_t memory = unit->inputs[0].shape.size[1], tokens = unit->inputs[1].shape.size[1];
    int64_t length = unit->outputs[0].shape.size[1];
    *out_prepared = NULL;
    if (length == memory + tokens) return RP_OK;
    return RP_FAIL(INVALID, "%lld tokens behind a memory of %lld are not %lld",
                   (long long)tokens, (long long)memory, (long long)length);
}

static rp_status concat(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    const int64_t *size = kernel->unit.outputs[0].shape.size;
    int64_t memory = kernel->unit.inputs[0].shape.size[1], tokens = size[1] - memory;
    float *to = io->outputs[0];
    copy_tokens(io->inputs[0], memory, to, size[1], size[0], memory, size[2]);
    copy_tokens(io->inputs[1], tokens, to + memory * size[2], size[1], size[0], tokens,
                size[2]);
    return RP_OK;
}

static rp_status concat_backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    const int64_t *size = kernel->unit.outputs[0].shape.size;
    int64_t memory = kernel->unit.inputs[0].shape.size[1], tokens = size[1] - memory;
    const float *from = io->grad_outputs[0];
    if (io->grad_inputs[0])
        copy_tokens(from, size[1], io->grad_inputs[0], memory, size[0], memory, size[2]);
    if (io->grad_inputs[1])
        copy_tokens(from + memory * size[2], size[1], io->grad_inputs[1], tokens, size[0],
                    tokens, size[2]);
    return RP_OK;
}

const rpi_cpu_op rpi_cpu_concat_tokens = {.op = &rpi_op_concat_tokens,
                                          .forward = concat,
                                          .backward = concat_backward,
                                          .prepare = check_concat};

/* ---- sinusoids ---- */

/* Rows follow from shapes alone: made once. */
static rp_status make_sinusoids(const rpi_unit *unit, void **out_prepared) {
    const rpi_sinusoids_attributes *sinusoids = unit->nodes[0]->attributes;
    int64_t rows = unit->outputs[0].shape.size[0], width = unit->outputs[0].shape.size[1];
    int64_t half = width / 2;
    float *y = NULL;
    RP_TRY(rpi_alloc_array((size_t)(2 * rows * width), sizeof *y, "sinusoids", &y));
    float *cosines = y + rows * width, *sines = cosines + rows * half;
    rpi_kernel_rope_tables(10000, NULL, 0, rows, width, cosines, sines);
    for (int64_t row = 0; row < rows; row++) {
        int64_t d = sinusoids->clamp && row > sinusoids->clamp ? sinusoids->clamp : row;
        memcpy(y + row * width, sines + d * half, (size_t)half * sizeof *y);
        memcpy(y + row * width + half, cosines + d * half, (size_t)half * sizeof *y);
    }
    *out_prepared = y;
    return RP_OK;
}

static rp_status copy_sinusoids(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    size_t count = (size_t)rpi_shape_count(&kernel->unit.outputs[0].shape);
    memcpy(io->outputs[0], kernel->prepared, count * sizeof(float));
    return RP_OK;
}

const rpi_cpu_op rpi_cpu_sinusoids = {
    .op = &rpi_op_sinusoids, .forward = copy_sinusoids, .prepare = make_sinusoids};

/* ---- relative_attention ---- */

enum { TOKENS, DISTANCES, CONTENT_BIAS, POSITION_BIAS, REMEMBERED };

/* The kernel's call and what it points to. */
typedef struct call {
    rpi_kernel_attention it;
    rpi_kernel_relative relative;
    int64_t width; /* of all heads of a token */
} call;

/* Part 0, 1 or 2 of each token (queries, keys, values) from token `first` on. */
static rpi_kernel_heads part_of(const call *c, const void *data, int64_t first, int part) {
    int64_t token = 3 * c->width;
    return (rpi_kernel_heads){.data = (float *)data + first * token + part * c->width,
                              .batch = c->it.k_length * token,
                              .token = token,
                              .head = c->it.head_size,
                              .dtype = RP_F32};
}

static rpi_kernel_heads output_of(const call *c, const void *data) {
    return (rpi_kernel_heads){(void *)data, c->it.q_length * c->width, c->width,
                              c->it.head_size, RP_F32};
}

static void describe_sizes(const rpi_unit *unit, call *c) {
    const rpi_relative_attention_attributes *attention = unit->nodes[0]->attributes;
    const int64_t *output = unit->outputs[0].shape.size;
    int64_t head = output[2] / attention->heads, keys = unit->inputs[TOKENS].shape.size[1];
    *c =
        (call){.width = output[2],
               .it = {.batch = output[0],
                      .heads = attention->heads,
                      .kv_heads = attention->heads,
                      .q_length = output[1],
                      .k_length = keys,
                      .head_size = head,
                      .q_offset = keys - output[1],
                      .scale = attention->scale > 0 ? attention->scale : 1 / sqrtf((float)head),
                      .causal = true,
                      .window = attention->window}};
    c->it.relative = &c->relative;
}

static size_t packed_bytes(const call *c) {
    return rpi_align_up(sizeof(float) * (size_t)rpi_kernel_attention_packed(&c->it));
}

static size_t scratch_bytes(const call *c) {
    return rpi_align_up(sizeof(float) * (size_t)rpi_kernel_attention_scratch(&c->it));
}

static size_t bias_bytes(const call *c) {
    return rpi_align_up(sizeof(float) * (size_t)c->width);
}

static size_t token_bytes(const rpi_unit *unit) {
    return rpi_align_up(sizeof(float) * (size_t)rpi_shape_count(&unit->inputs[TOKENS].shape));
}

static rp_status describe_call(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io, call *c) {
    const rpi_unit *unit = &kernel->unit;
    describe_sizes(unit, c);
    int64_t memory = c->it.q_offset;
    if (memory < 0)
        return RP_FAIL(INVALID, "%lld queries among %lld tokens; they are the last of them",
                       (long long)c->it.q_length, (long long)c->it.k_length);
    if (unit->input_count > REMEMBERED) {
        int64_t remembered = *(const int32_t *)io->inputs[REMEMBERED];
        if (remembered < 0 || remembered > memory)
            return RP_FAIL(INVALID, "%lld tokens are remembered; the memory has room for %lld",
                           (long long)remembered, (long long)memory);
        c->it.first_key = memory - remembered;
    }
    c->it.q = part_of(c, io->inputs[TOKENS], memory, 0);
    c->it.k = part_of(c, io->inputs[TOKENS], 0, 1);
    c->it.v = part_of(c, io->inputs[TOKENS], 0, 2);
    c->it.out = output_of(c, io->outputs[0]);
    c->it.lse = io->saved;
    const rpi_relative_attention_attributes *attention = unit->nodes[0]->attributes;
    c->it.dropout = rpi_cpu_mask(kernel, io, attention->dropout);
    c->it.first_batch = rpi_cpu_first_sample(kernel, io, TOKENS);
    c->relative = (rpi_kernel_relative){.r = io->inputs[DISTANCES],
                                        .u = io->inputs[CONTENT_BIAS],
                                        .v = io->inputs[POSITION_BIAS],
                                        .packed = io->workspace};
    return RP_OK;
}

static rp_status forward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    call c;
    RP_TRY(describe_call(kernel, io, &c));
    rpi_kernel_attention_forward(&kernel->run, &c.it);
    return RP_OK;
}

/* Tokens of the memory ask nothing. */
static void clear_memory_queries(const call *c, float *gradient) {
    for (int64_t b = 0; b < c->it.batch; b++)
        for (int64_t t = 0; t < c->it.q_offset; t++)
            memset(gradient + (b * c->it.k_length + t) * 3 * c->width, 0,
                   (size_t)c->width * sizeof *gradient);
}

static void add(float *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += from[i];
}

/* The kernel writes; what is added to, or not wanted, goes by the workspace. */
static rp_status backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    call c;
    RP_TRY(describe_call(kernel, io, &c));
    char *free_space = (char *)io->workspace + packed_bytes(&c);
    float *biases[2], *tokens = io->grad_inputs[TOKENS];
    c.it.scratch = (float *)(void *)free_space;
    free_space += scratch_bytes(&c);
    for (int i = 0; i < 2; i++, free_space += bias_bytes(&c))
        biases[i] = rpi_cpu_accumulates(io, CONTENT_BIAS + i)
                        ? (float *)(void *)free_space
                        : io->grad_inputs[CONTENT_BIAS + i];
    if (!tokens) tokens = (float *)(void *)free_space;
    c.relative.dr = io->grad_inputs[DISTANCES];
    c.relative.du = biases[0];
    c.relative.dv = biases[1];
    c.it.dout = output_of(&c, io->grad_outputs[0]);
    c.it.dq = part_of(&c, tokens, c.it.q_offset, 0);
    c.it.dk = part_of(&c, tokens, 0, 1);
    c.it.dv = part_of(&c, tokens, 0, 2);
    clear_memory_queries(&c, tokens);
    rpi_kernel_attention_backward(&kernel->run, &c.it);
    for (int i = 0; i < 2; i++)
        if (rpi_cpu_accumulates(io, CONTENT_BIAS + i))
            add(io->grad_inputs[CONTENT_BIAS + i], biases[i], c.width);
    return RP_OK;
}

static void describe(const rpi_unit *unit, rpi_kernel *kernel) {
    call c;
    describe_sizes(unit, &c);
    kernel->backward_weights = NULL; /* the same sums serve both */
    kernel->forward_workspace = packed_bytes(&c);
    kernel->backward_workspace =
        packed_bytes(&c) + scratch_bytes(&c) + 2 * bias_bytes(&c) + token_bytes(unit);
}

const rpi_cpu_op rpi_cpu_relative_attention = {.op = &rpi_op_relative_attention,
                                               .forward = forward,
                                               .backward = backward,
                                               .describe = describe};
