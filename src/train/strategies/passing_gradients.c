#include "train/strategies/passing_gradients.h"

#include "base/status.h"

#include <string.h>

/* The communicator whose ranks on this host read exact gradients in place. */
static const rp_comm *readers_of(const rpi_strategy_setup *s) {
    return rp_codec_is_exact(&s->codec, RP_F32) ? s->comm : NULL;
}

rp_status rpi_passing_gradients_open(const rpi_strategy_setup *s, const rpi_buckets *buckets,
                                     rpi_passing_gradients *out) {
    rpi_passing_gradients gradients = {
        .ownership = s->ownership, .optimizer = s->optimizer, .rank = rp_comm_rank(s->comm)};
    if (!s->ownership || rpi_weights_gradients(s->weights)) return RP_OK;
    RP_TRY(rpi_passing_memory_open(buckets, readers_of(s), "gradients", &gradients.memory));
    gradients.weights = s->weights;
    *out = gradients;
    return RP_OK;
}

void rpi_passing_gradients_close(rpi_passing_gradients *g) {
    rpi_passing_memory_close(&g->memory);
    *g = (rpi_passing_gradients){0};
}

/* The parameters of a bucket lie one after the other, or have no memory. */
static void lay_out(rpi_passing_gradients *g, int index) {
    const rpi_bucket *bucket = &g->memory.buckets->buckets[index];
    float *place = g->memory.of_buckets[index];
    for (int i = bucket->segment; i < bucket->segment + bucket->segment_count; i++) {
        int64_t first = rpi_weights_parameter(g->weights, i)->first - bucket->first;
        rpi_weights_place_gradient(g->weights, i, place ? place + first : NULL);
    }
}

bool rpi_passing_gradients_lies(const rpi_passing_gradients *g, int bucket) {
    return g->memory.of_buckets[bucket] != NULL;
}

rp_status rpi_passing_gradients_place(rpi_passing_gradients *g, int bucket) {
    if (rpi_passing_gradients_lies(g, bucket)) return RP_OK;
    RP_TRY(rpi_passing_memory_take(&g->memory, bucket));
    lay_out(g, bucket);
    return RP_OK;
}

static void keep_part(const rpi_passing_gradients *g, const rpi_owned_part *part) {
    const rpi_weight *weight = rpi_weights_parameter(g->weights, part->parameter);
    const float *sums = rpi_weights_gradient_at(g->weights, part->parameter) +
                        (part->range.first - weight->first);
    float *kept = rpi_optimizer_state_gradients(g->optimizer, part->range.first);
    if (!g->adds) {
        memcpy(kept, sums, (size_t)part->range.count * sizeof *kept);
        return;
    }
    for (int64_t i = 0; i < part->range.count; i++) kept[i] += sums[i];
}

void rpi_passing_gradients_keep(rpi_passing_gradients *g, int index) {
    int first = 0, count = 0;
    if (!rpi_passing_gradients_lies(g, index)) return;
    count = rpi_ownership_find(g->ownership, g->memory.buckets->buckets[index].first,
                               g->memory.buckets->buckets[index].count, &first);
    for (int i = first; i < first + count; i++)
        if (g->ownership->parts[i].owner == g->rank) keep_part(g, &g->ownership->parts[i]);
    rpi_passing_memory_give(&g->memory, index);
    lay_out(g, index);
}
