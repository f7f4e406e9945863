#include "train/data/sampler.h"

#include "base/memory.h"
#include "base/rng.h"

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
    *sampler = (rpi_sampler){0};
}

int64_t rpi_sampler_steps_per_epoch(const rpi_sampler *sampler) {
    return (sampler->count + sampler->global_batch - 1) / sampler->global_batch;
}

static void shuffle(rpi_sampler *sampler, int64_t epoch) {
    rpi_rng rng = rpi_rng_make(sampler->seed, RPI_RNG_SHUFFLE, (uint64_t)epoch);
    for (int64_t i = 0; i < sampler->count; i++) sampler->order[i] = (uint32_t)i;
    for (int64_t i = sampler->count - 1; i > 0; i--) {
        uint32_t j = rpi_rng_below(&rng, (uint32_t)(i + 1));
        uint32_t taken = sampler->order[i];
        sampler->order[i] = sampler->order[j];
        sampler->order[j] = taken;
    }
    sampler->epoch = epoch;
}

int64_t rpi_share_first(int64_t count, int rank, int world) {
    int64_t each = count / world, more = count % world;
    return each * rank + (rank < more ? rank : more);
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
