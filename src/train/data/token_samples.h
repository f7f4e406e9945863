/* What a language model learns from a file of tokens: windows of sequence + 1 tokens, across
 * documents, one behind the other, as nanotron cuts them. Tokens at the end that fill no window
 * are left out. */
#ifndef RPI_TRAIN_TOKEN_SAMPLES_H
#define RPI_TRAIN_TOKEN_SAMPLES_H

#include "train/data/token_file.h"

enum { RPI_LABEL_IGNORED = -100 }; /* counts neither in a loss nor in an accuracy */

typedef struct rpi_token_samples {
    const rpi_token_file *file; /* borrowed */
    int64_t sequence;           /* tokens that the model sees at once */
    int64_t stride;             /* from one sample to the next: sequence + 1 */
    int64_t count;
} rpi_token_samples;

/* RP_INVALID: sequence is below 1, or the file holds fewer than sequence + 1 tokens. */
rp_status rpi_token_samples_open(const rpi_token_file *file, int64_t sequence,
                                 rpi_token_samples *out_samples);

/* Samples that go on from one another: each begins with the last label of the one before, so
 * that no token is left out. */
void rpi_token_samples_join(rpi_token_samples *samples);

/* Where to put samples, row after row; the caller's memory. */
typedef struct rpi_token_rows {
    int32_t *inputs, *labels; /* rows x sequence; labels are the inputs' next tokens */
    /* rows x sequence, or NULL: the place of each input in its document, counted from the
     * beginning of the row where the document began before. A 0 begins a document that
     * attention must not look behind. */
    int32_t *positions;
} rpi_token_rows;

/* Sample `index` into row `row`; with positions, the label behind a document's end is
 * RPI_LABEL_IGNORED, since it belongs to another. *out_valid: how many labels count.
 * RP_CORRUPT: a token that is not in the vocabulary, with its file and offset. Pure; any
 * thread. */
rp_status rpi_token_sample_read(const rpi_token_samples *samples, int64_t index,
                                const rpi_token_rows *rows, int64_t row, int64_t *out_valid);

/* How many labels of a sample count when documents do not see each other: rows->positions are
 * wanted. Tokens are not read. */
int64_t rpi_token_sample_valid(const rpi_token_samples *samples, int64_t index);

#endif
