#include "engine/backends/cpu/kernels/kernel_table_softmax.h"

#include "base/memory.h"

#include <math.h>

enum { GRAIN = 48 }; /* rows */

/* ---- the definition ---- */

/* Units are rows. */
void rpi_table_begin_scalar(const void *args, int64_t begin, int64_t end) {
    rpi_table_clear_rows(args, begin, end);
}

void rpi_table_pack_scalar(const void *args, int64_t begin, int64_t end) {
    (void)args, (void)begin, (void)end;
}

static double logit_of(const rpi_table_call *call, int64_t row, int64_t class) {
    const float *x = call->it->x + row * call->it->width;
    const float *w = call->table->weight + (call->first + class) * call->it->width;
    double sum = (double)call->table->bias[call->first + class];
    for (int64_t c = 0; c < call->it->width; c++) sum += (double)x[c] * (double)w[c];
    return sum;
}

static void end_row(const rpi_table_call *call, int64_t i) {
    const rpi_kernel_table_softmax *it = call->it;
    const rpi_table_row *row = &call->row[i];
    double shift = row->top == -INFINITY ? 0 : (double)row->top;
    double lse = shift + log(row->total);
    bool counts = it->labels[i] >= 0;
    it->lse[i] = (float)lse;
    it->losses[i] = counts ? (float)(lse - (double)row->label) : 0;
    it->correct[i] = counts && row->best == it->labels[i] && lse == lse;
}

/* Units are rows. */
void rpi_table_scores_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_table_call *call = args;
    for (int64_t i = begin; i < end; i++) {
        rpi_table_row *row = &call->row[i];
        for (int64_t j = 0; j < call->count; j++) {
            float logit = (float)logit_of(call, i, j);
            if (call->before + j == call->it->labels[i]) row->label = logit;
            if (!(logit <= row->top)) { /* NaN, too, is to be seen */
                row->total *= row->top == -INFINITY ? 0 : exp((double)row->top - (double)logit);
                row->top = logit;
                row->best = (int32_t)(call->before + j);
            }
            row->total += logit == -INFINITY ? 0 : exp((double)logit - (double)row->top);
        }
        if (call->is_last) end_row(call, i);
    }
}

/* Units are rows: gradients of their logits, and what x gets of them. */
void rpi_table_gradients_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_table_call *call = args;
    const rpi_kernel_table_softmax *it = call->it;
    int64_t padded = rpi_table_padded(it);
    for (int64_t i = begin; i < end; i++) {
        float *logits = call->logits + i * RPI_TABLE_CHUNK, *dx = call->dx + i * padded;
        for (int64_t j = 0; j < call->count; j++) {
            double p = exp(logit_of(call, i, j) - (double)it->lse[i]);
            double own = call->before + j == it->labels[i];
            logits[j] = it->labels[i] < 0 ? 0 : (float)((double)it->factor * (p - own));
        }
        for (int64_t c = 0; c < it->width; c++) {
            double sum = (double)dx[c];
            for (int64_t j = 0; j < call->count; j++)
                sum += (double)logits[j] *
                       (double)call->table->weight[(call->first + j) * it->width + c];
            dx[c] = (float)sum;
        }
        for (int64_t c = 0; call->is_last && it->dx && c < it->width; c++)
            it->dx[i * it->width + c] += dx[c];
    }
}

/* Units are blocks of classes. */
void rpi_table_weights_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_table_call *call = args;
    const rpi_kernel_table_softmax *it = call->it;
    int64_t last = end * RPI_TABLE_BLOCK < call->count ? end * RPI_TABLE_BLOCK : call->count;
    for (int64_t j = begin * RPI_TABLE_BLOCK; j < last; j++) {
        double bias = 0;
        for (int64_t i = 0; i < it->rows; i++)
            bias += (double)call->logits[i * RPI_TABLE_CHUNK + j];
        if (call->table->dbias) call->table->dbias[call->first + j] += (float)bias;
        for (int64_t c = 0; call->table->dweight && c < it->width; c++) {
            double sum = 0;
            for (int64_t i = 0; i < it->rows; i++)
                sum += (double)call->logits[i * RPI_TABLE_CHUNK + j] *
                       (double)it->x[i * it->width + c];
            call->table->dweight[(call->first + j) * it->width + c] += (float)sum;
        }
    }
}

/* ---- calls ---- */

/* Parts of the scratch, in this order. */
int64_t rpi_kernel_table_softmax_scratch(int64_t rows, int64_t width) {
    int64_t padded = (width + 15) / 16 * 16;
    size_t floats =
        (size_t)(rows * (2 * padded + RPI_TABLE_CHUNK) + RPI_TABLE_CHUNK * (3 * padded + 1));
    return (int64_t)(rpi_align_up(floats * sizeof(float)) +
                     (size_t)rows * sizeof(rpi_table_row));
}

static rpi_table_call begin_call(const rpi_kernel_run *run,
                                 const rpi_kernel_table_softmax *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(table_begin);
    int64_t padded = rpi_table_padded(it);
    rpi_table_call call = {.it = it, .x = it->scratch};
    call.dx = call.x + it->rows * padded;
    call.logits = call.dx + it->rows * padded;
    call.weight = call.logits + it->rows * RPI_TABLE_CHUNK;
    call.columns = call.weight + RPI_TABLE_CHUNK * padded;
    call.dweight = call.columns + RPI_TABLE_CHUNK * padded;
    call.bias = call.dweight + RPI_TABLE_CHUNK * padded;
    size_t bytes = (size_t)(call.bias + RPI_TABLE_CHUNK - call.x) * sizeof(float);
    call.row = (rpi_table_row *)(void *)((char *)it->scratch + rpi_align_up(bytes));
    rpi_kernel_parallel(run, it->rows, GRAIN, bodies, &call);
    return call;
}

/* The next classes; false: there are none. */
static bool next_chunk(rpi_table_call *call) {
    const rpi_kernel_table *tables = call->it->tables;
    call->before += call->count;
    call->first += call->count;
    if (!call->table) call->table = tables;
    while (call->first >= call->table->classes) {
        if (call->table == tables + RPI_TABLES - 1) return false;
        call->table++;
        call->first = 0;
    }
    int64_t left = call->table->classes - call->first;
    call->count = left < RPI_TABLE_CHUNK ? left : RPI_TABLE_CHUNK;
    call->is_last = call->before + call->count == tables[0].classes + tables[1].classes;
    return true;
}

static int64_t blocks_of(const rpi_table_call *call) {
    return (call->count + RPI_TABLE_BLOCK - 1) / RPI_TABLE_BLOCK;
}

void rpi_kernel_table_softmax_forward(const rpi_kernel_run *run,
                                      const rpi_kernel_table_softmax *it) {
    static const rpi_kernel_body pack[] = RPI_KERNEL_BODIES(table_pack);
    static const rpi_kernel_body scores[] = RPI_KERNEL_BODIES(table_scores);
    rpi_table_call call = begin_call(run, it);
    while (next_chunk(&call)) {
        rpi_kernel_parallel(run, blocks_of(&call), 1, pack, &call);
        rpi_kernel_parallel(run, it->rows, GRAIN, scores, &call);
    }
}

void rpi_kernel_table_softmax_backward(const rpi_kernel_run *run,
                                       const rpi_kernel_table_softmax *it) {
    static const rpi_kernel_body pack[] = RPI_KERNEL_BODIES(table_pack);
    static const rpi_kernel_body gradients[] = RPI_KERNEL_BODIES(table_gradients);
    static const rpi_kernel_body weights[] = RPI_KERNEL_BODIES(table_weights);
    rpi_table_call call = begin_call(run, it);
    while (next_chunk(&call)) {
        rpi_kernel_parallel(run, blocks_of(&call), 1, pack, &call);
        rpi_kernel_parallel(run, it->rows, GRAIN, gradients, &call);
        rpi_kernel_parallel(run, blocks_of(&call), 1, weights, &call);
    }
}
