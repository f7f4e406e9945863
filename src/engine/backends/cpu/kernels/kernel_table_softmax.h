/* Softmax cross-entropy of x w^T + b over the rows of large tables, whose logits never exist as
 * a whole: 256 classes at a time, with a running maximum and sum for each row of x; the
 * backward pass makes them again.
 *
 * Shapes: x [rows, width]; the classes are those of two tables side by side, weight [classes,
 * width] and bias [classes] each. With p = softmax(logits) and l the label:
 *   loss = -log p_l,   dlogits = factor (p - [j = l])
 *   dx += dlogits w,   dweight += dlogits^T x,   dbias += sum of dlogits' rows
 * A row whose label is negative has no part. All is f32; sums of gradients run over rows, or
 * classes, in order.
 *
 * Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018. */
#ifndef RPI_ENGINE_KERNEL_TABLE_SOFTMAX_H
#define RPI_ENGINE_KERNEL_TABLE_SOFTMAX_H

#include "engine/backends/cpu/kernels/kernel.h"

#include <math.h>
#include <string.h>

typedef struct rpi_kernel_table {
    int64_t classes; /* 0: there is no such table */
    const float *weight, *bias;
    float *dweight, *dbias; /* backward: added to; NULL: not wanted */
} rpi_kernel_table;

enum { RPI_TABLES = 2 };

typedef struct rpi_kernel_table_softmax {
    int64_t rows, width;
    const float *x;
    rpi_kernel_table tables[RPI_TABLES];
    const int32_t *labels; /* [rows], of all classes */
    float *losses;         /* [rows], forward: written; 0 without a label */
    uint8_t *correct;      /* likewise: 1 where the label is the first of the largest logits */
    float *lse;   /* [rows], log of the sum of exponentials; forward: written, backward: read */
    float factor; /* backward */
    float *dx;    /* backward: [rows, width], added to; NULL: not wanted */
    void *scratch; /* rpi_kernel_table_softmax_scratch() bytes, content of no matter */
} rpi_kernel_table_softmax;

void rpi_kernel_table_softmax_forward(const rpi_kernel_run *run,
                                      const rpi_kernel_table_softmax *it);
void rpi_kernel_table_softmax_backward(const rpi_kernel_run *run,
                                       const rpi_kernel_table_softmax *it);
int64_t rpi_kernel_table_softmax_scratch(int64_t rows, int64_t width);

/* ---- inside ---- */

enum { RPI_TABLE_CHUNK = 256, RPI_TABLE_BLOCK = 64 }; /* classes */

/* How far a row has come. The definition sums in `total`, vectors in `lanes`. */
typedef struct rpi_table_row {
    double total;
    float top, label; /* the largest logit so far, and the label's */
    int32_t best;     /* the first class of the largest */
    float lanes[16];
} rpi_table_row;

typedef struct rpi_table_call {
    const rpi_kernel_table_softmax *it;
    /* The classes at hand: `count` of a table from `first` on, whose first one is the
     * `before`-th of all. */
    const rpi_kernel_table *table;
    int64_t first, count, before;
    bool is_last;
    /* In the scratch; rows are padded to multiples of 16. */
    float *x, *dx, *logits;                   /* [rows, padded], likewise, [rows, 256] */
    float *weight, *columns, *bias, *dweight; /* [256, padded], 4 x [padded, 64], [256] */
    rpi_table_row *row;
} rpi_table_call;

static inline int64_t rpi_table_padded(const rpi_kernel_table_softmax *it) {
    return (it->width + 15) / 16 * 16;
}

/* Rows [begin, end) before their first class. */
static inline void rpi_table_clear_rows(const rpi_table_call *call, int64_t begin,
                                        int64_t end) {
    int64_t padded = rpi_table_padded(call->it);
    for (int64_t i = begin; i < end; i++) {
        call->row[i] = (rpi_table_row){.top = -INFINITY, .best = -1};
        memset(call->dx + i * padded, 0, (size_t)padded * sizeof(float));
    }
}

RPI_KERNEL_DECLARE(table_begin);
RPI_KERNEL_DECLARE(table_pack);
RPI_KERNEL_DECLARE(table_scores);
RPI_KERNEL_DECLARE(table_gradients);
RPI_KERNEL_DECLARE(table_weights);

#endif
