/* Training by gossip: what it has in common with all-reduce, that it learns, and that it goes
 * on where it stopped. */
#include "harness/check.h"
#include "train/checkpoint/safetensors.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>

static rpi_train_options gossip_options(const char *strategy) {
    rpi_train_options options = ranks_options();
    options.strategy = strategy;
    options.momentum = 0;
    options.weight_decay = 0;
    options.backend = NULL; /* the fastest */
    options.threads = 1;
    return options;
}

static const char *model_in(const char *out) {
    return ranks_path(out, "model.safetensors");
}

/* Largest difference of any element of the models of two runs. */
static double difference(const char *a_folder, const char *b_folder) {
    rpi_safetensors *a = NULL, *b = NULL;
    double most = 0;
    CHECK_OK(rpi_safetensors_open(model_in(a_folder), &a));
    CHECK_OK(rpi_safetensors_open(model_in(b_folder), &b));
    for (int i = 0; a && b && i < rpi_safetensors_count(a); i++) {
        const rpi_named_tensor *tensor = rpi_safetensors_at(a, i);
        size_t count = (size_t)rpi_shape_count(&tensor->shape);
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

/* Everybody is everybody's neighbour: the mean of all steps is the step of the mean. */
static void averaging_with_all_is_all_reduce(void) {
    for (int world = 1; world <= 4; world++) {
        rpi_train_options options = gossip_options("gossip:topology=full,algorithm=atc");
        char gossip[32], whole[32];
        snprintf(gossip, sizeof gossip, "gossip-%d", world);
        snprintf(whole, sizeof whole, "whole-%d", world);
        options.out = ranks_folder(gossip);
        REQUIRE_OK(ranks_train(&options, world, NULL));
        options.strategy = "all-reduce";
        options.out = ranks_folder(whole);
        REQUIRE_OK(ranks_train(&options, world, NULL));
        double d = difference(ranks_folder(gossip), ranks_folder(whole));
        CHECK_MSG(d < 1e-5, "%d ranks differ by %g", world, d);
    }
}

static const char *const strategies[] = {
    "gossip", "gossip:algorithm=awc,topology=ring",
    "gossip:topology=exponential:base=4,symmetric=on,algorithm=exact-diffusion",
    "gossip:topology=one-peer-exponential,algorithm=gradient-tracking",
    "gossip:algorithm=choco"};
enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

static void every_algorithm_learns(void) {
    for (int i = 0; i < STRATEGIES; i++) {
        rpi_train_options options = gossip_options(strategies[i]);
        rpi_train_result result = {0};
        options.steps = 60;
        options.lr *= 2;
        REQUIRE_OK(ranks_train(&options, 4, &result));
        CHECK_MSG(result.test.accuracy > 0.9, "%s: accuracy is %g", strategies[i],
                  result.test.accuracy);
        CHECK_MSG(result.test.consensus_distance > 0 && result.test.consensus_distance < 0.1,
                  "%s: consensus distance is %g", strategies[i],
                  result.test.consensus_distance);
    }
}

/* By what an algorithm takes when no topology is said, as many ranks as there may be. */
static void algorithms_have_topologies_that_fit(void) {
    static const char *const algorithms[] = {"atc", "awc", "exact-diffusion", "choco",
                                             "gradient-tracking"};
    for (int i = 0; i < 5; i++) {
        char text[64];
        rpi_train_result result = {0};
        snprintf(text, sizeof text, "gossip:algorithm=%s", algorithms[i]);
        rpi_train_options options = gossip_options(text);
        options.steps = 60;
        options.lr *= 2;
        options.global_batch_size = 25;
        REQUIRE_OK(ranks_train(&options, 5, &result));
        CHECK_MSG(result.test.accuracy > 0.9 && result.test.consensus_distance < 0.1,
                  "%s: accuracy %g, consensus distance %g", algorithms[i], result.test.accuracy,
                  result.test.consensus_distance);
        snprintf(text, sizeof text, "gossip:algorithm=%s,on-loss=continue", algorithms[i]);
        for (int world = 1; world <= 16; world++) {
            options.global_batch_size = 5 * world;
            CHECK_OK(rpi_train_check(&options, world));
        }
    }
}

/* Few bits, and few elements: ranks stay as near as with all of them. */
static void copies_bear_any_codec(void) {
    static const char *const codecs[] = {"q4", "q2", "topk:k=64,bucket=512"};
    for (int i = 0; i < 3; i++) {
        rpi_train_options options = gossip_options("gossip:algorithm=choco,topology=ring");
        rpi_train_result result = {0};
        options.steps = 60;
        options.lr *= 2;
        options.codec = codecs[i];
        REQUIRE_OK(ranks_train(&options, 4, &result));
        CHECK_MSG(strstr(ranks_notes(), "choco takes gamma=0."), "'%s'", ranks_notes());
        CHECK_MSG(result.test.accuracy > 0.9, "%s: accuracy is %g", codecs[i],
                  result.test.accuracy);
        CHECK_MSG(result.test.consensus_distance < 0.1, "%s: consensus distance is %g",
                  codecs[i], result.test.consensus_distance);
    }
}

/* An optimizer with state of its own, a lossy codec: the optimizer's steps are exchanged. */
static void optimizers_and_codecs_go_with_it(void) {
    rpi_train_options options = gossip_options("gossip:topology=base");
    rpi_train_result result = {0};
    options.steps = 60;
    options.optimizer = "adamw";
    options.lr = 0.01;
    options.clip = 1;
    options.codec = "q8";
    REQUIRE_OK(ranks_train(&options, 3, &result));
    CHECK_MSG(result.test.accuracy > 0.9, "accuracy is %g", result.test.accuracy);
    options = gossip_options("all-reduce");
    REQUIRE_OK(ranks_train(&options, 2, &result));
    CHECK(isnan(result.test.consensus_distance));
}

/* Before the first step, and again where training ends badly by it. */
static void what_may_go_wrong_is_told(void) {
    static const struct {
        const char *strategy, *codec, *words;
    } cases[] = {
        {"gossip:algorithm=gradient-tracking", "q2",
         "tracked gradients, and a codec of so few"},
        {"gossip", "topk:k=16,bucket=4096", "a codec of so few bits moves them"},
        {"gossip:algorithm=choco,gamma=1", "topk:k=16,bucket=4096", "choco with a gamma of 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpi_train_options options = gossip_options(cases[i].strategy);
        options.codec = cases[i].codec;
        options.steps = 3;
        REQUIRE_OK(ranks_train(&options, 4, NULL));
        CHECK_MSG(strstr(ranks_notes(), cases[i].words), "%s: '%s'", cases[i].strategy,
                  ranks_notes());
        options.lr = 1e30;
        options.steps = 40;
        CHECK_FAILS(ranks_train(&options, 4, NULL), CORRUPT, "The cause may be: ");
        CHECK_MSG(strstr(ranks_message(0), cases[i].words), "'%s'", ranks_message(0));
    }
    rpi_train_options options = gossip_options("gossip");
    options.codec = "q4";
    options.steps = 3;
    REQUIRE_OK(ranks_train(&options, 4, NULL));
    CHECK_MSG(!strstr(ranks_notes(), "drift apart"), "'%s'", ranks_notes());
}

/* Ranks that have gone apart are named when that is measured. */
static void ranks_that_are_apart_are_told(void) {
    rpi_train_options options =
        gossip_options("gossip:algorithm=choco,topology=ring,gamma=.001");
    options.codec = "q4";
    options.split = "by-label";
    options.lr *= 20;
    options.steps = 40;
    rpi_train_result result = {0};
    REQUIRE_OK(ranks_train(&options, 4, &result));
    REQUIRE(result.test.consensus_distance > .3);
    CHECK_MSG(strstr(ranks_notes(), "ranks are far apart behind step 40"), "'%s'",
              ranks_notes());
}

static void check_same(const char *name) {
    CHECK_MSG(ranks_same_file(ranks_path(ranks_folder("whole"), name),
                              ranks_path(ranks_folder("parts"), name)),
              "%s is another", name);
}

static void it_goes_on_as_if_it_had_never_stopped(void) {
    for (int i = 0; i < STRATEGIES; i++) {
        rpi_train_options options = gossip_options(strategies[i]);
        options.codec = "q8";
        options.overwrite = true;
        options.eval = false;
        options.steps = 8;
        options.out = ranks_folder("whole");
        REQUIRE_OK(ranks_train(&options, 3, NULL));
        options.steps = 5;
        options.out = ranks_folder("parts");
        REQUIRE_OK(ranks_train(&options, 3, NULL));
        options.overwrite = false;
        options.resume = options.out;
        options.steps = 8;
        REQUIRE_OK(ranks_train(&options, 3, NULL));
        check_same("model.safetensors");
        for (int rank = 0; rank < 3; rank++) {
            char name[64];
            snprintf(name, sizeof name, "rank-%d-of-3-step-8.safetensors", rank);
            check_same(name);
        }
    }
}

/* Another number of ranks, or another algorithm, begins from what the ranks stood for. */
static void others_begin_from_the_mean(void) {
    static const struct {
        const char *strategy;
        int world;
    } next[] = {{"gossip", 2}, {"gossip:algorithm=exact-diffusion", 3}, {"all-reduce", 3}};
    for (size_t i = 0; i < sizeof next / sizeof next[0]; i++) {
        rpi_train_options options = gossip_options("gossip");
        options.overwrite = true;
        options.out = ranks_folder("begun");
        options.global_batch_size = 12;
        options.codec = "q8";
        REQUIRE_OK(ranks_train(&options, 3, NULL));
        options.overwrite = false;
        options.strategy = next[i].strategy;
        options.resume = options.out;
        options.steps += 2;
        REQUIRE_OK(ranks_train(&options, next[i].world, NULL));
        CHECK_MSG(strstr(ranks_notes(), "begins from their mean"), "%s: '%s'", next[i].strategy,
                  ranks_notes());
    }
}

static void expect(const char *strategy, const char *words) {
    rpi_train_options options = gossip_options(strategy);
    options.global_batch_size = 25;
    rp_status status = rpi_train_check(&options, 5);
    CHECK_MSG(status == RP_INVALID && strstr(rp_last_error()->message, words),
              "%s: %s, '%s' lacks '%s'", strategy, rp_status_name(status),
              rp_last_error()->message, words);
}

static void mistakes_are_named(void) {
    expect("gosip", "did you mean 'gossip'");
    expect("gossip:topology=rng", "did you mean 'ring'");
    expect("gossip:algorithm=act", "did you mean 'atc'");
    expect("gossip:topo=ring", "there are topology, algorithm");
    expect("gossip:topology=", "topology needs a value: topology=NAME");
    expect("gossip:topology=star:weights=uniform", "biased");
    expect("gossip:topology=hierarchical:local=2", "machines of 2");
    expect("gossip:algorithm=push-sum", "take atc");
    expect("gossip:algorithm=choco,topology=base", "take torus, ring");
    expect("gossip:algorithm=exact-diffusion,topology=base",
           "exact-diffusion over topology base with 5 ranks diverges");
    expect("gossip:algorithm=exact-diffusion,topology=base", "take torus, ring");
    expect("gossip:gamma=0.5", "gamma is of algorithm=choco");
    expect("gossip:algorithm=choco,gamma=2", "gamma");
    expect("all-reduce:topology=ring", "has no options");
    rpi_train_options options =
        gossip_options("gossip:algorithm=exact-diffusion,topology=base");
    options.global_batch_size = 24;
    CHECK_OK(rpi_train_check(&options, 6));
    options.strategy = "gossip:algorithm=exact-diffusion,topology=base,on-loss=continue";
    CHECK_FAILS(rpi_train_check(&options, 6), INVALID, "that 5 of 6 ranks have, too");
    options = gossip_options("gossip:algorithm=gradient-tracking");
    options.global_batch_size = 25;
    CHECK_OK(rpi_train_check(&options, 5));
    options.momentum = 0.9;
    CHECK_FAILS(rpi_train_check(&options, 5), INVALID, "--momentum 0");
    options = gossip_options("gossip");
    options.global_batch_size = 25;
    options.warmup_exact = 3;
    CHECK_FAILS(rpi_train_check(&options, 5), INVALID, "--warmup-exact");
}

CASES({"averaging with all is all-reduce", averaging_with_all_is_all_reduce},
      {"every algorithm learns", every_algorithm_learns},
      {"algorithms have topologies that fit", algorithms_have_topologies_that_fit},
      {"optimizers and codecs go with it", optimizers_and_codecs_go_with_it},
      {"what may go wrong is told", what_may_go_wrong_is_told},
      {"ranks that are apart are told", ranks_that_are_apart_are_told},
      {"copies bear any codec", copies_bear_any_codec},
      {"it goes on as if it had never stopped", it_goes_on_as_if_it_had_never_stopped},
      {"others begin from the mean", others_begin_from_the_mean},
      {"mistakes are named", mistakes_are_named})
