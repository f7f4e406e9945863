/* What a masked language model learns: [CLS] window [SEP], where some of the tokens are hidden
 * and the labels say what they were.
 *
 * Windows of sequence - 2 tokens lie one behind the other, across documents. Of each row a
 * share is hidden, as whole words and in runs of up to three of them, a run of n words with a
 * probability proportional to 1/n; of the chosen tokens 80 % become [MASK], 10 % any token, 10
 * % stay. Which ones follows from (seed, epoch, sample): each epoch hides others, and a resumed
 * run hides the same. Sources: Devlin et al., "BERT", NAACL 2019; Joshi et al., "SpanBERT",
 * TACL 2020; Megatron-LM's way of choosing. */
#ifndef RPI_TRAIN_MASKED_SAMPLES_H
#define RPI_TRAIN_MASKED_SAMPLES_H

#include "train/data/token_samples.h"
#include "train/tokenizers/tokenizer.h"

typedef struct rpi_masked_options {
    int64_t sequence; /* at least 3 */
    uint64_t seed;
    double share;    /* of a row's tokens; 0: 0.15 */
    int longest_run; /* words; 0: 3 */
} rpi_masked_options;

typedef struct rpi_masked_samples rpi_masked_samples;

/* The tokenizer is asked for its tokens now and not needed later; `file` outlives the samples.
 * RP_INVALID: it has no [CLS], [SEP] or [MASK]; too few tokens; numbers out of range. */
rp_status rpi_masked_samples_open(const rpi_token_file *file, const rpi_tokenizer *tokenizer,
                                  const rpi_masked_options *options,
                                  rpi_masked_samples **out_samples);
void rpi_masked_samples_close(rpi_masked_samples *samples); /* NULL is fine */

int64_t rpi_masked_samples_count(const rpi_masked_samples *samples);

/* Sample `index` of an epoch into row `row` (positions are not used): inputs with hidden
 * tokens, labels where they are and RPI_LABEL_IGNORED elsewhere; *out_valid is how many were
 * chosen, at least one where a word is short enough. RP_CORRUPT as of rpi_token_file_read().
 * Any thread. */
rp_status rpi_masked_sample_read(const rpi_masked_samples *samples, int64_t epoch,
                                 int64_t index, const rpi_token_rows *rows, int64_t row,
                                 int64_t *out_valid);

#endif
