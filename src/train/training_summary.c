/* The summary of the steps at the end of a run. */
#include "train/training.h"

#include "base/median.h"
#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static double rate(const rpi_step_metrics *m) {
    return (double)m->count / m->step_s;
}

static double step_s(const rpi_step_metrics *m) {
    return m->step_s;
}

static double comm_s(const rpi_step_metrics *m) {
    return m->comm_s;
}

static double exposed_s(const rpi_step_metrics *m) {
    return m->exposed_s;
}

static double wire_bytes(const rpi_step_metrics *m) {
    return (double)m->wire_bytes;
}

static double median_of(rpi_training *r, double (*value)(const rpi_step_metrics *)) {
    int steps = r->result.steps < RPI_MEDIAN_STEPS ? (int)r->result.steps : RPI_MEDIAN_STEPS;
    for (int i = 0; i < steps; i++) r->scratch[i] = value(&r->history[i]);
    return steps ? rpi_median(r->scratch, steps) : NAN;
}

static double mean_of(const rpi_training *r, double (*value)(const rpi_step_metrics *)) {
    int steps = r->result.steps < RPI_MEDIAN_STEPS ? (int)r->result.steps : RPI_MEDIAN_STEPS;
    double sum = 0;
    for (int i = 0; i < steps; i++) sum += value(&r->history[i]);
    return steps ? sum / steps : NAN;
}

/* The peak memory of this process. */
rp_status rpi_training_finish_profile(rpi_training *r) {
    rpi_trainer *t = &r->trainer;
    rpi_profile *profile = &r->result.profile;
    if (!r->options->profile || r->is_profiled) return RP_OK;
    t->profile = NULL;
    rpi_profile_sort(profile);
    profile->memory_bytes = rpi_memory_most_held();
    RP_TRY(rp_barrier(t->comm));
    r->is_profiled = true;
    return rpi_profile_matrix_rate(rpi_session_backend(t->programs.session),
                                   (int)r->options->threads, &profile->matrix_flop_s);
}

rp_status rpi_training_finish_activations(rpi_training *r) {
    const rpi_activation_codec *codec = &r->trainer.activations;
    enum { NUMBERS = 2 * RPI_LINK_WAYS };
    rpi_activation_error errors[RPI_LINK_WAYS];
    double sums[NUMBERS];
    r->result.activations_error = r->result.activation_gradients_error = NAN;
    if (rpi_activation_codec_is_exact(codec)) return RP_OK;
    memcpy(sums, codec->errors, sizeof sums);
    rp_segment all = {.data = sums, .count = NUMBERS, .dtype = RP_F64};
    RP_TRY(rp_all_reduce(r->trainer.comm, &all, 1, NULL));
    memcpy(errors, sums, sizeof errors);
    r->result.activations_error = rpi_activation_error_relative(&errors[RPI_LINK_ACTIVATION]);
    r->result.activation_gradients_error =
        rpi_activation_error_relative(&errors[RPI_LINK_GRADIENT]);
    return RP_OK;
}

rp_status rpi_training_draw(rpi_training *r) {
    const rpi_trainer *t = &r->trainer;
    struct cJSON *object = NULL;
    RP_TRY(rpi_step_picture_gather(&t->picture, &t->place, t->comm, &object));
    return rpi_metrics_put(r->metrics, object);
}

void rpi_training_summarise(rpi_training *r) {
    r->result.unit = r->trainer.network.task->unit;
    r->result.rank = r->trainer.place.rank;
    r->result.ranks = r->trainer.place.world;
    r->result.rate_median = median_of(r, rate);
    r->result.step_s_median = median_of(r, step_s);
    r->result.comm_s_median = median_of(r, comm_s);
    r->result.exposed_s_median = median_of(r, exposed_s);
    r->result.wire_bytes_median = median_of(r, wire_bytes);
    r->result.exposed_s_mean = mean_of(r, exposed_s);
    r->result.wire_bytes_mean = mean_of(r, wire_bytes);
    /* What a profile measures after the run does not belong to the run. */
    r->result.memory_bytes =
        r->is_profiled ? r->result.profile.memory_bytes : rpi_memory_most_held();
}
