/* Training a byte-level BPE of GPT-2's kind: the pair of neighbours that is most frequent in
 * the words of a text is merged, again and again.
 *
 * The same documents give the same tokenizer on every machine: ties go to the pair with the
 * smaller ids, as in Hugging Face's BpeTrainer, whose merges these are. Source: Sennrich,
 * Haddow, Birch, ACL 2016. */
#ifndef RPI_TRAIN_BPE_TRAIN_H
#define RPI_TRAIN_BPE_TRAIN_H

#include "train/tokenizers/text_buffer.h"

enum { RPI_BPE_LEAST = 257 }; /* the end of a document, and the 256 bytes */

typedef struct rpi_bpe_trainer rpi_bpe_trainer;

rp_status rpi_bpe_trainer_create(rpi_bpe_trainer **out_trainer);
void rpi_bpe_trainer_destroy(rpi_bpe_trainer *trainer); /* NULL is fine */

/* Count the words of a document; what is not UTF-8 counts as U+FFFD. RP_UNSUPPORTED: more than
 * RPI_TOKENS_MOST different words. */
rp_status rpi_bpe_trainer_add(rpi_bpe_trainer *trainer, const char *text, size_t bytes);

/* The text of a tokenizer.json with `size` tokens, fewer where no pair is left: 0 is
 * <|endoftext|>, then come the 256 bytes, then what was merged. By cJSON_free(). Once.
 * stops (NULL: never) is asked now and then; true is RP_CANCELLED. RP_INVALID: size is below
 * RPI_BPE_LEAST or above RPI_TOKENS_MOST. */
rp_status rpi_bpe_trainer_finish(rpi_bpe_trainer *trainer, uint32_t size,
                                 bool (*stops)(void *context), void *context, char **out_json);

#endif
