#include "base/memory.h"
#include "engine/backends/cpu/cpu_op.h"
#include "engine/backends/cpu/kernels/kernel_attention.h"
#include "engine/layers.h"

#include <math.h>

extern const rpi_op rpi_op_attention, rpi_op_self_attention;
extern const rpi_cpu_op rpi_cpu_attention, rpi_cpu_self_attention;

enum { QUERY, KEY, VALUE, PARTS };

/* Where queries, keys and values lie: the input that holds each, and its first element in a
 * token. */
typedef struct layout {
    int64_t batch, heads, kv_heads, head_size, q_length, k_length;
    int input[PARTS], documents;
    int64_t first[PARTS], width[PARTS]; /* width: of a whole token */
} layout;

static layout layout_of(const rpi_unit *unit) {
    const rpi_attention_attributes *attention = unit->nodes[0]->attributes;
    bool packed = unit->nodes[0]->op == &rpi_op_self_attention;
    const int64_t *output = unit->outputs[0].shape.size;
    layout l = {.batch = output[0],
                .heads = attention->heads,
                .kv_heads = attention->kv_heads ? attention->kv_heads : attention->heads,
                .head_size = output[2] / attention->heads,
                .q_length = output[1],
                .documents = packed ? 1 : PARTS};
    for (int i = 0; i < PARTS; i++) {
        l.input[i] = packed ? 0 : i;
        l.width[i] = unit->inputs[l.input[i]].shape.size[2];
    }
    l.k_length = unit->inputs[l.input[KEY]].shape.size[1];
    if (!packed) return l;
    l.first[KEY] = l.heads * l.head_size;
    l.first[VALUE] = l.first[KEY] + l.kv_heads * l.head_size;
    return l;
}

static rpi_kernel_heads heads_in(const layout *l, int part, void *const *inputs) {
    int64_t length = part == QUERY ? l->q_length : l->k_length;
    return (rpi_kernel_heads){.data = (float *)inputs[l->input[part]] + l->first[part],
                              .batch = length * l->width[part],
                              .token = l->width[part],
                              .head = l->head_size,
                              .dtype = RP_F32};
}

/* As the output lies. */
static rpi_kernel_heads heads_of_output(const layout *l, const void *data) {
    int64_t width = l->heads * l->head_size;
    return (rpi_kernel_heads){(void *)data, l->q_length * width, width, l->head_size, RP_F32};
}

/* A document begins where the number changes. */
static void find_starts(const int32_t *documents, int64_t batch, int64_t length,
                        int32_t *starts) {
    for (int64_t b = 0; b < batch; b++, documents += length, starts += length)
        for (int64_t t = 0; t < length; t++)
            starts[t] = t > 0 && documents[t] == documents[t - 1] ? starts[t - 1] : (int32_t)t;
}

/* The workspace: starts of documents; backward: the kernel's scratch, and gradients that are
 * not wanted. */
static size_t starts_bytes(const layout *l, const rpi_unit *unit) {
    bool has_documents = unit->input_count > l->documents;
    return has_documents ? rpi_align_up(sizeof(int32_t) * (size_t)(l->batch * l->k_length)) : 0;
}

static rpi_kernel_attention describe_call(const rpi_cpu_kernel *kernel, const layout *l,
                                          const rpi_kernel_io *io) {
    const rpi_attention_attributes *attention = kernel->unit.nodes[0]->attributes;
    bool aligned = attention->causal || attention->window > 0;
    rpi_kernel_attention it = {
        .batch = l->batch,
        .heads = l->heads,
        .kv_heads = l->kv_heads,
        .q_length = l->q_length,
        .k_length = l->k_length,
        .head_size = l->head_size,
        .q_offset = aligned && !attention->pieces.count ? l->k_length - l->q_length : 0,
        .pieces = attention->pieces,
        .scale = attention->scale > 0 ? attention->scale : 1 / sqrtf((float)l->head_size),
        .causal = attention->causal,
        .window = attention->window,
        .q = heads_in(l, QUERY, io->inputs),
        .k = heads_in(l, KEY, io->inputs),
        .v = heads_in(l, VALUE, io->inputs),
        .out = heads_of_output(l, io->outputs[0]),
        .lse = io->saved,
        .dropout = rpi_cpu_mask(kernel, io, attention->dropout),
        .first_batch = rpi_cpu_first_sample(kernel, io, 0),
        .first_head = attention->first_head,
        .whole_heads = attention->whole_heads,
    };
    if (kernel->unit.input_count <= l->documents) return it;
    find_starts(io->inputs[l->documents], l->batch, l->k_length, io->workspace);
    it.document_starts = io->workspace;
    return it;
}

static rp_status forward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    layout l = layout_of(&kernel->unit);
    rpi_kernel_attention it = describe_call(kernel, &l, io);
    rpi_kernel_attention_forward(&kernel->run, &it);
    return RP_OK;
}

static size_t scratch_bytes(const layout *l) {
    rpi_kernel_attention it = {.batch = l->batch,
                               .heads = l->heads,
                               .q_length = l->q_length,
                               .head_size = l->head_size};
    return rpi_align_up(sizeof(float) * (size_t)rpi_kernel_attention_scratch(&it));
}

static size_t gradient_bytes(const rpi_unit *unit, int input) {
    return rpi_align_up(sizeof(float) * (size_t)rpi_shape_count(&unit->inputs[input].shape));
}

/* The kernel makes all three gradients; those that are not wanted go to the workspace. */
static rp_status backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    layout l = layout_of(&kernel->unit);
    rpi_kernel_attention it = describe_call(kernel, &l, io);
    unsigned char *free_space = io->workspace;
    void *gradients[PARTS];
    free_space += starts_bytes(&l, &kernel->unit);
    it.scratch = (float *)free_space;
    free_space += scratch_bytes(&l);
    for (int i = 0; i <= l.input[VALUE]; i++) {
        gradients[i] = io->grad_inputs[i];
        if (gradients[i]) continue;
        gradients[i] = free_space;
        free_space += gradient_bytes(&kernel->unit, i);
    }
    it.dout = heads_of_output(&l, io->grad_outputs[0]);
    it.dq = heads_in(&l, QUERY, gradients);
    it.dk = heads_in(&l, KEY, gradients);
    it.dv = heads_in(&l, VALUE, gradients);
    rpi_kernel_attention_backward(&kernel->run, &it);
    return RP_OK;
}

static void describe(const rpi_unit *unit, rpi_kernel *kernel) {
    layout l = layout_of(unit);
    kernel->forward_workspace = starts_bytes(&l, unit);
    kernel->backward_workspace = starts_bytes(&l, unit) + scratch_bytes(&l);
    for (int i = 0; i <= l.input[VALUE]; i++)
        if (!(unit->wanted >> i & 1u)) kernel->backward_workspace += gradient_bytes(unit, i);
}

const rpi_cpu_op rpi_cpu_attention = {
    .op = &rpi_op_attention, .forward = forward, .backward = backward, .describe = describe};
const rpi_cpu_op rpi_cpu_self_attention = {.op = &rpi_op_self_attention,
                                           .forward = forward,
                                           .backward = backward,
                                           .describe = describe};
