#include "harness/check.h"
#include "train/checkpoint/safetensors.h"
#include "train_ranks.h"

#include <stdlib.h>
#include <unistd.h>

static const char *model_in(const char *out) {
    static char paths[8][600];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, 600, "%s/model.safetensors", out);
    return path;
}

/* Relative L2 distance of all tensors of two checkpoints together. */
static double distance(const char *a_folder, const char *b_folder) {
    rpi_safetensors *a = NULL, *b = NULL;
    double difference = 0, size = 0;
    CHECK_OK(rpi_safetensors_open(model_in(a_folder), &a));
    CHECK_OK(rpi_safetensors_open(model_in(b_folder), &b));
    for (int i = 0; a && b && i < rpi_safetensors_count(a); i++) {
        const rpi_named_tensor *tensor = rpi_safetensors_at(a, i);
        size_t count = (size_t)rpi_shape_count(&tensor->shape);
        float *x = calloc(count, sizeof *x), *y = calloc(count, sizeof *y);
        CHECK_OK(rpi_safetensors_read(a, tensor->name, RP_F32, &tensor->shape, x));
        CHECK_OK(rpi_safetensors_read(b, tensor->name, RP_F32, &tensor->shape, y));
        for (size_t e = 0; e < count; e++) {
            difference += ((double)x[e] - y[e]) * ((double)x[e] - y[e]);
            size += (double)x[e] * x[e];
        }
        free(x);
        free(y);
    }
    rpi_safetensors_close(a);
    rpi_safetensors_close(b);
    return sqrt(difference / size);
}

static void one_rank_learns(void) {
    rpi_train_options options = ranks_options();
    rpi_train_result result = {0};
    options.steps = 60;
    REQUIRE_OK(ranks_train(&options, 1, &result));
    CHECK_EQ(result.steps, 60);
    CHECK(result.evaluated);
    CHECK_EQ(result.test.count, 50);
    CHECK_MSG(result.test.accuracy > 0.9, "accuracy is %g", result.test.accuracy);
}

static void any_number_of_ranks_equals_one(void) {
    rpi_train_options options = ranks_options();
    options.out = ranks_folder("one");
    REQUIRE_OK(ranks_train(&options, 1, NULL));
    for (int world = 2; world <= 4; world++) {
        char name[16];
        snprintf(name, sizeof name, "of-%d", world);
        options.out = ranks_folder(name);
        REQUIRE_OK(ranks_train(&options, world, NULL));
        double d = distance(ranks_folder("one"), options.out);
        CHECK_MSG(d < 1e-5, "%d ranks differ by %g", world, d);
    }
}

/* Its steps depend on whole tensors, wherever buckets end and however many threads there are.
 */
static void lamb_steps_whole_tensors(void) {
    rpi_train_options options = ranks_options();
    rpi_train_result result = {0};
    options.optimizer = "lamb";
    options.lr = 0.02;
    options.bucket_mb = 1e-6; /* one a tensor */
    options.steps = 60;
    options.out = ranks_folder("lamb-1");
    REQUIRE_OK(ranks_train(&options, 1, &result));
    CHECK_MSG(result.test.accuracy > 0.9, "accuracy is %g", result.test.accuracy);
    options.bucket_mb = 25;
    options.accumulate = 2;
    options.out = ranks_folder("lamb-3");
    REQUIRE_OK(ranks_train(&options, 3, NULL));
    double d = distance(ranks_folder("lamb-1"), ranks_folder("lamb-3"));
    CHECK_MSG(d < 1e-4, "they differ by %g", d);
    options.strategy = "parameter-server";
    CHECK_FAILS(rpi_train_check(&options, 3), INVALID, "servers step parts of tensors");
}

/* 200 images in batches of 24 leave 8 for the last step, and with world 3 and a batch of 2
 * images left some ranks have none. */
static void short_last_batches_weigh_right(void) {
    rpi_train_options options = ranks_options();
    options.steps = 0;
    options.epochs = 2;
    options.train_images = 50; /* 24, 24, 2 */
    options.out = ranks_folder("short-1");
    rpi_train_result result = {0};
    REQUIRE_OK(ranks_train(&options, 1, &result));
    CHECK_EQ(result.steps, 6);
    options.out = ranks_folder("short-3");
    REQUIRE_OK(ranks_train(&options, 3, NULL));
    double d = distance(ranks_folder("short-1"), ranks_folder("short-3"));
    CHECK_MSG(d < 1e-5, "they differ by %g", d);
}

static void the_same_run_twice_gives_the_same_bytes(void) {
    static const char *const codecs[] = {"fp32", "q4:rounding=stochastic"};
    for (int c = 0; c < 2; c++) {
        rpi_train_options options = ranks_options();
        options.codec = codecs[c];
        options.overwrite = true;
        options.out = ranks_folder("first");
        REQUIRE_OK(ranks_train(&options, 3, NULL));
        options.out = ranks_folder("second");
        REQUIRE_OK(ranks_train(&options, 3, NULL));
        CHECK(
            ranks_same_file(model_in(ranks_folder("first")), model_in(ranks_folder("second"))));
    }
}

static void codecs_change_the_bytes_and_still_learn(void) {
    rpi_train_options options = ranks_options();
    rpi_train_result result = {0};
    options.steps = 60;
    options.codec = "q4";
    options.out = ranks_folder("q4");
    REQUIRE_OK(ranks_train(&options, 2, &result));
    CHECK_MSG(result.test.accuracy > 0.9, "accuracy is %g", result.test.accuracy);
    options.codec = "fp32";
    options.out = ranks_folder("fp32");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK(!ranks_same_file(model_in(ranks_folder("q4")), model_in(ranks_folder("fp32"))));
    options.codec = "q4";
    options.warmup_exact = 60; /* never lossy */
    options.out = ranks_folder("warm");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK_NEAR(distance(ranks_folder("warm"), ranks_folder("fp32")), 0, 0);
}

static void evaluating_changes_nothing(void) {
    rpi_train_options options = ranks_options();
    options.model = "resnet20:width=2";
    options.train_images = options.test_images = 24;
    options.global_batch_size = 4;
    options.steps = 3;
    options.out = ranks_folder("plain");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    options.eval_every = options.checkpoint_every = 1;
    options.out = ranks_folder("watched");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK(ranks_same_file(model_in(ranks_folder("plain")), model_in(ranks_folder("watched"))));
}

static void a_run_leaves_its_files(void) {
    rpi_train_options options = ranks_options();
    options.steps = 3;
    options.trace = true;
    options.out = ranks_folder("deep/er/files");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    size_t bytes = 0;
    char path[600];
    snprintf(path, sizeof path, "%s/metrics.jsonl", options.out);
    char *metrics = (char *)ranks_file(path, &bytes);
    REQUIRE(metrics);
    metrics[bytes] = '\0';
    static const char *const keys[] = {
        "\"redpoll\":",    "\"step\":1,",          "\"step\":3,",
        "\"exposed_s\":",  "\"encode_s\":",        "\"decode_s\":",
        "\"wire_bytes\":", "\"images_s_median\":", "\"test_accuracy\":"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        CHECK_MSG(strstr(metrics, keys[i]), "no %s in %s", keys[i], metrics);
    free(metrics);
    snprintf(path, sizeof path, "%s/trace.json", options.out);
    char *trace = (char *)ranks_file(path, &bytes);
    REQUIRE(trace);
    trace[bytes] = '\0';
    CHECK(strstr(trace, "\"rank 1\"") && strstr(trace, "bucket 0") && strstr(trace, "fc1"));
    free(trace);
}

/* A run that dies while it writes leaves half a line, or zeros after a power failure. The run
 * that goes on begins a line of its own, and what was whole stays. */
static void a_torn_line_swallows_no_header(void) {
    static const struct {
        const char *tail;
        size_t bytes;
        int lines; /* that stay of it */
    } tails[] = {{"{\"step\":11,\"loss\":0.", 19, 0},
                 {"{\"evaluated_step\":10}", 21, 1},
                 {"{\"step\":11}\n{\"step\":1", 22, 1},
                 {"\0\0\0\0\0\0", 6, 0},
                 {"3", 1, 0},
                 {"", 0, 0}};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        rpi_train_options options = ranks_options();
        options.steps = 1;
        options.overwrite = true;
        options.out = ranks_folder("torn");
        REQUIRE_OK(ranks_train(&options, 1, NULL));
        char path[600];
        snprintf(path, sizeof path, "%s/metrics.jsonl", options.out);
        size_t before = 0, after = 0;
        unsigned char *old = ranks_file(path, &before);
        FILE *stream = fopen(path, "ab");
        REQUIRE(old && stream);
        fwrite(tails[i].tail, 1, tails[i].bytes, stream);
        fclose(stream);
        options.steps = 2;
        options.resume = options.out;
        options.overwrite = false;
        REQUIRE_OK(ranks_train(&options, 1, NULL));
        unsigned char *whole = ranks_file(path, &after);
        REQUIRE(whole && after > before);
        CHECK(memcmp(old, whole, before) == 0);
        whole[after] = '\0';
        char *at = (char *)whole + before;
        for (int line = 0; line < tails[i].lines && at; line++) at = strchr(at, '\n') + 1;
        CHECK_MSG(strncmp(at, "{\"redpoll\":", 11) == 0, "tail %zu: %s", i, at);
        free(old);
        free(whole);
    }
}

static void mistakes_leave_no_trace(void) {
    static const struct {
        const char *model, *data, *codec;
        int64_t batch;
        const char *part;
    } bad[] = {
        {"mlpp", "synthetic", "fp32", 24, "did you mean 'mlp'"},
        {"mlp", "synthetik", "fp32", 24, "did you mean 'synthetic'"},
        {"mlp", "synthetic", "q9", 24, "q9"},
        {"mlp", "synthetic", "fp32", 25, "a global batch of 25 is not divisible by 2 ranks"},
        {"mlp", "idx", "fp32", 24, "--data-dir"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rpi_train_options options = ranks_options();
        options.model = bad[i].model;
        options.data = bad[i].data;
        options.codec = bad[i].codec;
        options.global_batch_size = bad[i].batch;
        options.out = ranks_folder("mistake");
        CHECK(ranks_train(&options, 2, NULL) != RP_OK);
        for (int rank = 0; rank < 2; rank++)
            CHECK_MSG(strstr(ranks_message(rank), bad[i].part), "rank %d says '%s'", rank,
                      ranks_message(rank));
        CHECK(access(options.out, F_OK) != 0);
    }
}

static void another_runs_folder_is_not_overwritten(void) {
    rpi_train_options options = ranks_options();
    options.steps = 1;
    options.out = ranks_folder("taken");
    REQUIRE_OK(ranks_train(&options, 1, NULL));
    CHECK_FAILS(ranks_train(&options, 1, NULL), INVALID, "holds a run already");
    options.overwrite = true;
    CHECK_OK(ranks_train(&options, 1, NULL));
}

static void a_diverging_run_stops_on_all_ranks(void) {
    rpi_train_options options = ranks_options();
    options.lr = 1e30;
    CHECK_FAILS(ranks_train(&options, 2, NULL), CORRUPT, "diverged");
    CHECK(ranks_status(1) != RP_OK);
}

CASES({"one rank learns", one_rank_learns},
      {"any number of ranks equals one", any_number_of_ranks_equals_one},
      {"LAMB steps whole tensors", lamb_steps_whole_tensors},
      {"short last batches weigh right", short_last_batches_weigh_right},
      {"the same run twice gives the same bytes", the_same_run_twice_gives_the_same_bytes},
      {"codecs change the bytes and still learn", codecs_change_the_bytes_and_still_learn},
      {"evaluating changes nothing", evaluating_changes_nothing},
      {"a run leaves its files", a_run_leaves_its_files},
      {"a torn line swallows no header", a_torn_line_swallows_no_header},
      {"mistakes leave no trace", mistakes_leave_no_trace},
      {"another run's folder is not overwritten", another_runs_folder_is_not_overwritten},
      {"a diverging run stops on all ranks", a_diverging_run_stops_on_all_ranks})
