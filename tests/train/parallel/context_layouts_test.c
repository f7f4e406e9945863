/* Trainings whose ranks share sequences are those of one rank: losses within 1e-6, parameters
 * and what optimizers keep within 1e-5 a step, with replicas, shared layers and stages beside
 * it, and ZeRO. Add a row to `models`, and it is trained in every layout; a row to `layouts`,
 * and every model is trained in it. */
#include "base/status.h"
#include "harness/check.h"
#include "train/data/token_writer.h"
#include "train/parallel/verify.h"
#include "train/train.h"
#include "train_ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* 33 windows, of which 31 are learnt from: batches of 12, 12 and 7. */
enum { SEQUENCE = 8, TOKENS = 33 * SEQUENCE + 1, BATCH = 12 };

typedef struct model_row {
    const char *name, *model;
    bool is_masked; /* it learns what is hidden in texts, each with padding of its own length */
    int64_t tokens; /* of a sequence; 0: 16 */
} model_row;

#define SIZES "layers=2,hidden=16,heads=4,vocabulary=261,positions=32"
static const model_row models[] = {
    {"llama", "llama:" SIZES ",kv-heads=2", false, 0},
    {"gpt2", "gpt2:" SIZES, false, 0},
    {"gpt2-dropout", "gpt2:" SIZES ",dropout=0.2,attention-dropout=0.1", false, 0},
    {"llama-tied", "llama:" SIZES ",tied=on,qk-norm=on,window=6", false, 0},
    {"bert", "bert:" SIZES, true, 0},
    {"bert-filled-up", "bert:" SIZES ",positions=18,dropout=0.2,attention-dropout=0.1", true,
     18},
    {"llama-filled-up", "llama:" SIZES ",kv-heads=2", false, 13},
};
enum { MODELS = sizeof models / sizeof models[0] };

typedef struct layout_row {
    bool is_quick; /* also of models that others stand for, where the test is the short one */
    int context, replicas, tensor, stages;
    int64_t micro_batch, zero;
    bool recompute;
    const char *schedule, *backend;
} layout_row;

static const layout_row layouts[] = {
    {true, 2, 1, 1, 1, 3, 0, false, NULL, "reference"},
    {false, 4, 1, 1, 1, 12, 0, false, NULL, "reference"},
    {true, 2, 2, 1, 1, 3, 0, true, NULL, NULL},
    {true, 2, 1, 2, 1, 3, 0, false, NULL, "reference"},
    {false, 2, 2, 1, 1, 2, 1, false, NULL, "reference"},
    {false, 2, 3, 1, 1, 2, 0, false, NULL, NULL},
    {false, 2, 1, 1, 2, 3, 0, false, "1f1b", "reference"},
    {false, 2, 2, 1, 2, 3, 1, true, "zb-h1", NULL},
    {false, 2, 1, 2, 2, 3, 1, false, "1f1b", NULL},
    {false, 2, 2, 1, 1, 3, 2, false, NULL, NULL},
    {false, 2, 1, 1, 1, 3, 3, true, NULL, NULL},
    {false, 2, 1, 1, 2, 3, 0, false, "auto", "reference"},
    {false, 2, 2, 1, 2, 3, 2, false, "1f1b", NULL},
    {false, 2, 2, 2, 1, 2, 2, true, NULL, NULL},
    {false, 2, 2, 2, 1, 2, 3, false, NULL, NULL},
    {false, 2, 1, 2, 2, 3, 3, true, "1f1b", NULL},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static char corpus[600], texts[600];

static void write_corpus(void) {
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    uint32_t ids[TOKENS];
    snprintf(corpus, sizeof corpus, "tokens:%s/corpus", check_folder());
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(strchr(corpus, ':') + 1, tokenizer, &writer));
    for (int i = 0; i < TOKENS; i++) ids[i] = i % 24 == 23 ? '.' : (uint32_t)(i * i / 7 % 200);
    CHECK_OK(rpi_token_writer_add(writer, ids, TOKENS));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

/* Documents of 9 to 40 tokens. */
static void write_texts(void) {
    enum { DOCUMENTS = 60 };
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    uint32_t ids[TOKENS];
    snprintf(texts, sizeof texts, "masked:%s/texts", check_folder());
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(strchr(texts, ':') + 1, tokenizer, &writer));
    for (int d = 0; d < DOCUMENTS; d++) {
        uint32_t count = 9 + (uint32_t)(d * 7 % 32);
        for (uint32_t i = 0; i < count; i++) ids[i] = i % 6 == 5 ? '.' : 97 + (i * i + d) % 24;
        CHECK_OK(rpi_token_writer_add(writer, ids, count));
    }
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

static rpi_train_options options_of(const model_row *row) {
    rpi_train_options options = ranks_options();
    if (!corpus[0]) write_corpus();
    options.model = row->model;
    if (row->is_masked && !texts[0]) write_texts();
    options.data = row->is_masked ? texts : corpus;
    options.train_images = options.test_images = 0;
    options.seq_length = row->tokens ? row->tokens : SEQUENCE;
    options.global_batch_size = BATCH;
    options.optimizer = "sgd";
    options.lr = 1e-2;
    options.lr_schedule = "constant";
    options.clip = 0.3;
    options.decay = "weights";
    options.steps = 3; /* the third is of the last batch */
    return options;
}

static int ranks_of(const layout_row *layout) {
    return layout->context * layout->replicas * layout->tensor * layout->stages;
}

static void lay_out(rpi_train_options *options, const layout_row *layout) {
    options->context_ranks = layout->context;
    options->replicas = layout->replicas;
    options->tensor_ranks = layout->tensor;
    options->stages = layout->stages;
    options->schedule = layout->schedule;
    options->zero = layout->zero;
    options->recompute = layout->recompute;
    options->micro_batch_size = layout->micro_batch;
}

/* Tensors of two runs: the largest difference, relative to the largest element of its kind. */
static void check_tensors(const char *name, const char *one, const char *other, double bound) {
    rpi_verify_difference kinds[RPI_VERIFY_KINDS];
    int64_t compared = 0;
    CHECK_OK(rpi_verify_checkpoints(one, other, 0, kinds));
    for (int k = RPI_VERIFY_PARAMETERS; k < RPI_VERIFY_KINDS; k++) {
        compared += kinds[k].compared;
        CHECK_MSG(kinds[k].relative <= bound, "%s: %s is off by %.3g", name,
                  kinds[k].worst.name, kinds[k].relative);
    }
    CHECK(compared > 10);
}

static void check_results(const char *name, const rpi_train_result *one,
                          const rpi_train_result *many, double bound) {
    CHECK_MSG(fabs(one->last_loss - many->last_loss) <= bound * one->last_loss,
              "%s: %.10g, of one rank %.10g", name, many->last_loss, one->last_loss);
    CHECK_MSG(fabs(one->test.loss - many->test.loss) <= bound * one->test.loss,
              "%s: held out %.10g, of one rank %.10g", name, many->test.loss, one->test.loss);
    CHECK_MSG(fabs(one->test.sample_loss - many->test.sample_loss) <= bound,
              "%s: of samples %.10g, of one rank %.10g", name, many->test.sample_loss,
              one->test.sample_loss);
    CHECK_NEAR(one->test.accuracy, many->test.accuracy, 1e-9);
    CHECK_NEAR(one->test.sample_accuracy, many->test.sample_accuracy, 1e-9);
    CHECK_EQ(one->test.count, many->test.count);
    CHECK(one->last_loss > 0);
}

/* A training by one rank: what several layouts are compared with. */
typedef struct serial_run {
    char name[64];
    rpi_train_result result;
} serial_run;

static const serial_run *serial_of(const model_row *row, const char *backend) {
    static serial_run runs[MODELS * 2 + 1]; /* and one that is looked for */
    static int count;
    serial_run *run = &runs[count];
    rpi_train_options options = options_of(row);
    snprintf(run->name, sizeof run->name, "serial-%s-%s", row->name,
             backend ? backend : "fast");
    for (int i = 0; i < count; i++)
        if (strcmp(runs[i].name, run->name) == 0) return &runs[i];
    options.backend = backend;
    options.micro_batch_size = BATCH;
    options.out = ranks_folder(run->name);
    CHECK_OK(ranks_train(&options, 1, &run->result));
    count++;
    return run;
}

static void check_layout(const model_row *row, const layout_row *layout) {
    char name[96];
    const serial_run *one = serial_of(row, layout->backend);
    rpi_train_result many = {0};
    rpi_train_options options = options_of(row);
    snprintf(name, sizeof name, "%s-%d", row->name, (int)(layout - layouts));
    options.backend = layout->backend;
    lay_out(&options, layout);
    options.out = ranks_folder(name);
    rp_status status = ranks_train(&options, ranks_of(layout), &many);
    CHECK_MSG(status == RP_OK, "%s: %s", name, rp_last_error()->message);
    if (status != RP_OK) return;
    CHECK(strstr(ranks_notes(), "ranks share each sequence: rank 0 has"));
    check_results(name, &one->result, &many, 1e-6 * (double)options.steps);
    check_tensors(name, ranks_folder(one->name), ranks_folder(name),
                  1e-5 * (double)options.steps);
}

/* In the short test one model is trained in all layouts. */
static void every_layout_is_the_serial_training(void) {
    for (int m = 0; m < MODELS; m++)
        for (int l = 0; l < LAYOUTS; l++)
            if (check_long() || m == 0 || layouts[l].is_quick)
                check_layout(&models[m], &layouts[l]);
}

/* ---- another layout goes on ---- */

/* One step in each, in one folder. */
static void a_run_goes_on_in_another_layout(void) {
    static const layout_row legs[] = {
        {false, 2, 1, 1, 1, 12, 0, false, NULL, NULL},
        {false, 1, 2, 1, 1, 6, 1, false, NULL, NULL},
        {false, 2, 2, 1, 1, 3, 1, false, NULL, NULL},
        {false, 2, 1, 2, 1, 3, 0, false, NULL, NULL},
        {false, 1, 1, 1, 2, 3, 0, false, "1f1b", NULL},
        {false, 4, 1, 1, 1, 3, 0, true, NULL, NULL},
        {false, 1, 1, 1, 1, 12, 0, false, NULL, NULL},
    };
    enum { LEGS = sizeof legs / sizeof legs[0] };
    rpi_train_options options = options_of(&models[0]);
    rpi_train_result whole = {0}, parts = {0};
    options.steps = LEGS;
    options.micro_batch_size = BATCH;
    options.out = ranks_folder("whole");
    REQUIRE_OK(ranks_train(&options, 1, &whole));
    options.out = ranks_folder("legs");
    for (int i = 0; i < LEGS; i++) {
        lay_out(&options, &legs[i]);
        options.steps = i + 1;
        options.resume = i ? options.out : NULL;
        REQUIRE_OK(ranks_train(&options, ranks_of(&legs[i]), &parts));
    }
    check_results("legs", &whole, &parts, 1e-6 * LEGS);
    check_tensors("legs", ranks_folder("whole"), ranks_folder("legs"), 1e-5 * LEGS);
}

/* ---- a lossy codec, whose residuals are each rank's ---- */

/* Of tensors that are large enough for a codec. */
static void residuals_are_of_ranks(void) {
    static const model_row wide = {
        "wide", "gpt2:layers=2,hidden=64,heads=4,vocabulary=261,positions=32", false, 0};
    rpi_train_options options = options_of(&wide);
    rpi_train_result one = {0}, many = {0};
    options.micro_batch_size = BATCH;
    REQUIRE_OK(ranks_train(&options, 1, &one));
    options.micro_batch_size = BATCH / 2;
    options.context_ranks = 2;
    options.codec = "q8";
    options.error_feedback = true;
    options.out = ranks_folder("lossy");
    options.steps = 1;
    REQUIRE_OK(ranks_train(&options, 4, &many));
    options.resume = options.out;
    options.steps = 3;
    REQUIRE_OK(ranks_train(&options, 4, &many));
    CHECK_MSG(fabs(one.last_loss - many.last_loss) <= 1e-2 * one.last_loss,
              "%.10g, of one rank %.10g", many.last_loss, one.last_loss);
    CHECK(one.last_loss != many.last_loss);
}

/* ---- what ranks of a replica hand each other, encoded: sums of layers, and borders ---- */

static void activations_are_encoded(void) {
    static const layout_row layout = {true, 2, 1, 2, 2, 3, 0, false, "1f1b", NULL};
    rpi_train_options options = options_of(&models[0]);
    rpi_train_result one = serial_of(&models[0], options.backend)->result, many = {0};
    lay_out(&options, &layout);
    options.activations_codec = "q8";
    REQUIRE_OK(ranks_train(&options, ranks_of(&layout), &many));
    CHECK_MSG(fabs(one.last_loss - many.last_loss) <= 1e-2 * one.last_loss,
              "%.10g, of one rank %.10g", many.last_loss, one.last_loss);
    CHECK(one.last_loss != many.last_loss);
}

CASES({"every layout is the serial training", every_layout_is_the_serial_training},
      {"a run goes on in another layout", a_run_goes_on_in_another_layout},
      {"residuals are of ranks", residuals_are_of_ranks},
      {"activations are encoded", activations_are_encoded})
