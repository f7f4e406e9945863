#include "train/data/span_windows.h"

#include "base/memory.h"
#include "train/tasks/task.h"

#include <math.h>

enum { AROUND = 3 }; /* [CLS] and two [SEP] */

typedef struct window {
    int64_t question;
    int64_t start, tokens; /* of the context */
} window;

struct rpi_span_windows {
    const rpi_span_questions *q;
    rpi_span_options options;
    window *windows;
    int64_t *first; /* of each question, and the end of the last */
    size_t count, room;
};

/* ---- cutting ---- */

static int64_t question_tokens(const rpi_span_question *question) {
    return question->tokens < RPI_SPAN_QUESTION_MOST ? (int64_t)question->tokens
                                                     : RPI_SPAN_QUESTION_MOST;
}

static rp_status add_window(rpi_span_windows *w, window added) {
    if (w->count == w->room) {
        size_t room = w->room ? 2 * w->room : 256;
        RP_TRY(rpi_grow_array(w->room, room, sizeof *w->windows, "windows", &w->windows));
        w->room = room;
    }
    w->windows[w->count++] = added;
    return RP_OK;
}

static rp_status cut(rpi_span_windows *w, int64_t index) {
    const rpi_span_question *question = &w->q->questions[index];
    int64_t all = (int64_t)w->q->contexts[question->context].tokens;
    int64_t around = AROUND + question_tokens(question);
    int64_t room = w->options.sequence - around;
    if (room < 1)
        return RP_FAIL(INVALID,
                       "question %s has %lld tokens, which leave its text no room in a row: "
                       "--seq-length %lld or more",
                       question->id, (long long)question_tokens(question),
                       (long long)around + 1);
    int64_t step = w->options.stride < room ? w->options.stride : room;
    for (int64_t start = 0;; start += step) {
        int64_t left = all - start;
        RP_TRY(add_window(w, (window){index, start, left < room ? left : room}));
        if (left <= room) return RP_OK;
    }
}

static rp_status cut_all(rpi_span_windows *w) {
    size_t questions = w->q->question_count;
    RP_TRY(rpi_alloc_array(questions + 1, sizeof *w->first, "questions", &w->first));
    for (size_t i = 0; i < questions; i++) {
        w->first[i] = (int64_t)w->count;
        RP_TRY(cut(w, (int64_t)i));
    }
    w->first[questions] = (int64_t)w->count;
    return RP_OK;
}

rp_status rpi_span_windows_open(const rpi_span_questions *questions,
                                const rpi_span_options *options,
                                rpi_span_windows **out_windows) {
    rpi_span_windows *w = NULL;
    RP_TRY(rpi_alloc(sizeof *w, "windows", &w));
    w->q = questions;
    w->options = *options;
    rp_status status = cut_all(w);
    if (status == RP_OK)
        *out_windows = w;
    else
        rpi_span_windows_close(w);
    return status;
}

void rpi_span_windows_close(rpi_span_windows *w) {
    if (!w) return;
    rpi_free(w->windows);
    rpi_free(w->first);
    rpi_free(w);
}

int64_t rpi_span_windows_count(const rpi_span_windows *w) {
    return (int64_t)w->count;
}

int64_t rpi_span_windows_first(const rpi_span_windows *w, int64_t question) {
    return w->first[question];
}

/* ---- rows ---- */

/* Of the window's text. */
static int64_t first_place(const rpi_span_windows *w, const window *it) {
    return question_tokens(&w->q->questions[it->question]) + 2;
}

static void read_tokens(const rpi_span_windows *w, const window *it, int32_t *tokens) {
    const rpi_span_question *question = &w->q->questions[it->question];
    const rpi_span_context *context = &w->q->contexts[question->context];
    /* NULL if no question, or no text, has a token. */
    const uint32_t *words = w->q->question_ids.at, *text = w->q->context_ids.at;
    size_t first = context->first + (size_t)it->start, asked_first = question->first;
    int64_t at = 0, asked = question_tokens(question);
    tokens[at++] = (int32_t)w->options.tokens.cls;
    for (int64_t i = 0; i < asked; i++) tokens[at++] = (int32_t)words[asked_first + (size_t)i];
    tokens[at++] = (int32_t)w->options.tokens.sep;
    for (int64_t i = 0; i < it->tokens; i++) tokens[at++] = (int32_t)text[first + (size_t)i];
    tokens[at++] = (int32_t)w->options.tokens.sep;
    while (at < w->options.sequence) tokens[at++] = (int32_t)w->options.tokens.pad;
}

static void read_ends(const rpi_span_windows *w, const window *it, int32_t *ends) {
    const rpi_span_question *question = &w->q->questions[it->question];
    int64_t from = (int64_t)question->start_token - it->start;
    int64_t to = (int64_t)question->end_token - it->start;
    bool has_it = question->answers && from >= 0 && to < it->tokens;
    ends[0] = has_it ? (int32_t)(first_place(w, it) + from) : 0;
    ends[1] = has_it ? (int32_t)(first_place(w, it) + to) : 0;
}

void rpi_span_window_read(const rpi_span_windows *w, int64_t index, const rpi_span_rows *rows,
                          int64_t row) {
    const window *it = &w->windows[index];
    int64_t length = w->options.sequence, text = first_place(w, it);
    int64_t used = text + it->tokens + 1;
    int32_t *segments = rows->segments + row * length;
    int32_t *documents = rows->documents + row * length;
    float *outside = rows->outside + row * RPI_SPAN_ENDS * length;
    read_tokens(w, it, rows->tokens + row * length);
    read_ends(w, it, rows->ends + row * RPI_SPAN_ENDS);
    for (int64_t i = 0; i < length; i++) {
        segments[i] = i >= text && i < used;
        documents[i] = i >= used;
        outside[i] = outside[length + i] = i >= used ? RPI_TASK_FAR_BELOW : 0;
    }
}

/* ---- answers ---- */

void rpi_span_window_judge(const rpi_span_windows *w, int64_t index, const float *logits,
                           double out_verdict[RPI_SPAN_VERDICT]) {
    const window *it = &w->windows[index];
    const float *start = logits, *end = logits + w->options.sequence;
    double *verdict = out_verdict;
    verdict[0] = (double)start[0] + (double)end[0];
    verdict[1] = -INFINITY;
    verdict[2] = verdict[3] = 0;
    start += first_place(w, it);
    end += first_place(w, it);
    for (int64_t s = 0; s < it->tokens; s++)
        for (int64_t e = s; e < it->tokens && e < s + w->options.max_answer; e++) {
            double score = (double)start[s] + (double)end[e];
            if (!(score > verdict[1])) continue;
            verdict[1] = score;
            verdict[2] = (double)(it->start + s);
            verdict[3] = (double)(it->start + e);
        }
}

/* From the first byte of one token to the last byte of the other. */
static rpi_answer text_between(const rpi_span_questions *q, const rpi_span_question *question,
                               const double verdict[RPI_SPAN_VERDICT]) {
    const rpi_span_context *context = &q->contexts[question->context];
    if (!(verdict[1] > -INFINITY)) return (rpi_answer){"", 0};
    const rpi_text_piece *from = &q->places.at[context->first + (size_t)verdict[2]];
    const rpi_text_piece *to = &q->places.at[context->first + (size_t)verdict[3]];
    return (rpi_answer){context->text + from->start, to->start + to->bytes - from->start};
}

/* The answer that results from the scores of all windows of a question. */
static rpi_answer choose_answer(const rpi_span_questions *q, const rpi_span_question *question,
                                const double *verdicts, int64_t count, bool may_decline) {
    const double *best = verdicts;
    double none = verdicts[0];
    for (int64_t i = 1; i < count; i++) {
        const double *verdict = verdicts + i * RPI_SPAN_VERDICT;
        if (verdict[1] > best[1]) best = verdict;
        if (verdict[0] < none) none = verdict[0];
    }
    if (may_decline && none > best[1]) return (rpi_answer){"", 0};
    return text_between(q, question, best);
}

rp_status rpi_span_windows_score(const rpi_span_windows *w, int64_t first, int64_t count,
                                 const double *verdicts, bool may_decline,
                                 rpi_scores *out_scores) {
    double exact = 0, f1 = 0;
    int64_t over = 0;
    for (size_t i = 0; i < w->q->question_count; i++) {
        const rpi_span_question *question = &w->q->questions[i];
        int64_t from = w->first[i] - first, to = w->first[i + 1] - first;
        if (from < 0 || to > count) continue;
        rpi_answer_score score;
        const rpi_answer *answers = /* of no question, if there are none */
            question->answers ? w->q->answers + question->first_answer : NULL;
        rpi_answer said = choose_answer(w->q, question, verdicts + from * RPI_SPAN_VERDICT,
                                        to - from, may_decline);
        RP_TRY(rpi_answer_score_best(said, answers, question->answers, &score));
        exact += score.exact;
        f1 += score.f1;
        over++;
    }
    *out_scores = (rpi_scores){
        .count = 2,
        .at = {{"exact_match", "exact match", over ? 100 * exact / (double)over : NAN},
               {"f1", "F1", over ? 100 * f1 / (double)over : NAN}},
        .over = over,
        .unit = "questions"};
    return RP_OK;
}
