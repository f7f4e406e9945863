#include "train/consensus.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static rp_status take_mean(rpi_trainer *t, rpi_consensus *c) {
    int64_t count = rpi_weights_count(t->weights);
    float *values = rpi_weights_values(t->weights);
    memcpy(c->own, values, (size_t)count * sizeof *values);
    rp_segment segment = {.data = values, .count = (size_t)count, .dtype = RP_F32};
    RP_TRY(rp_all_reduce(t->comm, &segment, 1,
                         &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG)));
    rpi_weights_changed(t->weights, 0, count);
    double sums[2] = {
        0}; /* over all ranks: squares of distances, and n times those of the mean */
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

/* Repeats what the strategy noted about its options before the first step, as the likely cause.
 */
static void look_at_distance(rpi_trainer *t, double distance) {
    const char *line = rpi_consensus_watch_take(&t->consensus_watch, t->step, distance);
    const char *cause = t->strategy->suspect ? t->strategy->suspect(t->strategy_self) : NULL;
    char text[1024];
    if (!line) return;
    snprintf(text, sizeof text, "%s; %s%s", line, cause ? "the cause may be: " : "try ",
             cause                 ? cause
             : t->strategy->nearer ? t->strategy->nearer
                                   : "a smaller --lr");
    rpi_trainer_note(t, text);
}

rp_status rpi_consensus_enter(rpi_trainer *t, rpi_consensus *c) {
    *c = (rpi_consensus){.distance = NAN};
    bool is_met = t->strategy->run; /* after a span all ranks have the servers' parameters */
    if (t->place.replicas == 1 || is_met || !t->strategy->replicas_differ) return RP_OK;
    RP_TRY(rpi_alloc_array((size_t)rpi_weights_count(t->weights), sizeof *c->own,
                           "the ranks' mean", &c->own));
    RP_TRY(take_mean(t, c));
    look_at_distance(t, c->distance);
    return RP_OK;
}

void rpi_consensus_leave(rpi_trainer *t, rpi_consensus *c) {
    if (!c->own) return;
    int64_t count = rpi_weights_count(t->weights);
    memcpy(rpi_weights_values(t->weights), c->own, (size_t)count * sizeof *c->own);
    rpi_weights_changed(t->weights, 0, count);
    rpi_free(c->own);
    c->own = NULL;
}
