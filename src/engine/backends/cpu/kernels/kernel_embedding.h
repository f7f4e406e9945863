/* Rows of a table by token, and their gradient, which touches only the rows of tokens that
 * occur.
 *
 * Shapes: table [vocabulary, cols], out and dout [tokens, cols], f32 or bf16; ids [tokens].
 *   forward: out[t] = scale table[ids[t]], added to out where `add`
 * The table may be rows [first, first + vocabulary) of a larger one of `whole` rows: an id of
 * another of its rows counts as a row of zeros, and has no gradient.
 *   backward: of a row r, scale times the sum of dout[t] over the t with ids[t] = r, in the
 * order of t: the same bits on any number of threads. */
#ifndef RPI_ENGINE_KERNEL_EMBEDDING_H
#define RPI_ENGINE_KERNEL_EMBEDDING_H

#include "engine/backends/cpu/kernels/kernel.h"

typedef struct rpi_kernel_embedding {
    int64_t tokens, cols, vocabulary;
    int64_t first, whole; /* whole 0: the table is all there is */
    const int32_t *ids;
    float scale; /* sqrt(cols) in Transformer-XL, else 1 */

    rpi_kernel_rows table, out; /* forward */
    bool add;                   /* to what out holds: positions, token types */

    /* Backward. Row-sparse: the sum of the i-th smallest token that occurs goes to
     * sums[i, cols] and its number to touched[i]. Dense: it is added to row r of sums
     * [vocabulary, cols], whose other rows are not touched. */
    rpi_kernel_rows dout;
    bool dense;
    float *sums;
    int32_t *touched;  /* [tokens], out */
    uint64_t *scratch; /* [2 tokens], content of no matter */
} rpi_kernel_embedding;

/* The index of the first id that is no row of the table; -1: there is none, and out is written.
 */
int64_t rpi_kernel_embedding_forward(const rpi_kernel_run *run, const rpi_kernel_embedding *it);
/* How many rows were touched, in *out_touched. Ids are below the vocabulary, as the forward
 * pass has checked. */
void rpi_kernel_embedding_backward(const rpi_kernel_run *run, const rpi_kernel_embedding *it,
                                   int64_t *out_touched);

/* ---- inside ---- */

/* The row of the table that token t takes; -1: it lies in another part of the whole one. */
static inline int64_t rpi_embedding_row(const rpi_kernel_embedding *it, int64_t t) {
    int64_t row = it->ids[t] - it->first;
    return row >= 0 && row < it->vocabulary ? row : -1;
}

/* Tokens sorted by id, equal ones in order; those of touched[i] end before ends[i]. */
typedef struct rpi_embedding_runs {
    const rpi_kernel_embedding *it;
    const uint64_t *sorted; /* row << 32 | token */
    const uint64_t *ends;
} rpi_embedding_runs;

static inline uint64_t rpi_embedding_start(const rpi_embedding_runs *runs, int64_t i) {
    return i == 0 ? 0 : runs->ends[i - 1];
}

RPI_KERNEL_DECLARE(embedding_forward);
RPI_KERNEL_DECLARE(embedding_backward);

#endif
