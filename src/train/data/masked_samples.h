/* What BERT learns from a file of tokens: pairs of pieces of text with hidden tokens.
 *
 *     [CLS] first piece [SEP] second piece [SEP] [PAD] ...
 *
 * Documents are cut into windows of sequence - 3 tokens, and the last, shorter one is filled up
 * with [PAD]. A window is cut in two, behind the end of a sentence where one is near; in half
 * of the samples the second piece is text from the cut of another window on instead, of another
 * document where there is one, and the model has to say which it was. What is hidden of both:
 * masked_words.h.
 *
 * All of it follows from (seed, epoch, sample): each epoch pairs and hides anew, and a resumed
 * run does the same. Source: Devlin et al., "BERT", NAACL 2019. */
#ifndef RPI_TRAIN_MASKED_SAMPLES_H
#define RPI_TRAIN_MASKED_SAMPLES_H

#include "train/data/token_samples.h"
#include "train/tokenizers/tokenizer.h"

typedef struct rpi_masked_options {
    int64_t sequence; /* at least 5 */
    double share;     /* of a row's tokens that are hidden; 0: 0.15 */
    int longest_run;  /* words; 0: 3 */
} rpi_masked_options;

typedef struct rpi_masked_samples rpi_masked_samples;

/* Of [CLS], [SEP], [MASK] and [PAD] those that the tokenizer lacks get the ids behind its own.
 * It is asked now and not needed later; `file` outlives the samples. RP_INVALID: no document
 * has two tokens; numbers out of range. */
rp_status rpi_masked_samples_open(const rpi_token_file *file, const rpi_tokenizer *tokenizer,
                                  const rpi_masked_options *options,
                                  rpi_masked_samples **out_samples);
void rpi_masked_samples_close(rpi_masked_samples *samples); /* NULL is fine */

int64_t rpi_masked_samples_count(const rpi_masked_samples *samples);
/* Ids are below it: the tokenizer's, and what it lacked. */
uint32_t rpi_masked_samples_vocabulary(const rpi_masked_samples *samples);

/* Where to put samples, row after row; the caller's memory. */
typedef struct rpi_masked_rows {
    int32_t *tokens, *segments; /* rows x sequence; segments: 1 in the second piece, else 0 */
    int32_t *documents; /* rows x sequence: 1 in the padding, which the text does not see */
    int32_t *labels;    /* rows x sequence: what was hidden, RPI_LABEL_IGNORED elsewhere */
    int32_t *next;      /* rows: 0 where the second piece follows the first, else 1 */
} rpi_masked_rows;

/* What a sample's chances follow from. */
typedef struct rpi_masked_draw {
    uint64_t seed;
    int64_t epoch;
    int64_t first, count; /* second pieces are taken from these samples */
} rpi_masked_draw;

/* Sample `index` into row `row`; *out_valid: how many labels count. RP_CORRUPT as of
 * rpi_token_file_read(). Any thread. */
rp_status rpi_masked_sample_read(const rpi_masked_samples *samples, const rpi_masked_draw *draw,
                                 int64_t index, const rpi_masked_rows *rows, int64_t row,
                                 int64_t *out_valid);

#endif
