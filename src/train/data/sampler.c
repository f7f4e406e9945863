#include "train/data/sampler.h"

#include "base/memory.h"
#include "base/rng.h"
#include "train/data/share.h"

#include <string.h>

rp_status rpi_sampler_create(uint64_t seed, int64_t count, int64_t global_batch,
                             rpi_sampler *out_sampler) {
    rpi_sampler sampler = {
        .seed = seed, .count = count, .global_batch = global_batch, .epoch = -1};
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *sampler.order, "an epoch's order",
                           &sampler.order));
    *out_sampler = sampler;
    return RP_OK;
}

void rpi_sampler_destroy(rpi_sampler *sampler) {
    rpi_free(sampler->order);
    rpi_free(sampler->shuffled);
    rpi_split_close(&sampler->parts);
    *sampler = (rpi_sampler){0};
}

int64_t rpi_sampler_steps_per_epoch(const rpi_sampler *sampler) {
    return (sampler->count + sampler->global_batch - 1) / sampler->global_batch;
}

rp_status rpi_sampler_split(rpi_sampler *sampler, const rpi_label_split *split, int world,
                            int classes, int (*label_at)(const void *context, int64_t sample),
                            const void *context) {
    if (split->kind == RPI_SPLIT_IID) return RP_OK;
    rpi_split_request request = {.seed = sampler->seed,
                                 .count = sampler->count,
                                 .global_batch = sampler->global_batch,
                                 .world = world,
                                 .classes = classes,
                                 .label_at = label_at,
                                 .context = context};
    RP_TRY(rpi_alloc_array((size_t)sampler->count, sizeof *sampler->shuffled,
                           "an epoch's order", &sampler->shuffled));
    return rpi_split_make(split, &request, &sampler->parts);
}

/* Parts to the places of their ranks: those of a step, of rank 0 first. */
static void place_parts(rpi_sampler *sampler) {
    int world = sampler->parts.world;
    int64_t steps = rpi_sampler_steps_per_epoch(sampler);
    for (int rank = 0; rank < world; rank++) {
        const uint32_t *from = sampler->shuffled + sampler->parts.first[rank];
        for (int64_t step = 0; step < steps; step++) {
            int64_t all = rpi_sampler_count(sampler, step);
            int64_t first = rpi_share_first(all, rank, world);
            int64_t count = rpi_share_first(all, rank + 1, world) - first;
            memcpy(sampler->order + step * sampler->global_batch + first, from,
                   (size_t)count * sizeof *from);
            from += count;
        }
    }
}

static void shuffle_parts(rpi_sampler *sampler, int64_t epoch) {
    const rpi_split_parts *parts = &sampler->parts;
    memcpy(sampler->shuffled, parts->samples,
           (size_t)sampler->count * sizeof *sampler->shuffled);
    for (int rank = 0; rank < parts->world; rank++) {
        uint64_t index = 1 + (uint64_t)epoch * (uint64_t)parts->world + (uint64_t)rank;
        rpi_rng rng = rpi_rng_make(sampler->seed, RPI_RNG_SPLIT, index);
        rpi_rng_shuffle(&rng, sampler->shuffled + parts->first[rank],
                        parts->first[rank + 1] - parts->first[rank]);
    }
    place_parts(sampler);
}

static void shuffle(rpi_sampler *sampler, int64_t epoch) {
    sampler->epoch = epoch;
    if (sampler->parts.samples) {
        shuffle_parts(sampler, epoch);
        return;
    }
    rpi_rng rng = rpi_rng_make(sampler->seed, RPI_RNG_SHUFFLE, (uint64_t)epoch);
    for (int64_t i = 0; i < sampler->count; i++) sampler->order[i] = (uint32_t)i;
    rpi_rng_shuffle(&rng, sampler->order, sampler->count);
}

int64_t rpi_sampler_count(const rpi_sampler *sampler, int64_t step) {
    int64_t start = step % rpi_sampler_steps_per_epoch(sampler) * sampler->global_batch;
    int64_t left = sampler->count - start;
    return left < sampler->global_batch ? left : sampler->global_batch;
}

rpi_batch rpi_sampler_deal(rpi_sampler *sampler, int64_t step, int rank, int world) {
    int64_t per_epoch = rpi_sampler_steps_per_epoch(sampler);
    if (sampler->epoch != step / per_epoch) shuffle(sampler, step / per_epoch);
    int64_t start = step % per_epoch * sampler->global_batch;
    int64_t global = rpi_sampler_count(sampler, step);
    int64_t first = rpi_share_first(global, rank, world);
    return (rpi_batch){
        .indices = sampler->order + start + first,
        .count = rpi_share_first(global, rank + 1, world) - first,
        .global_count = global,
    };
}
