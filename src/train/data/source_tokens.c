/* Tokens on disk as the samples of a language model: batches read ahead, the end of the file or
 * a file of its own held out. */
#include "train/data/dataset.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/data/source.h"
#include "train/data/token_batches.h"
#include "train/data/token_data.h"

#include <string.h>

extern const rpi_dataset_kind rpi_dataset_tokens;

enum { DEFAULT_SEQUENCE = 256 };
#define PATIENCE_S 300.0 /* for a batch from a slow disk */

/* What is opened of the files, for the source and for the check before ranks start. */
typedef struct files {
    rpi_token_file *train, *validation;            /* may be one */
    rpi_token_samples train_samples, test_samples; /* `count` of them */
    int64_t first_test;                            /* sample of its file */
} files;

typedef struct token_source {
    files files;
    rpi_token_batches_options options;
    rpi_token_batches *batches; /* from the first step that was asked for */
    rpi_token_rows rows;        /* of held-out samples */
} token_source;

/* ---- files ---- */

static void close_files(files *f) {
    if (f->validation != f->train) rpi_token_file_close(f->validation);
    rpi_token_file_close(f->train);
    *f = (files){0};
}

/* What is cut: into so many tokens; samples go on from one another, or not. */
typedef struct cutting {
    int64_t sequence;
    bool continues;
} cutting;

static rp_status open_samples(const char *path, cutting cut, rpi_token_file **out_file,
                              rpi_token_samples *out_samples) {
    RP_TRY(rpi_token_file_open(path, out_file));
    rp_status status = rpi_token_samples_open(*out_file, cut.sequence, out_samples);
    if (status == RP_OK && cut.continues) rpi_token_samples_join(out_samples);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "%s (--seq-length): ", path);
}

static rp_status split(const rpi_token_data *data, files *f) {
    int64_t all = f->train_samples.count;
    f->validation = f->train;
    f->test_samples = f->train_samples;
    RP_TRY(rpi_token_data_split(data, all, f->train_samples.sequence, &f->train_samples.count));
    f->first_test = f->train_samples.count;
    f->test_samples.count = all - f->first_test;
    return RP_OK;
}

static rp_status check_vocabularies(const rpi_token_data *data, const files *f) {
    uint32_t a = f->train->vocabulary, b = f->validation->vocabulary;
    if (!a || !b || a == b) return RP_OK;
    return RP_FAIL(INVALID,
                   "%s has a vocabulary of %u, %s one of %u: make both by one tokenizer",
                   data->train, a, data->validation, b);
}

static rp_status open_all(const char *text, cutting cut, files *f) {
    rpi_token_data data;
    RP_TRY(rpi_token_data_parse(text, &data));
    RP_TRY(open_samples(data.train, cut, &f->train, &f->train_samples));
    if (!data.validation[0]) return split(&data, f);
    RP_TRY(open_samples(data.validation, cut, &f->validation, &f->test_samples));
    return check_vocabularies(&data, f);
}

/* On failure nothing is left. */
static rp_status open_files(const char *text, cutting cut, files *out_files) {
    files f = {0};
    if (cut.sequence == 0) cut.sequence = DEFAULT_SEQUENCE;
    rp_status status = open_all(text, cut, &f);
    if (status == RP_OK)
        *out_files = f;
    else
        close_files(&f);
    return status;
}

static rp_status probe(const rpi_dataset_options *options) {
    files f;
    if (options->folder) return RP_FAIL(INVALID, "--data-dir is for images; write tokens:PATH");
    RP_TRY(open_files(options->data, (cutting){.sequence = options->sequence}, &f));
    close_files(&f);
    return RP_OK;
}

/* ---- the source ---- */

static void close_tokens(void *context) {
    token_source *self = context;
    rpi_token_batches_close(self->batches);
    close_files(&self->files);
    rpi_free(self->rows.inputs);
    rpi_free(self->rows.labels);
    rpi_free(self);
}

/* Rows go on to the end of an epoch, so that all are equally long. */
static rp_status cut_streams(token_source *self, int64_t rows) {
    rpi_token_samples *train = &self->files.train_samples;
    int64_t steps = rpi_token_stream_steps(train->count, rows);
    if (steps < 1)
        return RP_FAIL(INVALID,
                       "%lld segments of %lld tokens, and a global batch of %lld rows that go "
                       "on from step to step; a smaller --global-batch-size or --seq-length",
                       (long long)train->count, (long long)train->sequence, (long long)rows);
    train->count = self->options.samples = steps * rows;
    return RP_OK;
}

static rp_status prepare(token_source *self, const rpi_source_options *o) {
    RP_TRY(open_files(o->data, (cutting){o->sequence, o->continues}, &self->files));
    int64_t sequence = self->files.train_samples.sequence;
    self->options = (rpi_token_batches_options){.sequence = sequence,
                                                .samples = self->files.train_samples.count,
                                                .global_batch = o->global_batch,
                                                .rank = o->rank,
                                                .world = o->world,
                                                .seed = o->seed,
                                                .continues = o->continues};
    if (o->continues) RP_TRY(cut_streams(self, o->global_batch));
    size_t row = (size_t)sequence * sizeof(int32_t);
    RP_TRY(rpi_alloc_array((size_t)o->most, row, "held-out tokens", &self->rows.inputs));
    return rpi_alloc_array((size_t)o->most, row, "held-out tokens", &self->rows.labels);
}

static rp_status open_tokens(const rpi_source_options *options, rpi_source *source) {
    token_source *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "the data", &self));
    rp_status status = prepare(self, options);
    if (status != RP_OK) {
        close_tokens(self);
        return rpi_fail_context(status, "--data tokens: ");
    }
    const rpi_token_samples *train = &self->files.train_samples;
    source->self = self;
    source->shape = (rpi_data_shape){.sequence = (int)train->sequence,
                                     .vocabulary = (int)train->file->vocabulary};
    source->train_count = train->count;
    source->test_count = self->files.test_samples.count;
    source->sample_units = train->sequence;
    return RP_OK;
}

static void limit(rpi_source *source, int64_t vocabulary) {
    token_source *self = source->self;
    rpi_token_file *both[] = {self->files.train, self->files.validation};
    for (int i = 0; i < 2; i++)
        if (!both[i]->vocabulary) both[i]->vocabulary = (uint32_t)vocabulary;
}

/* The ring begins with the step that is asked for first: a run that goes on has its own. */
static rp_status deal(rpi_source *source, int64_t step, rpi_source_batch *out_batch) {
    token_source *self = source->self;
    rpi_token_batch batch;
    if (!self->batches || rpi_token_batches_step(self->batches) != step) {
        rpi_token_batches_close(self->batches);
        self->batches = NULL;
        self->options.first_step = step;
        RP_TRY(rpi_token_batches_open(self->files.train, &self->options, &self->batches));
    }
    RP_TRY(rpi_token_batches_next(self->batches, PATIENCE_S, &batch));
    *out_batch = (rpi_source_batch){.inputs = {batch.rows.inputs, batch.rows.labels},
                                    .count = batch.count,
                                    .global_count = batch.global_count,
                                    .labels = batch.valid,
                                    .global_labels = batch.global_valid};
    return RP_OK;
}

static rp_status hold_out(rpi_source *source, int64_t first, int64_t count,
                          rpi_source_batch *out_batch) {
    token_source *self = source->self;
    const files *f = &self->files;
    rpi_token_samples samples = f->test_samples;
    samples.count += f->first_test;
    *out_batch =
        (rpi_source_batch){.inputs = {self->rows.inputs, self->rows.labels}, .count = count};
    for (int64_t i = 0; i < count; i++) {
        int64_t valid = 0;
        RP_TRY(
            rpi_token_sample_read(&samples, f->first_test + first + i, &self->rows, i, &valid));
        out_batch->labels += valid;
    }
    return RP_OK;
}

static const rpi_source_kind source_tokens = {.task = "language-model",
                                              .continues = true,
                                              .open = open_tokens,
                                              .close = close_tokens,
                                              .limit = limit,
                                              .deal = deal,
                                              .hold_out = hold_out};

const rpi_dataset_kind rpi_dataset_tokens = {
    .name = "tokens",
    .summary = "tokens on disk, as redpoll data tokenize writes them: tokens:PATH, with "
               ",validation=PATH or ,validation=5% (what is held out; the last 5% when absent)",
    .takes_text = true,
    .source = &source_tokens,
    .probe = probe,
};
