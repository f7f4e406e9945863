/* Prompts with what shall follow them, for tuning a language model on instructions.
 *
 * A file has JSON objects, one a line or in a list, {"prompt": "...", "completion": "..."}, and
 * may be packed (train/texts/). A row is
 *
 *     [begin] prompt completion [end] [end] ...
 *
 * with the tokenizer's begin and end of text where it has them. Labels are the next tokens, but
 * those of the prompt and of what fills the row up are ignored: the loss is that of completions
 * alone. Everything lies in memory as tokens. */
#ifndef RPI_TRAIN_PROMPT_PAIRS_H
#define RPI_TRAIN_PROMPT_PAIRS_H

#include "train/data/token_samples.h"
#include "train/tokenizers/tokenizer.h"

typedef struct rpi_prompt_pairs rpi_prompt_pairs;

/* RP_CORRUPT, RP_INVALID name the lines, up to five, that are no such object, or whose prompt
 * leaves no room for the completion in a row; with skip_broken they are left out. */
rp_status rpi_prompt_pairs_open(const char *path, const rpi_tokenizer *tokenizer,
                                int64_t sequence, bool skip_broken,
                                rpi_prompt_pairs **out_pairs);
/* Warns of what was left out, and of U+FFFD that stands for what is no text. */
void rpi_prompt_pairs_tell(const rpi_prompt_pairs *pairs);
void rpi_prompt_pairs_close(rpi_prompt_pairs *pairs); /* NULL is fine */

int64_t rpi_prompt_pairs_count(const rpi_prompt_pairs *pairs);
/* Labels of a pair that count: at least one. A completion that is too long is cut off. */
int64_t rpi_prompt_pair_valid(const rpi_prompt_pairs *pairs, int64_t index);
/* Pair `index` into row `row` (positions are not used). */
void rpi_prompt_pair_read(const rpi_prompt_pairs *pairs, int64_t index,
                          const rpi_token_rows *rows, int64_t row);

#endif
