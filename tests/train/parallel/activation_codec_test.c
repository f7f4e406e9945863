/* Activations and their gradients that travel encoded between ranks of a replica: by how much
 * fewer bytes, how far off, and always the same.
 *
 * Add a row to `codecs`, or to `layouts`: each codec is tried in each layout. */
#include "base/status.h"
#include "harness/check.h"
#include "train/parallel/activation_codec.h"
#include "train/parallel/verify.h"
#include "train_ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Made-up pictures of 28 x 28 in patches of 14 x 14: 4 tokens and one for the class. */
enum { BATCH = 8, MICRO_BATCH = 4, STEPS = 3, TOKENS = 5, WIDTH = 48 };
#define MODEL "vit:patch=14,layers=4,hidden=48,heads=2"

typedef struct codec_row {
    const char *codec;
    double least, most; /* by how much of their size activations are off */
    double loss;        /* how far the loss may be off after three steps, relative */
} codec_row;

static const codec_row codecs[] = {
    {"bf16", 1e-4, 4e-3, 1e-2},
    {"fp16", 0, 4e-3, 1e-2},
    {"q8", 1e-4, 1e-2, 1e-2},
    {"q8:bucket=64", 1e-4, 1e-2, 1e-2},
    {"q4", 1e-2, 0.15, 0.1},
    {"q4:bucket=1", 0, 1e-6, 1e-3},
    {"q4:bucket=100000", 1e-2, 0.2, 0.2},
};
enum { CODECS = sizeof codecs / sizeof codecs[0] };

typedef struct layout_row {
    int stages, tensor;
    const char *schedule;
    bool recompute;
} layout_row;

static const layout_row layouts[] = {
    {2, 1, "1f1b", false}, {2, 1, "zb-v", false}, {2, 1, "interleaved", true},
    {1, 2, NULL, false},   {1, 2, NULL, true},    {2, 2, "zb-h1", false},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static rpi_train_options options_of(const layout_row *layout, const char *codec) {
    rpi_train_options options = ranks_options();
    options.model = MODEL;
    options.data = "synthetic";
    options.train_images = STEPS * BATCH;
    options.test_images = 5;
    options.global_batch_size = BATCH;
    options.micro_batch_size = MICRO_BATCH;
    options.steps = STEPS;
    options.lr = 1e-3;
    options.stages = layout->stages;
    options.tensor_ranks = layout->tensor;
    options.schedule = layout->schedule;
    options.recompute = layout->recompute;
    options.activations_codec = codec;
    return options;
}

static int ranks_of(const layout_row *layout) {
    return layout->stages * layout->tensor;
}

static rpi_train_result train(const layout_row *layout, const char *codec) {
    rpi_train_result result = {0};
    rpi_train_options options = options_of(layout, codec);
    CHECK_OK(ranks_train(&options, ranks_of(layout), &result));
    return result;
}

/* The same, but no two times: that runs are the same is checked with those of train(). A codec
 * of CODECS: none. */
static const rpi_train_result *trained(int layout, int codec) {
    static rpi_train_result results[LAYOUTS][CODECS + 1];
    static bool known[LAYOUTS][CODECS + 1];
    if (!known[layout][codec])
        results[layout][codec] =
            train(&layouts[layout], codec < CODECS ? codecs[codec].codec : NULL);
    known[layout][codec] = true;
    return &results[layout][codec];
}

static void check_row(int layout, int codec) {
    const codec_row *row = &codecs[codec];
    const rpi_train_result *exact = trained(layout, CODECS);
    const rpi_train_result a = *trained(layout, codec), b = train(&layouts[layout], row->codec);
    const char *name = row->codec;
    CHECK_MSG(a.last_loss == b.last_loss && a.test.loss == b.test.loss, "%s: not the same",
              name);
    CHECK_MSG(fabs(a.last_loss - exact->last_loss) <= row->loss * fabs(exact->last_loss),
              "%s: a loss of %.6f, not %.6f", name, a.last_loss, exact->last_loss);
    CHECK_MSG(row->least == 0 || a.last_loss != exact->last_loss, "%s: nothing is lost", name);
    CHECK_MSG(a.activations_error >= row->least && a.activations_error <= row->most,
              "%s: activations are off by %.3g", name, a.activations_error);
    CHECK_MSG(a.activation_gradients_error >= row->least &&
                  a.activation_gradients_error <= 2 * row->most,
              "%s: gradients are off by %.3g", name, a.activation_gradients_error);
}

static void each_codec_is_as_far_off_as_it_should_be(void) {
    for (int l = 0; l < LAYOUTS; l++) {
        const rpi_train_result *exact = trained(l, CODECS);
        CHECK(isnan(exact->activations_error) && isnan(exact->activation_gradients_error));
        for (int c = 0; c < CODECS; c++)
            if (check_long() || l == 0 || strcmp(codecs[c].codec, "q8") == 0) check_row(l, c);
    }
}

/* Of the first of two stages, which sends activations, each micro-batch's in a message. A send
 * announces itself where nobody has asked for it yet, which takes some bytes more. */
static void bytes_are_those_of_the_codec(void) {
    enum { ANNOUNCED = 400 };
    const int64_t count = MICRO_BATCH * TOKENS * WIDTH, messages = BATCH / MICRO_BATCH;
    const rpi_train_result *exact = trained(0, CODECS);
    for (int c = 0; c < CODECS; c++) {
        rp_codec codec;
        REQUIRE_OK(rp_codec_parse(codecs[c].codec, &codec));
        double saved = (double)messages * ((double)count * sizeof(float) -
                                           (double)rpi_activation_codec_bytes(&codec, count));
        CHECK_NEAR(exact->wire_bytes_median - trained(0, c)->wire_bytes_median, saved,
                   ANNOUNCED);
    }
}

/* What a step that changes nothing leaves of what was learnt: a new vit's classes all weigh
 * nothing, whatever its layers say. */
static double evaluated(const char *learnt, const layout_row *layout, const char *codec) {
    rpi_train_result result = {0};
    rpi_train_options options = options_of(layout, codec);
    options.lr = 0;
    options.steps = STEPS + 1;
    options.resume = learnt;
    CHECK_OK(ranks_train(&options, ranks_of(layout), &result));
    return result.test.loss;
}

/* What is measured of a model does not depend on how its ranks talk. */
static void evaluations_are_exact(void) {
    rpi_train_options options = options_of(&layouts[0], NULL);
    const char *learnt = ranks_folder("learnt");
    options.lr = 0.1;
    options.out = learnt;
    REQUIRE_OK(ranks_train(&options, ranks_of(&layouts[0]), NULL));
    for (int l = 0; l < LAYOUTS; l++) {
        double exact = evaluated(learnt, &layouts[l], NULL);
        double coded = evaluated(learnt, &layouts[l], "q4");
        CHECK_MSG(fabs(exact - log(10)) > 1e-3, "layout %d: nothing is learnt: %.9g", l, exact);
        CHECK_MSG(exact == coded, "layout %d: %.9g, %.9g", l, exact, coded);
    }
}

/* Add a row: what is refused, and what is said. */
static const struct {
    const char *codec;
    int64_t stages, tensor;
    const char *words;
} refused[] = {
    {"topk", 2, 1, "zeros for all other activations"},
    {"randk", 1, 2, "zeros for all other activations"},
    {"v4", 2, 1, "one length; q1 to q8"},
    {"q8:rounding=stochastic", 2, 1, "rounded to nearest"},
    {"q9", 2, 1, "q9"},
    {"q8", 1, 1, "with --tp 1 --pp 1 that is nothing"},
    {"bf16", 0, 0, "with --tp 1 --pp 1 that is nothing"},
};

static void what_makes_no_sense_is_refused(void) {
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const layout_row layout = {(int)refused[i].stages, (int)refused[i].tensor, NULL, false};
        rpi_train_options options = options_of(&layout, refused[i].codec);
        CHECK_FAILS(rpi_train_check(&options, 2), INVALID, refused[i].words);
    }
}

static void what_is_exact_is_never_refused(void) {
    static const char *const exact[] = {NULL, "", "fp32"};
    const layout_row alone = {0, 0, NULL, false};
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        rpi_train_options options = options_of(&alone, exact[i]);
        CHECK_OK(rpi_train_check(&options, 1));
    }
}

/* Add a row: a codec, stages, tensor ranks; what verify allows of a loss, and why. */
static const struct {
    const char *codec;
    int stages, tensor;
    double loss;
    const char *reason;
} bounds[] = {
    {"bf16", 2, 1, 2e-2, "bf16 activations"},
    {"q8", 2, 1, HUGE_VAL, "activations codec"},
    {"q8", 1, 2, HUGE_VAL, "activations codec"},
    {"fp32", 2, 1, 0, NULL},
    {NULL, 2, 1, 0, NULL},
    {"q8", 1, 1, 0, NULL},
};

static void verify_says_what_it_allows(void) {
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        rpi_train_options options = {.codec = "fp32", .activations_codec = bounds[i].codec};
        const rpi_verify_layout layout = {.options = &options,
                                          .stages = bounds[i].stages,
                                          .replicas = 1,
                                          .tensor_ranks = bounds[i].tensor,
                                          .micro_batches = 2};
        const rpi_verify_reason *reason;
        const char *found = NULL;
        for (int r = 0; (reason = rpi_verify_reason_at(r)) != NULL; r++)
            if (reason->applies(&layout) && strstr(reason->name, "activations"))
                found = reason->name;
        CHECK_MSG(bounds[i].reason ? found && strcmp(found, bounds[i].reason) == 0 : !found,
                  "row %zu: '%s'", i, found ? found : "");
        CHECK(rpi_verify_bounds_of(&layout).of[RPI_VERIFY_LOSS] == bounds[i].loss);
    }
}

/* Replicas share parameters, and the last batch has a micro-batch that one of them has not: it
 * sends nothing there, encoded or not. */
static void what_a_replica_has_not_is_not_sent(void) {
    rpi_train_result exact = {0}, one = {0}, other = {0};
    rpi_train_options options = options_of(&layouts[0], NULL);
    options.train_images = BATCH + 5;
    options.micro_batch_size = 2;
    options.steps = 2;
    options.zero = 3;
    REQUIRE_OK(ranks_train(&options, 4, &exact));
    options.activations_codec = "q8";
    REQUIRE_OK(ranks_train(&options, 4, &one));
    REQUIRE_OK(ranks_train(&options, 4, &other));
    CHECK(one.last_loss == other.last_loss && one.last_loss != exact.last_loss);
    CHECK_NEAR(one.last_loss, exact.last_loss, 1e-2 * exact.last_loss);
    CHECK(one.activations_error > 1e-4 && one.activations_error < 1e-2);
}

/* NaN is not hidden by a codec: the run ends, and says where. */
static void what_diverges_is_noticed(void) {
    rpi_train_options options = options_of(&layouts[0], "q8");
    options.lr = 1e30;
    options.steps = 6;
    options.train_images = 6 * BATCH;
    CHECK(ranks_train(&options, 2, NULL) == RP_CORRUPT);
    CHECK_MSG(strstr(ranks_message(0), "training has diverged"), "'%s'", ranks_message(0));
}

CASES({"each_codec_is_as_far_off_as_it_should_be", each_codec_is_as_far_off_as_it_should_be},
      {"bytes_are_those_of_the_codec", bytes_are_those_of_the_codec},
      {"evaluations_are_exact", evaluations_are_exact},
      {"what_makes_no_sense_is_refused", what_makes_no_sense_is_refused},
      {"what_is_exact_is_never_refused", what_is_exact_is_never_refused},
      {"verify_says_what_it_allows", verify_says_what_it_allows},
      {"what_a_replica_has_not_is_not_sent", what_a_replica_has_not_is_not_sent},
      {"what_diverges_is_noticed", what_diverges_is_noticed})
