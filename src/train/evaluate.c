/* Computes loss and metrics on the held-out samples; every rank evaluates its share of them. */
#include "base/memory.h"
#include "base/status.h"
#include "train/consensus.h"
#include "train/trainer.h"

#include <math.h>
#include <string.h>

rp_status rpi_trainer_average_states(rpi_trainer *t, float *out_states) {
    size_t count = (size_t)rpi_weights_states_count(t->weights);
    memcpy(out_states, rpi_weights_states(t->weights), count * sizeof(float));
    if (count == 0 || t->place.holders == 1) return RP_OK;
    rp_segment segment = {.data = out_states, .count = count, .dtype = RP_F32};
    return rp_all_reduce(rpi_trainer_replicas(t), &segment, 1,
                         &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG));
}

/* Sums over samples; the last three for tasks with a second loss. */
enum { LOSS, CORRECT, LABELS, SAMPLE_LOSS, SAMPLE_CORRECT, SAMPLES, TOTALS };
typedef struct totals {
    double sum[TOTALS];
    /* one for each sample of all ranks, with those of this rank set; or NULL */
    double *verdicts;
} totals;

/* Adds from one sample's logits, rows of `filled` tokens, the first `tokens` of each row. */
static void cut_rows(const float *logits, int64_t each, int64_t filled, int64_t tokens,
                     float *out) {
    for (int64_t row = 0; row < each / filled; row++)
        memcpy(out + row * tokens, logits + row * filled, (size_t)tokens * sizeof *out);
}

/* Adds the model's score of samples [first, first + count), without padding. */
static rp_status judge(const rpi_trainer *t, const rpi_replica_score *score, int64_t first,
                       int64_t count, double *verdicts) {
    const rpi_source_kind *kind = t->source.kind;
    int64_t filled = rpi_network_tokens(&t->network), tokens = t->source.shape.sequence;
    float *rows = NULL;
    if (filled > tokens)
        RP_TRY(rpi_alloc_array((size_t)score->each, sizeof *rows, "logits of a sample", &rows));
    for (int64_t i = 0; i < count; i++) {
        const float *logits = score->logits + i * score->each;
        if (rows) cut_rows(logits, score->each, filled, tokens, rows);
        kind->judge(&t->source, first + i, rows ? rows : logits,
                    verdicts + (first + i) * kind->verdict_numbers);
    }
    rpi_free(rows);
    return RP_OK;
}

/* Ranks that share a sequence each count their own tokens; the first of them counts the loss of
 * whole samples. */
static rp_status add_score(const rpi_trainer *t, const rpi_replica_score *score, int64_t first,
                           int64_t count, int64_t labels, totals *sums) {
    bool judges = sums->verdicts && score->logits && rpi_trainer_has_sample_loss(t);
    if (judges) RP_TRY(judge(t, score, first, count, sums->verdicts));
    if (rpi_trainer_has_label_loss(t)) {
        sums->sum[LOSS] += score->loss;
        sums->sum[CORRECT] += score->correct;
        sums->sum[LABELS] += (double)labels;
    }
    if (!t->network.task->sample_metric || !rpi_trainer_has_sample_loss(t)) return RP_OK;
    sums->sum[SAMPLES] += (double)count;
    sums->sum[SAMPLE_LOSS] += score->sample_loss;
    sums->sum[SAMPLE_CORRECT] += score->sample_correct;
    return RP_OK;
}

static rp_status run_part(rpi_trainer *t, rpi_memories *memories, int64_t first, int64_t count,
                          totals *sums) {
    rpi_source_batch batch;
    rpi_replica_score score;
    RP_TRY(rpi_source_hold_out(&t->source, first, count, &batch));
    batch.count = count;
    RP_TRY(rpi_trainer_cut_batch(t, &batch));
    t->activations.is_off = true;
    rp_status status = t->replica->evaluate(t->replica_self, &batch, memories, &score);
    t->activations.is_off = false;
    RP_TRY(status);
    return add_score(t, &score, first, count, batch.labels, sums);
}

/* Of all ranks. */
static int64_t held_out_samples(const rpi_trainer *t) {
    int64_t limit = t->options->eval_images, all = t->source.test_count;
    return limit && limit < all ? limit : all;
}

/* This replica's part of the held-out samples: [first, end). */
static void find_share(const rpi_trainer *t, int64_t *out_first, int64_t *out_end) {
    int64_t samples = held_out_samples(t);
    rpi_train_place_share(&t->place, samples, out_first, out_end);
}

/* Samples of one run. A model with memories reads a rank's share as one text, in order. */
static int64_t samples_of_run(const rpi_trainer *t) {
    return t->network.memory_count ? 1 : t->micro_batch;
}

rp_status rpi_trainer_compile_evaluation(rpi_trainer *t) {
    int64_t first, end, most = samples_of_run(t);
    find_share(t, &first, &end);
    if (end - first >= most) RP_TRY(t->replica->compile(t->replica_self, false, most));
    int64_t rest = (end - first) % most;
    return rest ? t->replica->compile(t->replica_self, false, rest) : RP_OK;
}

static int64_t runs_of(int64_t samples, int64_t most) {
    return (samples + most - 1) / most;
}

/* The number of runs of the rank with the most, if ranks run together; 0: they do not. */
static int64_t runs_of_most(const rpi_trainer *t, int64_t most) {
    if (!rpi_trainer_passes_values(t)) return 0;
    return runs_of(rpi_train_place_most(&t->place, false, held_out_samples(t)), most);
}

static rp_status run_share(rpi_trainer *t, totals *sums) {
    int64_t first, end, most = samples_of_run(t);
    rpi_memories memories;
    rp_status status = rpi_memories_open(&t->network, 1, &memories);
    find_share(t, &first, &end);
    int64_t own = runs_of(end - first, most);
    while (status == RP_OK && first < end) {
        int64_t count = end - first < most ? end - first : most;
        status = run_part(t, &memories, first, count, sums);
        first += count;
    }
    rpi_memories_close(&memories);
    for (int64_t run = own; run < runs_of_most(t, most); run++)
        if (status == RP_OK) status = t->replica->idle(t->replica_self, false);
    return status;
}

/* Uses the world's running statistics instead of this rank's own, and restores those
 * afterwards, so that an evaluation does not change the training. */
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

static rpi_evaluation evaluation_of(const rpi_task *task, const double *sum) {
    bool has_labels = sum[LABELS] > 0;
    double loss = has_labels ? sum[LOSS] / sum[LABELS] : NAN;
    rpi_evaluation e = {.loss = loss,
                        .accuracy = has_labels ? sum[CORRECT] / sum[LABELS] : NAN,
                        .perplexity = task->has_perplexity ? exp(loss) : NAN,
                        .count = (int64_t)sum[LABELS],
                        .unit = task->unit,
                        .sample_metric = task->sample_metric};
    if (!task->sample_metric) return e;
    e.sample_loss = sum[SAMPLE_LOSS] / sum[SAMPLES];
    e.sample_accuracy = sum[SAMPLE_CORRECT] / sum[SAMPLES];
    e.loss += e.sample_loss;
    return e;
}

static rp_status make_verdicts(const rpi_trainer *t, totals *sums) {
    if (!t->network.task->judges_logits) return RP_OK;
    return rpi_alloc_array((size_t)held_out_samples(t),
                           (size_t)t->source.kind->verdict_numbers * sizeof(double), "verdicts",
                           &sums->verdicts);
}

/* Each verdict is set on one rank of one replica and 0 on the others, so that the sum is exact.
 */
static rp_status score(rpi_trainer *t, double *verdicts, rpi_scores *out_scores) {
    int64_t samples = held_out_samples(t);
    if (!verdicts) return RP_OK;
    size_t count = (size_t)(samples * t->source.kind->verdict_numbers);
    if (!t->place.counts) memset(verdicts, 0, count * sizeof *verdicts);
    rp_segment segment = {.data = verdicts, .count = count, .dtype = RP_F64};
    RP_TRY(rp_all_reduce(t->comm, &segment, 1, NULL));
    return t->source.kind->score(&t->source, samples, verdicts, out_scores);
}

static rp_status evaluate(rpi_trainer *t, totals *sums, rpi_evaluation *out_evaluation) {
    float *averaged = NULL;
    RP_TRY(make_verdicts(t, sums));
    RP_TRY(rpi_alloc_array((size_t)rpi_weights_states_count(t->weights), sizeof *averaged,
                           "running statistics", &averaged));
    rpi_consensus consensus;
    rp_status status = rpi_consensus_enter(t, &consensus);
    if (status == RP_OK) status = run_averaged(t, averaged, sums);
    rpi_consensus_leave(t, &consensus);
    rpi_free(averaged);
    RP_TRY(status);
    if (!t->place.counts) memset(sums->sum, 0, sizeof sums->sum);
    rp_segment segment = {.data = sums->sum, .count = TOTALS, .dtype = RP_F64};
    RP_TRY(rp_all_reduce(t->comm, &segment, 1, NULL));
    if (sums->sum[LABELS] == 0 && t->options->pictures.skip_broken)
        return RP_FAIL(CORRUPT,
                       "none of the %lld held-out %s can be read: name others "
                       "(--data ...,validation=), or go on without evaluations: --no-eval",
                       (long long)held_out_samples(t), t->network.task->unit);
    *out_evaluation = evaluation_of(t->network.task, sums->sum);
    out_evaluation->consensus_distance = consensus.distance;
    return score(t, sums->verdicts, &out_evaluation->scores);
}

rp_status rpi_trainer_evaluate(rpi_trainer *t, rpi_evaluation *out_evaluation) {
    totals sums = {0};
    rp_status status = evaluate(t, &sums, out_evaluation);
    rpi_free(sums.verdicts);
    return status;
}
