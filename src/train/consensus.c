#include "train/consensus.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static rp_status take_mean(rpi_trainer *t, rpi_consensus *c) {
    int64_t count = rpi_weights_count(t->weights);
    float *values = rpi_weights_values(t->weights);
    memcpy(c->own, values, (size_t)count * sizeof *values);
    rp_segment segment = {.data = values, .count = (size_t)count, .dtype = RP_F32};
    RP_TRY(rp_all_reduce(t->comm, &segment, 1, &(rp_collective_options){.reduce = RP_AVG}));
    rpi_weights_changed(t->weights, 0, count);
    double sums[2] = {
        0}; /* of all ranks: squares of distances, and n times those of the mean */
    for (int64_t i = 0; i < count; i++) {
        double difference = (double)c->own[i] - (double)values[i];
        sums[0] += difference * difference;
        sums[1] += (double)values[i] * (double)values[i];
    }
    rp_segment both = {.data = sums, .count = 2, .dtype = RP_F64};
    RP_TRY(rp_all_reduce(t->comm, &both, 1, NULL));
    c->distance = sums[1] > 0 ? sqrt(sums[0] / sums[1]) : 0;
    return RP_OK;
}

rp_status rpi_consensus_enter(rpi_trainer *t, rpi_consensus *c) {
    *c = (rpi_consensus){.distance = NAN};
    bool is_met = t->strategy->run; /* behind a span all have the servers' parameters */
    if (t->world == 1 || is_met || !t->strategy->replicas_differ) return RP_OK;
    RP_TRY(rpi_alloc_array((size_t)rpi_weights_count(t->weights), sizeof *c->own,
                           "the ranks' mean", &c->own));
    return take_mean(t, c);
}

void rpi_consensus_leave(rpi_trainer *t, rpi_consensus *c) {
    if (!c->own) return;
    int64_t count = rpi_weights_count(t->weights);
    memcpy(rpi_weights_values(t->weights), c->own, (size_t)count * sizeof *c->own);
    rpi_weights_changed(t->weights, 0, count);
    rpi_free(c->own);
    c->own = NULL;
}
