/* Finding answers: a small BERT on made-up questions, alone and over ranks. */
#include "harness/check.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 60, SEQUENCE = 32 };

static char data[800];

/* A text of letters with one word of digits, which is what is asked for; every sixth text has
 * none. Texts are longer than a row. */
static void write_questions(void) {
    static const char *const words[] = {"wing", "nest", "song", "tail", "beak"};
    char path[600];
    snprintf(path, sizeof path, "%s/birds.json", check_folder());
    snprintf(data, sizeof data,
             "spans:%s,tokenizer=byte,stride=12,max-answer=4,validation=20%%", path);
    FILE *stream = fopen(path, "w");
    REQUIRE(stream);
    fputs("{\"data\": [{\"paragraphs\": [", stream);
    for (int i = 0; i < TEXTS; i++) {
        char context[100] = "";
        int place = i % 7, start = 0, number = 10 + i * 37 % 90;
        for (int k = 0; k < 7; k++) {
            if (k == place) start = (int)strlen(context);
            size_t used = strlen(context);
            if (k == place && i % 6)
                snprintf(context + used, sizeof context - used, "%d ", number);
            else
                snprintf(context + used, sizeof context - used, "%s ", words[(i + k) % 5]);
        }
        fprintf(stream,
                "%s{\"context\": \"%s\", \"qas\": [{\"id\": \"%d\", \"question\": \"?\", ",
                i ? ", " : "", context, i);
        if (i % 6)
            fprintf(stream, "\"answers\": [{\"text\": \"%d\", \"answer_start\": %d}]}]}",
                    number, start);
        else
            fprintf(stream, "\"answers\": [], \"is_impossible\": true}]}");
    }
    fputs("]}]}", stream);
    fclose(stream);
}

static rpi_train_options small(void) {
    rpi_train_options options = ranks_options();
    if (!data[0]) write_questions();
    options.model = "bert:layers=2,hidden=32,heads=2,vocabulary=261,positions=32,spans=on";
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

static void answers_are_learnt(void) {
    rpi_train_options options = small();
    rpi_train_result result = {0};
    options.steps = 120;
    options.accumulate = 2;
    options.codec = "q4";
    REQUIRE_OK(ranks_train(&options, 2, &result));
    const rpi_scores *scores = &result.test.scores;
    CHECK(strcmp(result.unit, "tokens") == 0);
    REQUIRE(scores->count == 2);
    CHECK_EQ(scores->over, TEXTS / 5);
    CHECK_MSG(scores->at[0].percent > 80 && scores->at[1].percent >= scores->at[0].percent,
              "%g %% and %g %% are right", scores->at[0].percent, scores->at[1].percent);
    CHECK_MSG(result.test.accuracy > 0.8, "accuracy is %g", result.test.accuracy);
    CHECK(isnan(result.test.perplexity) && !result.test.sample_metric);
}

static rpi_train_result train(rpi_train_options options, int world, const char *name) {
    rpi_train_result result = {0};
    options.out = ranks_folder(name);
    CHECK_OK(ranks_train(&options, world, &result));
    return result;
}

/* Windows of one question may be of two ranks. */
static void any_number_of_ranks_equals_one(void) {
    rpi_train_options options = small();
    options.steps = 14; /* into the second epoch */
    options.lr = 1e-3;
    rpi_train_result one = train(options, 1, "one");
    CHECK(one.test.scores.at[1].percent > 0);
    for (int world = 2; world <= 4; world += 2) {
        char name[16];
        snprintf(name, sizeof name, "of-%d", world);
        options.accumulate = world == 4 ? 1 : 2;
        rpi_train_result some = train(options, world, name);
        CHECK_NEAR(some.last_loss, one.last_loss, 1e-4);
        CHECK_NEAR(some.test.loss, one.test.loss, 1e-4);
        CHECK_EQ(some.test.scores.over, one.test.scores.over);
        for (int i = 0; i < 2; i++)
            CHECK_NEAR(some.test.scores.at[i].percent, one.test.scores.at[i].percent, 1e-9);
    }
}

/* Tokens of a row are of several ranks, which fill it up where they do not divide; what is said
 * of the whole row is said once. */
static void ranks_that_share_rows_equal_one(void) {
    rpi_train_options options = small();
    options.steps = 6;
    options.lr = 1e-3;
    options.model = "bert:layers=2,hidden=32,heads=2,vocabulary=261,positions=30,spans=on";
    options.seq_length = 30;
    rpi_train_result one = train(options, 1, "whole-rows");
    CHECK(one.test.scores.at[1].percent > 0);
    options.context_ranks = 2;
    options.out = NULL;
    for (int world = 2; world <= 4; world += 2) {
        rpi_train_result some = {0};
        options.tensor_ranks = world / 2;
        options.sequence_parallel = world == 4;
        CHECK_OK(ranks_train(&options, world, &some));
        CHECK_NEAR(some.last_loss, one.last_loss, 6e-6 * one.last_loss);
        CHECK_NEAR(some.test.loss, one.test.loss, 6e-6 * one.test.loss);
        CHECK_EQ(some.test.count, one.test.count);
        CHECK_EQ(some.test.scores.over, one.test.scores.over);
        for (int i = 0; i < 2; i++)
            CHECK_NEAR(some.test.scores.at[i].percent, one.test.scores.at[i].percent, 1e-9);
    }
}

static void a_resumed_run_has_the_same_bytes(void) {
    rpi_train_options options = small();
    options.model =
        "bert:layers=2,hidden=32,heads=2,vocabulary=261,positions=32,spans=on,dropout=0.1";
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

static void metrics_have_the_scores(void) {
    rpi_train_options options = small();
    options.steps = 2;
    train(options, 2, "metrics");
    size_t bytes = 0;
    char *text =
        (char *)ranks_file(ranks_path(ranks_folder("metrics"), "metrics.jsonl"), &bytes);
    REQUIRE(text);
    text[bytes] = '\0';
    static const char *const keys[] = {
        "\"task\":\"spans\"", "\"tokens_s\":",         "\"test_exact_match\":",
        "\"test_f1\":",       "\"test_questions\":12", "\"test_tokens\":"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        CHECK_MSG(strstr(text, keys[i]), "no %s in %s", keys[i], text);
    free(text);
}

static void what_does_not_fit_is_told(void) {
    char word[900], none[900], stride[900];
    snprintf(word, sizeof word, "%s,shuffle=on", small().data);
    snprintf(none, sizeof none, "%.*s", (int)strcspn(data, ","), data);
    snprintf(stride, sizeof stride, "%s,stride=0", data);
    const struct {
        const char *model, *data, *part;
        int64_t sequence;
    } rows[] = {
        {"gpt2", NULL, "model gpt2 learns from tokens, and --data spans:", SEQUENCE},
        {"bert:positions=64", NULL, "has questions with spans of texts", SEQUENCE},
        {NULL, NULL, "use --seq-length 32 or less, or positions=33", 33},
        {"bert:vocabulary=257,spans=on", NULL,
         "the data have a vocabulary of 261 tokens, the model one of 257", SEQUENCE},
        {NULL, NULL, "question 0 has 1 tokens, which leave its text no room", 4},
        {NULL, "spans:", "no file is named; write spans:FILE.json", SEQUENCE},
        {NULL, none, "which tokenizer? write spans:FILE.json,tokenizer=NAME", SEQUENCE},
        {NULL, word, "'shuffle=on' is no option of spans; write spans:", SEQUENCE},
        {NULL, stride, "stride=0: a number of tokens, 1 to", SEQUENCE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_train_options options = small();
        if (rows[i].model) options.model = rows[i].model;
        if (rows[i].data) options.data = rows[i].data;
        options.seq_length = rows[i].sequence;
        CHECK_FAILS(ranks_train(&options, 2, NULL), INVALID, rows[i].part);
    }
}

CASES({"answers_are_learnt", answers_are_learnt},
      {"any_number_of_ranks_equals_one", any_number_of_ranks_equals_one},
      {"ranks that share rows equal one", ranks_that_share_rows_equal_one},
      {"a_resumed_run_has_the_same_bytes", a_resumed_run_has_the_same_bytes},
      {"metrics_have_the_scores", metrics_have_the_scores},
      {"what_does_not_fit_is_told", what_does_not_fit_is_told})
