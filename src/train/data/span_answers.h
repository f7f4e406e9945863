/* The answers of a question as files write them: SQuAD's list of objects, or two lists beside
 * each other; and the ways to say that there is none. */
#ifndef RPI_TRAIN_SPAN_ANSWERS_H
#define RPI_TRAIN_SPAN_ANSWERS_H

#include "base/status.h"
#include "train/data/answer_score.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

typedef struct rpi_said_answers {
    const cJSON *one;          /* the next of a list of objects; or: */
    const cJSON *text, *start; /* the next of two lists, or one of each */
    bool is_impossible;
} rpi_said_answers;

/* Of a question. Failures are of the question, without its place (RP_CORRUPT): "answers" that
 * are missing or something else, lists of two lengths. */
rp_status rpi_said_answers_read(const cJSON *question, rpi_said_answers *out_said);

typedef struct rpi_said_answer {
    const cJSON *text, *start;
} rpi_said_answer;

/* The next one that is an answer, and no empty text where none can stand; false: there is none.
 */
bool rpi_said_answers_next(rpi_said_answers *said, rpi_said_answer *out_answer);
/* Where it stands in the text. RP_CORRUPT, without a place: it does not stand there, or is
 * empty. */
rp_status rpi_said_answer_find(const rpi_said_answer *answer, const char *context,
                               rpi_answer *out_answer);

/* Not more of a text than fits a message, and whole characters of it. */
int rpi_shown_bytes(const char *text);

#endif
