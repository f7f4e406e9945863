/* Micro-batches: the gradients of several runs are one step's. */
#include "harness/check.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>

typedef struct trained {
    double last_loss, test_loss;
    char model[600];
} trained;

static trained train(const rpi_train_options *given, const char *name, int world) {
    rpi_train_options options = *given;
    rpi_train_result result = {0};
    trained it = {0};
    options.out = ranks_folder(name);
    CHECK_OK(ranks_train(&options, world, &result));
    it.last_loss = result.last_loss;
    it.test_loss = result.test.loss;
    snprintf(it.model, sizeof it.model, "%s/model.safetensors", options.out);
    return it;
}

static void check_equal(const trained *a, const trained *b, const char *what) {
    CHECK_MSG(fabs(a->last_loss - b->last_loss) < 1e-5 * fabs(a->last_loss), "%s: %.9g, %.9g",
              what, a->last_loss, b->last_loss);
    CHECK_MSG(fabs(a->test_loss - b->test_loss) < 1e-5 * fabs(a->test_loss), "%s: %.9g, %.9g",
              what, a->test_loss, b->test_loss);
}

/* An MLP has no statistics of a batch: a step in parts is the step. */
static void parts_make_the_whole(void) {
    static const int64_t parts[] = {2, 3, 12};
    rpi_train_options options = ranks_options();
    options.clip = 0.5;
    trained whole = train(&options, "whole", 1);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (int world = 1; world <= 2; world++) {
            char name[32];
            options.accumulate = parts[i];
            snprintf(name, sizeof name, "of-%lld-on-%d", (long long)parts[i], world);
            trained it = train(&options, name, world);
            check_equal(&whole, &it, name);
        }
}

/* Masks of dropout are of samples: whoever learns from one, and in which part of a step, drops
 * the same of it. The last batch of 50 images, 2, leaves ranks without a sample. */
static void draws_are_of_samples(void) {
    static const char *const models[] = {
        "vit:patch=14,layers=1,hidden=12,heads=3,dropout=0.3",
        "vit:patch=14,layers=1,hidden=12,heads=3,attention-dropout=0.4"};
    static const struct {
        int world;
        int64_t parts;
    } cuts[] = {{1, 2}, {1, 12}, {2, 1}, {3, 2}};
    rpi_train_options options = ranks_options();
    options.train_images = 50;
    options.steps = 4;
    options.model = "vit:patch=14,layers=1,hidden=12,heads=3";
    trained plain = train(&options, "undropped", 1);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        char name[64];
        snprintf(name, sizeof name, "drawn-%zu-whole", m);
        options.model = models[m];
        options.accumulate = 0;
        trained whole = train(&options, name, 1);
        CHECK(fabs(whole.last_loss - plain.last_loss) > 1e-4); /* something is dropped */
        for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
            options.accumulate = cuts[i].parts;
            snprintf(name, sizeof name, "drawn-%zu-%d-%lld", m, cuts[i].world,
                     (long long)cuts[i].parts);
            trained it = train(&options, name, cuts[i].world);
            check_equal(&whole, &it, name);
        }
    }
}

/* 50 images in batches of 24: 24, 24, 2; in parts of 4 on 3 ranks the last has 1, 1 and 0. */
static void short_batches_weigh_right(void) {
    rpi_train_options options = ranks_options();
    options.steps = 0;
    options.epochs = 2;
    options.train_images = 50;
    trained whole = train(&options, "short-whole", 1);
    options.accumulate = 2;
    trained one = train(&options, "short-1", 1), three = train(&options, "short-3", 3);
    check_equal(&whole, &one, "1 rank");
    check_equal(&whole, &three, "3 ranks");
}

/* 20 samples of a last batch in parts of 8: 8, 8 and 4. All is compiled before it runs. */
static rp_status walk(void *context, rp_comm *comm) {
    (void)context;
    rpi_train_options options = ranks_options();
    rpi_trainer t;
    rpi_step_metrics metrics;
    options.train_images = 84; /* 64, 20 */
    options.global_batch_size = 64;
    options.accumulate = 8;
    options.eval = false;
    options.steps = 4;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    if (status == RP_OK) status = rpi_trainer_compile(&t);
    CHECK_EQ(t.programs.count, 2);
    for (int i = 0; i < 4 && status == RP_OK; i++) status = rpi_trainer_step(&t, &metrics);
    CHECK_EQ(t.programs.count, 2);
    rpi_session_facts facts = {0};
    if (t.programs.session) facts = rpi_session_get_facts(t.programs.session);
    CHECK_EQ(facts.arenas, 1);
    rpi_trainer_close(&t);
    return status;
}

static void nothing_is_compiled_later(void) {
    CHECK_OK(ranks_run(1, walk, NULL));
}

/* Statistics of batch norm, error feedback, the order of samples: all go on as they were. */
static void a_resumed_run_has_the_same_bytes(void) {
    rpi_train_options options = ranks_options();
    options.model = "resnet20:width=2";
    options.train_images = options.test_images = 24;
    options.global_batch_size = 8;
    options.accumulate = 2;
    options.codec = "q4";
    options.clip = 1;
    options.steps = 4;
    trained whole = train(&options, "resumed-whole", 2);
    options.steps = 2;
    options.out = ranks_folder("resumed");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    options.steps = 4;
    options.resume = ranks_folder("resumed");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK(ranks_same_file(whole.model, ranks_path(options.resume, "model.safetensors")));
}

static void a_batch_that_cannot_be_cut_is_refused(void) {
    rpi_train_options options = ranks_options();
    options.accumulate = 5;
    CHECK_FAILS(rpi_train_check(&options, 2), INVALID,
                "a global batch of 24 is not divisible by 2 ranks x 5 micro-batches");
    options.batch_size = 4;
    options.accumulate = 2;
    CHECK_FAILS(rpi_train_check(&options, 2), INVALID,
                "--batch-size 4 on 2 ranks x 2 micro-batches makes 16, but "
                "--global-batch-size is 24");
    options.global_batch_size = 0;
    int64_t batch = 0;
    REQUIRE_OK(rpi_train_global_batch(&options, 2, &batch));
    CHECK_EQ(batch, 16);
}

CASES({"parts_make_the_whole", parts_make_the_whole},
      {"draws_are_of_samples", draws_are_of_samples},
      {"short_batches_weigh_right", short_batches_weigh_right},
      {"nothing_is_compiled_later", nothing_is_compiled_later},
      {"a_resumed_run_has_the_same_bytes", a_resumed_run_has_the_same_bytes},
      {"a_batch_that_cannot_be_cut_is_refused", a_batch_that_cannot_be_cut_is_refused})
