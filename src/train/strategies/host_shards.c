#include "train/strategies/host_shards.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* ---- shares ---- */

static bool is_ours(const rpi_host_shards *s, int part) {
    return s->ownership.parts[part].owner == rp_comm_rank(s->host);
}

static rp_status make_room(rpi_host_shards *s, size_t buckets) {
    int64_t elements = 0;
    size_t parts = (size_t)s->ownership.count;
    RP_TRY(rpi_alloc_array(parts, sizeof *s->segments, "parts", &s->segments));
    RP_TRY(rpi_alloc_array(parts, sizeof *s->places, "parts", &s->places));
    RP_TRY(rpi_alloc_array(buckets, sizeof *s->holds, "buckets", &s->holds));
    for (int i = 0; i < s->ownership.count; i++) {
        s->places[i] = elements;
        if (is_ours(s, i)) elements += s->ownership.parts[i].range.count;
    }
    return rpi_alloc_array((size_t)elements, sizeof *s->values, "parameters of a host",
                           &s->values);
}

static rp_status open_shares(const rpi_strategy_setup *setup, const rpi_buckets *buckets,
                             rpi_host_shards *s) {
    const rpi_ownership_options cut = {.weights = setup->weights,
                                       .ranks = rp_comm_world(s->host),
                                       .bucket_bytes = setup->bucket_bytes,
                                       .granule = RPI_OWNED_LINE};
    RP_TRY(rpi_ownership_cut(&cut, &s->ownership));
    return make_room(s, (size_t)buckets->count);
}

rp_status rpi_host_shards_open(const rpi_strategy_setup *setup, const rpi_buckets *buckets,
                               rpi_host_shards *out) {
    rpi_host_shards shards = {.weights = setup->weights, .host = setup->host};
    if (!setup->host) return RP_OK;
    rp_status status = open_shares(setup, buckets, &shards);
    if (status == RP_OK)
        *out = shards;
    else
        rpi_host_shards_close(&shards);
    return status;
}

void rpi_host_shards_close(rpi_host_shards *s) {
    rpi_ownership_close(&s->ownership);
    rpi_free(s->segments);
    rpi_free(s->values);
    rpi_free(s->places);
    rpi_free(s->holds);
    *s = (rpi_host_shards){0};
}

/* ---- a bucket ---- */

static int parts_of(const rpi_host_shards *s, const rpi_bucket *bucket, int *out_first) {
    return rpi_ownership_find(&s->ownership, bucket->first, bucket->count, out_first);
}

static float *lies_at(const rpi_host_shards *s, const rpi_owned_part *part) {
    const rpi_weight *weight = rpi_weights_parameter(s->weights, part->parameter);
    return rpi_weights_value_at(s->weights, part->parameter) +
           (part->range.first - weight->first);
}

void rpi_host_shards_keep(rpi_host_shards *s, const rpi_buckets *buckets, int index) {
    int first = 0;
    if (!s->host || s->holds[index]) return;
    int count = parts_of(s, &buckets->buckets[index], &first);
    for (int i = first; i < first + count; i++) {
        const rpi_owned_part *part = &s->ownership.parts[i];
        if (is_ours(s, i))
            memcpy(s->values + s->places[i], lies_at(s, part),
                   (size_t)part->range.count * sizeof *s->values);
    }
    s->holds[index] = true;
}

rp_status rpi_host_shards_gather(rpi_host_shards *s, const rpi_buckets *buckets, int index,
                                 const rp_collective_options *options,
                                 rp_request **out_request) {
    int first = 0, count = parts_of(s, &buckets->buckets[index], &first);
    rp_collective_options inside = *options;
    inside.algorithm = NULL; /* with one host there are no two levels */
    for (int i = first; i < first + count; i++) {
        const rpi_owned_part *part = &s->ownership.parts[i];
        const rpi_weight *weight = rpi_weights_parameter(s->weights, part->parameter);
        s->segments[i] = (rp_owned_segment){
            .segment = {.data = lies_at(s, part),
                        .count = (size_t)part->range.count,
                        .dtype = RP_F32,
                        .tensor = buckets->segments[part->parameter].tensor,
                        .first = (uint64_t)(part->range.first - weight->first)},
            .owner = part->owner,
            .own = is_ours(s, i) ? s->values + s->places[i] : NULL};
    }
    return rp_all_gather_segments_start(s->host, s->segments + first, (size_t)count, &inside,
                                        out_request);
}

void rpi_host_shards_forget(rpi_host_shards *s, int bucket) {
    if (s->host) s->holds[bucket] = false;
}
