/* The contract of a replica: each share tells every gradient once and in order, however it is
 * cut into runs, and an evaluation is the sum of its parts. */
#include "base/memory.h"
#include "base/status.h"
#include "harness/check.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <math.h>
#include <string.h>

/* Models of made-up images, without batch norm, whose statistics are of a run. */
static const char *const models[] = {"mlp:hidden=24", "vit:patch=14,layers=1,hidden=12,heads=3",
                                     "vit:patch=14,layers=1,hidden=12,heads=3,dropout=0.1"};
enum { MODELS = sizeof models / sizeof models[0], BATCH = 12 };

typedef struct hearing {
    const rpi_trainer *trainer;
    int64_t end; /* of what is final so far */
    int tellings, runs;
    double losses;
} hearing;

static rp_status on_final(void *context, int64_t first, int64_t count) {
    hearing *h = context;
    CHECK_EQ(first, h->end);
    CHECK(count > 0);
    h->end = first + count;
    h->tellings++;
    return RP_OK;
}

static rp_status on_run(void *context, const rpi_replica_run *run) {
    hearing *h = context;
    CHECK(run->instance && run->options);
    h->runs++;
    h->losses += run->loss;
    return RP_OK;
}

static rp_status refuse(void *context, int64_t first, int64_t count) {
    (void)context, (void)first, (void)count;
    return RP_FAIL(CANCELLED, "nobody wants it");
}

static rpi_replica_setup setup_of(rpi_trainer *t, hearing *h, int64_t micro_batch) {
    *h = (hearing){.trainer = t};
    return (rpi_replica_setup){.network = &t->network,
                               .weights = t->weights,
                               .programs = &t->programs,
                               .mixup = &t->mixup,
                               .memories = &t->memories,
                               .micro_batch = micro_batch,
                               .gradient_final = on_final,
                               .on_run = on_run,
                               .context = h};
}

/* The gradients of a share, by a replica of its own. */
static rp_status learn(rpi_trainer *t, int64_t micro_batch, int64_t samples, float *gradients,
                       double *out_loss) {
    hearing h;
    rpi_source_batch dealt;
    void *self = NULL;
    int64_t count = rpi_weights_count(t->weights);
    const rpi_replica_setup setup = setup_of(t, &h, micro_batch);
    RP_TRY(rpi_source_deal(&t->source, 0, &dealt));
    dealt.count = samples;
    const rpi_replica_batch batch = {.samples = &dealt,
                                     .first_sample = 5,
                                     .seed = 3,
                                     .step = 2,
                                     .scales = {1.0f / BATCH, 1, 1}};
    RP_TRY(t->replica->open(&setup, &self));
    rp_status status = t->replica->compile(self, true, samples);
    if (status == RP_OK) status = t->replica->learn(self, &batch, out_loss);
    t->replica->close(self);
    CHECK_EQ(h.end, count);
    CHECK_EQ(h.runs, (samples + micro_batch - 1) / micro_batch);
    CHECK(h.losses == *out_loss);
    memcpy(gradients, rpi_weights_gradients(t->weights), (size_t)count * sizeof *gradients);
    return status;
}

static rp_status learn_in_parts(rpi_trainer *t, float *whole, float *parts) {
    static const int64_t cuts[] = {6, 4, 5, 1};
    int64_t count = rpi_weights_count(t->weights);
    double loss = 0, other = 0;
    RP_TRY(learn(t, BATCH, BATCH, whole, &loss));
    CHECK(loss > 0);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        RP_TRY(learn(t, cuts[i], BATCH, parts, &other));
        CHECK_NEAR(other, loss, 1e-6);
        for (int64_t e = 0; e < count; e++)
            CHECK_NEAR((double)parts[e], (double)whole[e], 1e-6);
    }
    RP_TRY(learn(t, BATCH, 0, parts, &other));
    CHECK(other == 0);
    for (int64_t e = 0; e < count; e++) CHECK(parts[e] == 0);
    return RP_OK;
}

static rp_status evaluate(rpi_trainer *t, int64_t first, int64_t count,
                          rpi_replica_score *sum) {
    rpi_source_batch batch;
    rpi_replica_score score;
    rpi_memories none = {0};
    RP_TRY(rpi_source_hold_out(&t->source, first, count, &batch));
    batch.count = count;
    RP_TRY(t->replica->evaluate(t->replica_self, &batch, &none, &score));
    CHECK(!score.logits && score.sample_loss == 0);
    sum->loss += score.loss;
    sum->correct += score.correct;
    return RP_OK;
}

static rp_status evaluate_in_parts(rpi_trainer *t) {
    rpi_replica_score whole = {0}, parts = {0};
    RP_TRY(evaluate(t, 0, BATCH, &whole));
    RP_TRY(evaluate(t, 0, 5, &parts));
    RP_TRY(evaluate(t, 5, BATCH - 5, &parts));
    CHECK(whole.loss > 0 && whole.correct >= 0 && whole.correct <= BATCH);
    CHECK_NEAR(parts.loss, whole.loss, 1e-5 * whole.loss);
    CHECK(parts.correct == whole.correct);
    return RP_OK;
}

static rp_status refused(rpi_trainer *t) {
    hearing h;
    void *self = NULL;
    double loss = 0;
    rpi_source_batch dealt;
    rpi_replica_setup setup = setup_of(t, &h, BATCH);
    setup.gradient_final = refuse;
    RP_TRY(rpi_source_deal(&t->source, 0, &dealt));
    rpi_replica_batch batch = {.samples = &dealt, .scales = {1, 1, 1}};
    RP_TRY(t->replica->open(&setup, &self));
    CHECK_FAILS(t->replica->learn(self, &batch, &loss), CANCELLED, "nobody wants it");
    dealt.count = 0;
    CHECK_FAILS(t->replica->learn(self, &batch, &loss), CANCELLED, "nobody wants it");
    t->replica->close(self);
    return RP_OK;
}

static rp_status walk_model(void *context, rp_comm *comm) {
    rpi_train_options options = ranks_options();
    rpi_trainer t;
    float *gradients = NULL;
    options.model = context;
    options.global_batch_size = BATCH;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    if (status == RP_OK) {
        size_t count = (size_t)rpi_weights_count(t.weights);
        status = rpi_alloc_array(2 * count, sizeof *gradients, "gradients", &gradients);
        if (status == RP_OK) status = learn_in_parts(&t, gradients, gradients + count);
        if (status == RP_OK) status = evaluate_in_parts(&t);
        if (status == RP_OK) status = refused(&t);
    }
    rpi_free(gradients);
    rpi_trainer_close(&t);
    return status;
}

static void every_share_is_told_once(void) {
    for (int m = 0; m < MODELS; m++) CHECK_OK(ranks_run(1, walk_model, (void *)models[m]));
}

CASES({"every_share_is_told_once", every_share_is_told_once})
