/* Questions about texts whose answers are spans of these: files as SQuAD 1.1 and 2.0 lay them
 * out. Everything lies in memory, as tokens with their places in the text. */
#ifndef RPI_TRAIN_SPAN_QUESTIONS_H
#define RPI_TRAIN_SPAN_QUESTIONS_H

#include "train/data/answer_score.h"
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
} rpi_span_questions;

/* RP_NOT_FOUND: no such file. RP_CORRUPT names file and question: a key that is missing, an
 * answer that does not stand where it is said to. RP_INVALID: there are no questions.
 * RP_UNSUPPORTED: a tokenizer that does not say where its tokens lie. */
rp_status rpi_span_questions_open(const char *path, const rpi_tokenizer *tokenizer,
                                  rpi_span_questions **out_questions);
/* The same of the text of a file; `name` is for messages. */
rp_status rpi_span_questions_parse(const char *name, const char *text, size_t bytes,
                                   const rpi_tokenizer *tokenizer,
                                   rpi_span_questions **out_questions);
void rpi_span_questions_close(rpi_span_questions *questions); /* NULL is fine */

#endif
