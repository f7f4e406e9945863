#include "train/data/source.h"

#include "base/status.h"
#include "train/data/dataset.h"
#include "train/data/sampler.h"

#include <string.h>

rp_status rpi_source_open_of(const rpi_dataset_kind *const *kinds,
                             const rpi_source_options *options, rpi_source *out_source) {
    const rpi_dataset_kind *kind = NULL;
    RP_TRY(rpi_dataset_kind_of(kinds, options->data, &kind));
    if (options->continues && !kind->source->continues)
        return RP_FAIL(INVALID,
                       "--data %s: its samples do not go on from one another, and the model "
                       "remembers the segment before; say tokens:PATH",
                       options->data);
    rpi_source source = {.kind = kind->source, .global_batch = options->global_batch};
    rpi_source_options own = *options;
    own.kinds = kinds;
    RP_TRY(source.kind->open(&own, &source));
    *out_source = source;
    return RP_OK;
}

void rpi_source_close(rpi_source *source) {
    if (source->kind) source->kind->close(source->self);
    *source = (rpi_source){0};
}

void rpi_source_limit(rpi_source *source, int64_t vocabulary) {
    if (source->kind->limit) source->kind->limit(source, vocabulary);
}

rp_status rpi_source_deal(rpi_source *source, int64_t step, rpi_source_batch *out_batch) {
    return source->kind->deal(source, step, out_batch);
}

rp_status rpi_source_hold_out(rpi_source *source, int64_t first, int64_t count,
                              rpi_source_batch *out_batch) {
    return source->kind->hold_out(source, first, count, out_batch);
}

/* Counting needs no order. */
static rpi_sampler counter_of(const rpi_source *source) {
    return (rpi_sampler){.count = source->train_count, .global_batch = source->global_batch};
}

int64_t rpi_source_steps_per_epoch(const rpi_source *source) {
    rpi_sampler counter = counter_of(source);
    return rpi_sampler_steps_per_epoch(&counter);
}

/* The source that deals a step; *step is then its own. */
static const rpi_source *part_of(const rpi_source *source, int64_t *step) {
    int64_t first = 0;
    if (!source->kind->part) return source;
    const rpi_source *part = source->kind->part(source, *step, &first);
    *step -= first;
    return part;
}

bool rpi_source_begins_epoch(const rpi_source *source, int64_t step) {
    const rpi_source *part = part_of(source, &step);
    return step % rpi_source_steps_per_epoch(part) == 0;
}

int64_t rpi_source_last_of_epoch(const rpi_source *source, int64_t step) {
    int64_t own = step;
    int64_t epoch = rpi_source_steps_per_epoch(part_of(source, &own));
    return step - own + own / epoch * epoch + epoch - 1;
}

int64_t rpi_source_count(const rpi_source *source, int64_t step) {
    rpi_sampler counter = counter_of(part_of(source, &step));
    return rpi_sampler_count(&counter, step);
}
