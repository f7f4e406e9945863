/* Training with local steps: what it has in common with other strategies, that it learns, that
 * it goes on where it stopped, and what is refused. */
#include "harness/check.h"
#include "train/checkpoint/safetensors.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>

enum { WORLD = 3 };

static rpi_train_options local_options(const char *strategy) {
    rpi_train_options options = ranks_options();
    options.strategy = strategy;
    options.model = "mlp:hidden=48x32x16";
    options.backend = NULL; /* the fastest */
    options.threads = 1;
    return options;
}

static void train_into(const char *folder, rpi_train_options options, int world) {
    options.out = ranks_folder(folder);
    options.overwrite = true;
    CHECK_OK(ranks_train(&options, world, NULL));
}

/* Largest difference of any element of the models of two runs. */
static double difference(const char *a_folder, const char *b_folder) {
    rpi_safetensors *a = NULL, *b = NULL;
    double most = 0;
    CHECK_OK(rpi_safetensors_open(ranks_path(ranks_folder(a_folder), "model.safetensors"), &a));
    CHECK_OK(rpi_safetensors_open(ranks_path(ranks_folder(b_folder), "model.safetensors"), &b));
    for (int i = 0; a && b && i < rpi_safetensors_count(a); i++) {
        const rpi_named_tensor *tensor = rpi_safetensors_at(a, i);
        size_t count = (size_t)rpi_shape_count(&tensor->shape);
        if (strncmp(tensor->name, "optimizer.", 10) == 0) continue;
        float *x = calloc(count, sizeof *x), *y = calloc(count, sizeof *y);
        CHECK_OK(rpi_safetensors_read(a, tensor->name, RP_F32, &tensor->shape, x));
        CHECK_OK(rpi_safetensors_read(b, tensor->name, RP_F32, &tensor->shape, y));
        for (size_t e = 0; e < count; e++) most = fmax(most, fabs((double)x[e] - (double)y[e]));
        free(x);
        free(y);
    }
    rpi_safetensors_close(a);
    rpi_safetensors_close(b);
    return most;
}

/* With plain SGD the mean of all steps is the step of the mean; and an outer optimizer of rate
 * 1 without momentum takes the mean. */
static void averaging_each_step_is_all_reduce(void) {
    static const char *const same[] = {
        "local-sgd:every=1", "local-sgd:outer=diloco,every=1,outer-lr=1,outer-momentum=0",
        "local-sgd:outer=slowmo,every=1,outer-momentum=0"};
    for (int world = 1; world <= 4; world += 3) {
        rpi_train_options options = local_options("all-reduce");
        options.momentum = 0;
        train_into("whole", options, world);
        for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
            options.strategy = same[i];
            train_into("local", options, world);
            double d = difference("whole", "local");
            CHECK_MSG(d < 1e-5, "%s, %d ranks: differs by %g", same[i], world, d);
        }
    }
}

/* One rank that averages with nobody: as if it were alone. Its optimizer's state stays. */
static void alone_it_is_the_inner_optimizer(void) {
    rpi_train_options options = local_options("single");
    options.optimizer = "adamw";
    options.lr = .01;
    train_into("whole", options, 1);
    options.strategy = "local-sgd:every=3";
    options.codec = "q4";
    train_into("local", options, 1);
    CHECK(difference("whole", "local") < 1e-7);
    options.strategy = "local-sgd:every=3,inner-state=reset";
    train_into("local", options, 1);
    CHECK(difference("whole", "local") > 1e-4);
}

typedef struct kind {
    const char *strategy, *codec;
} kind;

static const kind kinds[] = {
    {"local-sgd:every=4", "fp32"},
    {"local-sgd:every=4,inner-state=average,delay=2,mixing=.5", "q8"},
    {"local-sgd:outer=slowmo,every=4,fragments=2,inner-state=reset", "q4"},
    {"local-sgd:outer=diloco,every=4,fragments=2,delay=1,outer-momentum=.6", "q4"},
    {"local-sgd:outer=diloco,every=6,delay=5,nesterov=off,outer-momentum=.3,mixing=.6", "bf16"},
    {"local-sgd:outer=noloco,every=4,fragments=2,delay=1", "q8"},
    {"local-sgd:outer=sparseloco,every=4,delay=1", "topk:k=64,bucket=1024,values=q4"},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void every_kind_learns(void) {
    for (int i = 0; i < KINDS; i++) {
        rpi_train_options options = local_options(kinds[i].strategy);
        rpi_train_result result = {0};
        options.model = "mlp:hidden=48";
        options.momentum = 0;
        options.lr *= 2;
        options.codec = kinds[i].codec;
        options.steps = 120;
        REQUIRE_OK(ranks_train(&options, WORLD, &result));
        CHECK_MSG(result.test.accuracy > .9, "%s with %s: accuracy is %g", kinds[i].strategy,
                  kinds[i].codec, result.test.accuracy);
        CHECK_MSG(result.test.consensus_distance >= 0 && result.test.consensus_distance < .3,
                  "%s: consensus distance is %g", kinds[i].strategy,
                  result.test.consensus_distance);
    }
}

static void check_same(const kind *k, int stop, const char *name) {
    CHECK_MSG(ranks_same_file(ranks_path(ranks_folder("whole"), name),
                              ranks_path(ranks_folder("parts"), name)),
              "%s with %s, stopped after %d: %s is another", k->strategy, k->codec, stop, name);
}

/* Between two exchanges, and while one is in flight: it ends in step 8, too. */
static void it_goes_on_as_if_it_had_never_stopped(void) {
    for (int i = 0; i < KINDS; i++) {
        rpi_train_options options = local_options(kinds[i].strategy);
        options.codec = kinds[i].codec;
        options.eval = false;
        options.steps = 11;
        train_into("whole", options, WORLD);
        for (int stop = 3; stop <= 5; stop += i % 2 + 1) {
            options.resume = NULL;
            options.steps = stop;
            train_into("parts", options, WORLD);
            options.out = options.resume = ranks_folder("parts");
            options.steps = 11;
            REQUIRE_OK(ranks_train(&options, WORLD, NULL));
            check_same(&kinds[i], stop, "model.safetensors");
            for (int rank = 0; rank < WORLD; rank++) {
                char name[64];
                snprintf(name, sizeof name, "rank-%d-of-%d-step-11.safetensors", rank, WORLD);
                check_same(&kinds[i], stop, name);
            }
        }
    }
}

/* It has nobody to meet, and an outer optimizer all the same. */
static void one_rank_goes_on_so_too(void) {
    rpi_train_options options = local_options("local-sgd:outer=diloco,every=4");
    options.eval = false;
    options.steps = 11;
    train_into("whole", options, 1);
    options.steps = 6;
    train_into("parts", options, 1);
    options.out = options.resume = ranks_folder("parts");
    options.steps = 11;
    REQUIRE_OK(ranks_train(&options, 1, NULL));
    static const char *const names[] = {"model.safetensors", "rank-0-of-1-step-11.safetensors"};
    for (int i = 0; i < 2; i++)
        CHECK_MSG(ranks_same_file(ranks_path(ranks_folder("whole"), names[i]),
                                  ranks_path(ranks_folder("parts"), names[i])),
                  "%s is another", names[i]);
}

/* A save in the middle changes nothing: what is in flight is waited for, and goes on. */
static void saving_disturbs_nothing(void) {
    rpi_train_options options = local_options(kinds[3].strategy);
    options.codec = kinds[3].codec;
    options.eval = false;
    train_into("whole", options, WORLD);
    options.checkpoint_every = 1;
    train_into("parts", options, WORLD);
    check_same(&kinds[3], 10, "model.safetensors");
}

static void others_begin_from_the_mean(void) {
    static const struct {
        const char *strategy;
        int world;
    } next[] = {
        {"local-sgd:outer=diloco,every=4,delay=3", 2}, {"gossip", 3}, {"all-reduce", 3}};
    for (size_t i = 0; i < sizeof next / sizeof next[0]; i++) {
        rpi_train_options options = local_options("local-sgd:outer=diloco,every=4,delay=3");
        options.codec = "q8";
        options.steps = 7; /* something is in flight */
        train_into("begun", options, 3);
        options.strategy = next[i].strategy;
        options.out = options.resume = ranks_folder("begun");
        options.steps += 5;
        REQUIRE_OK(ranks_train(&options, next[i].world, NULL));
        CHECK_MSG(strstr(ranks_notes(), "begins from their mean"), "%s: '%s'", next[i].strategy,
                  ranks_notes());
    }
}

/* The outer gradient's norm and what follows from it are told. */
static void exchanges_are_in_the_metrics(void) {
    rpi_train_options options = local_options("local-sgd:outer=diloco,every=3");
    size_t bytes = 0;
    train_into("told", options, 2);
    char *text = (char *)ranks_file(ranks_path(ranks_folder("told"), "metrics.jsonl"), &bytes);
    int norms = 0, likenesses = 0;
    REQUIRE(text != NULL);
    text[bytes - 1] = '\0';
    for (const char *at = text; (at = strstr(at, "\"outer_grad_norm\":")) != NULL; at++)
        norms++;
    for (const char *at = text; (at = strstr(at, "\"autocorrelation\":")) != NULL; at++)
        likenesses++;
    CHECK_EQ(norms, 3);
    CHECK_EQ(likenesses, 2);
    free(text);
}

static void a_momentum_that_does_not_fit_is_told(void) {
    rpi_train_options options =
        local_options("local-sgd:outer=diloco,every=1,outer-momentum=.9");
    options.steps = 30;
    options.lr = 1e-4; /* the same way in each step */
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK_MSG(strstr(ranks_notes(), "where none is given it is 0.3"), "'%s'", ranks_notes());
    CHECK_MSG(strstr(ranks_notes(), "outer momentum 0.9 is high for 1 local steps"), "'%s'",
              ranks_notes());
}

/* Where none is said it is one that works with so few steps. */
static void momentum_goes_by_the_number_of_steps(void) {
    static const char *const outers[] = {"diloco", "slowmo", "noloco"};
    for (int i = 0; i < 3; i++)
        for (int every = 2; every <= 10; every += 8) {
            char text[64];
            rpi_train_result result = {0};
            snprintf(text, sizeof text, "local-sgd:outer=%s,every=%d", outers[i], every);
            rpi_train_options options = local_options(text);
            options.model = "mlp:hidden=48";
            options.momentum = 0;
            options.lr *= 2;
            options.steps = 120;
            REQUIRE_OK(ranks_train(&options, 4, &result));
            CHECK_MSG(result.test.accuracy > .9, "%s: accuracy is %g", text,
                      result.test.accuracy);
            CHECK_MSG(!strstr(ranks_notes(), "outer momentum"), "%s: '%s'", text,
                      ranks_notes());
        }
}

static void windows_that_lose_much_are_told(void) {
    rpi_train_options options = local_options("local-sgd:every=4,delay=2");
    options.steps = 4;
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK_MSG(strstr(ranks_notes(),
                     "of each 4 steps 2 go on under an exchange, and 100 % of what "
                     "they learn is thrown away"),
              "'%s'", ranks_notes());
    options.strategy = "local-sgd:every=4,delay=2,mixing=.5";
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK_MSG(!strstr(ranks_notes(), "thrown away"), "'%s'", ranks_notes());
}

static void expect(const char *strategy, const char *codec, const char *words) {
    rpi_train_options options = local_options(strategy);
    options.codec = codec;
    rp_status status = rpi_train_check(&options, 4);
    CHECK_MSG(status == RP_INVALID && strstr(rp_last_error()->message, words),
              "%s: %s, '%s' lacks '%s'", strategy, rp_status_name(status),
              rp_last_error()->message, words);
}

static void mistakes_are_named(void) {
    expect("local-sdg", "fp32", "did you mean 'local-sgd'");
    expect("local-sgd:outer=dilico", "fp32", "did you mean 'diloco'");
    expect("local-sgd:evry=3", "fp32", "did you mean 'every'");
    expect("local-sgd:every", "fp32", "every needs a value: every=N");
    expect("local-sgd:every=0", "fp32", "every is 0");
    expect("local-sgd:every=x", "fp32", "every");
    expect("local-sgd:outer-momentum=fast", "fp32", "fast");
    expect("local-sgd:every=10,fragments=3", "fp32", "divides every");
    expect("local-sgd:every=10,delay=10", "fp32", "less than every / fragments");
    expect("local-sgd:every=8,fragments=4,delay=2", "fp32", "windows of 2");
    expect("local-sgd:mixing=2", "fp32", "mixing is 2");
    expect("local-sgd:mixing=1", "fp32", "never agree");
    expect("local-sgd:every=10,delay=9", "fp32", "in 9 of each 10 steps is thrown away");
    expect("local-sgd:outer=diloco,every=60,fragments=2,delay=28", "fp32",
           "28 of each 30 steps");
    expect("local-sgd:outer-lr=.5", "fp32", "take diloco");
    expect("local-sgd:outer=noloco,outer-momentum=.9", "fp32", "drift apart");
    expect("local-sgd:inner-state=lost", "fp32", "keep, average or reset");
    expect("local-sgd:outer=sparseloco", "fp32", "--codec topk");
    expect("local-sgd", "auto:like=q4,every=10", "--codec auto");
    rpi_train_options options = local_options("local-sgd:outer=sparseloco");
    options.codec = "topk";
    CHECK_OK(rpi_train_check(&options, 4));
    options.error_feedback = false;
    CHECK_FAILS(rpi_train_check(&options, 4), INVALID, "leave it on");
    options = local_options("local-sgd:every=100,fragments=5");
    CHECK_FAILS(ranks_train(&options, 2, NULL), INVALID, "5 fragments, and the model has 4");
    CHECK(ranks_status(0) == RP_INVALID && ranks_status(1) == RP_INVALID);
}

CASES({"momentum goes by the number of steps", momentum_goes_by_the_number_of_steps},
      {"windows that lose much are told", windows_that_lose_much_are_told},
      {"averaging each step is all-reduce", averaging_each_step_is_all_reduce},
      {"alone it is the inner optimizer", alone_it_is_the_inner_optimizer},
      {"every kind learns", every_kind_learns},
      {"it goes on as if it had never stopped", it_goes_on_as_if_it_had_never_stopped},
      {"one rank goes on so, too", one_rank_goes_on_so_too},
      {"saving disturbs nothing", saving_disturbs_nothing},
      {"others begin from the mean", others_begin_from_the_mean},
      {"exchanges are in the metrics", exchanges_are_in_the_metrics},
      {"a momentum that does not fit is told", a_momentum_that_does_not_fit_is_told},
      {"mistakes are named", mistakes_are_named})
