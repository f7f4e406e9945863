/* Learning from tokens: a small GPT-2 on text that repeats, alone and over ranks. */
#include "harness/check.h"
#include "train/checkpoint/safetensors.h"
#include "train/data/token_writer.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE = 16, TOKENS = 2000, VOCABULARY = 257 };

static char data[700];

/* A sentence again and again: predictable, but not by the last letter alone. */
static void write_text(void) {
    static const char *const words[] = {"the ", "red ", "poll ", "trains ", "on ", "seeds. "};
    char path[600];
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    snprintf(path, sizeof path, "%s/text", check_folder());
    snprintf(data, sizeof data, "tokens:%s", path);
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(path, tokenizer, &writer));
    uint32_t ids[TOKENS], count = 0;
    for (unsigned next = 0; count < TOKENS; next = (next + 1) % 6)
        for (const char *c = words[next]; *c && count < TOKENS; c++)
            ids[count++] = (unsigned char)*c;
    CHECK_OK(rpi_token_writer_add(writer, ids, count));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

static rpi_train_options small(void) {
    rpi_train_options options = ranks_options();
    if (!data[0]) write_text();
    options.model = "gpt2:layers=2,hidden=32,heads=2,vocabulary=257,positions=64";
    options.data = data;
    options.train_images = options.test_images = 0;
    options.seq_length = SEQUENCE;
    options.global_batch_size = 12;
    options.optimizer = "adamw";
    options.lr = 1e-2;
    options.clip = 1;
    options.backend = NULL; /* the fastest */
    options.threads = 1;
    options.steps = 8;
    return options;
}

static rpi_train_options learning(const char *folder) {
    rpi_train_options options = small();
    options.steps = 100;
    options.accumulate = 2;
    options.out = ranks_folder(folder);
    return options;
}

/* What two ranks have learnt, into the folder "learnt"; once. */
static rpi_train_result learnt(void) {
    static rpi_train_result result;
    rpi_train_options options = learning("learnt");
    if (!result.steps) CHECK_OK(ranks_train(&options, 2, &result));
    return result;
}

static void text_is_learnt(void) {
    rpi_train_result result = learnt();
    CHECK(strcmp(result.unit, "tokens") == 0);
    CHECK_EQ(result.test.count, 6 * SEQUENCE); /* the last 5 % of 117 windows */
    CHECK_MSG(result.test.loss < 0.5, "the loss is %g", result.test.loss);
    CHECK_MSG(result.test.accuracy > 0.8, "accuracy is %g", result.test.accuracy);
    CHECK_NEAR(result.test.perplexity / exp(result.test.loss), 1, 1e-12);
    CHECK(result.rate_median > 0);
}

/* ---- samples ---- */

/* A letter of the sentence has one that follows it, wherever the temperature takes it. */
static void samples_show_what_is_learnt(void) {
    rpi_train_options options = learning("sampled");
    learnt();
    options.sample_every = 50;
    options.sample_tokens = 12;
    options.prompt = "the red ";
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK(ranks_same_file(ranks_path(ranks_folder("learnt"), "model.safetensors"),
                          ranks_path(options.out, "model.safetensors")));
    size_t bytes = 0;
    char *text = (char *)ranks_file(ranks_path(options.out, "metrics.jsonl"), &bytes);
    REQUIRE(text);
    text[bytes] = '\0';
    CHECK(strstr(text, "{\"sampled_step\":50,\"prompt\":\"the red \",\"text\":\"the red "));
    const char *last = strstr(text, "{\"sampled_step\":100,");
    CHECK_MSG(last && strstr(last, "\"text\":\"the red poll trains"), "it says %.100s",
              last ? last : "nothing");
    free(text);
}

static void samples_that_cannot_be_are_refused(void) {
    rpi_train_options options = small();
    options.sample_every = 5;
    CHECK_FAILS(rpi_train_check(&options, 1), INVALID, "--prompt TEXT");
    options.prompt = "";
    CHECK_FAILS(rpi_train_check(&options, 1), INVALID, "--prompt TEXT");
    options.prompt =
        "a prompt that has more letters than the sixty-four positions of the model "
        "have room for";
    CHECK_FAILS(ranks_train(&options, 2, NULL), INVALID, "--sample-every: the prompt has ");
    options.sample_every = 0;
    CHECK_FAILS(rpi_train_check(&options, 1), INVALID, "say --sample-every N");
    options = ranks_options();
    options.sample_every = 5;
    CHECK_FAILS(rpi_train_check(&options, 1), INVALID, "models that write texts");
}

/* ---- in bf16 ---- */

enum { STEPS_BESIDE = 50 };

typedef struct dtype_run {
    rpi_train_options options;
    double losses[STEPS_BESIDE];
} dtype_run;

static rp_status take_steps(void *context, rp_comm *comm) {
    dtype_run *run = context;
    rpi_trainer t;
    rpi_step_metrics metrics;
    rp_status status = rpi_trainer_open(&t, &run->options, comm);
    for (int i = 0; i < STEPS_BESIDE && status == RP_OK; i++) {
        status = rpi_trainer_step(&t, &metrics);
        run->losses[i] = metrics.loss;
    }
    rpi_trainer_close(&t);
    return status;
}

/* Not to the bit, which would be no bf16; each step's loss within 2 %. */
static void check_bf16(const char *backend) {
    dtype_run fp32 = {.options = small()}, bf16;
    fp32.options.lr = 2e-3;
    fp32.options.steps = STEPS_BESIDE;
    fp32.options.global_batch_size = 6;
    fp32.options.backend = backend;
    fp32.options.dtype = "fp32";
    bf16 = fp32;
    bf16.options.dtype = "bf16";
    REQUIRE_OK(ranks_run(1, take_steps, &fp32));
    REQUIRE_OK(ranks_run(1, take_steps, &bf16));
    for (int i = 0; i < STEPS_BESIDE; i++)
        CHECK_MSG(fabs(bf16.losses[i] - fp32.losses[i]) <= 0.02 * fp32.losses[i],
                  "%s: step %d: the loss is %g in bf16, %g in fp32", backend, i + 1,
                  bf16.losses[i], fp32.losses[i]);
    CHECK(bf16.losses[0] != fp32.losses[0]);
    CHECK_MSG(bf16.losses[STEPS_BESIDE - 1] < 0.5 * bf16.losses[0], "%s learns nothing: %g",
              backend, bf16.losses[STEPS_BESIDE - 1]);
}

static void bf16_follows_fp32(void) {
    for (int i = 0; rpi_backend_at(i); i++)
        if (rpi_backend_check_compute(rpi_backend_at(i), RP_BF16) == RP_OK)
            check_bf16(rpi_backend_at(i)->name);
}

typedef struct outcome {
    double last_loss, test_loss;
} outcome;

static outcome train(rpi_train_options options, int world, const char *name) {
    rpi_train_result result = {0};
    options.out = ranks_folder(name);
    CHECK_OK(ranks_train(&options, world, &result));
    return (outcome){result.last_loss, result.test.loss};
}

/* Whatever shares a step: the loss is divided by the labels of all of it. An epoch of 111
 * windows ends in a batch of 3, which leaves ranks without any. */
static void any_number_of_ranks_equals_one(void) {
    rpi_train_options options = small();
    options.optimizer = "sgd";
    options.lr = 0.1;
    options.steps = 12;
    outcome one = train(options, 1, "one");
    for (int world = 2; world <= 4; world++) {
        char name[16];
        snprintf(name, sizeof name, "of-%d", world);
        options.accumulate = world == 4 ? 1 : 2;
        outcome some = train(options, world, name);
        CHECK_MSG(fabs(some.last_loss - one.last_loss) < 1e-4, "%d ranks: %.9g, %.9g", world,
                  some.last_loss, one.last_loss);
        CHECK_MSG(fabs(some.test_loss - one.test_loss) < 1e-4, "%d ranks: %.9g, %.9g", world,
                  some.test_loss, one.test_loss);
    }
}

static void a_resumed_run_has_the_same_bytes(void) {
    rpi_train_options options = small();
    options.codec = "q4";
    options.accumulate = 2;
    options.steps = 14; /* into the second epoch */
    train(options, 2, "whole");
    options.steps = 7;
    train(options, 2, "resumed");
    options.steps = 14;
    options.resume = ranks_folder("resumed");
    train(options, 2, "resumed");
    CHECK(ranks_same_file(ranks_path(ranks_folder("whole"), "model.safetensors"),
                          ranks_path(ranks_folder("resumed"), "model.safetensors")));
}

/* Positions beyond the sequence have no gradient; what was learnt serves longer ones. */
static void another_length_goes_on(void) {
    rpi_train_options options = small();
    options.steps = 3;
    train(options, 1, "short");
    options.steps = 5;
    options.seq_length = 2 * SEQUENCE;
    options.resume = ranks_folder("short");
    train(options, 1, "longer");
}

static void metrics_count_tokens(void) {
    rpi_train_options options = small();
    options.steps = 2;
    train(options, 2, "metrics");
    size_t bytes = 0;
    char *text =
        (char *)ranks_file(ranks_path(ranks_folder("metrics"), "metrics.jsonl"), &bytes);
    REQUIRE(text);
    text[bytes] = '\0';
    static const char *const keys[] = {
        "\"task\":\"language-model\"", "\"train_tokens\":1776", "\"tokens_s\":",
        "\"test_perplexity\":",        "\"test_tokens\":96",    "\"tokens_s_median\":"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        CHECK_MSG(strstr(text, keys[i]), "no %s in %s", keys[i], text);
    CHECK(!strstr(text, "images"));
    free(text);
}

static void what_does_not_fit_is_told(void) {
    static const struct {
        const char *model, *data, *part;
        int64_t sequence;
    } rows[] = {
        {"mlp", NULL, "model mlp learns from images, and --data tokens:", SEQUENCE},
        {NULL, "synthetic",
         "learns from tokens, and --data synthetic has images; say --data tokens:PATH",
         SEQUENCE},
        {NULL, NULL, "use --seq-length 64 or less, or positions=65", 65},
        {"gpt2:vocabulary=256", NULL,
         "the data have a vocabulary of 257 tokens, the model one of 256", SEQUENCE},
        {"gpt2:hidden=30,heads=4", NULL, "hidden=30 is no multiple of heads=4", SEQUENCE},
        {NULL, NULL, "too few for one sequence of 3000", 3000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_train_options options = small();
        if (rows[i].model) options.model = rows[i].model;
        if (rows[i].data) options.data = rows[i].data;
        options.seq_length = rows[i].sequence;
        CHECK_FAILS(ranks_train(&options, 2, NULL), INVALID, rows[i].part);
    }
}

/* A file that does not know its vocabulary, and a token that the model has not. */
static void a_token_beyond_the_vocabulary_ends_all_ranks(void) {
    rpi_train_options options = small();
    char path[800];
    snprintf(path, sizeof path, "%s.ds.metadata", data + strlen("tokens:"));
    FILE *stream = fopen(path, "w");
    REQUIRE(stream);
    fprintf(stream, "unknown|2\n%d\n%d\n", TOKENS, TOKENS);
    fclose(stream);
    options.model = "gpt2:layers=1,hidden=32,heads=2,vocabulary=116";
    CHECK_FAILS(ranks_train(&options, 2, NULL), CORRUPT, "the vocabulary of unknown has 116");
    CHECK_MSG(strstr(ranks_message(0), ".ds: token 116 at offset "), "%s", ranks_message(0));
    data[0] = '\0'; /* written anew by who comes next */
}

CASES({"text_is_learnt", text_is_learnt},
      {"samples_show_what_is_learnt", samples_show_what_is_learnt},
      {"samples_that_cannot_be_are_refused", samples_that_cannot_be_are_refused},
      {"bf16_follows_fp32", bf16_follows_fp32},
      {"any_number_of_ranks_equals_one", any_number_of_ranks_equals_one},
      {"a_resumed_run_has_the_same_bytes", a_resumed_run_has_the_same_bytes},
      {"another_length_goes_on", another_length_goes_on},
      {"metrics_count_tokens", metrics_count_tokens},
      {"what_does_not_fit_is_told", what_does_not_fit_is_told},
      {"a_token_beyond_the_vocabulary_ends_all_ranks",
       a_token_beyond_the_vocabulary_ends_all_ranks})
