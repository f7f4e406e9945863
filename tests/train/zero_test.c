/* Ranks that share the optimizer (--zero 1), gradients (2) and parameters (3) are ranks that
 * each have all of it: the same bytes for exact gradients, and a training as good for lossy
 * ones. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "harness/check.h"
#include "train/checkpoint/safetensors.h"
#include "train/data/token_writer.h"
#include "train/parallel/verify.h"
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
enum { TRAININGS = sizeof trainings / sizeof trainings[0], STEPS = 4, TOKENS = 3000 };
enum { ZERO_MOST = 3 };

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

static void check_near(const training_row *row, const char *what, double a, double b,
                       double bound) {
    CHECK_MSG(fabs(a - b) <= bound * fabs(a), "%s, zero %s: %.17g, %.17g", row->name, what, a,
              b);
}

/* Of several runs a step, whose gradients owners add up: sums of sums, in another order than a
 * rank's own first. */
static void check_close(const training_row *row, const char *what, const rpi_train_options *a,
                        const rpi_train_options *b) {
    rpi_verify_difference kinds[RPI_VERIFY_KINDS];
    CHECK_OK(rpi_verify_checkpoints(a->out, b->out, 0, kinds));
    const rpi_verify_difference *d = &kinds[RPI_VERIFY_PARAMETERS];
    CHECK(d->compared > 3);
    CHECK_MSG(d->largest < 1e-3 * d->scale, "%s, zero %s: %s is off by %.3g", row->name, what,
              d->worst.name, d->largest);
}

static void check_stage(const training_row *row, int64_t zero, const rpi_train_options *whole,
                        const rpi_train_result *of_whole) {
    char name[8];
    rpi_train_options shared = options_of(row);
    rpi_train_result of_shared = {0};
    bool adds_later = zero > 1 && row->accumulate > 1;
    double bound = adds_later ? 1e-4 : 0;
    snprintf(name, sizeof name, "%lld", (long long)zero);
    shared.zero = zero;
    run(&shared, name, row->world, &of_shared);
    check_near(row, name, of_whole->last_loss, of_shared.last_loss, bound);
    check_near(row, name, of_whole->test.loss, of_shared.test.loss, bound);
    if (adds_later)
        check_close(row, name, whole, &shared);
    else
        check_same(row, name, whole, &shared);
}

static void shared_is_whole(void) {
    for (int i = 0; i < TRAININGS; i++) {
        const training_row *row = &trainings[i];
        rpi_train_options whole = options_of(row);
        rpi_train_result of_whole = {0};
        run(&whole, "whole", row->world, &of_whole);
        for (int64_t zero = 1; zero <= ZERO_MOST; zero++)
            check_stage(row, zero, &whole, &of_whole);
    }
}

/* ---- memory ---- */

typedef struct held {
    const training_row *row;
    int64_t zero;
    int64_t elements[RANKS_MOST], all;
} held;

static rp_status note_held(void *context, rp_comm *comm) {
    held *it = context;
    rpi_train_options options = options_of(it->row);
    rpi_trainer t;
    options.zero = it->zero;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    int64_t own = 0;
    if (status == RP_OK) CHECK((rpi_weights_gradients(t.weights) == NULL) == (it->zero >= 2));
    if (status == RP_OK) CHECK((rpi_weights_values(t.weights) == NULL) == (it->zero >= 3));
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
    if (!text[0]) write_text(); /* before ranks want it at once */
    for (int i = 0; i < TRAININGS * ZERO_MOST; i++) {
        held it = {.row = &trainings[i / ZERO_MOST], .zero = 1 + i % ZERO_MOST};
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

/* ---- samples that are not shared evenly ---- */

/* 26 pictures in batches of 12: the last one is of 2, of which three ranks have runs of one
 * sample, or of none, and all of them run in step. */
static void short_batches_are_learnt_from(void) {
    training_row row = trainings[8];
    row.world = 3;
    for (int64_t micro = 1; micro <= 4; micro += 3) {
        rpi_train_options whole = options_of(&row);
        rpi_train_result of_whole = {0};
        whole.train_images = 26;
        whole.test_images = 7;
        whole.eval_images = 7;
        whole.accumulate = 1;
        whole.micro_batch_size = micro;
        whole.global_batch_size = 12;
        rpi_train_options shared = whole;
        run(&whole, "whole", row.world, &of_whole);
        for (shared.zero = 1; shared.zero <= ZERO_MOST; shared.zero++) {
            rpi_train_result result = {0};
            run(&shared, "uneven", row.world, &result);
            CHECK_NEAR(result.last_loss, of_whole.last_loss, 1e-4 * fabs(of_whole.last_loss));
            CHECK_NEAR(result.test.loss, of_whole.test.loss, 1e-4 * of_whole.test.loss);
            CHECK_EQ(result.test.count, of_whole.test.count);
            check_close(&row, "of uneven shares", &whole, &shared);
        }
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
    if (!text[0]) write_text(); /* before ranks want it at once */
    for (int i = 0; i < TRAININGS; i += 3)
        CHECK_OK(ranks_run(trainings[i].world, read_between_steps, (void *)&trainings[i]));
}

/* Steps count all that a rank sends for them, also what leaves between two of them; reports of
 * the last step may be under way when it ends. */
enum { REPORT_BYTES = 2048 };

static rp_status count_between_steps(void *context, rp_comm *comm) {
    rpi_train_options options = options_of(context);
    rpi_trainer t;
    rpi_step_metrics metrics;
    rp_comm_stats before, after;
    uint64_t counted = 0;
    options.zero = 1;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    rp_comm_get_stats(comm, &before);
    for (int step = 0; step < STEPS && status == RP_OK; step++) {
        status = rpi_trainer_step(&t, &metrics);
        counted += metrics.wire_bytes;
        rpi_sleep_until_ns(rpi_now_ns() + 5000000); /* threads send what a step left to them */
    }
    rp_comm_get_stats(comm, &after);
    uint64_t sent = after.wire_bytes_sent - before.wire_bytes_sent;
    if (status == RP_OK)
        CHECK_MSG(counted + REPORT_BYTES >= sent && counted <= sent + REPORT_BYTES,
                  "steps count %llu bytes, and %llu were sent", (unsigned long long)counted,
                  (unsigned long long)sent);
    rpi_trainer_close(&t);
    return status;
}

static void all_traffic_is_counted(void) {
    training_row row = trainings[0];
    row.model = "gpt2:layers=5,hidden=64,heads=2,vocabulary=257,positions=64";
    if (!text[0]) write_text();
    CHECK_OK(ranks_run(row.world, count_between_steps, &row));
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
        int64_t most = strcmp(codecs[i], "q4") == 0 ? ZERO_MOST : 1;
        if (check_long() && strcmp(codecs[i], "bf16") == 0) most = ZERO_MOST;
        for (options.zero = 1; options.zero <= most; options.zero++) {
            run(&options, "lossy-shared", 3, &shared);
            CHECK_MSG(shared.test.loss < 1.1 * whole.test.loss + 0.05, "%s: %g, and whole %g",
                      codecs[i], shared.test.loss, whole.test.loss);
            CHECK_MSG(shared.test.loss != exact.test.loss, "%s is exact", codecs[i]);
        }
    }
}

/* ---- checkpoints ---- */

/* Who saves after two steps, and who goes on to four: tables to add rows to. */
typedef struct world_row {
    int world;
    int64_t zero;
    bool pieces;
} world_row;

static const world_row savers[] = {{1, 1, true}, {2, 1, false}, {2, 1, true}, {3, 0, true},
                                   {3, 1, true}, {7, 1, true},  {3, 2, true}, {2, 2, false},
                                   {3, 3, true}, {2, 3, false}};
static const world_row goers[] = {{1, 0, false}, {1, 1, false}, {2, 1, false},
                                  {7, 1, false}, {3, 2, false}, {2, 3, false}};
enum { SAVERS = sizeof savers / sizeof savers[0], GOERS = sizeof goers / sizeof goers[0] };
enum { SAVED = 2, GONE_ON = 4 };

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
    rpi_train_options options = resumable(row, SAVED);
    run(&options, name, row->world, NULL);
}

/* All of what was saved is whole again in a file of one rank's form. */
static const char *gone_on(const world_row *row, const char *from, const char *name) {
    rpi_train_options options = resumable(row, GONE_ON);
    options.resume = ranks_folder(from);
    options.overwrite = false;
    run(&options, name, row->world, NULL);
    return model_file(&options);
}

/* What ranks that share nothing come to: `saver` of them first, then `goer`. Each is run once.
 */
static const char *wanted_of(int saver, int goer) {
    static bool saved[RANKS_MOST + 1], gone[RANKS_MOST + 1][RANKS_MOST + 1];
    const world_row first = {saver, 0, false}, then = {goer, 0, false};
    char from[32], name[32];
    snprintf(from, sizeof from, "plain-%d", saver);
    snprintf(name, sizeof name, "wanted-%d-%d", saver, goer);
    if (!saved[saver]) save(&first, from);
    if (!gone[saver][goer]) gone_on(&then, from, name);
    saved[saver] = gone[saver][goer] = true;
    return ranks_path(ranks_folder(name), "model.safetensors");
}

/* The short test has every second pair: each stage of sharing goes on in each other. */
static void any_world_goes_on(void) {
    for (int i = 0; i < SAVERS; i++) {
        save(&savers[i], "shared by some");
        for (int j = 0; j < GOERS; j++) {
            if (!check_long() && savers[i].zero && (i + j) % 2) continue;
            char name[32];
            snprintf(name, sizeof name, "onward-%d-%d", i, j);
            const char *onward = gone_on(&goers[j], "shared by some", name);
            const char *wanted = wanted_of(savers[i].world, goers[j].world);
            CHECK_MSG(ranks_same_file(onward, wanted), "row %d goes on otherwise in row %d", i,
                      j);
        }
    }
}

/* Error feedback of ranks that share is what they would have had without the interruption. */
static void feedback_goes_on(void) {
    for (int pieces = 0; pieces < 2 * ZERO_MOST; pieces++) {
        const world_row row = {3, 1 + pieces / 2, pieces % 2};
        rpi_train_options half = resumable(&row, SAVED), all = resumable(&row, GONE_ON);
        rpi_train_options rest = all;
        half.codec = all.codec = rest.codec = "q4";
        run(&half, "half", 3, NULL);
        run(&all, "all", 3, NULL);
        char name[32];
        snprintf(name, sizeof name, "rest-%d", pieces);
        rest.resume = ranks_folder("half");
        rest.overwrite = false;
        run(&rest, name, 3, NULL);
        for (int rank = 0; rank < 3; rank++) {
            char file[64];
            snprintf(file, sizeof file, "rank-%d-of-3-step-%d.safetensors", rank, GONE_ON);
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
    options.zero = 3;
    options.steps = 100;
    run(&options, "gathered lossy", 3, &lossy);
    CHECK_MSG(lossy.test.loss != exact.test.loss && lossy.test.loss < 0.6, "%g",
              lossy.test.loss);
}

/* What owners keep goes on as if nothing had happened: of as many ranks to the same bytes, of
 * others, and of a run without the codec, from the exact parameters. */
static void kept_values_go_on(void) {
    for (int i = 0; i < 4; i++) {
        const world_row row = {3, i < 2 ? 1 : 3, i % 2};
        rpi_train_options half = resumable(&row, SAVED), all = resumable(&row, GONE_ON);
        rpi_train_options rest = all;
        rpi_train_result result = {0};
        char name[32];
        half.weights_codec = all.weights_codec = rest.weights_codec = "q8";
        run(&half, "kept half", 3, NULL);
        run(&all, "kept all", 3, NULL);
        rest.resume = ranks_folder("kept half");
        rest.overwrite = false;
        snprintf(name, sizeof name, "kept rest %d", i);
        run(&rest, name, 3, NULL);
        CHECK_MSG(ranks_same_file(model_file(&all), model_file(&rest)), "row %d", i);
        rest.resume = ranks_folder("kept half");
        snprintf(name, sizeof name, "kept by two %d", i);
        run(&rest, name, 2, &result);
        CHECK_EQ(result.steps, GONE_ON - SAVED);
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
    rpi_train_options half = resumable(&row, SAVED), rest = resumable(&row, SAVED + 1);
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

/* ---- whole models for a while ---- */

static void note_sample(void *context, int64_t step, const char *sample) {
    char *samples = context;
    size_t used = strlen(samples);
    snprintf(samples + used, 1000 - used, "%lld:%s|", (long long)step, sample);
}

typedef struct sampling {
    rpi_train_options options;
    char samples[1000];
} sampling;

static rp_status train_with_samples(void *context, rp_comm *comm) {
    sampling *it = context;
    rpi_train_result result;
    const rpi_train_hooks hooks = {.sampled = note_sample, .context = it->samples};
    return rpi_train(&it->options, comm, rp_comm_rank(comm) == 0 ? &hooks : NULL, &result);
}

/* What a run writes on its way is what one writes whose ranks have everything. */
static void samples_are_written(void) {
    sampling whole = {.options = options_of(&trainings[0])};
    whole.options.sample_every = 2;
    whole.options.sample_tokens = 12;
    whole.options.prompt = "the red";
    sampling shared = whole;
    whole.options.out = ranks_folder("samples of whole");
    CHECK_OK(ranks_run(2, train_with_samples, &whole));
    shared.options.zero = 3;
    shared.options.out = ranks_folder("samples of shared");
    CHECK_OK(ranks_run(2, train_with_samples, &shared));
    CHECK_MSG(strstr(whole.samples, "4:the red"), "'%s'", whole.samples);
    CHECK_MSG(!strcmp(whole.samples, shared.samples), "'%s', whole '%s'", shared.samples,
              whole.samples);
}

/* ---- copies on hosts ---- */

typedef struct copying {
    rpi_train_options options;
    uint64_t bytes[RANKS_MOST], inside[RANKS_MOST]; /* among all replicas, and on hosts */
} copying;

static rp_status count_bytes(void *context, rp_comm *comm) {
    copying *it = context;
    rpi_trainer t;
    rpi_step_metrics metrics;
    rp_comm_stats before, after, inside = {0};
    rp_status status = rpi_trainer_open(&t, &it->options, comm);
    for (int step = 0; step < 3 && status == RP_OK; step++) {
        rp_comm_get_stats(comm, &before);
        status = rpi_trainer_step(&t, &metrics);
        rp_comm_get_stats(comm, &after);
    }
    if (status == RP_OK && t.comms.hosts) rp_comm_get_stats(t.comms.hosts, &inside);
    if (status == RP_OK) {
        it->bytes[rp_comm_rank(comm)] = after.wire_bytes_sent - before.wire_bytes_sent;
        it->inside[rp_comm_rank(comm)] = inside.wire_bytes_sent;
    }
    rpi_trainer_close(&t);
    return status;
}

/* A row: ranks on hosts, and what of the bytes among all of them may be left: of the gathers of
 * a step all but the first are inside. A model of one bucket gathers once for each run. */
static const struct host_row {
    int training, hosts;
    double left;
    const char *weights_codec;
} host_rows[] = {{1, 2, 0.85, NULL},
                 {2, 2, 0.7, NULL},
                 {2, 2, 0.92, "q8"},
                 {8, 2, 0.85, NULL},
                 {2, 4, 0.7, NULL}};
enum { HOST_ROWS = sizeof host_rows / sizeof host_rows[0] };

static void hosts_keep_a_copy(void) {
    for (int i = 0; i < HOST_ROWS; i++) {
        training_row row = trainings[host_rows[i].training];
        copying apart, shared;
        row.world = 2 * host_rows[i].hosts;
        ranks_hosts(host_rows[i].hosts);
        rpi_train_options options = options_of(&row), kept;
        options.zero = 3;
        options.weights_codec = host_rows[i].weights_codec;
        kept = options;
        kept.host_shards = true;
        run(&options, "from all", row.world, NULL);
        run(&kept, "from hosts", row.world, NULL);
        check_same(&row, "from a copy on its host", &options, &kept);
        apart = (copying){.options = options};
        shared = (copying){.options = kept};
        apart.options.out = shared.options.out = NULL;
        CHECK_OK(ranks_run(row.world, count_bytes, &apart));
        CHECK_OK(ranks_run(row.world, count_bytes, &shared));
        for (int rank = 0; rank < row.world; rank++) {
            CHECK(apart.inside[rank] == 0 && shared.inside[rank] > 0);
            CHECK_MSG(
                (double)shared.bytes[rank] < host_rows[i].left * (double)apart.bytes[rank],
                "row %d, rank %d: %llu of %llu bytes", i, rank,
                (unsigned long long)shared.bytes[rank], (unsigned long long)apart.bytes[rank]);
        }
        ranks_hosts(0);
    }
}

/* Where there is one host, or one of them has a rank alone, nothing is kept, and that is said.
 */
static void copies_want_hosts(void) {
    rpi_train_options options = options_of(&trainings[4]);
    options.host_shards = true;
    CHECK_FAILS(ranks_train(&options, 2, NULL), INVALID, "say --zero 3, too");
    options.zero = 3;
    for (int hosts = 0; hosts <= 2; hosts += 2) {
        ranks_hosts(hosts);
        CHECK_OK(ranks_train(&options, 2, NULL));
        CHECK_MSG(strstr(ranks_notes(), "host-shards changes nothing"), "%s", ranks_notes());
    }
    ranks_hosts(0);
}

/* ---- failures ---- */

/* Ranks that gather run no layer again to find where it began, and say what they know. */
static void divergence_is_told(void) {
    for (int64_t zero = 1; zero <= ZERO_MOST; zero++) {
        rpi_train_options options = options_of(&trainings[0]);
        options.zero = zero;
        options.clip = 0;
        options.optimizer = "sgd";
        options.lr = 1e30;
        options.lr_warmup_steps = 0;
        options.steps = 8;
        options.out = ranks_folder("diverging");
        CHECK_FAILS(ranks_train(&options, 2, NULL), CORRUPT, "training has diverged at step");
    }
}

typedef struct leaving {
    const training_row *row;
    int64_t zero;
} leaving;

static rp_status leave_in_step_three(void *context, rp_comm *comm) {
    const leaving *it = context;
    rpi_train_options options = options_of(it->row);
    rpi_trainer t;
    rpi_step_metrics metrics;
    options.zero = it->zero;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    for (int step = 0; step < 6 && status == RP_OK; step++) {
        if (rp_comm_rank(comm) == 1 && step == 3) break; /* and destroys its communicator */
        status = rpi_trainer_step(&t, &metrics);
    }
    if (status != RP_OK) { /* as rpi_train() does: who has heard of it first tells the others */
        char message[RPI_ERROR_BYTES];
        snprintf(message, sizeof message, "%s", rp_last_error()->message);
        rp_comm_abort(comm, status, message);
        rpi_fail(status, __FILE__, __LINE__, "%s", message);
    }
    rpi_trainer_close(&t);
    return status;
}

static void who_leaves_is_named(void) {
    if (!text[0]) write_text(); /* before ranks want it at once */
    for (int i = 0; i < 2 * ZERO_MOST; i++) {
        leaving it = {&trainings[i % 2 ? 6 : 1], 1 + i / 2};
        const training_row *row = it.row;
        CHECK(ranks_run(row->world, leave_in_step_three, &it) == RP_PEER);
        CHECK_OK(ranks_status(1));
        for (int rank = 0; rank < row->world; rank++)
            if (rank != 1)
                CHECK_MSG(ranks_status(rank) == RP_PEER &&
                              strstr(ranks_message(rank), "rank 1"),
                          "rank %d says '%s'", rank, ranks_message(rank));
    }
}

typedef struct shortage {
    long after;
    int64_t zero;
} shortage;

static rp_status train_short_of_memory(void *context, rp_comm *comm) {
    const shortage *it = context;
    rpi_train_options options = options_of(&trainings[6]);
    rpi_train_result result;
    options.zero = it->zero;
    options.steps = 1;
    options.out = ranks_folder("short");
    if (rp_comm_rank(comm) == 1) rpi_memory_fail_after(it->after);
    rp_status status = rpi_train(&options, comm, NULL, &result);
    rpi_memory_fail_after(0);
    return status;
}

/* Wherever memory runs out on one rank, all ranks fail and none hangs. */
static void run_out_of_memory(int64_t zero) {
    long stride = check_long() ? 1 : 23;
    for (long n = 1 + (long)(check_seed() % (uint64_t)stride); n < 2000; n += stride) {
        shortage it = {n, zero};
        rp_status status = ranks_run(2, train_short_of_memory, &it);
        if (status == RP_OK) return;
        CHECK_MSG(ranks_status(0) != RP_OK && ranks_status(1) == RP_NOMEM, "%ld: '%s', '%s'", n,
                  ranks_message(0), ranks_message(1));
    }
}

static void memory_may_run_out(void) {
    for (int64_t zero = 1; zero <= ZERO_MOST; zero++) run_out_of_memory(zero);
}

static void what_cannot_be_shared_is_refused(void) {
    static const struct {
        int64_t zero;
        const char *strategy, *algorithm, *says;
    } refused[] = {
        {2, "gossip", NULL, "--zero 2 is for --strategy all-reduce"},
        {1, "gossip", NULL, "--zero 1 is for --strategy all-reduce"},
        {1, "gossip:on-loss=continue", NULL, "by gossip each has an optimizer of its own"},
        {1, "local-sgd", NULL, "by local-sgd each has an optimizer of its own"},
        {1, "parameter-server:servers=1", NULL, "--zero 1 is for --strategy all-reduce"},
        {1, "async-local-sgd:servers=1", NULL, "--zero 1 is for --strategy all-reduce"},
        {1, "all-reduce", "halving", "--algorithm halving, with --zero 1"},
        {2, "all-reduce", "halving", "--algorithm halving, with --zero 2"},
        {3, "all-reduce", "halving", "--algorithm halving, with --zero 3"},
        {3, "local-sgd", NULL, "--zero 3 is for --strategy all-reduce"},
        {4, "all-reduce", NULL, "or 3, by which they share all"},
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
    rpi_train_options options = ranks_options();
    options.zero = 2;
    options.codec = "auto";
    CHECK_FAILS(ranks_train(&options, 2, NULL), INVALID, "--zero 2 with --codec auto");
    options.codec = "fp32";
    options.stages = 2;
    static const char *const schedules[] = {"zb-h1", "zb-h2", "zb-v", "interleaved"};
    for (int i = 0; i < 4; i++) {
        options.schedule = schedules[i];
        CHECK_FAILS(ranks_train(&options, 4, NULL), INVALID, "afab, 1f1b, eager-1f1b");
    }
}

CASES({"shared is whole", shared_is_whole}, {"each has its share", each_has_its_share},
      {"short batches are learnt from", short_batches_are_learnt_from},
      {"parameters are there when asked for", parameters_are_there_when_asked_for},
      {"all traffic is counted", all_traffic_is_counted},
      {"lossy gradients train as well", lossy_gradients_train_as_well},
      {"any world goes on", any_world_goes_on}, {"feedback goes on", feedback_goes_on},
      {"lossy parameters train as well", lossy_parameters_train_as_well},
      {"kept values go on", kept_values_go_on},
      {"exact runs take what was kept", exact_runs_take_what_was_kept},
      {"a codec of parameters wants owners", a_codec_of_parameters_wants_owners},
      {"hosts keep a copy", hosts_keep_a_copy}, {"copies want hosts", copies_want_hosts},
      {"samples are written", samples_are_written}, {"divergence is told", divergence_is_told},
      {"who leaves is named", who_leaves_is_named}, {"memory may run out", memory_may_run_out},
      {"what cannot be shared is refused", what_cannot_be_shared_is_refused})
