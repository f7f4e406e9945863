/* How near an answer is to the one that is right, as the evaluation script of SQuAD 2.0 says
 * it: both in lower case, without ASCII punctuation and the words a, an and the, words cut at
 * blanks. Exact: the same words; F1: of the words that both have, each as often as both have
 * it; of an answer without words 1 where both have none.
 *
 * Rajpurkar, Jia, Liang, "Know what you don't know", ACL 2018. */
#ifndef RPI_TRAIN_ANSWER_SCORE_H
#define RPI_TRAIN_ANSWER_SCORE_H

#include "train/tokenizers/text_buffer.h"

typedef struct rpi_answer {
    const char *text; /* UTF-8 */
    size_t bytes;
} rpi_answer;

typedef struct rpi_answer_score {
    double exact, f1; /* 0 to 1 */
} rpi_answer_score;

/* The best of either over all right ones; those without words do not count, and where none is
 * left (count 0, too) no answer is the right one. */
rp_status rpi_answer_score_best(rpi_answer predicted, const rpi_answer *right, size_t count,
                                rpi_answer_score *out_score);

/* Append an answer's words, one blank between two. */
rp_status rpi_answer_words(rpi_answer answer, rpi_text *out);

#endif
