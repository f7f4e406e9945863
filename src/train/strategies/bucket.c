#include "train/strategies/bucket.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

static int record_of(const rpi_network *network, const char *name) {
    for (int i = 0; i < network->parameter_count; i++)
        if (!strcmp(network->parameters[i].name, name)) return i;
    return -1;
}

static rp_status fill_segments(const rpi_network *network, rpi_weights *weights,
                               const rp_codec *codec, float *residual, rp_segment *segments,
                               int count) {
    for (int i = 0; i < count; i++) {
        const rpi_weight *weight = rpi_weights_parameter(weights, i);
        int record = record_of(network, weight->name);
        if (record < 0) return RP_FAIL(INTERNAL, "parameter %s has no record", weight->name);
        segments[i] = (rp_segment){.data = rpi_weights_gradient_at(weights, i),
                                   .count = (size_t)weight->count,
                                   .dtype = RP_F32,
                                   .tensor = (uint32_t)record};
        if (!rpi_parameter_compresses(&network->parameters[record])) continue;
        segments[i].codec = *codec;
        if (residual) segments[i].residual = residual + weight->first;
    }
    return RP_OK;
}

int rpi_bucket_end(const rpi_weights *weights, int first, int64_t bytes) {
    int end = first, parameters = rpi_weights_parameter_count(weights);
    for (int64_t count = 0; end < parameters; end++) {
        if (end > first && count * (int64_t)sizeof(float) >= bytes) break;
        count += rpi_weights_parameter(weights, end)->count;
    }
    return end;
}

static void cut(rpi_buckets *buckets, const rpi_weights *weights, int64_t bytes) {
    for (int first = 0, end; first < buckets->segment_count; first = end) {
        rpi_bucket *bucket = &buckets->buckets[buckets->count++];
        end = rpi_bucket_end(weights, first, bytes);
        *bucket = (rpi_bucket){.first = rpi_weights_parameter(weights, first)->first,
                               .segment = first,
                               .segment_count = end - first};
        for (int i = first; i < end; i++)
            bucket->count += rpi_weights_parameter(weights, i)->count;
    }
}

rp_status rpi_buckets_create(const rpi_network *network, rpi_weights *weights, int64_t bytes,
                             const rp_codec *codec, float *residual, rpi_buckets *out_buckets) {
    rpi_buckets buckets = {.segment_count = rpi_weights_parameter_count(weights)};
    size_t most = (size_t)buckets.segment_count;
    RP_TRY(rpi_alloc_array(most, sizeof *buckets.buckets, "buckets", &buckets.buckets));
    rp_status status =
        rpi_alloc_array(most, sizeof *buckets.segments, "segments", &buckets.segments);
    if (status == RP_OK)
        status = fill_segments(network, weights, codec, residual, buckets.segments,
                               buckets.segment_count);
    if (status != RP_OK) {
        rpi_buckets_destroy(&buckets);
        return status;
    }
    cut(&buckets, weights, bytes);
    *out_buckets = buckets;
    return RP_OK;
}

int rpi_buckets_find(const rpi_buckets *buckets, int parameter) {
    int first = 0, end = buckets->count;
    while (end - first > 1) {
        int middle = first + (end - first) / 2;
        if (buckets->buckets[middle].segment <= parameter)
            first = middle;
        else
            end = middle;
    }
    return first;
}

void rpi_buckets_destroy(rpi_buckets *buckets) {
    rpi_free(buckets->buckets);
    rpi_free(buckets->segments);
    *buckets = (rpi_buckets){0};
}
