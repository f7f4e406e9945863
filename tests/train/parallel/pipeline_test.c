/* A replica of several ranks is the serial training: losses, parameters and the optimizer's
 * state of models in stages are those of ranks that hold whole models, bit for bit, but where a
 * table is tied; and of models whose layers several ranks share, within what sums in another
 * order round.
 *
 * Add a row to `models`, and the long test trains it in every layout; a row to `layouts`, and
 * it trains every model in it. The short one trains those that a row of `layouts` names. */
#include "base/status.h"
#include "harness/check.h"
#include "train/data/token_writer.h"
#include "train/parallel/verify.h"
#include "train/trained_model.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 33 windows, of which 31 are learnt from: batches of 12, 12 and 7. */
enum { SEQUENCE = 8, TOKENS = 33 * SEQUENCE + 1, BATCH = 12 };

typedef struct model_row {
    const char *name, *model, *data; /* data: the kind, of the corpus below, or synthetic */
    const char *optimizer;
    double tie;      /* how far what follows from a tied table may be off; 0: bit-equal */
    bool statistics; /* of a batch, which are one replica's: compared without replicas */
    int heads;       /* over which tensor ranks divide; 0: none share its layers */
} model_row;

#define SIZES "layers=4,hidden=16,heads=2,vocabulary=261,positions=32"
static const model_row models[] = {
    {"gpt2", "gpt2:" SIZES, "tokens", "sgd", 1e-6, false, 2},
    {"gpt2-dropout", "gpt2:" SIZES ",dropout=0.2,attention-dropout=0.1", "tokens", "sgd", 1e-6,
     false, 2},
    {"llama", "llama:" SIZES ",kv-heads=1", "tokens", "adamw", 0, false, 2},
    {"llama-tied", "llama:" SIZES ",tied=on,qk-norm=on", "tokens", "sgd", 1e-6, false, 2},
    {"gpt2-lamb", "gpt2:" SIZES, "tokens", "lamb", 1e-5, false, 0},
    {"bert", "bert:" SIZES, "masked", "sgd", 1e-6, false, 2},
    {"vit", "vit:patch=14,layers=4,hidden=12,heads=3,dropout=0.1", "synthetic", "adamw", 0,
     false, 3},
    {"resnet", "resnet20:width=2", "synthetic", "sgd", 0, true, 0},
};
enum { MODELS = sizeof models / sizeof models[0] };

/* A bit for each of the rows above. */
enum {
    GPT2 = 1,
    DROPOUT = 2,
    LLAMA = 4,
    TIED = 8,
    LAMB = 16,
    BERT = 32,
    VIT = 64,
    RESNET = 128
};

/* In the short test one model meets nearly every layout; each of the others meets each kind of
 * schedule, of sharing and of recomputing that it could be wrong with. */
typedef struct layout_row {
    int quick; /* the models that are trained in it where the test is the short one */
    int stages, replicas;
    const char *schedule;
    int64_t micro_batch; /* samples */
    bool recompute;
    const char *backend;
    int64_t zero;    /* what replicas share */
    int tensor;      /* ranks that share each layer; 0: one */
    const char *cut; /* rpi_train_options.stage_cut */
} layout_row;

static const layout_row layouts[] = {
    {LLAMA, 2, 1, "1f1b", 3, false, "reference", 0, 0, NULL},
    {LLAMA, 2, 1, "1f1b", 12, false, "reference", 0, 0, NULL},
    {DROPOUT, 3, 1, "1f1b", 3, true, "reference", 0, 0, NULL},
    {GPT2 | LLAMA | LAMB, 2, 2, "1f1b", 2, false, "reference", 0, 0, NULL},
    {LLAMA, 2, 1, "afab", 2, false, "reference", 0, 0, NULL},
    {LLAMA, 2, 1, "eager-1f1b", 2, false, "reference", 0, 0, NULL},
    {GPT2 | LLAMA | VIT | RESNET, 3, 1, "zb-h1", 3, true, "reference", 0, 0, NULL},
    {LLAMA | TIED, 2, 1, "zb-h2", 3, false, "reference", 0, 0, NULL},
    {DROPOUT | LLAMA | BERT | RESNET, 2, 1, "zb-v", 3, false, "reference", 0, 0, NULL},
    {TIED, 2, 1, "interleaved", 3, false, "reference", 0, 0, NULL},
    {0, 2, 1, "1f1b", 3, false, NULL, 0, 0, NULL},
    {LLAMA, 4, 1, "zb-h1", 1, false, NULL, 0, 0, NULL},
    {DROPOUT | LLAMA | LAMB | BERT, 2, 2, "1f1b", 3, false, "reference", 1, 0, NULL},
    {LLAMA, 2, 3, "interleaved", 2, false, "reference", 1, 0, NULL},
    {GPT2 | LLAMA | BERT, 1, 1, NULL, 3, false, "reference", 0, 2, NULL},
    {DROPOUT | LLAMA, 1, 2, NULL, 3, true, NULL, 0, 2, NULL},
    {LLAMA | TIED, 1, 2, NULL, 3, false, NULL, 1, 2, NULL},
    {VIT, 1, 1, NULL, 4, false, "reference", 0, 3, NULL},
    {0, 1, 3, NULL, 2, false, "reference", 0, 2, NULL},
    {LLAMA, 2, 1, "zb-h1", 3, true, "reference", 0, 2, NULL},
    {GPT2 | TIED, 2, 2, "1f1b", 3, false, "reference", 0, 2, NULL},
    {LLAMA, 2, 2, "interleaved", 3, false, NULL, 1, 2, NULL},
    {VIT, 2, 1, "zb-v", 3, false, "reference", 0, 3, NULL},
    {LLAMA | RESNET, 2, 1, "auto", 3, false, "reference", 0, 0, NULL},
    {LLAMA, 3, 2, "auto", 2, true, NULL, 0, 0, "counted"},
    {VIT, 2, 1, "1f1b", 3, false, "reference", 0, 0, "measured"},
    {LLAMA, 2, 1, "auto", 3, false, "reference", 0, 2, NULL},
    {TIED | BERT, 1, 2, NULL, 3, false, NULL, 2, 2, NULL},
    {DROPOUT | LLAMA, 1, 2, NULL, 2, true, "reference", 3, 2, NULL},
    {VIT, 1, 2, NULL, 3, false, NULL, 3, 3, NULL},
    {GPT2 | LLAMA | LAMB, 2, 2, "1f1b", 2, false, "reference", 2, 0, NULL},
    /* Of the last batch's 7 samples one replica has two micro-batches, the others one. */
    {TIED | LAMB | BERT | VIT, 2, 3, "1f1b", 2, false, "reference", 3, 0, NULL},
    {LLAMA, 2, 4, "afab", 1, false, NULL, 3, 0, NULL},
    {LLAMA, 3, 2, "eager-1f1b", 2, true, NULL, 2, 0, "measured"},
    {LLAMA, 2, 2, "auto", 3, false, "reference", 3, 0, NULL},
    {LLAMA, 2, 2, "1f1b", 2, false, NULL, 2, 2, NULL},
    {GPT2 | DROPOUT, 2, 2, "1f1b", 2, false, "reference", 3, 2, NULL},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static char corpus[600];

static void write_corpus(void) {
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    uint32_t ids[TOKENS];
    snprintf(corpus, sizeof corpus, "%s/corpus", check_folder());
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(corpus, tokenizer, &writer));
    for (int i = 0; i < TOKENS; i++) ids[i] = i % 24 == 23 ? '.' : (uint32_t)(i * i / 7 % 200);
    CHECK_OK(rpi_token_writer_add(writer, ids, TOKENS));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

static rpi_train_options options_of(const model_row *row) {
    static char data[RANKS_MOST][640];
    static int next;
    rpi_train_options options = ranks_options();
    if (!corpus[0]) write_corpus();
    options.model = row->model;
    options.data = row->data;
    options.train_images = 31;
    options.test_images = 9;
    if (strcmp(row->data, "synthetic") != 0) {
        char *text = data[next++ % RANKS_MOST];
        snprintf(text, sizeof data[0], "%s:%s", row->data, corpus);
        options.data = text;
        options.train_images = options.test_images = 0;
        options.seq_length = SEQUENCE;
    }
    options.global_batch_size = BATCH;
    options.optimizer = row->optimizer;
    options.lr = 1e-2;
    options.lr_schedule = "cosine";
    options.lr_warmup_steps = 2;
    options.clip = 0.3;
    options.decay = "weights";
    options.steps = 3; /* the third is of the last batch */
    return options;
}

/* ---- what comes out ---- */

/* Tensors of a run that has whole ones, against those of another, in pieces or not: the largest
 * difference, relative to the largest element of its kind where asked for; 1e-300: it is one of
 * signs of zero. */
static double compare(const char *whole, const char *other, bool relative) {
    rpi_verify_difference kinds[RPI_VERIFY_KINDS];
    double worst = 0;
    int64_t compared = 0;
    CHECK_OK(rpi_verify_checkpoints(whole, other, 0, kinds));
    for (int k = RPI_VERIFY_PARAMETERS; k < RPI_VERIFY_KINDS; k++) {
        compared += kinds[k].compared;
        worst = fmax(worst, relative ? kinds[k].relative : kinds[k].largest);
        if (kinds[k].differing) worst = fmax(worst, 1e-300);
    }
    CHECK(compared > 10);
    return worst;
}

static void check_near(double a, double b, double tie, const char *what) {
    CHECK_MSG(tie > 0 ? fabs(a - b) <= tie * fabs(a) : a == b, "%s: %.17g, %.17g", what, a, b);
}

/* How far what follows may be off: losses, and tensors after all steps. */
typedef struct bounds {
    double loss, tensor;
} bounds;

/* Do sums of other parts meet in another order? */
static bool adds_otherwise(const layout_row *layout) {
    return layout->tensor > 1 || layout->zero > 1;
}

static bounds bounds_of(const model_row *row, const layout_row *layout, int64_t steps) {
    if (adds_otherwise(layout)) return (bounds){1e-6 * (double)steps, 1e-5 * (double)steps};
    return (bounds){row->tie, row->tie};
}

/* By adamw an element whose gradient is rounding alone goes a whole step either way. */
static const char *optimizer_of(const model_row *row, const layout_row *layout) {
    return adds_otherwise(layout) ? "sgd" : row->optimizer;
}

static int ranks_of(const layout_row *layout) {
    return layout->replicas * layout->stages * (layout->tensor ? layout->tensor : 1);
}

/* A training by ranks that hold whole models: what several layouts are compared with. */
typedef struct serial_run {
    char name[96];
    rpi_train_result result;
} serial_run;

/* The same micro-batches, where no bit may differ, and on one rank where sums meet in another
 * order. Runs whose names are the same are one run. */
static const serial_run *serial_of(const model_row *row, const layout_row *layout) {
    static serial_run runs[MODELS * LAYOUTS + 1]; /* and one that is looked for */
    static int count;
    bool is_near = adds_otherwise(layout);
    int replicas = is_near ? 1 : layout->replicas;
    serial_run *run = &runs[count];
    rpi_train_options options = options_of(row);
    options.optimizer = optimizer_of(row, layout);
    options.micro_batch_size = is_near ? 3 : layout->micro_batch;
    options.backend = layout->backend;
    snprintf(run->name, sizeof run->name, "serial-%s-%s-%d-%s-%d", row->name, options.optimizer,
             (int)options.micro_batch_size, layout->backend ? layout->backend : "fast",
             replicas);
    for (int i = 0; i < count; i++)
        if (strcmp(runs[i].name, run->name) == 0) return &runs[i];
    options.out = ranks_folder(run->name);
    CHECK_OK(ranks_train(&options, replicas, &run->result));
    count++;
    return run;
}

static rpi_train_options laid_out(const model_row *row, const layout_row *layout) {
    rpi_train_options options = options_of(row);
    options.optimizer = optimizer_of(row, layout);
    options.micro_batch_size = layout->micro_batch;
    options.recompute = layout->recompute;
    options.backend = layout->backend;
    options.stages = layout->stages;
    options.tensor_ranks = layout->tensor;
    options.replicas = layout->replicas;
    options.schedule = layout->schedule;
    options.zero = layout->zero;
    options.stage_cut = layout->cut;
    return options;
}

static void check_layout(const model_row *row, const layout_row *layout) {
    char name[96];
    const serial_run *serial = serial_of(row, layout);
    const rpi_train_result *one = &serial->result;
    rpi_train_result many = {0};
    rpi_train_options options = laid_out(row, layout);
    bounds most = bounds_of(row, layout, options.steps);
    snprintf(name, sizeof name, "%s-%d-%d-%d-%s-%d", row->name, layout->tensor, layout->stages,
             layout->replicas, layout->schedule ? layout->schedule : "",
             (int)(layout - layouts));
    options.out = ranks_folder(name);
    REQUIRE_OK(ranks_train(&options, ranks_of(layout), &many));
    check_near(one->last_loss, many.last_loss, most.loss, name);
    check_near(one->test.loss, many.test.loss, most.loss, name);
    check_near(one->test.accuracy, many.test.accuracy, most.loss, name);
    CHECK_EQ(one->test.count, many.test.count);
    CHECK(one->last_loss > 0);
    double off =
        compare(ranks_folder(serial->name), ranks_folder(name), adds_otherwise(layout));
    CHECK_MSG(off <= most.tensor, "%s: a tensor is off by %.3g", name, off);
}

static bool fits(const model_row *row, const layout_row *layout) {
    if (layout->tensor > 1 && (!row->heads || row->heads % layout->tensor)) return false;
    if (!check_long() && !(layout->quick >> (row - models) & 1)) return false;
    return !row->statistics || (layout->replicas == 1 && layout->micro_batch > 1);
}

static void every_layout_is_the_serial_training(void) {
    for (int m = 0; m < MODELS; m++)
        for (int l = 0; l < LAYOUTS; l++)
            if (fits(&models[m], &layouts[l])) check_layout(&models[m], &layouts[l]);
}

/* ---- another layout goes on ---- */

typedef struct leg {
    int stages;
    const char *schedule;
    int tensor; /* 0: one */
} leg;

/* One step in each of several layouts, of so many replicas, in one folder. */
static rp_status train_in_legs(rpi_train_options *options, const leg *legs, int count,
                               int replicas, rpi_train_result *result) {
    for (int i = 0; i < count; i++) {
        options->steps = i + 1;
        int tensor = legs[i].tensor ? legs[i].tensor : 1;
        options->stages = legs[i].stages;
        options->schedule = legs[i].schedule;
        options->tensor_ranks = tensor;
        options->resume = i ? options->out : NULL;
        RP_TRY(ranks_train(options, replicas * legs[i].stages * tensor, result));
    }
    return RP_OK;
}

static rpi_train_options of_constant_rate(const model_row *row) {
    rpi_train_options options = options_of(row);
    options.lr_schedule = "constant";
    options.micro_batch_size = 3;
    options.keep = 1;
    return options;
}

static void a_run_goes_on_in_another_layout(void) {
    static const leg legs[] = {{2, "1f1b", 0}, {1, "1f1b", 0}, {4, "zb-h1", 0}, {2, "zb-v", 0}};
    enum { LEGS = sizeof legs / sizeof legs[0] };
    for (int m = 0; m < MODELS; m++) {
        bool is_quick = m == 0 || m == 2 || models[m].statistics;
        if (!check_long() && !is_quick) continue;
        int replicas = models[m].statistics ? 1 : 2;
        rpi_train_options options = of_constant_rate(&models[m]);
        rpi_train_result whole = {0}, parts = {0};
        options.steps = LEGS;
        options.out = ranks_folder("whole");
        options.overwrite = true;
        REQUIRE_OK(ranks_train(&options, replicas, &whole));
        char name[64];
        snprintf(name, sizeof name, "legs-of-%s", models[m].name);
        options.out = ranks_folder(name);
        options.overwrite = false;
        options.zero = 1; /* of one replica that is nothing */
        REQUIRE_OK(train_in_legs(&options, legs, LEGS, replicas, &parts));
        check_near(whole.last_loss, parts.last_loss, models[m].tie, models[m].name);
        double off = compare(ranks_folder("whole"), ranks_folder(name), false);
        CHECK_MSG(off <= models[m].tie, "%s: a tensor is off by %.3g", models[m].name, off);
    }
}

/* From one rank to two that share its layers and back, with stages and without. */
static void a_run_goes_on_with_other_tensor_ranks(void) {
    static const leg legs[] = {{1, NULL, 0},   {1, NULL, 2}, {2, "1f1b", 2},
                               {2, "1f1b", 0}, {1, NULL, 2}, {1, NULL, 0}};
    enum { LEGS = sizeof legs / sizeof legs[0] };
    for (int m = 0; m < MODELS; m++) {
        if (models[m].heads != 2 || (!check_long() && m != 0 && m != 2)) continue;
        char name[64];
        rpi_train_options options = of_constant_rate(&models[m]);
        rpi_train_result whole = {0}, parts = {0};
        options.optimizer = "sgd";
        options.steps = LEGS;
        options.out = ranks_folder("whole");
        options.overwrite = true;
        REQUIRE_OK(ranks_train(&options, 2, &whole));
        snprintf(name, sizeof name, "tensor-legs-of-%s", models[m].name);
        options.out = ranks_folder(name);
        options.overwrite = false;
        options.zero = models[m].tie == 0;
        REQUIRE_OK(train_in_legs(&options, legs, LEGS, 2, &parts));
        check_near(whole.last_loss, parts.last_loss, 1e-6 * LEGS, models[m].name);
        double off = compare(ranks_folder("whole"), ranks_folder(name), true);
        CHECK_MSG(off <= 1e-5 * LEGS, "%s: a tensor is off by %.3g", models[m].name, off);
    }
}

/* ---- what was chosen ---- */

typedef struct choice_leg {
    int stages;
    const char *schedule, *cut, *note; /* note: what rank 0 is told */
} choice_leg;

/* What auto takes follows from what was measured: the first of its legs is told why. */
static const choice_leg choices[] = {
    {2, "1f1b", "model.layers.1", "model.embed_tokens to model.layers.0"},
    {2, "1f1b", "model.layers.3", "model.embed_tokens to model.layers.2"},
    {2, "auto", NULL, "--schedule auto takes "},
    {2, "auto", NULL, "which this run took before"},
    {3, "auto", NULL, "--schedule auto takes "},
    {2, "interleaved", "model.layers.1,model.layers.2,model.norm", "model.norm to loss"},
};

/* One step each, in one folder, and the same steps on one rank. */
static void a_run_keeps_what_was_chosen(void) {
    enum { LEGS = sizeof choices / sizeof choices[0] };
    rpi_train_options options = of_constant_rate(&models[2]);
    rpi_train_result whole = {0}, parts = {0};
    options.steps = LEGS;
    options.out = ranks_folder("chosen-whole");
    REQUIRE_OK(ranks_train(&options, 1, &whole));
    options.out = ranks_folder("chosen");
    for (int i = 0; i < LEGS; i++) {
        options.steps = i + 1;
        options.stages = choices[i].stages;
        options.schedule = choices[i].schedule;
        options.stage_cut = choices[i].cut;
        options.resume = i ? options.out : NULL;
        REQUIRE_OK(ranks_train(&options, choices[i].stages, &parts));
        CHECK_MSG(strstr(ranks_notes(), choices[i].note), "leg %d: no '%s' in %s", i,
                  choices[i].note, ranks_notes());
    }
    CHECK_MSG(whole.last_loss == parts.last_loss, "%.17g, %.17g", whole.last_loss,
              parts.last_loss);
    CHECK(compare(ranks_folder("chosen-whole"), ranks_folder("chosen"), false) <= 0);
}

/* Error feedback belongs to a rank's own gradients; in another layout each replica takes an
 * equal part of what all of them owe. */
static void what_a_lossy_codec_owes_goes_on(void) {
    static const leg same[] = {{2, "1f1b", 0}, {2, "1f1b", 0}, {2, "1f1b", 0}};
    static const leg other[] = {{2, "1f1b", 0}, {1, "1f1b", 0}, {3, "1f1b", 0}};
    model_row wide = models[2];
    wide.model = "llama:layers=3,hidden=64,heads=2,vocabulary=261,positions=32";
    rpi_train_options options = of_constant_rate(&wide);
    rpi_train_result whole = {0}, legs = {0}, moved = {0};
    options.codec = "q4";
    options.steps = 3;
    options.stages = 2;
    REQUIRE_OK(ranks_train(&options, 4, &whole));
    options.out = ranks_folder("owed");
    REQUIRE_OK(train_in_legs(&options, same, 3, 2, &legs));
    CHECK_MSG(whole.last_loss == legs.last_loss, "%.17g, %.17g", whole.last_loss,
              legs.last_loss);
    options.out = ranks_folder("owed-by-others");
    REQUIRE_OK(train_in_legs(&options, other, 3, 2, &moved));
    check_near(whole.last_loss, moved.last_loss, 1e-2, "another layout");
}

/* The same of ranks that share layers: what they owe is of their slices. */
static void what_tensor_ranks_owe_goes_on(void) {
    static const leg same[] = {{1, NULL, 2}, {1, NULL, 2}, {1, NULL, 2}};
    static const leg other[] = {{1, NULL, 2}, {1, NULL, 0}, {1, NULL, 2}};
    model_row wide = models[2];
    wide.model = "llama:layers=2,hidden=128,heads=2,vocabulary=261,positions=32";
    rpi_train_options options = of_constant_rate(&wide);
    rpi_train_result whole = {0}, legs = {0}, moved = {0};
    options.codec = "q4";
    options.steps = 3;
    options.tensor_ranks = 2;
    REQUIRE_OK(ranks_train(&options, 4, &whole));
    options.out = ranks_folder("tensor-owed");
    REQUIRE_OK(train_in_legs(&options, same, 3, 2, &legs));
    CHECK_MSG(whole.last_loss == legs.last_loss, "%.17g, %.17g", whole.last_loss,
              legs.last_loss);
    options.out = ranks_folder("tensor-owed-by-others");
    REQUIRE_OK(train_in_legs(&options, other, 3, 2, &moved));
    check_near(whole.last_loss, moved.last_loss, 1e-2, "another layout");
}

/* A learning rate that nothing survives: every rank says where it was noticed. */
static void what_diverges_is_named_with_its_stage(void) {
    rpi_train_options options = of_constant_rate(&models[2]);
    options.optimizer = "sgd";
    options.lr = 1e30;
    options.clip = 0;
    options.stages = 2;
    options.steps = 6;
    CHECK(ranks_train(&options, 4, NULL) == RP_CORRUPT);
    for (int rank = 0; rank < 4; rank++)
        CHECK_MSG(strstr(ranks_message(rank), "training has diverged at step") &&
                      strstr(ranks_message(rank), "on rank 0, stage 0 of replica 0"),
                  "rank %d says '%s'", rank, ranks_message(rank));
}

/* A loss that is not finite is traced by all ranks that share the layers, to the same kernel.
 */
static void what_diverges_is_traced_by_tensor_ranks(void) {
    rpi_train_options options = of_constant_rate(&models[2]);
    options.optimizer = "sgd";
    options.lr = 1e30;
    options.clip = 0;
    options.tensor_ranks = 2;
    options.steps = 6;
    CHECK(ranks_train(&options, 4, NULL) == RP_CORRUPT);
    for (int rank = 0; rank < 4; rank++)
        CHECK_MSG(strstr(ranks_message(rank), "training has diverged at step") &&
                      strstr(ranks_message(rank), "first of the forward pass, on every rank"),
                  "rank %d says '%s'", rank, ranks_message(rank));
}

CASES({"every_layout_is_the_serial_training", every_layout_is_the_serial_training},
      {"a_run_goes_on_in_another_layout", a_run_goes_on_in_another_layout},
      {"a_run_goes_on_with_other_tensor_ranks", a_run_goes_on_with_other_tensor_ranks},
      {"a_run_keeps_what_was_chosen", a_run_keeps_what_was_chosen},
      {"what_a_lossy_codec_owes_goes_on", what_a_lossy_codec_owes_goes_on},
      {"what_tensor_ranks_owe_goes_on", what_tensor_ranks_owe_goes_on},
      {"what_diverges_is_traced_by_tensor_ranks", what_diverges_is_traced_by_tensor_ranks},
      {"what_diverges_is_named_with_its_stage", what_diverges_is_named_with_its_stage})
