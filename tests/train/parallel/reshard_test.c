/* A checkpoint is of a training, not of a layout: saved by any number of tensor ranks, stages
 * and replicas, with whatever these share, it goes on in any other. What was saved is there to
 * the last bit, and the next step is the next step. Add a row to `layouts`, and it saves for
 * all others and goes on from all others. */
#include "base/status.h"
#include "harness/check.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/token_writer.h"
#include "train/parallel/verify.h"
#include "train/trained_model.h"
#include "train_ranks.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

typedef struct layout_row {
    int tensor, stages, replicas;
    int64_t zero;
    bool is_quick; /* pairs of these are tried in the short test, by the first model */
} layout_row;

/* The first has all in one file, with which the others are compared. */
static const layout_row layouts[] = {
    {1, 1, 1, 0, true},  {2, 1, 1, 0, false}, {1, 2, 2, 1, false}, {2, 2, 1, 2, false},
    {1, 1, 3, 3, true},  {1, 1, 6, 1, false}, {2, 1, 3, 2, false}, {2, 1, 2, 3, false},
    {1, 2, 3, 2, false}, {1, 2, 3, 3, true},  {2, 2, 2, 3, true},  {1, 3, 1, 0, false},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0], SAVED = 2 };

/* A row a model: tied, and with fewer key heads than tensor ranks. */
typedef struct model_row {
    const char *name, *model, *optimizer;
} model_row;

#define SIZES "layers=3,hidden=16,heads=2,vocabulary=261,positions=32"
static const model_row models[] = {
    {"gpt2", "gpt2:" SIZES, "adamw"},
    {"llama", "llama:" SIZES ",kv-heads=1", "sgd"},
};
enum { MODELS = sizeof models / sizeof models[0] };

/* Micro-batches of one sample: 6 replicas have one in each batch. */
enum { SEQUENCE = 8, TOKENS = 33 * SEQUENCE + 1, BATCH = 6 };

static char corpus[600];

static void write_corpus(void) {
    char path[500];
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    uint32_t ids[TOKENS];
    snprintf(path, sizeof path, "%s/corpus", check_folder());
    snprintf(corpus, sizeof corpus, "tokens:%s", path);
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(path, tokenizer, &writer));
    for (int i = 0; i < TOKENS; i++) ids[i] = i % 24 == 23 ? '.' : (uint32_t)(i * i / 7 % 200);
    CHECK_OK(rpi_token_writer_add(writer, ids, TOKENS));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

static rpi_train_options options_of(const model_row *row, const layout_row *layout,
                                    int64_t steps) {
    rpi_train_options options = ranks_options();
    if (!corpus[0]) write_corpus();
    options.model = row->model;
    options.data = corpus;
    options.train_images = options.test_images = 0;
    options.seq_length = SEQUENCE;
    options.global_batch_size = BATCH;
    options.micro_batch_size = 1;
    options.optimizer = row->optimizer;
    options.momentum = 0.9;
    options.lr = 1e-2;
    options.clip = 0.3;
    options.decay = "weights";
    options.eval = false;
    options.steps = steps;
    options.keep = 1;
    options.tensor_ranks = layout->tensor;
    options.stages = layout->stages;
    options.replicas = layout->replicas;
    options.zero = layout->zero;
    return options;
}

static int ranks_of(const layout_row *layout) {
    return layout->tensor * layout->stages * layout->replicas;
}

enum { FOLDER = 700 };

static const char *folder_of(const char *what, const model_row *row, int saver, int loader,
                             char folder[FOLDER]) {
    snprintf(folder, FOLDER, "%s/%s-%s-%d-%d", check_folder(), what, row->name, saver, loader);
    return folder;
}

/* ---- what was saved is there ---- */

typedef struct passing_on {
    const rpi_train_options *options;
    const char *from, *to;
} passing_on;

static rp_status load_and_save(void *context, rp_comm *comm) {
    const passing_on *it = context;
    rpi_trainer t;
    char note[4096];
    rp_status status = rpi_trainer_open(&t, it->options, comm);
    if (status == RP_OK) status = rpi_checkpoint_load(&t, it->from, note, sizeof note);
    if (status == RP_OK) CHECK_EQ(t.step, SAVED);
    if (status == RP_OK) status = rpi_checkpoint_save(&t, it->to);
    rpi_trainer_close(&t);
    return status;
}

static void check_equal(const char *whole, const char *other, const char *name) {
    rpi_verify_difference kinds[RPI_VERIFY_KINDS];
    CHECK_OK(rpi_verify_checkpoints(whole, other, SAVED, kinds));
    for (int k = RPI_VERIFY_PARAMETERS; k < RPI_VERIFY_STATISTICS; k++) {
        CHECK(kinds[k].compared > 10);
        CHECK_MSG(kinds[k].differing == 0, "%s: %s of %s differ", name,
                  rpi_verify_kind_name((rpi_verify_kind)k), kinds[k].first.name);
    }
}

static void pass_on(const model_row *row, const char *from, const char *to,
                    const layout_row *loader) {
    rpi_train_options options = options_of(row, loader, SAVED + 1);
    passing_on it = {&options, from, to};
    CHECK(mkdir(to, 0777) == 0);
    REQUIRE_OK(ranks_run(ranks_of(loader), load_and_save, &it));
}

/* ---- and the next step follows ---- */

static double loss_behind(const model_row *row, const char *from, const char *out,
                          const layout_row *loader) {
    rpi_train_options options = options_of(row, loader, SAVED + 1);
    rpi_train_result result = {0};
    options.resume = from;
    options.out = out;
    CHECK_OK(ranks_train(&options, ranks_of(loader), &result));
    CHECK_EQ(result.steps, 1);
    return result.last_loss;
}

static void try_loader(const model_row *row, int saver, int loader, const char *saved,
                       const char *whole, double loss) {
    char copy[FOLDER], next[FOLDER];
    folder_of("copy", row, saver, loader, copy);
    pass_on(row, saved, copy, &layouts[loader]);
    check_equal(whole, copy, copy);
    folder_of("next", row, saver, loader, next);
    double then = loss_behind(row, saved, next, &layouts[loader]);
    CHECK_MSG(fabs(then - loss) <= 1e-6 * loss, "%s: %.17g, and %.17g by the layout that saved",
              next, then, loss);
}

static void save_and_go_on(const model_row *row, int saver) {
    char saved[FOLDER], whole[FOLDER], own[FOLDER];
    rpi_train_options options = options_of(row, &layouts[saver], SAVED);
    options.out = folder_of("saved", row, saver, 0, saved);
    REQUIRE_OK(ranks_train(&options, ranks_of(&layouts[saver]), NULL));
    pass_on(row, saved, folder_of("whole", row, saver, 0, whole), &layouts[0]);
    check_equal(whole, saved, saved);
    folder_of("own", row, saver, 0, own);
    double loss = loss_behind(row, saved, own, &layouts[saver]);
    for (int loader = 0; loader < LAYOUTS; loader++) {
        bool is_near = layouts[saver].is_quick && layouts[loader].is_quick && row == models;
        bool is_next = loader == (saver + 1) % LAYOUTS; /* each saves and goes on once */
        if (check_long() || is_near || is_next)
            try_loader(row, saver, loader, saved, whole, loss);
    }
}

static void any_layout_goes_on(void) {
    for (int m = 0; m < MODELS; m++)
        for (int saver = 0; saver < LAYOUTS; saver++) save_and_go_on(&models[m], saver);
}

CASES({"any layout goes on", any_layout_goes_on})
