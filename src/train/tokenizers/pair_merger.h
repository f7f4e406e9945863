/* Merging: of all words, spelled in tokens, the pair of neighbours that is most frequent
 * becomes a token, again and again. What byte-level BPE and WordPiece are trained by.
 *
 * Ties go to the pair with the smaller ids, as in Hugging Face's BpeTrainer, whose merges these
 * are. Source: Sennrich, Haddow, Birch, ACL 2016. */
#ifndef RPI_TRAIN_PAIR_MERGER_H
#define RPI_TRAIN_PAIR_MERGER_H

#include "train/tokenizers/json_read.h"
#include "train/tokenizers/pair_map.h"
#include "train/tokenizers/tokenizer_train.h"

/* Words that hold a pair. */
typedef struct rpi_merge_places {
    uint32_t *at;
    size_t count, capacity;
} rpi_merge_places;

/* A pair that waits: places may be some of its places only, where a later merge made others. */
typedef struct rpi_merge_candidate {
    int64_t count;
    uint32_t left, right;
    rpi_merge_places where;
} rpi_merge_candidate;

typedef struct rpi_merge_pair {
    int64_t count;
    uint32_t left, right;
    rpi_merge_places added; /* in this round */
} rpi_merge_pair;

typedef struct rpi_merge_word {
    uint32_t start, length; /* of the symbols; it only gets shorter */
} rpi_merge_word;

typedef struct rpi_pair_merger {
    const rpi_word_counts *counted; /* borrowed */
    const char *prefix;             /* of tokens inside of a word, "" for none */
    rpi_vocabulary tokens;          /* the first ones by the caller */
    cJSON *merges;                  /* an array that is written to; NULL: not wanted */
    /* ---- inside ---- */
    uint32_t *symbols;
    rpi_merge_word *words;
    rpi_pair_map pairs; /* (left, right) -> index of facts + 1 */
    rpi_merge_pair *facts;
    size_t fact_count, fact_capacity;
    uint32_t *touched; /* facts with new places in this round */
    size_t touched_count, touched_capacity;
    rpi_merge_candidate *heap;
    size_t waiting, heap_capacity;
} rpi_pair_merger;

void rpi_pair_merger_close(rpi_pair_merger *merger); /* zeros are fine */

/* Write each word in tokens, at most one a byte. */
rp_status rpi_pair_merger_spell(rpi_pair_merger *merger,
                                rp_status (*spell)(rpi_pair_merger *merger,
                                                   const rpi_token *word, uint32_t *symbols,
                                                   uint32_t *out_count));
/* Merge until there are `size` tokens, or no pair is left. */
rp_status rpi_pair_merger_run(rpi_pair_merger *merger, uint32_t size, rpi_training_stop stop);

#endif
