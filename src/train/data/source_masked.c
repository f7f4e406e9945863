/* Tokens on disk as the samples of a masked language model: batches read ahead, the last
 * samples of the file or those of a file of its own held out. */
#include "train/data/dataset.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/data/masked_batches.h"
#include "train/data/source.h"
#include "train/data/token_data.h"

#include <string.h>

extern const rpi_dataset_kind rpi_dataset_masked;

enum { DEFAULT_SEQUENCE = 256 };
#define PATIENCE_S 300.0 /* for a batch from a slow disk */

/* A file of tokens and what is learnt from it. */
typedef struct text {
    rpi_token_file *file;
    rpi_masked_samples *samples;
} text;

/* What is opened of the files, for the source and for the check before ranks start. */
typedef struct texts {
    text train, validation; /* may be one */
    int64_t sequence, train_count;
    int64_t first_test, test_count; /* samples of `validation` */
} texts;

typedef struct masked_source {
    texts texts;
    rpi_masked_batches_options options;
    rpi_masked_batches *batches; /* from the first step that was asked for */
    void *memory;                /* of held-out rows */
    rpi_masked_rows rows;
} masked_source;

/* ---- files ---- */

static void close_text(text *t) {
    rpi_masked_samples_close(t->samples);
    rpi_token_file_close(t->file);
}

static void close_texts(texts *t) {
    if (t->validation.file != t->train.file) close_text(&t->validation);
    close_text(&t->train);
    *t = (texts){0};
}

/* The tokenizer beside the tokens. */
static rp_status open_tokenizer(const char *path, const rpi_token_file *file,
                                rpi_tokenizer **out_tokenizer) {
    bool is_byte = file->tokenizer && strcmp(file->tokenizer, "byte") == 0;
    if (file->tokenizer_json) return rpi_tokenizer_open(file->tokenizer_json, out_tokenizer);
    if (is_byte) return rpi_tokenizer_open("byte", out_tokenizer);
    return RP_FAIL(NOT_FOUND,
                   "%s has no tokenizer beside it, which says what may be hidden: write the "
                   "tokens with redpoll data tokenize",
                   path);
}

static rp_status open_text(const char *path, int64_t sequence, text *out) {
    rpi_tokenizer *tokenizer = NULL;
    RP_TRY(rpi_token_file_open(path, &out->file));
    RP_TRY(open_tokenizer(path, out->file, &tokenizer));
    rpi_masked_options options = {.sequence = sequence};
    rp_status status = rpi_masked_samples_open(out->file, tokenizer, &options, &out->samples);
    rpi_tokenizer_close(tokenizer);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "%s (--seq-length): ", path);
}

static rp_status check_vocabularies(const rpi_token_data *data, const texts *t) {
    uint32_t a = rpi_masked_samples_vocabulary(t->train.samples);
    uint32_t b = rpi_masked_samples_vocabulary(t->validation.samples);
    if (a == b) return RP_OK;
    return RP_FAIL(INVALID,
                   "%s has a vocabulary of %u, %s one of %u: make both by one tokenizer",
                   data->train, a, data->validation, b);
}

static rp_status open_all(const char *name, int64_t sequence, texts *t) {
    rpi_token_data data;
    RP_TRY(rpi_token_data_parse(name, &data));
    t->sequence = sequence ? sequence : DEFAULT_SEQUENCE;
    RP_TRY(open_text(data.train, t->sequence, &t->train));
    int64_t all = t->train_count = rpi_masked_samples_count(t->train.samples);
    if (data.validation[0]) {
        RP_TRY(open_text(data.validation, t->sequence, &t->validation));
        t->test_count = rpi_masked_samples_count(t->validation.samples);
        return check_vocabularies(&data, t);
    }
    RP_TRY(rpi_token_data_split(&data, all, t->sequence, &t->train_count));
    t->validation = t->train;
    t->first_test = t->train_count;
    t->test_count = all - t->train_count;
    return RP_OK;
}

/* On failure nothing is left. */
static rp_status open_texts(const char *name, int64_t sequence, texts *out_texts) {
    texts t = {0};
    rp_status status = open_all(name, sequence, &t);
    if (status == RP_OK)
        *out_texts = t;
    else
        close_texts(&t);
    return status;
}

static rp_status probe(const rpi_dataset_options *options) {
    texts t;
    if (options->folder) return RP_FAIL(INVALID, "--data-dir is for images; write masked:PATH");
    RP_TRY(open_texts(options->data, options->sequence, &t));
    close_texts(&t);
    return RP_OK;
}

/* ---- the source ---- */

static void close_masked(void *context) {
    masked_source *self = context;
    rpi_masked_batches_close(self->batches);
    close_texts(&self->texts);
    rpi_free(self->memory);
    rpi_free(self);
}

static rp_status prepare(masked_source *self, const rpi_source_options *o) {
    RP_TRY(open_texts(o->data, o->sequence, &self->texts));
    int64_t sequence = self->texts.sequence;
    self->options = (rpi_masked_batches_options){.sequence = sequence,
                                                 .count = self->texts.train_count,
                                                 .global_batch = o->global_batch,
                                                 .rank = o->rank,
                                                 .world = o->world,
                                                 .seed = o->seed};
    RP_TRY(
        rpi_alloc(rpi_masked_rows_bytes(o->most, sequence), "held-out tokens", &self->memory));
    self->rows = rpi_masked_rows_at(self->memory, o->most, sequence);
    return RP_OK;
}

static rp_status open_masked(const rpi_source_options *options, rpi_source *source) {
    masked_source *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "the data", &self));
    rp_status status = prepare(self, options);
    if (status != RP_OK) {
        close_masked(self);
        return rpi_fail_context(status, "--data masked: ");
    }
    const texts *t = &self->texts;
    source->self = self;
    source->shape =
        (rpi_data_shape){.sequence = (int)t->sequence,
                         .vocabulary = (int)rpi_masked_samples_vocabulary(t->train.samples)};
    source->train_count = t->train_count;
    source->test_count = t->test_count;
    source->sample_units = t->sequence;
    return RP_OK;
}

static rpi_source_batch batch_of(const rpi_masked_rows *rows, int64_t count) {
    return (rpi_source_batch){
        .inputs = {rows->tokens, rows->segments, rows->documents, rows->labels, rows->next},
        .count = count};
}

/* The ring begins with the step that is asked for first: a run that goes on has its own. */
static rp_status deal(rpi_source *source, int64_t step, rpi_source_batch *out_batch) {
    masked_source *self = source->self;
    rpi_masked_batch batch;
    if (!self->batches || rpi_masked_batches_step(self->batches) != step) {
        rpi_masked_batches_close(self->batches);
        self->batches = NULL;
        self->options.first_step = step;
        RP_TRY(
            rpi_masked_batches_open(self->texts.train.samples, &self->options, &self->batches));
    }
    RP_TRY(rpi_masked_batches_next(self->batches, PATIENCE_S, &batch));
    *out_batch = batch_of(&batch.rows, batch.count);
    out_batch->global_count = batch.global_count;
    out_batch->labels = batch.valid;
    /* Where nothing is hidden the loss is 0 by any divisor but 0. */
    out_batch->global_labels = batch.global_valid ? batch.global_valid : 1;
    return RP_OK;
}

/* Paired and hidden alike in every evaluation, whatever the run's seed. */
static rp_status hold_out(rpi_source *source, int64_t first, int64_t count,
                          rpi_source_batch *out_batch) {
    masked_source *self = source->self;
    const texts *t = &self->texts;
    rpi_masked_draw draw = {.seed = 0, .first = t->first_test, .count = t->test_count};
    *out_batch = batch_of(&self->rows, count);
    for (int64_t i = 0; i < count; i++) {
        int64_t valid = 0;
        RP_TRY(rpi_masked_sample_read(t->validation.samples, &draw, t->first_test + first + i,
                                      &self->rows, i, &valid));
        out_batch->labels += valid;
    }
    return RP_OK;
}

static const rpi_source_kind source_masked = {.task = "masked-lm",
                                              .open = open_masked,
                                              .close = close_masked,
                                              .deal = deal,
                                              .hold_out = hold_out};

const rpi_dataset_kind rpi_dataset_masked = {
    .name = "masked",
    .summary = "tokens on disk, as redpoll data tokenize writes them, in pairs of pieces with "
               "hidden tokens: masked:PATH, with ,validation=PATH or ,validation=5% (what is "
               "held out; the last 5% when absent)",
    .takes_text = true,
    .source = &source_masked,
    .probe = probe,
};
