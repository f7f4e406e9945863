/* Prompts and completions as the samples of a language model. */
#include "train/data/dataset.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "train/data/prompt_pairs.h"
#include "train/data/sampler.h"
#include "train/data/share.h"
#include "train/data/source.h"
#include "train/data/text_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const rpi_dataset_kind rpi_dataset_pairs;

enum { DEFAULT_SEQUENCE = 256 };
static const char usage[] =
    "write pairs:FILE.jsonl,tokenizer=NAME, with ,validation=FILE.jsonl "
    "or ,validation=5% where wanted";

typedef struct pair_source {
    rpi_prompt_pairs *train, *validation; /* may be one */
    bool skips_broken;
    int64_t sequence, train_count, first_test, test_count;
    uint32_t vocabulary;
    rpi_sampler sampler;
    int rank, world;
    rpi_token_rows rows;
} pair_source;

/* ---- files ---- */

static void close_files(pair_source *self) {
    if (self->validation != self->train) rpi_prompt_pairs_close(self->validation);
    rpi_prompt_pairs_close(self->train);
}

static rp_status open_pairs(const rpi_text_words *w, const rpi_tokenizer *tokenizer,
                            pair_source *self) {
    RP_TRY(rpi_prompt_pairs_open(w->files.train, tokenizer, self->sequence, self->skips_broken,
                                 &self->train));
    int64_t all = self->train_count = rpi_prompt_pairs_count(self->train);
    if (w->files.validation[0]) {
        RP_TRY(rpi_prompt_pairs_open(w->files.validation, tokenizer, self->sequence,
                                     self->skips_broken, &self->validation));
        self->test_count = rpi_prompt_pairs_count(self->validation);
        return RP_OK;
    }
    if (all < 2)
        return RP_FAIL(INVALID,
                       "%s holds one pair, and one is to be held out: add another, or "
                       "validation=FILE.jsonl",
                       w->files.train);
    RP_TRY(rpi_token_data_split(&w->files, all, self->sequence, &self->train_count));
    self->validation = self->train;
    self->first_test = self->train_count;
    self->test_count = all - self->train_count;
    return RP_OK;
}

static rp_status open_files(const char *data, int64_t sequence, pair_source *self) {
    rpi_text_words w;
    rpi_tokenizer *tokenizer = NULL;
    RP_TRY(rpi_text_words_parse(data, "pairs", usage, NULL, NULL, &w));
    RP_TRY(rpi_tokenizer_open(w.tokenizer, &tokenizer));
    self->sequence = sequence ? sequence : DEFAULT_SEQUENCE;
    self->vocabulary = rpi_tokenizer_size(tokenizer);
    rp_status status = open_pairs(&w, tokenizer, self);
    rpi_tokenizer_close(tokenizer);
    return status;
}

static void tell(const pair_source *self) {
    rpi_prompt_pairs_tell(self->train);
    if (self->validation != self->train) rpi_prompt_pairs_tell(self->validation);
}

static rp_status probe(const rpi_dataset_options *options) {
    pair_source self = {.skips_broken = options->pictures.skip_broken};
    if (options->folder) return RP_FAIL(INVALID, "--data-dir is for images; %s", usage);
    rp_status status = open_files(options->data, options->sequence, &self);
    close_files(&self);
    return status;
}

/* ---- the source ---- */

static void close_source(void *context) {
    pair_source *self = context;
    rpi_sampler_destroy(&self->sampler);
    close_files(self);
    rpi_free(self->rows.inputs);
    rpi_free(self->rows.labels);
    rpi_free(self);
}

static rp_status prepare(pair_source *self, const rpi_source_options *o) {
    self->skips_broken = o->pictures.skip_broken;
    RP_TRY(open_files(o->data, o->sequence, self));
    if (o->rank == 0) tell(self);
    size_t row = (size_t)self->sequence * sizeof(int32_t);
    self->rank = o->rank;
    self->world = o->world;
    RP_TRY(rpi_alloc_array((size_t)o->most, row, "a batch", &self->rows.inputs));
    RP_TRY(rpi_alloc_array((size_t)o->most, row, "a batch", &self->rows.labels));
    return rpi_sampler_create(o->seed, self->train_count, o->global_batch, &self->sampler);
}

static rp_status open_source(const rpi_source_options *options, rpi_source *source) {
    pair_source *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "the data", &self));
    rp_status status = prepare(self, options);
    if (status != RP_OK) {
        close_source(self);
        return rpi_fail_context(status, "--data pairs: ");
    }
    source->self = self;
    source->shape =
        (rpi_data_shape){.sequence = (int)self->sequence, .vocabulary = (int)self->vocabulary};
    source->train_count = self->train_count;
    source->test_count = self->test_count;
    source->sample_units = self->sequence;
    return RP_OK;
}

static void put(pair_source *self, const rpi_prompt_pairs *pairs, int64_t index, int64_t row,
                rpi_source_batch *batch) {
    rpi_prompt_pair_read(pairs, index, &self->rows, row);
    batch->labels += rpi_prompt_pair_valid(pairs, index);
}

/* What counts of the others' pairs is known from their lengths. */
static rp_status deal(rpi_source *source, int64_t step, rpi_source_batch *out_batch) {
    pair_source *self = source->self;
    rpi_batch all = rpi_sampler_deal(&self->sampler, step, 0, 1);
    int64_t first = rpi_share_first(all.count, self->rank, self->world);
    int64_t end = rpi_share_first(all.count, self->rank + 1, self->world);
    *out_batch = (rpi_source_batch){.inputs = {self->rows.inputs, self->rows.labels},
                                    .count = end - first,
                                    .global_count = all.count};
    for (int64_t i = 0; i < all.count; i++) {
        out_batch->global_labels += rpi_prompt_pair_valid(self->train, all.indices[i]);
        if (i >= first && i < end) put(self, self->train, all.indices[i], i - first, out_batch);
    }
    return RP_OK;
}

static rp_status hold_out(rpi_source *source, int64_t first, int64_t count,
                          rpi_source_batch *out_batch) {
    pair_source *self = source->self;
    *out_batch =
        (rpi_source_batch){.inputs = {self->rows.inputs, self->rows.labels}, .count = count};
    for (int64_t i = 0; i < count; i++)
        put(self, self->validation, self->first_test + first + i, i, out_batch);
    return RP_OK;
}

static const rpi_source_kind source_pairs = {.task = "language-model",
                                             .open = open_source,
                                             .close = close_source,
                                             .deal = deal,
                                             .hold_out = hold_out};

const rpi_dataset_kind rpi_dataset_pairs = {
    .name = "pairs",
    .summary =
        "prompts with their completions, of which only these are learnt: "
        "pairs:FILE.jsonl,tokenizer=NAME, lines of {\"prompt\": ..., \"completion\": "
        "...}, with ,validation=FILE.jsonl or ,validation=5% (what is held out; the last "
        "5% when absent)",
    .takes_text = true,
    .skips_broken = true,
    .source = &source_pairs,
    .probe = probe,
};
