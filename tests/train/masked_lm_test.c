/* Learning what is hidden and what follows: a small BERT on text that repeats, alone and over
 * ranks. */
#include "harness/check.h"
#include "train/data/token_writer.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE = 32, DOCUMENTS = 40, SENTENCES = 19 };

static char data[700];

/* Each document has one letter of four: others of it say what is hidden, and what follows is of
 * the same. */
static void write_text(void) {
    static const char *const words[4] = {"aaaaa.", "bbbbb.", "ccccc.", "ddddd."};
    char path[600];
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    snprintf(path, sizeof path, "%s/text", check_folder());
    snprintf(data, sizeof data, "masked:%s", path);
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(path, tokenizer, &writer));
    for (int d = 0; d < DOCUMENTS; d++) {
        uint32_t ids[1000], count = 0;
        for (int s = 0; s < SENTENCES; s++)
            for (const char *c = words[d % 4]; *c; c++) ids[count++] = (unsigned char)*c;
        CHECK_OK(rpi_token_writer_add(writer, ids, count));
    }
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

/* Tokens that are all special, of which none can be hidden. */
static void write_special(const char *path) {
    enum { COUNT = 200, END_OF_TEXT = 256 };
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    uint32_t ids[COUNT];
    for (int i = 0; i < COUNT; i++) ids[i] = END_OF_TEXT;
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(path, tokenizer, &writer));
    for (int d = 0; d < 2; d++) CHECK_OK(rpi_token_writer_add(writer, ids, COUNT));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

static rpi_train_options small(void) {
    rpi_train_options options = ranks_options();
    if (!data[0]) write_text();
    options.model = "bert:layers=2,hidden=16,heads=2,vocabulary=261,positions=64";
    options.data = data;
    options.train_images = options.test_images = 0;
    options.seq_length = SEQUENCE;
    options.global_batch_size = 12;
    options.optimizer = "adamw";
    options.lr = 3e-3;
    options.clip = 1;
    options.backend = NULL; /* the fastest */
    options.threads = 1;
    options.steps = 8;
    return options;
}

static void text_is_learnt(void) {
    rpi_train_options options = small();
    rpi_train_result result = {0};
    char both[1500];
    snprintf(both, sizeof both, "%s,validation=%s", data, data + strlen("masked:"));
    options.data = both;
    options.model = "bert:layers=2,hidden=32,heads=2,vocabulary=261,positions=64,pre-ln=on";
    options.global_batch_size = 16;
    options.steps = 200;
    options.accumulate = 2;
    REQUIRE_OK(ranks_train(&options, 2, &result));
    const rpi_evaluation *test = &result.test;
    CHECK(strcmp(result.unit, "tokens") == 0);
    CHECK(test->sample_metric && strcmp(test->sample_metric, "nsp") == 0);
    CHECK_MSG(test->loss - test->sample_loss < 1, "the loss of hidden tokens is %g",
              test->loss - test->sample_loss);
    CHECK_MSG(test->accuracy > 0.6, "accuracy is %g", test->accuracy);
    CHECK_MSG(test->sample_accuracy > 0.7, "accuracy of what follows is %g",
              test->sample_accuracy);
    CHECK(isnan(test->perplexity));
    CHECK(result.rate_median > 0);
}

typedef struct outcome {
    double last_loss, test_loss, next_loss;
} outcome;

static outcome train(rpi_train_options options, int world, const char *name) {
    rpi_train_result result = {0};
    options.out = ranks_folder(name);
    CHECK_OK(ranks_train(&options, world, &result));
    return (outcome){result.last_loss, result.test.loss, result.test.sample_loss};
}

static bool is_near(const outcome *a, const outcome *b) {
    return fabs(a->last_loss - b->last_loss) < 1e-4 &&
           fabs(a->test_loss - b->test_loss) < 1e-4 && fabs(a->next_loss - b->next_loss) < 1e-4;
}

/* Whatever shares a step: the losses are divided by the hidden tokens, and by the samples, of
 * all of it. Micro-batches and ranks have other numbers of hidden tokens each, and the short
 * last step of an epoch leaves ranks without samples. */
static void any_number_of_ranks_equals_one(void) {
    rpi_train_options options = small();
    options.optimizer = "sgd";
    options.lr = 0.1;
    options.steps = 14; /* 152 samples to learn from: 13 steps an epoch */
    outcome one = train(options, 1, "one");
    for (int world = 2; world <= 4; world++) {
        char name[16];
        snprintf(name, sizeof name, "of-%d", world);
        options.accumulate = world == 4 ? 1 : 2;
        outcome some = train(options, world, name);
        CHECK_MSG(is_near(&some, &one), "%d ranks: %.9g %.9g %.9g, not %.9g %.9g %.9g", world,
                  some.last_loss, some.test_loss, some.next_loss, one.last_loss, one.test_loss,
                  one.next_loss);
    }
}

static void a_resumed_run_has_the_same_bytes(void) {
    rpi_train_options options = small();
    options.model = "bert:layers=2,hidden=16,heads=2,vocabulary=261,positions=64,dropout=0.1,"
                    "attention-dropout=0.1";
    options.codec = "q4";
    options.accumulate = 2;
    options.steps = 16; /* into the second epoch */
    train(options, 2, "whole");
    options.steps = 9;
    train(options, 2, "resumed");
    options.steps = 16;
    options.resume = ranks_folder("resumed");
    train(options, 2, "resumed");
    CHECK(ranks_same_file(ranks_path(ranks_folder("whole"), "model.safetensors"),
                          ranks_path(ranks_folder("resumed"), "model.safetensors")));
}

/* Evaluations hide the same, so that runs of other seeds compare. */
static void evaluations_are_alike(void) {
    rpi_train_options options = small();
    options.lr = 1e-38;
    options.steps = 1;
    outcome a = train(options, 1, "a");
    options.steps = 3;
    outcome later = train(options, 2, "later");
    CHECK_NEAR(a.test_loss, later.test_loss, 1e-6);
}

static void metrics_have_both_losses(void) {
    rpi_train_options options = small();
    options.steps = 2;
    train(options, 2, "metrics");
    size_t bytes = 0;
    char *text =
        (char *)ranks_file(ranks_path(ranks_folder("metrics"), "metrics.jsonl"), &bytes);
    REQUIRE(text);
    text[bytes] = '\0';
    static const char *const keys[] = {
        "\"task\":\"masked-lm\"",
        "\"tokens_s\":", "\"test_nsp_loss\":", "\"test_nsp_accuracy\":", "\"test_tokens\":"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        CHECK_MSG(strstr(text, keys[i]), "no %s in %s", keys[i], text);
    CHECK(!strstr(text, "perplexity"));
    free(text);
}

/* No number of them then, and no failure: what follows is judged all the same. */
static void no_token_happens_to_be_hidden(void) {
    rpi_train_options options = small();
    rpi_train_result result = {0};
    char path[600], both[1500];
    snprintf(path, sizeof path, "%s/special", check_folder());
    write_special(path);
    snprintf(both, sizeof both, "%s,validation=%s", data, path);
    options.data = both;
    options.steps = 1;
    options.out = ranks_folder("none-hidden");
    REQUIRE_OK(ranks_train(&options, 2, &result));
    CHECK_EQ(result.test.count, 0);
    CHECK(isnan(result.test.loss) && isnan(result.test.accuracy));
    CHECK(isfinite(result.test.sample_loss));
    size_t bytes = 0;
    char *text = (char *)ranks_file(ranks_path(options.out, "metrics.jsonl"), &bytes);
    REQUIRE(text);
    text[bytes] = '\0';
    char *evaluated = strstr(text, "\"evaluated_step\":");
    REQUIRE(evaluated);
    evaluated[strcspn(evaluated, "\n")] = '\0';
    CHECK_MSG(strstr(evaluated, "\"test_nsp_loss\":"), "%s", evaluated);
    CHECK_MSG(!strstr(evaluated, "\"test_loss\""), "%s", evaluated);
    CHECK_MSG(!strstr(evaluated, "\"test_accuracy\""), "%s", evaluated);
    free(text);
}

static void what_does_not_fit_is_told(void) {
    char tokens[700];
    snprintf(tokens, sizeof tokens, "tokens:%s", strchr(small().data, ':') + 1);
    const struct {
        const char *model, *data, *part;
        int64_t sequence;
    } rows[] = {
        {"gpt2", NULL, "model gpt2 learns from tokens, and --data masked:", SEQUENCE},
        {NULL, tokens, "has tokens; say --data masked:PATH", SEQUENCE},
        {NULL, NULL, "use --seq-length 64 or less, or positions=65", 65},
        {"bert:vocabulary=257", NULL,
         "the data have a vocabulary of 261 tokens, the model one of 257", SEQUENCE},
        {NULL, NULL, "a sequence of 4; 5 is the least", 4},
        {NULL, "masked:", "no file of tokens is named; write masked:PATH", SEQUENCE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_train_options options = small();
        if (rows[i].model) options.model = rows[i].model;
        if (rows[i].data) options.data = rows[i].data;
        options.seq_length = rows[i].sequence;
        CHECK_FAILS(ranks_train(&options, 2, NULL), INVALID, rows[i].part);
    }
}

static void tokens_of_an_unknown_tokenizer_are_told(void) {
    rpi_train_options options = small();
    char path[800];
    snprintf(path, sizeof path, "%s.ds.metadata", data + strlen("masked:"));
    FILE *stream = fopen(path, "r+");
    REQUIRE(stream);
    fputs("bytf", stream);
    fclose(stream);
    CHECK_FAILS(ranks_train(&options, 1, NULL), NOT_FOUND, "has no tokenizer beside it");
    data[0] = '\0'; /* written anew by who comes next */
}

CASES({"text_is_learnt", text_is_learnt},
      {"any_number_of_ranks_equals_one", any_number_of_ranks_equals_one},
      {"a_resumed_run_has_the_same_bytes", a_resumed_run_has_the_same_bytes},
      {"evaluations_are_alike", evaluations_are_alike},
      {"metrics_have_both_losses", metrics_have_both_losses},
      {"no_token_happens_to_be_hidden", no_token_happens_to_be_hidden},
      {"what_does_not_fit_is_told", what_does_not_fit_is_told},
      {"tokens_of_an_unknown_tokenizer_are_told", tokens_of_an_unknown_tokenizer_are_told})
