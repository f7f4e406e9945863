#include "train/strategies/sharded.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

rp_status rpi_sharded_open(const rpi_strategy_setup *setup, int buckets, rpi_sharded *out) {
    rpi_sharded s = {.optimizer = setup->optimizer,
                     .codec = setup->weights_codec,
                     .network = setup->network,
                     .comm = setup->comm,
                     .ownership = setup->ownership,
                     .weights = setup->weights,
                     .buckets = buckets};
    if (!setup->ownership) return RP_OK;
    size_t parts = (size_t)s.ownership->count;
    rp_status status = rpi_alloc_array(parts, sizeof *s.gradients, "parts", &s.gradients);
    if (status == RP_OK) status = rpi_alloc_array(parts, sizeof *s.values, "parts", &s.values);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)buckets, sizeof(rp_request *), "requests", &s.gathers);
    if (status == RP_OK)
        *out = s;
    else
        rpi_sharded_close(&s);
    return status;
}

void rpi_sharded_close(rpi_sharded *s) {
    for (int i = 0; s->gathers && i < s->buckets; i++)
        if (s->gathers[i]) (void)rp_request_wait(&s->gathers[i]);
    rpi_free(s->gradients);
    rpi_free(s->values);
    rpi_free(s->gathers);
    *s = (rpi_sharded){0};
}

const char *rpi_sharded_algorithm(const char *all_reduce) {
    return all_reduce && strcmp(all_reduce, "sra") == 0 ? "direct" : all_reduce;
}

/* The part of a whole tensor's segment that begins with the tensor's element `first`; its
 * gradient lies at `gradient`. */
static rp_segment part_of(const rp_segment *whole, float *gradient, int64_t first,
                          int64_t count) {
    rp_segment part = *whole;
    part.data = gradient + first;
    part.count = (size_t)count;
    part.first = (uint64_t)first;
    if (part.residual) part.residual += first;
    return part;
}

static int parts_of(const rpi_sharded *s, const rpi_bucket *bucket, int *out_first) {
    return rpi_ownership_find(s->ownership, bucket->first, bucket->count, out_first);
}

rp_status rpi_sharded_scatter_start(rpi_sharded *s, const rpi_buckets *buckets, int index,
                                    const rp_collective_options *options,
                                    rp_request **out_request) {
    int first = 0, count = parts_of(s, &buckets->buckets[index], &first);
    for (int i = first; i < first + count; i++) {
        const rpi_owned_part *part = &s->ownership->parts[i];
        const rpi_weight *weight = rpi_weights_parameter(s->weights, part->parameter);
        s->gradients[i] = (rp_owned_segment){
            .segment = part_of(&buckets->segments[part->parameter],
                               rpi_weights_gradient_at(s->weights, part->parameter),
                               part->range.first - weight->first, part->range.count),
            .owner = part->owner};
    }
    return rp_reduce_scatter_segments_start(s->comm, s->gradients + first, (size_t)count,
                                            options, out_request);
}

/* The segment that sends its owner's values to all ranks. */
static rp_owned_segment values_of(const rpi_sharded *s, const rpi_owned_part *part,
                                  uint32_t tensor) {
    const rpi_weight *weight = rpi_weights_parameter(s->weights, part->parameter);
    rp_owned_segment segment = {
        .segment = {.data = rpi_weights_value_at(s->weights, part->parameter) +
                            (part->range.first - weight->first),
                    .count = (size_t)part->range.count,
                    .dtype = RP_F32,
                    .tensor = tensor,
                    .first = (uint64_t)(part->range.first - weight->first)},
        .owner = part->owner};
    if (!s->optimizer->keeps_values) return segment;
    if (part->owner == rp_comm_rank(s->comm))
        segment.own = rpi_optimizer_state_values(s->optimizer, part->range.first);
    if (rpi_parameter_compresses(&s->network->parameters[tensor]))
        segment.segment.codec = s->codec;
    return segment;
}

rp_status rpi_sharded_gather_into(rpi_sharded *s, const rpi_buckets *buckets, int index,
                                  const rp_collective_options *options,
                                  rp_request **out_request) {
    int first = 0, count = parts_of(s, &buckets->buckets[index], &first);
    for (int i = first; i < first + count; i++) {
        const rpi_owned_part *part = &s->ownership->parts[i];
        s->values[i] = values_of(s, part, buckets->segments[part->parameter].tensor);
    }
    return rp_all_gather_segments_start(s->comm, s->values + first, (size_t)count, options,
                                        out_request);
}

rp_status rpi_sharded_gather_start(rpi_sharded *s, const rpi_buckets *buckets, int index,
                                   const rp_collective_options *options) {
    return rpi_sharded_gather_into(s, buckets, index, options, &s->gathers[index]);
}

rp_status rpi_sharded_gather_wait(rpi_sharded *s, const rpi_buckets *buckets, int index) {
    const rpi_bucket *bucket = &buckets->buckets[index];
    if (!s->gathers[index]) return RP_OK;
    RP_TRY(rp_request_wait(&s->gathers[index]));
    rpi_weights_changed(s->weights, bucket->first, bucket->count);
    return RP_OK;
}

rp_status rpi_sharded_complete(rpi_sharded *s, const rpi_buckets *buckets) {
    for (int i = 0; i < s->buckets; i++) RP_TRY(rpi_sharded_gather_wait(s, buckets, i));
    return RP_OK;
}
