#include "train/segment_memory.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

static int layers_of(const rpi_memories *m) {
    return m->network ? m->network->memory_count : 0;
}

int64_t rpi_memories_width(const rpi_memories *m, int layer) {
    return rpi_graph_value(m->network->graph, m->network->memories[layer])->shape.size[2];
}

rp_status rpi_memories_open(const rpi_network *network, int64_t rows, rpi_memories *out) {
    *out = (rpi_memories){0};
    if (network->memory_count == 0) return RP_OK;
    rpi_memories m = {.network = network, .rows = rows, .length = network->memory_length};
    rp_status status = RP_OK;
    for (int i = 0; i < network->memory_count && status == RP_OK; i++) {
        size_t count = (size_t)(rows * m.length * rpi_memories_width(&m, i));
        status = rpi_alloc_array(count, sizeof(float), "memories of rows", &m.now[i]);
        if (status == RP_OK)
            status = rpi_alloc_array(count, sizeof(float), "memories of rows", &m.next[i]);
    }
    if (status == RP_OK)
        *out = m;
    else
        rpi_memories_close(&m);
    return status;
}

void rpi_memories_close(rpi_memories *m) {
    for (int i = 0; i < layers_of(m); i++) {
        rpi_free(m->now[i]);
        rpi_free(m->next[i]);
    }
    *m = (rpi_memories){0};
}

/* Sets zeros instead of leaving old values: NaN times a weight of 0 is NaN. */
void rpi_memories_close_after_fork(rpi_memories *m) {
    for (int i = 0; i < layers_of(m); i++)
        memset(m->now[i], 0,
               (size_t)(m->rows * m->length * rpi_memories_width(m, i)) * sizeof(float));
    m->remembered = 0;
}

void rpi_memories_inputs(const rpi_memories *m, int64_t first, const void **inputs) {
    if (!m->network) return;
    const rpi_network *network = m->network;
    inputs[rpi_graph_value(network->graph, network->remembered)->index] = &m->remembered;
    for (int i = 0; i < network->memory_count; i++)
        inputs[rpi_graph_value(network->graph, network->memories[i])->index] =
            m->now[i] + first * m->length * rpi_memories_width(m, i);
}

/* Makes the new memory of a row: its last `length` tokens with the `count` new ones. */
static void move_row(const float *memory, const float *tokens, int64_t count, int64_t length,
                     int64_t width, float *to) {
    int64_t kept = count < length ? length - count : 0, added = length - kept;
    memcpy(to, memory + (length - kept) * width, (size_t)(kept * width) * sizeof *to);
    memcpy(to + kept * width, tokens + (count - added) * width,
           (size_t)(added * width) * sizeof *to);
}

rp_status rpi_memories_take(rpi_memories *m, const rpi_instance *instance, int64_t first,
                            int64_t count) {
    for (int i = 0; i < layers_of(m); i++) {
        rpi_tensor tokens;
        RP_TRY(rpi_instance_result(instance, m->network->remembers[i], &tokens));
        int64_t length = tokens.shape.size[1], width = tokens.shape.size[2];
        int64_t stride = m->length * width;
        m->taken = length;
        for (int64_t row = 0; row < count; row++)
            move_row(m->now[i] + (first + row) * stride,
                     (const float *)tokens.data + row * length * width, length, m->length,
                     width, m->next[i] + (first + row) * stride);
    }
    return RP_OK;
}

void rpi_memories_turn(rpi_memories *m) {
    if (!m->network) return;
    int64_t remembered = m->remembered + m->taken;
    m->remembered = (int32_t)(remembered < m->length ? remembered : m->length);
    for (int i = 0; i < layers_of(m); i++) {
        float *now = m->now[i];
        m->now[i] = m->next[i];
        m->next[i] = now;
    }
}
