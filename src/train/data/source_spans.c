/* Windows of texts with questions as the samples of a model that finds answers. */
#include "train/data/dataset.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "train/data/sampler.h"
#include "train/data/source.h"
#include "train/data/span_windows.h"
#include "train/data/text_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const rpi_dataset_kind rpi_dataset_spans;

enum { DEFAULT_SEQUENCE = 256, STRIDE = 128, MAX_ANSWER = 30, MOST_TOKENS = 1 << 20 };
static const char usage[] =
    "write spans:FILE.json,tokenizer=NAME, with ,validation=FILE.json or ,validation=5%, "
    ",stride=128 and ,max-answer=30 where wanted";

/* What a user names. */
typedef struct words {
    rpi_text_words text;
    int64_t stride, max_answer;
} words;

typedef struct span_file {
    rpi_span_questions *questions;
    rpi_span_windows *windows;
} span_file;

typedef struct span_source {
    span_file train, validation; /* the second may be empty: the first's last questions */
    const rpi_span_windows *held_out;
    rpi_span_options options;
    int64_t train_count, first_test, test_count; /* windows */
    bool may_decline;                            /* there are questions without an answer */
    bool skips_broken;
    rpi_sampler sampler;
    int rank, world;
    rpi_span_rows rows;
} span_source;

/* ---- words ---- */

static rp_status take_number(const char *name, const char *text, int64_t *out) {
    char *end = NULL;
    long long number = strtoll(text, &end, 10);
    if (!*text || *end || number < 1 || number > MOST_TOKENS)
        return RP_FAIL(INVALID, "%s=%s: a number of tokens, 1 to %d", name, text, MOST_TOKENS);
    *out = number;
    return RP_OK;
}

static rp_status take_word(const char *name, const char *value, void *own, bool *out_taken) {
    words *w = own;
    *out_taken = true;
    if (strcmp(name, "stride") == 0) return take_number(name, value, &w->stride);
    if (strcmp(name, "max-answer") == 0) return take_number(name, value, &w->max_answer);
    *out_taken = false;
    return RP_OK;
}

static rp_status parse(const char *data, words *out) {
    *out = (words){.stride = STRIDE, .max_answer = MAX_ANSWER};
    return rpi_text_words_parse(data, "spans", usage, take_word, out, &out->text);
}

/* ---- files ---- */

static void close_file(span_file *file) {
    rpi_span_windows_close(file->windows);
    rpi_span_questions_close(file->questions);
}

static rp_status open_file(const char *path, const rpi_tokenizer *tokenizer, span_source *self,
                           span_file *file) {
    RP_TRY(rpi_span_questions_open(path, tokenizer, self->skips_broken, &file->questions));
    rp_status status = rpi_span_windows_open(file->questions, &self->options, &file->windows);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", path);
    self->may_decline |= file->questions->unanswerable > 0;
    return RP_OK;
}

/* Back to where a text's questions begin: held out are texts that nobody learnt from. */
static int64_t find_text(const rpi_span_questions *q, int64_t question) {
    int64_t at = question;
    while (at > 0 && q->questions[at - 1].context == q->questions[at].context) at--;
    return at ? at : question;
}

static rp_status split(const words *w, span_source *self) {
    int64_t all = (int64_t)self->train.questions->question_count, first = 0;
    if (all < 2)
        return RP_FAIL(INVALID,
                       "%s holds one question, and one is to be held out: add another, or "
                       "validation=FILE.json",
                       w->text.files.train);
    RP_TRY(rpi_token_data_split(&w->text.files, all, self->options.sequence, &first));
    first = find_text(self->train.questions, first);
    self->train_count = rpi_span_windows_first(self->train.windows, first);
    self->first_test = self->train_count;
    self->test_count = rpi_span_windows_count(self->train.windows) - self->train_count;
    self->held_out = self->train.windows;
    return RP_OK;
}

static rp_status open_both(const words *w, const rpi_tokenizer *tokenizer, span_source *self) {
    RP_TRY(open_file(w->text.files.train, tokenizer, self, &self->train));
    if (!w->text.files.validation[0]) return split(w, self);
    RP_TRY(open_file(w->text.files.validation, tokenizer, self, &self->validation));
    self->train_count = rpi_span_windows_count(self->train.windows);
    self->test_count = rpi_span_windows_count(self->validation.windows);
    self->held_out = self->validation.windows;
    return RP_OK;
}

static rp_status open_files(const char *data, int64_t sequence, span_source *self) {
    words w;
    rpi_tokenizer *tokenizer = NULL;
    RP_TRY(parse(data, &w));
    RP_TRY(rpi_tokenizer_open(w.text.tokenizer, &tokenizer));
    self->options = (rpi_span_options){.sequence = sequence ? sequence : DEFAULT_SEQUENCE,
                                       .stride = w.stride,
                                       .max_answer = w.max_answer,
                                       .tokens = rpi_bert_tokens_of(tokenizer)};
    rp_status status = open_both(&w, tokenizer, self);
    rpi_tokenizer_close(tokenizer);
    return status;
}

static rp_status probe(const rpi_dataset_options *options) {
    span_source self = {.skips_broken = options->pictures.skip_broken};
    if (options->folder) return RP_FAIL(INVALID, "--data-dir is for images; %s", usage);
    rp_status status = open_files(options->data, options->sequence, &self);
    close_file(&self.validation);
    close_file(&self.train);
    return status;
}

/* ---- the source ---- */

static void close_source(void *context) {
    span_source *self = context;
    rpi_sampler_destroy(&self->sampler);
    close_file(&self->validation);
    close_file(&self->train);
    rpi_free(self->rows.tokens);
    rpi_free(self->rows.segments);
    rpi_free(self->rows.documents);
    rpi_free(self->rows.outside);
    rpi_free(self->rows.ends);
    rpi_free(self);
}

static rp_status make_rows(span_source *self, size_t count) {
    size_t row = (size_t)self->options.sequence * sizeof(int32_t);
    rpi_span_rows *rows = &self->rows;
    RP_TRY(rpi_alloc_array(count, row, "a batch", &rows->tokens));
    RP_TRY(rpi_alloc_array(count, row, "a batch", &rows->segments));
    RP_TRY(rpi_alloc_array(count, row, "a batch", &rows->documents));
    RP_TRY(rpi_alloc_array(count, RPI_SPAN_ENDS * row, "a batch", &rows->outside));
    return rpi_alloc_array(count, RPI_SPAN_ENDS * sizeof(int32_t), "a batch", &rows->ends);
}

static void tell(const span_source *self) {
    rpi_span_questions_tell(self->train.questions);
    if (self->validation.questions) rpi_span_questions_tell(self->validation.questions);
}

static rp_status prepare(span_source *self, const rpi_source_options *o) {
    self->skips_broken = o->pictures.skip_broken;
    RP_TRY(open_files(o->data, o->sequence, self));
    if (o->rank == 0) tell(self);
    self->rank = o->rank;
    self->world = o->world;
    RP_TRY(make_rows(self, (size_t)o->most));
    return rpi_sampler_create(o->seed, self->train_count, o->global_batch, &self->sampler);
}

static rp_status open_source(const rpi_source_options *options, rpi_source *source) {
    span_source *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "the data", &self));
    rp_status status = prepare(self, options);
    if (status != RP_OK) {
        close_source(self);
        return rpi_fail_context(status, "--data spans: ");
    }
    source->self = self;
    source->shape = (rpi_data_shape){.sequence = (int)self->options.sequence,
                                     .vocabulary = (int)self->options.tokens.vocabulary};
    source->train_count = self->train_count;
    source->test_count = self->test_count;
    source->sample_units = self->options.sequence;
    return RP_OK;
}

static rpi_source_batch batch_of(const span_source *self, int64_t count) {
    const rpi_span_rows *rows = &self->rows;
    return (rpi_source_batch){
        .inputs = {rows->tokens, rows->segments, rows->documents, rows->outside, rows->ends},
        .count = count,
        .labels = RPI_SPAN_ENDS * count};
}

static rp_status deal(rpi_source *source, int64_t step, rpi_source_batch *out_batch) {
    span_source *self = source->self;
    rpi_batch batch = rpi_sampler_deal(&self->sampler, step, self->rank, self->world);
    *out_batch = batch_of(self, batch.count);
    out_batch->global_count = rpi_source_count(source, step);
    out_batch->global_labels = RPI_SPAN_ENDS * out_batch->global_count;
    for (int64_t i = 0; i < batch.count; i++)
        rpi_span_window_read(self->train.windows, batch.indices[i], &self->rows, i);
    return RP_OK;
}

static rp_status hold_out(rpi_source *source, int64_t first, int64_t count,
                          rpi_source_batch *out_batch) {
    span_source *self = source->self;
    *out_batch = batch_of(self, count);
    for (int64_t i = 0; i < count; i++)
        rpi_span_window_read(self->held_out, self->first_test + first + i, &self->rows, i);
    return RP_OK;
}

static void judge(const rpi_source *source, int64_t sample, const float *logits,
                  double *out_verdict) {
    const span_source *self = source->self;
    rpi_span_window_judge(self->held_out, self->first_test + sample, logits, out_verdict);
}

static rp_status score(const rpi_source *source, int64_t count, const double *verdicts,
                       rpi_scores *out_scores) {
    const span_source *self = source->self;
    return rpi_span_windows_score(self->held_out, self->first_test, count, verdicts,
                                  self->may_decline, out_scores);
}

static const rpi_source_kind source_spans = {.task = "spans",
                                             .open = open_source,
                                             .close = close_source,
                                             .deal = deal,
                                             .hold_out = hold_out,
                                             .verdict_numbers = RPI_SPAN_VERDICT,
                                             .judge = judge,
                                             .score = score};

const rpi_dataset_kind rpi_dataset_spans = {
    .name = "spans",
    .summary =
        "questions about texts whose answers are parts of these, in SQuAD's JSON: "
        "spans:FILE.json,tokenizer=NAME, with ,validation=FILE.json or ,validation=5% (what "
        "is held out; the last 5% when absent), ,stride=128 (tokens between the beginnings "
        "of two windows of a text) and ,max-answer=30 (tokens of an answer)",
    .takes_text = true,
    .skips_broken = true,
    .source = &source_spans,
    .probe = probe,
};
