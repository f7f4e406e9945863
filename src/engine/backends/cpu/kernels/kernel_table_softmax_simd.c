#include "engine/backends/cpu/kernels/kernel_table_softmax.h"

#include "engine/backends/cpu/kernels/simd_gemm.h"
#include "engine/backends/cpu/kernels/simd_math.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = RPI_TABLE_CHUNK,
    BLOCK = RPI_TABLE_BLOCK,
    STRIP = GEMM_ROWS,
};

/* to [padded] = from [width], then zeros. */
SIMD void pack_row(const rpi_kernel_table_softmax *it, const float *from, float *to) {
    EACH_VECTOR(c, live, it->width) vf_store(to + c, vf_load_n(from + c, live));
}

RPI_SIMD_BODY(table_begin)(const void *args, int64_t begin, int64_t end) {
    const rpi_table_call *call = args;
    int64_t padded = rpi_table_padded(call->it);
    for (int64_t i = begin; i < end; i++)
        pack_row(call->it, call->it->x + i * call->it->width, call->x + i * padded);
    rpi_table_clear_rows(call, begin, end);
}

/* Units are blocks of classes; those behind the last are zeros. */
RPI_SIMD_BODY(table_pack)(const void *args, int64_t begin, int64_t end) {
    const rpi_table_call *call = args;
    int64_t padded = rpi_table_padded(call->it), width = call->it->width;
    for (int64_t block = begin; block < end; block++) {
        float *rows = call->weight + block * BLOCK * padded;
        for (int64_t j = 0; j < BLOCK; j++) {
            int64_t class = block * BLOCK + j;
            bool there = class < call->count;
            if (there)
                pack_row(call->it, call->table->weight + (call->first + class) * width,
                         rows + j * padded);
            else
                memset(rows + j * padded, 0, (size_t)padded * sizeof *rows);
            call->bias[class] = there ? call->table->bias[call->first + class] : 0;
        }
        transpose(rows, padded, BLOCK, padded, call->columns + block * BLOCK * padded, BLOCK);
    }
}

SIMD int64_t vectors_of(const rpi_table_call *call) {
    return (call->count + RPI_LANES - 1) / RPI_LANES;
}

/* logits [rows, CHUNK] of the classes at hand, -infinity behind the last. */
SIMD void multiply(const rpi_table_call *call, int64_t first, int64_t rows, float *logits) {
    int64_t padded = rpi_table_padded(call->it), vectors = vectors_of(call);
    for (int64_t at = 0; at < vectors; at += BLOCK / RPI_LANES) {
        int64_t left = vectors - at;
        gemm(&(gemm_tiles){.rows = rows,
                           .vectors = left < BLOCK / RPI_LANES ? left : BLOCK / RPI_LANES,
                           .k = padded,
                           .a = call->x + first * padded,
                           .a_row = padded,
                           .a_k = 1,
                           .b = call->columns + at * RPI_LANES * padded,
                           .b_row = BLOCK,
                           .c = logits + at * RPI_LANES,
                           .c_row = CHUNK,
                           .from_zero = true});
    }
    for (int64_t r = 0; r < rows; r++) {
        float *row = logits + r * CHUNK;
        for (int64_t v = 0; v < vectors; v++) {
            int64_t at = v * RPI_LANES;
            vf_store(row + at, vf_add(vf_load(row + at), vf_load(call->bias + at)));
        }
        for (int64_t j = call->count; j < vectors * RPI_LANES; j++) row[j] = -INFINITY;
    }
}

/* ---- forward ---- */

/* Of the first NaN, or the first of the largest. */
SIMD int32_t first_above(const rpi_table_call *call, const float *logits, float top) {
    for (int64_t j = 0; j < call->count; j++)
        if (logits[j] == top || logits[j] != logits[j]) return (int32_t)(call->before + j);
    return -1;
}

SIMD void add_row(const rpi_table_call *call, const float *logits, int64_t label,
                  rpi_table_row *row) {
    int64_t vectors = vectors_of(call);
    vf most = vf_set(-INFINITY);
    for (int64_t v = 0; v < vectors; v++) most = vf_max(vf_load(logits + v * RPI_LANES), most);
    float top = vf_max_of(most);
    if (label >= call->before && label < call->before + call->count)
        row->label = logits[label - call->before];
    vf sum = vf_load(row->lanes);
    if (top > row->top) {
        sum = vf_mul(sum, vf_exp(vf_set(row->top - top)));
        row->best = first_above(call, logits, top);
        row->top = top;
    }
    vf shift = vf_set(row->top == -INFINITY ? 0 : row->top);
    for (int64_t v = 0; v < vectors; v++)
        sum = vf_add(sum, vf_exp(vf_sub(vf_load(logits + v * RPI_LANES), shift)));
    vf_store(row->lanes, sum);
}

SIMD void end_row(const rpi_kernel_table_softmax *it, int64_t i, rpi_table_row *row) {
    double shift = row->top == -INFINITY ? 0 : (double)row->top;
    double lse = shift + log((double)vf_sum(vf_load(row->lanes)));
    bool counts = it->labels[i] >= 0;
    it->lse[i] = (float)lse;
    it->losses[i] = counts ? (float)(lse - (double)row->label) : 0;
    it->correct[i] = counts && row->best == it->labels[i] && lse == lse;
}

/* Units are rows. */
RPI_SIMD_BODY(table_scores)(const void *args, int64_t begin, int64_t end) {
    const rpi_table_call *call = args;
    float logits[STRIP * CHUNK];
    for (int64_t first = begin; first < end; first += STRIP) {
        int64_t rows = end - first < STRIP ? end - first : STRIP;
        multiply(call, first, rows, logits);
        for (int64_t r = 0; r < rows; r++) {
            rpi_table_row *row = &call->row[first + r];
            add_row(call, logits + r * CHUNK, call->it->labels[first + r], row);
            if (call->is_last) end_row(call->it, first + r, row);
        }
    }
}

/* ---- backward ---- */

SIMD void gradient_row(const rpi_table_call *call, int64_t i, float *logits) {
    const rpi_kernel_table_softmax *it = call->it;
    int64_t vectors = vectors_of(call), own = it->labels[i] - call->before;
    if (it->labels[i] < 0) {
        memset(logits, 0, (size_t)(vectors * RPI_LANES) * sizeof *logits);
        return;
    }
    bool here = own >= 0 && own < call->count;
    float label = here ? logits[own] : 0;
    vf lse = vf_set(it->lse[i]), factor = vf_set(it->factor);
    for (int64_t v = 0; v < vectors; v++) {
        vf p = vf_exp(vf_sub(vf_load(logits + v * RPI_LANES), lse));
        vf_store(logits + v * RPI_LANES, vf_mul(p, factor));
    }
    /* the factor comes last: an infinite one less itself would be NaN */
    if (here)
        logits[own] = it->factor * (vf_first_lane(vf_exp(vf_set(label - it->lse[i]))) - 1);
    /* behind the last class there is none, whatever 0 times lse may be */
    for (int64_t j = call->count; j < vectors * RPI_LANES; j++) logits[j] = 0;
}

SIMD void add_to_rows(const rpi_kernel_table_softmax *it, const float *from, float *to) {
    EACH_VECTOR(c, live, it->width)
    vf_store_n(to + c, vf_add(vf_load_n(to + c, live), vf_load(from + c)), live);
}

/* Units are rows. */
RPI_SIMD_BODY(table_gradients)(const void *args, int64_t begin, int64_t end) {
    const rpi_table_call *call = args;
    const rpi_kernel_table_softmax *it = call->it;
    int64_t padded = rpi_table_padded(it);
    for (int64_t first = begin; first < end; first += STRIP) {
        int64_t rows = end - first < STRIP ? end - first : STRIP;
        float *logits = call->logits + first * CHUNK;
        multiply(call, first, rows, logits);
        for (int64_t r = 0; r < rows; r++) gradient_row(call, first + r, logits + r * CHUNK);
        if (!it->dx) continue;
        gemm(&(gemm_tiles){.rows = rows,
                           .vectors = padded / RPI_LANES,
                           .k = call->count,
                           .a = logits,
                           .a_row = CHUNK,
                           .a_k = 1,
                           .b = call->weight,
                           .b_row = padded,
                           .c = call->dx + first * padded,
                           .c_row = padded});
        for (int64_t i = first; call->is_last && i < first + rows; i++)
            add_to_rows(it, call->dx + i * padded, it->dx + i * it->width);
    }
}

SIMD void add_biases(const rpi_table_call *call, int64_t block, int64_t count) {
    float *to = call->table->dbias + call->first + block * BLOCK;
    EACH_VECTOR(j, live, count) {
        vf sum = vf_zero();
        const float *logits = call->logits + block * BLOCK + j;
        for (int64_t i = 0; i < call->it->rows; i++)
            sum = vf_add(sum, vf_load(logits + i * CHUNK));
        vf_store_n(to + j, vf_add(vf_load_n(to + j, live), sum), live);
    }
}

/* Units are blocks of classes. */
RPI_SIMD_BODY(table_weights)(const void *args, int64_t begin, int64_t end) {
    const rpi_table_call *call = args;
    const rpi_kernel_table_softmax *it = call->it;
    int64_t padded = rpi_table_padded(it);
    for (int64_t block = begin; block < end; block++) {
        int64_t left = call->count - block * BLOCK, count = left < BLOCK ? left : BLOCK;
        float *sums = call->dweight + block * BLOCK * padded;
        if (call->table->dbias) add_biases(call, block, count);
        if (!call->table->dweight) continue;
        gemm(&(gemm_tiles){.rows = count,
                           .vectors = padded / RPI_LANES,
                           .k = it->rows,
                           .a = call->logits + block * BLOCK,
                           .a_row = 1,
                           .a_k = CHUNK,
                           .b = call->x,
                           .b_row = padded,
                           .c = sums,
                           .c_row = padded,
                           .from_zero = true});
        for (int64_t j = 0; j < count; j++)
            add_to_rows(it, sums + j * padded,
                        call->table->dweight + (call->first + block * BLOCK + j) * it->width);
    }
}
