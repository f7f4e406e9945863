/* Clipping by the global norm: of all gradients of all ranks, before any update. */
#include "base/memory.h"
#include "harness/check.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double norm_of(const float *x, const float *y, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)x[i] - (y ? (double)y[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* Plain descent by rate 1: what parameters move by is the gradient that was used. */
static rp_status one_step(rp_comm *comm, double clip, double *out_moved, double *out_norm,
                          double *out_gradients) {
    rpi_train_options options = ranks_options();
    options.momentum = options.weight_decay = 0;
    options.lr = 1;
    options.clip = clip;
    rpi_trainer t;
    rpi_step_metrics metrics = {0};
    float *before = NULL;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    int64_t count = status == RP_OK ? rpi_weights_count(t.weights) : 0;
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)count, sizeof *before, "values", &before);
    if (status == RP_OK)
        memcpy(before, rpi_weights_values(t.weights), (size_t)count * sizeof *before);
    if (status == RP_OK) status = rpi_trainer_step(&t, &metrics);
    if (status == RP_OK) {
        *out_moved = norm_of(rpi_weights_values(t.weights), before, count);
        *out_gradients = norm_of(rpi_weights_gradients(t.weights), NULL, count);
        *out_norm = metrics.gradient_norm;
    }
    rpi_free(before);
    rpi_trainer_close(&t);
    return status;
}

static rp_status clip_steps(void *context, rp_comm *comm) {
    (void)context;
    double moved = 0, norm = 0, gradients = 0;
    RP_TRY(one_step(comm, 0, &moved, &norm, &gradients));
    CHECK(isnan(norm)); /* nobody asked */
    CHECK_NEAR(moved / gradients, 1, 1e-5);
    double whole = gradients;
    RP_TRY(one_step(comm, whole / 4, &moved, &norm, &gradients));
    CHECK_NEAR(norm / whole, 1, 1e-6);
    CHECK_NEAR(gradients / whole, 1, 1e-6); /* scaled as they are read, not in their place */
    CHECK_NEAR(moved / (whole / 4), 1, 1e-4);
    RP_TRY(one_step(comm, whole * 4, &moved, &norm, &gradients));
    CHECK_NEAR(norm / whole, 1, 1e-6);
    CHECK_NEAR(moved / whole, 1, 1e-5);
    return RP_OK;
}

static void the_step_has_the_norm(void) {
    for (int world = 1; world <= 3; world++) CHECK_OK(ranks_run(world, clip_steps, NULL));
}

/* The bytes of a run's model in a folder of its own. */
static const char *trained(const char *name, double clip, double bucket_mb, int world) {
    rpi_train_options options = ranks_options();
    options.optimizer = "adamw";
    options.lr = 1e-3;
    options.clip = clip;
    options.bucket_mb = bucket_mb;
    options.eval = false;
    options.out = ranks_folder(name);
    CHECK_OK(ranks_train(&options, world, NULL));
    return ranks_path(options.out, "model.safetensors");
}

static void a_norm_that_is_never_reached_changes_nothing(void) {
    for (int world = 1; world <= 2; world++) {
        const char *plain = trained(world == 1 ? "plain-1" : "plain-2", 0, 0.0625, world);
        const char *loose = trained(world == 1 ? "loose-1" : "loose-2", 1e6, 0.0625, world);
        CHECK(ranks_same_file(plain, loose));
    }
}

/* The norm is exact, so that neither buckets nor ranks that sum the same show in it. */
static void buckets_do_not_show(void) {
    const char *small = trained("small", 0.1, 0.01, 3);
    const char *large = trained("large", 0.1, 64, 3);
    const char *loose = trained("other", 0, 64, 3);
    CHECK(ranks_same_file(small, large));
    CHECK(!ranks_same_file(large, loose));
}

static void replicas_stay_equal_with_lossy_gradients(void) {
    rpi_train_options options = ranks_options();
    rpi_train_result result = {0};
    options.codec = "q4";
    options.clip = 0.5;
    options.steps = 60;
    REQUIRE_OK(ranks_train(&options, 3, &result));
    CHECK_MSG(result.test.accuracy > 0.9, "accuracy is %g", result.test.accuracy);
}

static void the_norm_is_written(void) {
    rpi_train_options options = ranks_options();
    options.steps = 2;
    options.clip = 0.5;
    options.out = ranks_folder("written");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    size_t bytes = 0;
    char *text = (char *)ranks_file(ranks_path(options.out, "metrics.jsonl"), &bytes);
    REQUIRE(text);
    text[bytes] = '\0';
    CHECK_MSG(strstr(text, "\"grad_norm\":"), "%s", text);
    free(text);
}

static void a_negative_norm_is_refused(void) {
    rpi_train_options options = ranks_options();
    options.clip = -1;
    CHECK_FAILS(ranks_train(&options, 1, NULL), INVALID, "--clip");
}

CASES({"the_step_has_the_norm", the_step_has_the_norm},
      {"a_norm_that_is_never_reached_changes_nothing",
       a_norm_that_is_never_reached_changes_nothing},
      {"buckets_do_not_show", buckets_do_not_show},
      {"replicas_stay_equal_with_lossy_gradients", replicas_stay_equal_with_lossy_gradients},
      {"the_norm_is_written", the_norm_is_written},
      {"a_negative_norm_is_refused", a_negative_norm_is_refused})
