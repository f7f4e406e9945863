/* Ranks that share the optimizer (--zero 1) are ranks that each have all of it: the same bytes
 * for exact gradients, and a training as good for lossy ones. */
#include "base/memory.h"
#include "harness/check.h"
#include "train/checkpoint/safetensors.h"
#include "train/data/token_writer.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- trainings, a table to add rows to ---- */

typedef struct training_row {
    const char *name;
    int world;
    const char *model, *optimizer, *decay;
    double clip, bucket_mb;
    int64_t accumulate, warmup; /* of the rate */
    const char *backend;        /* NULL: the fastest */
    bool tokens;                /* learns from text, else from pictures */
} training_row;

#define GPT2 "gpt2:layers=2,hidden=32,heads=2,vocabulary=257,positions=64"

static const training_row trainings[] = {
    {"gpt2 of 2", 2, GPT2, "adamw", "weights", 0.5, 0.0625, 1, 4, NULL, true},
    {"gpt2 of 3", 3, GPT2, "adamw", "all", 0.5, 4, 2, 0, NULL, true},
    {"gpt2 of 7", 7, GPT2, "sgd", "weights", 0, 0.01, 3, 3, NULL, true},
    {"gpt2 of 3, lamb", 3, GPT2, "lamb", "weights", 1, 0.0625, 1, 2, NULL, true},
    {"mlp of 2", 2, "mlp:hidden=48", "sgd", "all", 0, 0.0625, 1, 0, "reference", false},
    {"mlp of 3, lamb", 3, "mlp:hidden=48", "lamb", "all", 0.1, 4, 2, 2, NULL, false},
    {"mlp of 7", 7, "mlp:hidden=48", "adamw", "weights", 0.1, 0.001, 1, 2, NULL, false},
    /* More ranks than some tensors have elements, and than the first bucket has lines. */
    {"a narrow mlp of 8", 8, "mlp:hidden=3", "adamw", "all", 0.1, 0.0001, 1, 0, NULL, false},
    {"resnet of 2", 2, "resnet20:width=2", "adamw", "weights", 0.2, 0.01, 2, 2, NULL, false},
    {"resnet of 7", 7, "resnet20:width=2,norm=group", "sgd", "all", 0, 4, 1, 0, NULL, false},
};
enum { TRAININGS = sizeof trainings / sizeof trainings[0], STEPS = 6, TOKENS = 3000 };

static char text[700];

static void write_text(void) {
    static const char words[] = "the red poll trains on seeds. ";
    char path[600];
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    uint32_t ids[TOKENS];
    snprintf(path, sizeof path, "%s/text", check_folder());
    snprintf(text, sizeof text, "tokens:%s", path);
    for (size_t i = 0; i < TOKENS; i++) ids[i] = (unsigned char)words[i % (sizeof words - 1)];
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(path, tokenizer, &writer));
    CHECK_OK(rpi_token_writer_add(writer, ids, TOKENS));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

/* Sums in the order of ranks, which owners have, too. */
static rpi_train_options options_of(const training_row *row) {
    rpi_train_options options = ranks_options();
    if (row->tokens && !text[0]) write_text();
    options.model = row->model;
    options.optimizer = row->optimizer;
    options.decay = row->decay;
    options.clip = row->clip;
    options.bucket_mb = row->bucket_mb;
    options.accumulate = row->accumulate;
    options.lr_warmup_steps = row->warmup;
    options.backend = row->backend;
    options.threads = 1;
    options.algorithm = "sra";
    options.lr = 1e-2;
    options.weight_decay = 0.01;
    options.momentum = strcmp(row->optimizer, "sgd") == 0 ? 0.9 : 0;
    options.global_batch_size = 2 * row->world * row->accumulate;
    options.steps = STEPS;
    options.eval_images = 16;
    options.overwrite = true;
    if (!row->tokens) return options;
    options.data = text;
    options.train_images = options.test_images = 0;
    options.seq_length = 16;
    return options;
}

static const char *model_file(const rpi_train_options *options) {
    return ranks_path(options->out, "model.safetensors");
}

static void run(rpi_train_options *options, const char *folder, int world,
                rpi_train_result *out_result) {
    options->out = ranks_folder(folder);
    REQUIRE_OK(ranks_train(options, world, out_result));
}

static void check_same(const training_row *row, const char *what, const rpi_train_options *a,
                       const rpi_train_options *b) {
    CHECK_MSG(ranks_same_file(model_file(a), model_file(b)), "%s: %s, and other bytes",
              row->name, what);
}

static void shared_is_whole(void) {
    for (int i = 0; i < TRAININGS; i++) {
        const training_row *row = &trainings[i];
        rpi_train_options whole = options_of(row), shared = whole;
        rpi_train_result of_whole = {0}, of_shared = {0};
        shared.zero = 1;
        run(&whole, "whole", row->world, &of_whole);
        run(&shared, "shared", row->world, &of_shared);
        check_same(row, "shared", &whole, &shared);
        CHECK_MSG(of_whole.last_loss == of_shared.last_loss, "%s: losses %.17g, %.17g",
                  row->name, of_whole.last_loss, of_shared.last_loss);
        CHECK_MSG(of_whole.test.loss == of_shared.test.loss, "%s: test losses %.17g, %.17g",
                  row->name, of_whole.test.loss, of_shared.test.loss);
    }
}

/* ---- memory ---- */

typedef struct held {
    const training_row *row;
    int64_t elements[RANKS_MOST], all;
} held;

static rp_status note_held(void *context, rp_comm *comm) {
    held *it = context;
    rpi_train_options options = options_of(it->row);
    rpi_trainer t;
    options.zero = 1;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    int64_t own = 0;
    for (int i = 0; status == RP_OK && i < t.optimizer.owned_count; i++)
        own += t.optimizer.owned[i].count;
    it->elements[rp_comm_rank(comm)] = own;
    if (status == RP_OK && rp_comm_rank(comm) == 0) it->all = rpi_weights_count(t.weights);
    rpi_trainer_close(&t);
    return status;
}

/* Every element has one owner, and none has more than its share but for a line of each bucket;
 * of whole tensors, than its share and the largest tensor. */
static void each_has_its_share(void) {
    for (int i = 0; i < TRAININGS; i++) {
        held it = {.row = &trainings[i]};
        int64_t sum = 0, most = 0;
        REQUIRE_OK(ranks_run(it.row->world, note_held, &it));
        for (int rank = 0; rank < it.row->world; rank++) {
            sum += it.elements[rank];
            if (it.elements[rank] > most) most = it.elements[rank];
        }
        CHECK_EQ(sum, it.all);
        bool is_cut = strcmp(it.row->optimizer, "lamb") != 0 && it.all > 5000;
        if (is_cut)
            CHECK_MSG((double)most < 1.05 * (double)it.all / it.row->world + 2048,
                      "%s: %lld of %lld", it.row->name, (long long)most, (long long)it.all);
    }
}

/* ---- what comes back late ---- */

/* A step may end before all of its parameters are back: who reads them asks for them first, and
 * then has those of the other ranks. */
static rp_status read_between_steps(void *context, rp_comm *comm) {
    rpi_train_options options = options_of(context);
    rpi_trainer t;
    rpi_step_metrics metrics;
    options.zero = 1;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    for (int step = 0; step < STEPS && status == RP_OK; step++) {
        status = rpi_trainer_step(&t, &metrics);
        if (status == RP_OK && step % 2) status = rpi_trainer_complete(&t);
        if (status != RP_OK || step % 2 == 0) continue;
        size_t count = (size_t)rpi_weights_count(t.weights);
        int world = rp_comm_world(comm);
        float *values = rpi_weights_values(t.weights);
        float *all = malloc((size_t)world * count * sizeof *all);
        if (!all) return RP_NOMEM;
        status = rp_all_gather(comm, values, all, count, RP_F32, NULL, NULL);
        for (int rank = 0; rank < world && status == RP_OK; rank++)
            CHECK(!memcmp(values, all + (size_t)rank * count, count * sizeof *all));
        free(all);
    }
    rpi_trainer_close(&t);
    return status;
}

static void parameters_are_there_when_asked_for(void) {
    for (int i = 0; i < TRAININGS; i += 3)
        CHECK_OK(ranks_run(trainings[i].world, read_between_steps, (void *)&trainings[i]));
}

/* ---- lossy gradients ---- */

/* Of tensors that are large enough for a codec; a text that is learnt in these steps. */
static rpi_train_options lossy_options(void) {
    rpi_train_options options = options_of(&trainings[0]);
    options.model = "gpt2:layers=2,hidden=64,heads=2,vocabulary=257,positions=64";
    options.global_batch_size = 12;
    options.steps = 60;
    return options;
}

static void lossy_gradients_train_as_well(void) {
    static const char *const codecs[] = {"q4", "bf16", "auto:like=q4,every=5"};
    rpi_train_options options = lossy_options();
    rpi_train_result exact = {0}, whole = {0}, shared = {0};
    run(&options, "exact", 3, &exact);
    CHECK_MSG(exact.test.loss < 1, "%g", exact.test.loss);
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        options.codec = codecs[i];
        options.warmup_exact = 2;
        options.zero = 0;
        run(&options, "lossy-whole", 3, &whole);
        options.zero = 1;
        run(&options, "lossy-shared", 3, &shared);
        CHECK_MSG(shared.test.loss < 1.1 * whole.test.loss + 0.05, "%s: %g, and whole %g",
                  codecs[i], shared.test.loss, whole.test.loss);
        CHECK_MSG(shared.test.loss != exact.test.loss, "%s is exact", codecs[i]);
    }
}

/* ---- checkpoints ---- */

/* Who saves after three steps, and who goes on to six: tables to add rows to. */
typedef struct world_row {
    int world;
    int64_t zero;
    bool pieces;
} world_row;

static const world_row savers[] = {{1, 1, true}, {2, 1, false}, {2, 1, true},
                                   {3, 0, true}, {3, 1, true},  {7, 1, true}};
static const world_row goers[] = {{1, 0, false}, {1, 1, false}, {2, 1, false}, {7, 1, false}};
enum { SAVERS = sizeof savers / sizeof savers[0], GOERS = sizeof goers / sizeof goers[0] };

/* A batch of 42 is shared by all of these worlds. */
static rpi_train_options resumable(const world_row *row, int64_t steps) {
    rpi_train_options options = options_of(&trainings[6]);
    options.global_batch_size = 42;
    options.eval = false;
    options.zero = row->zero;
    options.checkpoint_pieces = row->pieces;
    options.steps = steps;
    return options;
}

static void save(const world_row *row, const char *name) {
    rpi_train_options options = resumable(row, 3);
    run(&options, name, row->world, NULL);
}

/* All of what was saved is whole again in a file of one rank's form. */
static const char *gone_on(const world_row *row, const char *from, const char *name) {
    rpi_train_options options = resumable(row, 6);
    options.resume = ranks_folder(from);
    options.overwrite = false;
    run(&options, name, row->world, NULL);
    return model_file(&options);
}

static void any_world_goes_on(void) {
    for (int i = 0; i < SAVERS; i++) {
        const world_row plain = {savers[i].world, 0, false};
        save(&savers[i], "shared by some");
        save(&plain, "plain");
        for (int j = 0; j < GOERS; j++) {
            const world_row whole = {goers[j].world, 0, false};
            char names[2][32];
            snprintf(names[0], sizeof names[0], "onward-%d-%d", i, j);
            snprintf(names[1], sizeof names[1], "wanted-%d-%d", i, j);
            const char *onward = gone_on(&goers[j], "shared by some", names[0]);
            const char *wanted = gone_on(&whole, "plain", names[1]);
            CHECK_MSG(ranks_same_file(onward, wanted), "row %d goes on otherwise in row %d", i,
                      j);
        }
    }
}

/* Error feedback of ranks that share is what they would have had without the interruption. */
static void feedback_goes_on(void) {
    for (int pieces = 0; pieces < 2; pieces++) {
        const world_row row = {3, 1, pieces};
        rpi_train_options half = resumable(&row, 3), all = resumable(&row, 6), rest = all;
        half.codec = all.codec = rest.codec = "q4";
        run(&half, "half", 3, NULL);
        run(&all, "all", 3, NULL);
        rest.resume = ranks_folder("half");
        rest.overwrite = false;
        run(&rest, pieces ? "rest of pieces" : "rest", 3, NULL);
        for (int rank = 0; rank < 3; rank++) {
            char file[64];
            snprintf(file, sizeof file, "rank-%d-of-3-step-6.safetensors", rank);
            CHECK_MSG(ranks_same_file(ranks_path(all.out, file), ranks_path(rest.out, file)),
                      "%s, pieces %d", file, pieces);
        }
        CHECK(ranks_same_file(model_file(&all), model_file(&rest)));
    }
}

/* ---- lossy parameters ---- */

/* All ranks compute with the same bits, those that a checkpoint has, and learn as well from
 * them; owners step what they keep. */
static void lossy_parameters_train_as_well(void) {
    rpi_train_options options = lossy_options();
    rpi_train_result exact = {0}, lossy = {0};
    options.zero = 1;
    options.check_replicas = 7;
    options.steps = 150;
    run(&options, "exact parameters", 3, &exact);
    options.weights_codec = "q8";
    run(&options, "lossy parameters", 3, &lossy);
    CHECK_MSG(lossy.test.loss != exact.test.loss, "nothing is lossy: %g", lossy.test.loss);
    CHECK_MSG(exact.test.loss < 0.4 && lossy.test.loss < 0.4, "%g, and exact %g",
              lossy.test.loss, exact.test.loss); /* of 5.5 at first */
}

/* What owners keep goes on as if nothing had happened: of as many ranks to the same bytes, of
 * others, and of a run without the codec, from the exact parameters. */
static void kept_values_go_on(void) {
    for (int pieces = 0; pieces < 2; pieces++) {
        const world_row row = {3, 1, pieces};
        rpi_train_options half = resumable(&row, 3), all = resumable(&row, 6), rest = all;
        rpi_train_result result = {0};
        half.weights_codec = all.weights_codec = rest.weights_codec = "q8";
        run(&half, "kept half", 3, NULL);
        run(&all, "kept all", 3, NULL);
        rest.resume = ranks_folder("kept half");
        rest.overwrite = false;
        run(&rest, pieces ? "kept rest of pieces" : "kept rest", 3, NULL);
        CHECK_MSG(ranks_same_file(model_file(&all), model_file(&rest)), "pieces %d", pieces);
        rest.resume = ranks_folder("kept half");
        run(&rest, pieces ? "kept by two of pieces" : "kept by two", 2, &result);
        CHECK_EQ(result.steps, 3);
    }
}

static void element_of(const char *folder, const char *tensor, float *out_value) {
    rpi_safetensors *file = NULL;
    const char *path = ranks_path(ranks_folder(folder), "model.safetensors");
    REQUIRE_OK(rpi_safetensors_open(path, &file));
    const rpi_named_tensor *entry = rpi_safetensors_find(file, tensor);
    REQUIRE(entry);
    CHECK_OK(rpi_safetensors_read_part(file, entry, 1000, 1, out_value));
    rpi_safetensors_close(file);
}

/* The next step with no rate: the parameters of a run without the codec are those kept. */
static void exact_runs_take_what_was_kept(void) {
    const world_row row = {3, 1, false};
    rpi_train_options half = resumable(&row, 3), rest = resumable(&row, 4);
    half.weights_codec = "q8";
    run(&half, "kept", 3, NULL);
    float kept = 0, sent = 0, taken = 1;
    element_of("kept", "optimizer.value.fc1.weight", &kept);
    element_of("kept", "fc1.weight", &sent);
    CHECK(kept != sent);
    rest.zero = 0;
    rest.lr = 0;
    rest.lr_warmup_steps = 0;
    rest.overwrite = false;
    rest.resume = ranks_folder("kept");
    run(&rest, "taken", 2, NULL);
    element_of("taken", "fc1.weight", &taken);
    CHECK_MSG(taken == kept, "%.9g, and kept %.9g, sent %.9g", taken, kept, sent);
}

static void a_codec_of_parameters_wants_owners(void) {
    rpi_train_options options = ranks_options();
    options.weights_codec = "q8";
    CHECK_FAILS(ranks_train(&options, 2, NULL), INVALID, "say --zero 1, too");
    options.weights_codec = "fp32";
    CHECK_OK(ranks_train(&options, 2, NULL));
    options.zero = 1;
    static const char *const sparse[] = {"topk", "randk:k=64"};
    for (int i = 0; i < 2; i++) {
        options.weights_codec = sparse[i];
        CHECK_FAILS(ranks_train(&options, 2, NULL), INVALID,
                    "a codec that sends each, such as q8");
    }
}

/* ---- failures ---- */

static rp_status leave_in_step_three(void *context, rp_comm *comm) {
    rpi_train_options options = options_of(context);
    rpi_trainer t;
    rpi_step_metrics metrics;
    options.zero = 1;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    for (int step = 0; step < STEPS && status == RP_OK; step++) {
        if (rp_comm_rank(comm) == 1 && step == 3) break; /* and destroys its communicator */
        status = rpi_trainer_step(&t, &metrics);
    }
    rpi_trainer_close(&t);
    return status;
}

static void who_leaves_is_named(void) {
    for (int i = 0; i < 2; i++) {
        const training_row *row = &trainings[i ? 6 : 1];
        CHECK(ranks_run(row->world, leave_in_step_three, (void *)row) == RP_PEER);
        CHECK_OK(ranks_status(1));
        for (int rank = 0; rank < row->world; rank++)
            if (rank != 1)
                CHECK_MSG(ranks_status(rank) == RP_PEER &&
                              strstr(ranks_message(rank), "rank 1"),
                          "rank %d says '%s'", rank, ranks_message(rank));
    }
}

static rp_status train_short_of_memory(void *context, rp_comm *comm) {
    rpi_train_options options = options_of(&trainings[6]);
    rpi_train_result result;
    options.zero = 1;
    options.steps = 1;
    options.out = ranks_folder("short");
    if (rp_comm_rank(comm) == 1) rpi_memory_fail_after(*(const long *)context);
    rp_status status = rpi_train(&options, comm, NULL, &result);
    rpi_memory_fail_after(0);
    return status;
}

/* Wherever memory runs out on one rank, all ranks fail and none hangs. */
static void memory_may_run_out(void) {
    long stride = check_long() ? 1 : 23;
    for (long n = 1 + (long)(check_seed() % (uint64_t)stride); n < 2000; n += stride) {
        rp_status status = ranks_run(2, train_short_of_memory, &n);
        if (status == RP_OK) return;
        CHECK_MSG(ranks_status(0) != RP_OK && ranks_status(1) == RP_NOMEM, "%ld: '%s', '%s'", n,
                  ranks_message(0), ranks_message(1));
    }
}

static void what_cannot_be_shared_is_refused(void) {
    static const struct {
        int64_t zero;
        const char *strategy, *algorithm, *says;
    } refused[] = {
        {2, "all-reduce", NULL,
         "--zero 2: 0, or 1, by which ranks share the optimizer's state"},
        {3, "all-reduce", NULL,
         "--zero 3: 0, or 1, by which ranks share the optimizer's state"},
        {1, "gossip", NULL, "--zero 1 is for --strategy all-reduce"},
        {1, "gossip:on-loss=continue", NULL, "by gossip each has an optimizer of its own"},
        {1, "local-sgd", NULL, "by local-sgd each has an optimizer of its own"},
        {1, "parameter-server:servers=1", NULL, "--zero 1 is for --strategy all-reduce"},
        {1, "async-local-sgd:servers=1", NULL, "--zero 1 is for --strategy all-reduce"},
        {1, "all-reduce", "halving", "--algorithm halving, with --zero 1"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        rpi_train_options options = ranks_options();
        options.zero = refused[i].zero;
        options.strategy = refused[i].strategy;
        options.algorithm = refused[i].algorithm;
        CHECK_FAILS(ranks_train(&options, 3, NULL), INVALID, refused[i].says);
        for (int rank = 1; rank < 3; rank++)
            CHECK(!strcmp(ranks_message(rank), ranks_message(0)));
    }
}

CASES({"shared is whole", shared_is_whole}, {"each has its share", each_has_its_share},
      {"parameters are there when asked for", parameters_are_there_when_asked_for},
      {"lossy gradients train as well", lossy_gradients_train_as_well},
      {"any world goes on", any_world_goes_on}, {"feedback goes on", feedback_goes_on},
      {"lossy parameters train as well", lossy_parameters_train_as_well},
      {"kept values go on", kept_values_go_on},
      {"exact runs take what was kept", exact_runs_take_what_was_kept},
      {"a codec of parameters wants owners", a_codec_of_parameters_wants_owners},
      {"who leaves is named", who_leaves_is_named}, {"memory may run out", memory_may_run_out},
      {"what cannot be shared is refused", what_cannot_be_shared_is_refused})
