/* Questions about texts whose answers are spans of these: files as SQuAD 1.1 and 2.0 lay them
 * out, or rows of JSON with a text and a question each, as the library datasets writes them.
 * Either may be packed (train/texts/). Everything lies in memory, as tokens with their places
 * in the text. */
#ifndef RPI_TRAIN_SPAN_QUESTIONS_H
#define RPI_TRAIN_SPAN_QUESTIONS_H

#include "train/data/answer_score.h"
#include "train/texts/broken_rows.h"
#include "train/tokenizers/tokenizer.h"

typedef struct rpi_span_context {
    char *text;
    size_t first, tokens; /* of context_ids and places */
} rpi_span_context;

typedef struct rpi_span_question {
    char *id;
    int64_t context;
    size_t first, tokens;          /* of question_ids */
    size_t first_answer;           /* of answers; they lie in the context's text */
    size_t answers;                /* 0: the text has no answer */
    size_t start_token, end_token; /* of the first answer, in the context: both included */
} rpi_span_question;

typedef struct rpi_span_questions {
    rpi_span_context *contexts;
    rpi_span_question *questions;
    rpi_answer *answers;
    size_t context_count, question_count, answer_count;
    size_t context_room, question_room, answer_room;
    rpi_ids context_ids, question_ids;
    rpi_pieces places; /* of context_ids, in their context's text */
    size_t unanswerable;

    char *path;
    rpi_broken_rows broken;
    int64_t rows;    /* questions with those that are broken */
    size_t replaced; /* U+FFFD */
} rpi_span_questions;

/* RP_NOT_FOUND: no such file. RP_CORRUPT names file and questions, up to five: a key that is
 * missing, an answer that does not stand where it is said to; with skip_broken they are left
 * out. RP_INVALID: there are no questions. RP_UNSUPPORTED: a tokenizer that does not say where
 * its tokens lie.
 *
 * No answer is is_impossible, or "answers" that are [], null, {"text": [], "answer_start": []},
 * or empty texts before the first character. */
rp_status rpi_span_questions_open(const char *path, const rpi_tokenizer *tokenizer,
                                  bool skip_broken, rpi_span_questions **out_questions);
/* Warns of what was left out, and of U+FFFD that stands for what is no text. */
void rpi_span_questions_tell(const rpi_span_questions *questions);
void rpi_span_questions_close(rpi_span_questions *questions); /* NULL is fine */

#endif
