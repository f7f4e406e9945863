#include "base/status.h"
#include "engine/backends/cpu/cpu_op.h"
#include "engine/backends/cpu/kernels/kernel_attention.h"
#include "engine/layers.h"

#include <math.h>
#include <string.h>

extern const rpi_op rpi_op_cached_attention, rpi_op_cached_self_attention;
extern const rpi_cpu_op rpi_cpu_cached_attention, rpi_cpu_cached_self_attention;

/* Sizes, and where the new tokens' queries, keys and values lie: `width` of a whole token. */
typedef struct rows {
    const float *data;
    int64_t width;
} rows;

typedef struct layout {
    int64_t batch, length, memory, heads, kv_heads, head_size;
    rows query, key, value;
    int caches; /* the first input behind them: keys, then values, then the position */
} layout;

static rows rows_in(const rpi_unit *unit, const rpi_kernel_io *io, int input, int64_t first) {
    return (rows){(const float *)io->inputs[input] + first, unit->inputs[input].shape.size[2]};
}

static layout layout_of(const rpi_unit *unit, const rpi_kernel_io *io) {
    const rpi_attention_attributes *attention = unit->nodes[0]->attributes;
    bool packed = unit->nodes[0]->op == &rpi_op_cached_self_attention;
    const int64_t *output = unit->outputs[0].shape.size;
    layout l = {.batch = output[0],
                .length = output[1],
                .heads = attention->heads,
                .kv_heads = attention->kv_heads ? attention->kv_heads : attention->heads,
                .head_size = output[2] / attention->heads,
                .caches = packed ? 1 : 3};
    int64_t first_key = packed ? l.heads * l.head_size : 0;
    int64_t first_value = packed ? first_key + l.kv_heads * l.head_size : 0;
    l.memory = unit->inputs[l.caches].shape.size[1];
    l.query = rows_in(unit, io, 0, 0);
    l.key = rows_in(unit, io, packed ? 0 : 1, first_key);
    l.value = rows_in(unit, io, packed ? 0 : 2, first_value);
    return l;
}

/* Keys or values of the new tokens to their places in a cache. */
static void store(const layout *l, rows from, int64_t position, float *cache) {
    int64_t width = l->kv_heads * l->head_size;
    for (int64_t b = 0; b < l->batch; b++)
        for (int64_t t = 0; t < l->length; t++)
            memcpy(cache + (b * l->memory + position + t) * width,
                   from.data + (b * l->length + t) * from.width, (size_t)width * sizeof *cache);
}

static rpi_kernel_heads heads_at(const layout *l, const float *data, int64_t length,
                                 int64_t width) {
    return (rpi_kernel_heads){(void *)data, length * width, width, l->head_size, RP_F32};
}

static void attend(const rpi_cpu_kernel *kernel, const layout *l, const rpi_kernel_io *io,
                   int64_t position) {
    const rpi_attention_attributes *attention = kernel->unit.nodes[0]->attributes;
    int64_t width = l->heads * l->head_size, kv_width = l->kv_heads * l->head_size;
    rpi_kernel_attention it = {
        .batch = l->batch,
        .heads = l->heads,
        .kv_heads = l->kv_heads,
        .q_length = l->length,
        .k_length = position + l->length,
        .head_size = l->head_size,
        .q_offset = position,
        .scale = attention->scale > 0 ? attention->scale : 1 / sqrtf((float)l->head_size),
        .causal = true,
        .window = attention->window,
        .q = heads_at(l, l->query.data, l->length, l->query.width),
        .k = heads_at(l, io->inputs[l->caches], l->memory, kv_width),
        .v = heads_at(l, io->inputs[l->caches + 1], l->memory, kv_width),
        .out = heads_at(l, io->outputs[0], l->length, width),
    };
    rpi_kernel_attention_forward(&kernel->run, &it);
}

static rp_status forward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    layout l = layout_of(&kernel->unit, io);
    int64_t position = *(const int32_t *)io->inputs[l.caches + 2];
    if (position < 0 || position + l.length > l.memory)
        return RP_FAIL(INVALID, "%lld tokens at position %lld; the cache has room for %lld",
                       (long long)l.length, (long long)position, (long long)l.memory);
    store(&l, l.key, position, io->inputs[l.caches]);
    store(&l, l.value, position, io->inputs[l.caches + 1]);
    attend(kernel, &l, io, position);
    return RP_OK;
}

const rpi_cpu_op rpi_cpu_cached_attention = {.op = &rpi_op_cached_attention,
                                             .forward = forward};
const rpi_cpu_op rpi_cpu_cached_self_attention = {.op = &rpi_op_cached_self_attention,
                                                  .forward = forward};
