/* Questions with windows of their texts, as rows that BERT reads, and what it answers to them.
 *
 *     [CLS] question [SEP] window of the text [SEP] [PAD] ...
 *
 * A text that does not fit is cut into windows that overlap: each begins `stride` tokens behind
 * the one before, or where that one ends if it is shorter. A window that does not hold the
 * whole first answer, and each of a text without one, has its answer at [CLS].
 *
 * Devlin, Chang, Lee, Toutanova, "BERT", NAACL 2019, sections 4.2 and 4.3. */
#ifndef RPI_TRAIN_SPAN_WINDOWS_H
#define RPI_TRAIN_SPAN_WINDOWS_H

#include "train/data/bert_tokens.h"
#include "train/data/scores.h"
#include "train/data/span_questions.h"

typedef struct rpi_span_options {
    int64_t sequence;   /* of a row */
    int64_t stride;     /* tokens between the beginnings of two windows */
    int64_t max_answer; /* tokens */
    rpi_bert_tokens tokens;
} rpi_span_options;

enum {
    RPI_SPAN_QUESTION_MOST = 64, /* tokens; the rest of a longer question is left out */
    RPI_SPAN_ENDS = 2,           /* where an answer begins, and its last token */
    RPI_SPAN_VERDICT = 4,        /* numbers */
};

/* Of `count` rows, in the order of the task spans (train/tasks/task_spans.c). */
typedef struct rpi_span_rows {
    int32_t *tokens, *segments, *documents;
    float *outside;
    int32_t *ends;
} rpi_span_rows;

typedef struct rpi_span_windows rpi_span_windows;

/* The questions outlive it. RP_INVALID: one that leaves its text no room in a row. */
rp_status rpi_span_windows_open(const rpi_span_questions *questions,
                                const rpi_span_options *options,
                                rpi_span_windows **out_windows);
void rpi_span_windows_close(rpi_span_windows *windows); /* NULL is fine */

int64_t rpi_span_windows_count(const rpi_span_windows *windows);
/* The first window of a question; of the one behind the last: how many there are. */
int64_t rpi_span_windows_first(const rpi_span_windows *windows, int64_t question);

void rpi_span_window_read(const rpi_span_windows *windows, int64_t index,
                          const rpi_span_rows *rows, int64_t row);

/* What a model says of a window, whose logits are 2 x sequence: the score of no answer (at
 * [CLS]), that of the best span in the text, and its first and last token there. Where no span
 * has a number for a score: minus infinity, 0, 0. */
void rpi_span_window_judge(const rpi_span_windows *windows, int64_t index, const float *logits,
                           double out_verdict[RPI_SPAN_VERDICT]);

/* Exact match and F1 over those questions all of whose windows are among `count` from `first`
 * on, whose verdicts these are. The best span of all windows of a question is its answer; with
 * may_decline none is, where the score of no answer, the least of all windows, is above. */
rp_status rpi_span_windows_score(const rpi_span_windows *windows, int64_t first, int64_t count,
                                 const double *verdicts, bool may_decline,
                                 rpi_scores *out_scores);

#endif
