/* Training with parameter servers: synchronous it is all-reduce bit for bit, whoever serves; it
 * goes on with other servers as if nothing had changed; what is late is told. */
#include "harness/check.h"
#include "train/checkpoint/safetensors.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>

enum { WORKERS = 3 };

static rpi_train_options server_options(const char *strategy) {
    rpi_train_options options = ranks_options();
    options.strategy = strategy;
    options.model = "mlp:hidden=48x32";
    options.backend = NULL; /* the fastest */
    options.threads = 1;
    return options;
}

static void train_into(const char *folder, rpi_train_options options, int world) {
    options.out = ranks_folder(folder);
    options.overwrite = true;
    CHECK_OK(ranks_train(&options, world, NULL));
}

/* Every tensor of two models: parameters and the optimizer's state. */
static int differing(const char *a_folder, const char *b_folder) {
    rpi_safetensors *a = NULL, *b = NULL;
    int differs = 0;
    CHECK_OK(rpi_safetensors_open(ranks_path(ranks_folder(a_folder), "model.safetensors"), &a));
    CHECK_OK(rpi_safetensors_open(ranks_path(ranks_folder(b_folder), "model.safetensors"), &b));
    for (int i = 0; a && b && i < rpi_safetensors_count(a); i++) {
        const rpi_named_tensor *tensor = rpi_safetensors_at(a, i);
        size_t count = (size_t)rpi_shape_count(&tensor->shape);
        float *x = calloc(count, sizeof *x), *y = calloc(count, sizeof *y);
        CHECK_OK(rpi_safetensors_read(a, tensor->name, RP_F32, &tensor->shape, x));
        CHECK_OK(rpi_safetensors_read(b, tensor->name, RP_F32, &tensor->shape, y));
        differs += memcmp(x, y, count * sizeof *x) != 0;
        free(x);
        free(y);
    }
    if (!a || !b) differs = -1;
    rpi_safetensors_close(a);
    rpi_safetensors_close(b);
    return differs;
}

typedef struct serving {
    const char *strategy;
    int servers;
} serving;

static const serving servings[] = {{"parameter-server", 0},
                                   {"parameter-server:servers=1", 1},
                                   {"parameter-server:servers=2", 2},
                                   {"parameter-server:servers=4,on-loss=continue", 4}};
enum { SERVINGS = sizeof servings / sizeof servings[0] };

static void synchronous_is_all_reduce(void) {
    static const char *const optimizers[] = {"sgd", "adamw"};
    for (int i = 0; i < 2; i++) {
        rpi_train_options options = server_options("all-reduce");
        options.optimizer = optimizers[i];
        options.lr = i ? .003 : .05;
        options.lr_schedule = "cosine";
        options.lr_warmup_steps = 3;
        options.algorithm = "sra"; /* which adds in the order of ranks */
        train_into("all", options, WORKERS);
        options.algorithm = NULL;
        for (int s = 0; s < SERVINGS; s++) {
            options.strategy = servings[s].strategy;
            train_into("served", options, WORKERS + servings[s].servers);
            CHECK_MSG(differing("all", "served") == 0, "%s, %s: %d tensors differ",
                      optimizers[i], servings[s].strategy, differing("all", "served"));
        }
    }
    rpi_train_options options = server_options("single");
    train_into("all", options, 1);
    options.strategy = "parameter-server";
    train_into("served", options, 1);
    CHECK_EQ(differing("all", "served"), 0);
}

/* What a rank has room for follows from the workers: with servers a part is larger. */
static void pictures_are_mixed_up_alike(void) {
    rpi_train_options options = server_options("all-reduce");
    options.mixup = .4;
    options.algorithm = "sra";
    train_into("all", options, 1);
    options.algorithm = NULL;
    options.strategy = "parameter-server:servers=4";
    train_into("served", options, 5);
    CHECK_EQ(differing("all", "served"), 0);
}

/* Also a network with running statistics: servers have seen nothing, and take the workers'. */
static void running_statistics_are_the_workers(void) {
    rpi_train_options options = server_options("all-reduce");
    rpi_train_result all = {0}, served = {0};
    options.model = "resnet20:width=4";
    options.steps = 2;
    options.global_batch_size = 8;
    options.train_images = 32;
    options.test_images = 16;
    options.algorithm = "sra";
    REQUIRE_OK(ranks_train(&options, 2, &all));
    options.strategy = "parameter-server:servers=2";
    options.algorithm = NULL;
    REQUIRE_OK(ranks_train(&options, 4, &served));
    CHECK_NEAR(served.test.loss, all.test.loss, 1e-4);
}

static void a_resumed_run_may_have_other_servers(void) {
    rpi_train_options options = server_options(servings[0].strategy);
    options.optimizer = "adamw";
    options.lr = .003;
    train_into("whole", options, WORKERS);
    for (int from = 0; from < SERVINGS; from++) {
        int to = (from + 1) % SERVINGS;
        options = server_options(servings[from].strategy);
        options.optimizer = "adamw";
        options.lr = .003;
        options.steps = 4;
        options.eval_every = 3;
        train_into("parts", options, WORKERS + servings[from].servers);
        options.strategy = servings[to].strategy;
        options.steps = 10;
        options.out = options.resume = ranks_folder("parts");
        REQUIRE_OK(ranks_train(&options, WORKERS + servings[to].servers, NULL));
        CHECK_MSG(differing("whole", "parts") == 0, "%s, then %s", servings[from].strategy,
                  servings[to].strategy);
    }
}

/* And a codec's residuals, with as many of each. */
static void residuals_are_saved(void) {
    rpi_train_options options = server_options("parameter-server:servers=1");
    options.codec = "q4";
    train_into("whole", options, WORKERS + 1);
    options.steps = 6;
    train_into("parts", options, WORKERS + 1);
    options.steps = 10;
    options.out = options.resume = ranks_folder("parts");
    REQUIRE_OK(ranks_train(&options, WORKERS + 1, NULL));
    CHECK_EQ(differing("whole", "parts"), 0);
}

static void every_kind_learns(void) {
    static const struct {
        const char *strategy, *codec;
        int world;
    } kinds[] = {
        {"parameter-server:servers=2", "q4", 5},
        {"parameter-server:staleness=2", "fp32", 3},
        {"parameter-server:servers=2,staleness=4", "q4", 5},
        {"parameter-server:servers=1,staleness=inf", "q8", 4},
        {"parameter-server:staleness=inf", "fp32", 3},
        {"parameter-server:servers=1,staleness=inf,quorum=2,grace=1", "fp32", 4},
        {"parameter-server:servers=2,staleness=2,quorum=2", "q8", 5},
        {"parameter-server:staleness=inf,quorum=2", "fp32", 3},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (size_t clip = 0; clip < 2; clip++) {
            if (!check_long() && i > 0 && clip != i % 2) continue; /* each kind with one */
            rpi_train_options options = server_options(kinds[i].strategy);
            rpi_train_result result = {0};
            options.codec = kinds[i].codec;
            options.model = "mlp:hidden=48";
            options.momentum = 0;
            options.lr *= 2;
            options.clip = clip ? 1 : 0;
            options.steps = 120;
            REQUIRE_OK(ranks_train(&options, kinds[i].world, &result));
            CHECK_MSG(result.test.accuracy > .9, "%s with %s: accuracy is %g",
                      kinds[i].strategy, kinds[i].codec, result.test.accuracy);
            CHECK_EQ(result.steps, 120);
        }
}

static double number_behind(const char **at, const char *key) {
    *at = strstr(*at, key);
    return *at ? atof(*at += strlen(key)) : -1;
}

static void staleness_is_in_the_metrics(void) {
    rpi_train_options options = server_options("parameter-server:servers=2,staleness=2");
    size_t bytes = 0;
    options.steps = 30;
    train_into("told", options, WORKERS + 2);
    char *text = (char *)ranks_file(ranks_path(ranks_folder("told"), "metrics.jsonl"), &bytes);
    REQUIRE(text != NULL);
    text[bytes - 1] = '\0';
    int steps = 0;
    for (const char *at = text; at;) {
        double mean = number_behind(&at, "\"staleness_mean\":");
        if (!at) break;
        double most = number_behind(&at, "\"staleness_max\":");
        double missed = number_behind(&at, "\"missed_updates\":");
        CHECK_MSG(mean >= 0 && mean <= most && most <= 2, "%g, at most %g", mean, most);
        CHECK(missed >= mean && missed <= 2 * most);
        CHECK(number_behind(&at, "\"exposed_s\":") >= 0);
        CHECK(number_behind(&at, "\"wire_bytes\":") > 0);
        CHECK(number_behind(&at, "\"wire_bytes_received\":") > 0);
        steps++;
    }
    CHECK_EQ(steps, 30);
    free(text);
}

/* Of 30 steps, of four workers. */
static double bytes_pushed(const char *strategy, const char *folder) {
    rpi_train_options options = server_options(strategy);
    size_t bytes = 0;
    double sum = 0, first = 0;
    options.steps = 30;
    train_into(folder, options, 5);
    char *text = (char *)ranks_file(ranks_path(ranks_folder(folder), "metrics.jsonl"), &bytes);
    CHECK(text != NULL);
    if (!text) return 0;
    text[bytes - 1] = '\0';
    for (const char *at = text; at;) {
        double received = number_behind(&at, "\"wire_bytes_received\":");
        if (!at) break;
        if (!first) first = received;
        CHECK_MSG(received < 2 * first, "%g bytes came in a step, first %g", received, first);
        sum += received;
    }
    free(text);
    return sum;
}

/* A quorum merges three pushes where a step has four: as many steps for as many pushes. */
static void a_quorum_has_as_many_steps(void) {
    double one = bytes_pushed("parameter-server:servers=1,staleness=inf", "each");
    double three = bytes_pushed("parameter-server:servers=1,staleness=inf,quorum=3", "quorum");
    CHECK_MSG(fabs(three / one - 1) < .1, "%g bytes were pushed, and %g without a quorum",
              three, one);
}

/* Whoever is asked, all end after one step, with a checkpoint to go on from. */
static void asked_to_stop(void) {
    static const char *const strategies[] = {"parameter-server:servers=1",
                                             "parameter-server:servers=1,staleness=inf"};
    for (int i = 0; i < 2; i++)
        for (int rank = 0; rank < 3; rank += 2) {
            rpi_train_options options = server_options(strategies[i]);
            rpi_train_result result = {0};
            options.steps = 100;
            options.out = ranks_folder("asked");
            options.overwrite = true;
            options.checkpoint = true;
            ranks_ask((ranks_wish){.rank = rank, .step = 5, .what = RPI_ASKED_STOP});
            REQUIRE_OK(ranks_train(&options, 4, &result));
            ranks_ask((ranks_wish){0});
            CHECK(result.stopped);
            CHECK_MSG(result.steps >= 1 && result.steps < 60, "%lld steps",
                      (long long)result.steps);
        }
}

static void what_diverges_is_named(void) {
    rpi_train_options options = server_options("parameter-server:servers=1");
    options.lr = 1e30;
    CHECK_FAILS(ranks_train(&options, 4, NULL), CORRUPT, "training has diverged at step");
    for (int rank = 0; rank < 4; rank++) CHECK(strstr(ranks_message(rank), "diverged"));
}

static void expect(const char *strategy, int world, const char *words) {
    rpi_train_options options = server_options(strategy);
    rp_status status = rpi_train_check(&options, world);
    CHECK_MSG(status == RP_INVALID && strstr(rp_last_error()->message, words),
              "%s: %s, '%s' lacks '%s'", strategy, rp_status_name(status),
              rp_last_error()->message, words);
}

static void mistakes_are_named(void) {
    expect("parameter-sever", 4, "did you mean 'parameter-server'");
    expect("parameter-server:servers=4", 4, "take at most 3, or shared");
    expect("parameter-server:servers=0", 4, "1 or more, or shared");
    expect("parameter-server:servers=all", 4, "servers=all; shared, or a whole number");
    expect("parameter-server:staleness=-1", 4, "staleness=-1; inf, or a whole number");
    expect("parameter-server:stalenes=1", 4, "did you mean 'staleness'");
    expect("all-reduce:staleness=4", 4, "has no options");
    expect("parameter-server:servers=1,quorum=4,staleness=inf", 4, "a quorum of 4 of 3");
    expect("parameter-server:servers=1,quorum=2", 4, "say staleness=inf");
    expect("parameter-server:servers=2,quorum=3,staleness=inf", 4, "a quorum of 3 of 2");
    expect("parameter-server:grace=5", 4, "say quorum=K");
    expect("parameter-server:on-loss=continue", 4, "servers=1 or more");
    expect("parameter-server:on-loss=ignore", 4, "stop or continue");
    expect("parameter-server:servers=2", 7, "not divisible by 5 ranks; --global-batch-size ");
    rpi_train_options options = server_options("parameter-server:servers=1");
    options.warmup_exact = 1;
    CHECK_FAILS(rpi_train_check(&options, 4), INVALID, "--warmup-exact");
}

CASES({"synchronous is all-reduce", synchronous_is_all_reduce},
      {"pictures are mixed up alike", pictures_are_mixed_up_alike},
      {"running statistics are the workers'", running_statistics_are_the_workers},
      {"a resumed run may have other servers", a_resumed_run_may_have_other_servers},
      {"residuals are saved", residuals_are_saved}, {"every kind learns", every_kind_learns},
      {"staleness is in the metrics", staleness_is_in_the_metrics},
      {"a quorum has as many steps", a_quorum_has_as_many_steps},
      {"asked to stop", asked_to_stop}, {"what diverges is named", what_diverges_is_named},
      {"mistakes are named", mistakes_are_named})
