/* Loss and metrics on the held-out samples, every rank on its share of them. */
#include "base/memory.h"
#include "base/status.h"
#include "train/data/sampler.h"
#include "train/trainer.h"

#include <math.h>
#include <string.h>

rp_status rpi_trainer_average_states(rpi_trainer *t, float *out_states) {
    size_t count = (size_t)rpi_weights_states_count(t->weights);
    memcpy(out_states, rpi_weights_states(t->weights), count * sizeof(float));
    if (count == 0 || t->world == 1) return RP_OK;
    rp_segment segment = {.data = out_states, .count = count, .dtype = RP_F32};
    return rp_all_reduce(t->comm, &segment, 1, &(rp_collective_options){.reduce = RP_AVG});
}

typedef struct totals {
    double loss, correct, labels;
} totals;

static rp_status run_part(rpi_trainer *t, int64_t first, int64_t count, totals *sums) {
    rpi_instance *instance = NULL;
    RP_TRY(rpi_program_set_get(&t->programs, false, count, &instance));
    rpi_source_batch batch;
    const void *inputs[RPI_TASK_INPUTS + 1];
    RP_TRY(rpi_source_hold_out(&t->source, first, count, &batch));
    t->scale = 1.0f;
    rpi_trainer_inputs(t, &batch, 0, inputs);
    RP_TRY(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs}));
    rpi_tensor loss, correct;
    RP_TRY(rpi_instance_result(instance, t->network.loss, &loss));
    RP_TRY(rpi_instance_result(instance, t->network.correct, &correct));
    sums->loss += (double)*(const float *)loss.data;
    sums->correct += *(const int32_t *)correct.data;
    sums->labels += (double)batch.labels;
    return RP_OK;
}

/* This rank's part of the held-out samples: [first, end). */
static void find_share(const rpi_trainer *t, int64_t *out_first, int64_t *out_end) {
    int64_t limit = t->options->eval_images, all = t->source.test_count;
    int64_t samples = limit && limit < all ? limit : all;
    *out_first = rpi_share_first(samples, t->rank, t->world);
    *out_end = rpi_share_first(samples, t->rank + 1, t->world);
}

rp_status rpi_trainer_compile_evaluation(rpi_trainer *t) {
    rpi_instance *instance = NULL;
    int64_t first, end;
    find_share(t, &first, &end);
    if (end - first >= t->micro_batch)
        RP_TRY(rpi_program_set_get(&t->programs, false, t->micro_batch, &instance));
    int64_t rest = (end - first) % t->micro_batch;
    return rest ? rpi_program_set_get(&t->programs, false, rest, &instance) : RP_OK;
}

static rp_status run_share(rpi_trainer *t, totals *sums) {
    int64_t first, end;
    find_share(t, &first, &end);
    while (first < end) {
        int64_t count = end - first < t->micro_batch ? end - first : t->micro_batch;
        RP_TRY(run_part(t, first, count, sums));
        first += count;
    }
    return RP_OK;
}

/* With the world's running statistics in place of this rank's own, which come back afterwards:
 * so an evaluation changes nothing about the training around it. */
static rp_status run_averaged(rpi_trainer *t, float *averaged, totals *sums) {
    RP_TRY(rpi_trainer_average_states(t, averaged));
    float *states = rpi_weights_states(t->weights);
    int64_t count = rpi_weights_states_count(t->weights);
    for (int64_t i = 0; i < count; i++) {
        float own = states[i];
        states[i] = averaged[i];
        averaged[i] = own;
    }
    rp_status status = run_share(t, sums);
    memcpy(states, averaged, (size_t)count * sizeof(float));
    return status;
}

rp_status rpi_trainer_evaluate(rpi_trainer *t, rpi_evaluation *out_evaluation) {
    float *averaged = NULL;
    totals sums = {0};
    RP_TRY(rpi_alloc_array((size_t)rpi_weights_states_count(t->weights), sizeof *averaged,
                           "running statistics", &averaged));
    rp_status status = run_averaged(t, averaged, &sums);
    rpi_free(averaged);
    RP_TRY(status);
    double values[3] = {sums.loss, sums.correct, sums.labels};
    rp_segment segment = {.data = values, .count = 3, .dtype = RP_F64};
    RP_TRY(rp_all_reduce(t->comm, &segment, 1, NULL));
    const rpi_task *task = t->network.task;
    double loss = values[0] / values[2];
    *out_evaluation = (rpi_evaluation){.loss = loss,
                                       .accuracy = values[1] / values[2],
                                       .perplexity = task->has_perplexity ? exp(loss) : NAN,
                                       .count = (int64_t)values[2],
                                       .unit = task->unit};
    return RP_OK;
}
