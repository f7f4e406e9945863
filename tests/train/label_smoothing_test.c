/* --label-smoothing: what the loss of a step becomes, and that evaluations are without. */
#include "harness/check.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <math.h>

typedef struct losses {
    rpi_train_options options;
    double step, test; /* of the first step, of an evaluation before it */
} losses;

static rp_status take_a_step(void *context, rp_comm *comm) {
    losses *it = context;
    rpi_trainer t;
    rpi_step_metrics metrics = {0};
    rpi_evaluation evaluation = {0};
    rp_status status = rpi_trainer_open(&t, &it->options, comm);
    if (status == RP_OK) status = rpi_trainer_evaluate(&t, &evaluation);
    if (status == RP_OK) status = rpi_trainer_step(&t, &metrics);
    it->step = metrics.loss;
    it->test = evaluation.loss;
    rpi_trainer_close(&t);
    return status;
}

/* loss(s) = (1 - s) * (that of the label) + s * (mean over all classes): linear in s. */
static void check_backend(const char *backend) {
    losses at[3];
    for (int i = 0; i < 3; i++) {
        at[i] = (losses){.options = ranks_options()};
        at[i].options.backend = backend;
        at[i].options.label_smoothing = 0.1 * i;
        REQUIRE_OK(ranks_run(1, take_a_step, &at[i]));
        CHECK_NEAR(at[i].test, at[0].test, 0);
    }
    double slope = at[1].step - at[0].step;
    CHECK_MSG(fabs(slope) > 1e-3, "%s: smoothing changes the loss by %g", backend, slope);
    CHECK_NEAR(at[2].step - at[0].step, 2 * slope, 1e-5);
}

static void the_loss_is_of_smoothed_labels(void) {
    for (int i = 0; rpi_backend_at(i); i++) check_backend(rpi_backend_at(i)->name);
}

static void it_learns_all_the_same(void) {
    rpi_train_options options = ranks_options();
    rpi_train_result result = {0};
    options.label_smoothing = 0.1;
    options.steps = 60;
    REQUIRE_OK(ranks_train(&options, 2, &result));
    CHECK_MSG(result.test.accuracy > 0.9, "accuracy is %g", result.test.accuracy);
    CHECK_MSG(result.last_loss > 0.3, "the loss is %g: labels are not smoothed",
              result.last_loss);
}

static void mistakes_are_named(void) {
    rpi_train_options options = ranks_options();
    options.label_smoothing = 1;
    CHECK_FAILS(rpi_train_check(&options, 1), INVALID, "below 1");
    options.label_smoothing = 0.1;
    options.model = "bert";
    options.data = "masked:nowhere";
    CHECK_FAILS(rpi_train_check(&options, 1), INVALID, "--label-smoothing is for images");
    CHECK_FAILS(rpi_network_build_for("bert:layers=1,hidden=8,heads=2",
                                      &(rpi_data_shape){.sequence = 8},
                                      &(rpi_loss_options){.smoothing = 0.1}, &(rpi_network){0}),
                INVALID, "bert learns masked-lm");
    CHECK_FAILS(rpi_network_build_for(
                    "transformer-xl:layers=1,hidden=8,heads=2,inner=8,head=4,memory=4,"
                    "vocabulary=20,cutoffs=8",
                    &(rpi_data_shape){.sequence = 8}, &(rpi_loss_options){.smoothing = 0.1},
                    &(rpi_network){0}),
                INVALID, "cutoffs=none");
}

CASES({"the loss is of smoothed labels", the_loss_is_of_smoothed_labels},
      {"it learns all the same", it_learns_all_the_same},
      {"mistakes are named", mistakes_are_named})
