/* Sources one after the other (stages.h): each deals its own steps, from its first on, as a run
 * of its own would; the first of them has what is held out, from the first step to the last. */
#include "train/data/dataset.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/data/source.h"
#include "train/data/stages.h"

extern const rpi_dataset_kind rpi_dataset_stages;

typedef struct staged {
    int count;
    int64_t first[RPI_STAGES];
    rpi_source sources[RPI_STAGES];
} staged;

static void close_stages(void *context) {
    staged *self = context;
    for (int i = 0; i < self->count; i++) rpi_source_close(&self->sources[i]);
    rpi_free(self);
}

static rp_status open_stage(const rpi_source_options *options, staged *self, bool *out_more) {
    rpi_source_options own = *options;
    rpi_stage *stage = NULL;
    if (self->count == RPI_STAGES)
        return RP_FAIL(INVALID, "--data stages: more than %d", RPI_STAGES);
    RP_TRY(rpi_alloc(sizeof *stage, "a stage", &stage));
    rp_status status = rpi_stages_at(options->data, self->count, stage, out_more);
    own.data = stage->data;
    if (status == RP_OK)
        status = rpi_source_open_of(options->kinds, &own, &self->sources[self->count]);
    if (status == RP_OK) self->first[self->count++] = stage->first;
    rpi_free(stage);
    return status;
}

/* One model learns from all of them. */
static rp_status check_vocabularies(const staged *self, int *out_vocabulary) {
    *out_vocabulary = 0;
    for (int i = 0; i < self->count; i++) {
        int own = self->sources[i].shape.vocabulary;
        if (own && *out_vocabulary && own != *out_vocabulary)
            return RP_FAIL(
                INVALID, "--data stages: vocabularies of %d and %d; make all by one tokenizer",
                *out_vocabulary, own);
        if (own) *out_vocabulary = own;
    }
    return RP_OK;
}

static rp_status open_all(const rpi_source_options *options, staged *self, rpi_source *source) {
    bool more = true;
    int vocabulary = 0;
    while (more) RP_TRY(open_stage(options, self, &more));
    RP_TRY(check_vocabularies(self, &vocabulary));
    source->shape = self->sources[0].shape;
    source->shape.vocabulary = vocabulary;
    source->test_count = self->sources[0].test_count;
    source->sample_units = self->sources[0].sample_units;
    for (int i = 0; i < self->count; i++) source->train_count += self->sources[i].train_count;
    return RP_OK;
}

static rp_status open_stages(const rpi_source_options *options, rpi_source *source) {
    staged *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "the data", &self));
    rp_status status = open_all(options, self, source);
    if (status == RP_OK)
        source->self = self;
    else
        close_stages(self);
    return status;
}

static void limit(rpi_source *source, int64_t vocabulary) {
    staged *self = source->self;
    for (int i = 0; i < self->count; i++) rpi_source_limit(&self->sources[i], vocabulary);
}

static rpi_source *part(const rpi_source *source, int64_t step, int64_t *out_first) {
    staged *self = source->self;
    int i = 0;
    while (i + 1 < self->count && self->first[i + 1] <= step) i++;
    *out_first = self->first[i];
    return &self->sources[i];
}

static rp_status deal(rpi_source *source, int64_t step, rpi_source_batch *out_batch) {
    int64_t first = 0;
    rpi_source *own = part(source, step, &first);
    return rpi_source_deal(own, step - first, out_batch);
}

static rp_status hold_out(rpi_source *source, int64_t first, int64_t count,
                          rpi_source_batch *out_batch) {
    staged *self = source->self;
    return rpi_source_hold_out(&self->sources[0], first, count, out_batch);
}

static rp_status probe(const rpi_dataset_options *options) {
    rpi_stage *stage = NULL;
    bool more = true;
    RP_TRY(rpi_alloc(sizeof *stage, "a stage", &stage));
    rp_status status = RP_OK;
    for (int i = 0; status == RP_OK && more; i++) {
        status = rpi_stages_at(options->data, i, stage, &more);
        if (status == RP_OK)
            status = rpi_dataset_probe_of(options->kinds, stage->data, options);
    }
    rpi_free(stage);
    return status;
}

static const rpi_source_kind source_stages = {.task = "language-model",
                                              .continues = true,
                                              .open = open_stages,
                                              .close = close_stages,
                                              .limit = limit,
                                              .part = part,
                                              .deal = deal,
                                              .hold_out = hold_out};

const rpi_dataset_kind rpi_dataset_stages = {
    .name = "stages",
    .summary = "tokens that are learnt from one after the other: stages:tokens:PATH;STEP="
               "tokens:PATH, where step STEP, counted from 1, is the first of the second",
    .takes_text = true,
    .source = &source_stages,
    .probe = probe,
};
