/* --mixup: how pictures are blended, what the loss is of, and that evaluations know nothing. */
#include "harness/check.h"
#include "train/mixup.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <math.h>
#include <string.h>

enum { DRAWS = 4000 };

/* The mean of Beta(a, a) is 1/2, its variance 1 / (4 (2a + 1)). */
static void check_draws(double alpha) {
    double sum = 0, squares = 0;
    uint64_t seed = check_seed();
    for (int i = 0; i < DRAWS; i++) {
        double share = rpi_mixup_share(alpha, seed, i);
        CHECK(share >= 0 && share <= 1 && share * 65536 == floor(share * 65536));
        CHECK(share == rpi_mixup_share(alpha, seed, i));
        sum += share - .5;
        squares += (share - .5) * (share - .5);
    }
    double variance = 1 / (4 * (2 * alpha + 1));
    CHECK_NEAR(sum / DRAWS, 0, 6 * sqrt(variance / DRAWS));
    CHECK_NEAR(squares / DRAWS, variance, .1 * variance);
}

static void shares_are_of_beta(void) {
    check_draws(.2);
    check_draws(.5);
    check_draws(1);
}

static void a_picture_is_blended_with_the_one_before(void) {
    const rpi_data_shape shape = {.channels = 1, .height = 1, .width = 2, .classes = 9};
    const float images[] = {1, 2, 30, 40, 500, 600};
    const int32_t labels[] = {3, 5, 7};
    rpi_mixup m;
    REQUIRE_OK(rpi_mixup_open(1, &shape, 3, &m));
    for (int64_t step = 0; step < 3; step++) {
        rpi_source_batch batch = {.inputs = {images, labels}, .count = 3};
        rpi_mixup_blend(&m, 1, step, &batch);
        const float *got = batch.inputs[0], s = m.share;
        CHECK_NEAR(s, rpi_mixup_share(1, 1, step), 0);
        for (int i = 0; i < 6; i++)
            CHECK_NEAR(got[i], s * images[i] + (1 - s) * images[(i + 4) % 6], 1e-4);
        CHECK(batch.inputs[1] == labels);
        CHECK(m.labels[0] == 7 && m.labels[1] == 3 && m.labels[2] == 5);
    }
    rpi_mixup_close(&m);
}

/* ---- the loss ---- */

typedef struct losses {
    rpi_train_options options;
    double step, test; /* of the first step, of an evaluation before it */
    double wanted;     /* share loss(y_i) + (1 - share) loss(y_j) of the same pictures */
} losses;

/* The loss of the batch at hand with other labels. */
static rp_status loss_of(rpi_trainer *t, const void *images, const int32_t *labels,
                         double *out_loss) {
    rpi_memories none = {0};
    rpi_replica_score score;
    const rpi_source_batch batch = {.inputs = {images, labels}, .count = t->global_batch};
    RP_TRY(t->replica->evaluate(t->replica_self, &batch, &none, &score));
    *out_loss = score.loss / (double)t->global_batch;
    return RP_OK;
}

static rp_status foresee(rpi_trainer *t, double *out_loss) {
    rpi_source_batch batch;
    double first = 0, second = 0;
    RP_TRY(rpi_source_deal(&t->source, 0, &batch));
    rpi_mixup_blend(&t->mixup, (uint64_t)t->options->seed, 0, &batch);
    RP_TRY(loss_of(t, batch.inputs[0], batch.inputs[1], &first));
    RP_TRY(loss_of(t, batch.inputs[0], t->mixup.labels, &second));
    double share = (double)t->mixup.share;
    *out_loss = share * first + (1 - share) * second;
    return RP_OK;
}

static rp_status take_a_step(void *context, rp_comm *comm) {
    losses *it = context;
    rpi_trainer t;
    rpi_step_metrics metrics = {0};
    rpi_evaluation evaluation = {0};
    rp_status status = rpi_trainer_open(&t, &it->options, comm);
    if (status == RP_OK) status = rpi_trainer_evaluate(&t, &evaluation);
    if (status == RP_OK && it->options.mixup > 0) status = foresee(&t, &it->wanted);
    if (status == RP_OK) status = rpi_trainer_step(&t, &metrics);
    it->step = metrics.loss;
    it->test = evaluation.loss;
    rpi_trainer_close(&t);
    return status;
}

static void the_loss_is_of_both_labels(void) {
    for (int b = 0; rpi_backend_at(b); b++) {
        losses plain = {.options = ranks_options()}, mixed = plain;
        plain.options.backend = mixed.options.backend = rpi_backend_at(b)->name;
        mixed.options.mixup = 1;
        REQUIRE_OK(ranks_run(1, take_a_step, &plain));
        REQUIRE_OK(ranks_run(1, take_a_step, &mixed));
        CHECK_NEAR(mixed.step, mixed.wanted, 1e-5);
        CHECK(fabs(mixed.step - plain.step) > 1e-4);
        CHECK_NEAR(mixed.test, plain.test, 0);
    }
}

/* ---- runs ---- */

static void it_learns_and_goes_on(void) {
    rpi_train_options options = ranks_options();
    rpi_train_result result = {0};
    options.mixup = .2;
    options.label_smoothing = .1;
    options.steps = 60;
    options.out = ranks_folder("whole");
    REQUIRE_OK(ranks_train(&options, 2, &result));
    CHECK_MSG(result.test.accuracy > 0.9, "accuracy is %g", result.test.accuracy);
    options.out = ranks_folder("parts");
    options.steps = 25;
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    options.resume = options.out;
    options.steps = 60;
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK(ranks_same_file(ranks_path(ranks_folder("whole"), "model.safetensors"),
                          ranks_path(ranks_folder("parts"), "model.safetensors")));
}

static void mistakes_are_named(void) {
    rpi_train_options options = ranks_options();
    options.mixup = 1.5;
    CHECK_FAILS(rpi_train_check(&options, 1), INVALID, "--mixup: 1.5; 0 (none), or 0.01 to 1");
    options.mixup = .2;
    options.model = "gpt2";
    options.data = "tokens:nowhere";
    CHECK_FAILS(rpi_train_check(&options, 1), INVALID,
                "--mixup blends pictures; --data tokens:nowhere has tokens");
    CHECK_FAILS(rpi_network_build_for("gpt2:layers=1,hidden=8,heads=2",
                                      &(rpi_data_shape){.sequence = 8},
                                      &(rpi_loss_options){.mixes = true}, &(rpi_network){0}),
                INVALID, "--mixup is for classification; gpt2 learns language-model");
}

CASES({"shares_are_of_beta", shares_are_of_beta},
      {"a_picture_is_blended_with_the_one_before", a_picture_is_blended_with_the_one_before},
      {"the_loss_is_of_both_labels", the_loss_is_of_both_labels},
      {"it_learns_and_goes_on", it_learns_and_goes_on},
      {"mistakes_are_named", mistakes_are_named})
