/* A model that remembers: segments that go on say what one long sequence says, and a run goes
 * on with its memories. */
#include "base/rng.h"
#include "harness/check.h"
#include "train/checkpoint/safetensors.h"
#include "train/data/token_writer.h"
#include "train/eval_model.h"
#include "train/generation/generate.h"
#include "train/segment_memory.h"
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

#define SHAPE "transformer-xl:layers=2,hidden=24,heads=2,head=8,inner=32,vocabulary=257"

static rpi_train_options small(void) {
    rpi_train_options options = ranks_options();
    if (!data[0]) write_text();
    options.model = SHAPE ",memory=20,cutoffs=108:115"; /* letters on all sides */
    options.data = data;
    options.train_images = options.test_images = 0;
    options.seq_length = SEQUENCE;
    options.global_batch_size = 12;
    options.optimizer = "adamw";
    options.lr = 1e-2;
    options.clip = 1;
    options.backend = NULL; /* the fastest */
    options.threads = 1;
    options.steps = 12; /* an epoch has 9 */
    return options;
}

/* So many ranks learn the text by a backend, into the folder "learnt". */
static rpi_train_result learnt(int world, const char *backend) {
    rpi_train_result result = {0};
    rpi_train_options options = small();
    options.steps = 120;
    options.backend = backend;
    options.model = SHAPE ",memory=20,dropout=0,cutoffs=108:115";
    options.out = ranks_folder("learnt");
    options.overwrite = true;
    CHECK_OK(ranks_train(&options, world, &result));
    return result;
}

static void text_is_learnt(void) {
    rpi_train_result result = learnt(2, NULL);
    CHECK_EQ(result.test.count, 6 * SEQUENCE);
    CHECK_MSG(result.test.loss < 0.5, "the loss is %g", result.test.loss);
    CHECK(result.test.accuracy > 0.8);
}

/* ---- segments ---- */

enum { ROWS = 2, SEGMENTS = 3, VALUES = ROWS * SEGMENTS * SEQUENCE * VOCABULARY };

static void draw_tokens(int32_t *tokens, int64_t count) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int64_t i = 0; i < count; i++) tokens[i] = (int32_t)rpi_rng_below(&rng, VOCABULARY);
}

/* Logits of the rows' segments, one behind the other, as one sequence lies. */
static void run_segments(const rpi_backend *backend, int64_t length, int count,
                         const int32_t *tokens, float *out) {
    rpi_network network;
    rpi_weights *weights = NULL;
    rpi_program_set programs;
    rpi_memories memories;
    rpi_instance *instance = NULL;
    static int32_t part[ROWS * SEGMENTS * SEQUENCE];
    static const float scale = 1;
    char model[128];
    snprintf(model, sizeof model, SHAPE ",memory=%d", (SEGMENTS - 1) * SEQUENCE);
    rpi_data_shape shape = {.sequence = (int)length};
    REQUIRE_OK(rpi_network_build(model, &shape, &network));
    REQUIRE_OK(rpi_weights_create(network.graph, network.loss, &weights));
    rpi_network_initialise(&network, weights, 3);
    float *w = rpi_weights_values(weights);
    for (int64_t i = 0; i < rpi_weights_count(weights); i++) w[i] *= 8; /* it shall matter */
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
    network.plain_correct = network.logits; /* to be read */
    REQUIRE_OK(rpi_program_set_open(&network, weights, backend, NULL, RP_F32, &programs));
    REQUIRE_OK(rpi_memories_open(&network, ROWS, &memories));
    REQUIRE_OK(rpi_program_set_get(&programs, false, ROWS, &instance));
    for (int s = 0; s < count; s++) {
        const void *inputs[RPI_NETWORK_INPUTS] = {part, part, &scale};
        for (int row = 0; row < ROWS; row++)
            memcpy(part + row * length, tokens + (row * count + s) * length,
                   (size_t)length * sizeof *part);
        rpi_memories_inputs(&memories, 0, inputs);
        REQUIRE_OK(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs}));
        REQUIRE_OK(rpi_memories_take(&memories, instance, 0, ROWS));
        rpi_memories_turn(&memories);
        rpi_tensor logits;
        REQUIRE_OK(rpi_instance_result(instance, network.logits, &logits));
        for (int row = 0; row < ROWS; row++)
            memcpy(out + (row * count + s) * length * VOCABULARY,
                   (float *)logits.data + row * length * VOCABULARY,
                   (size_t)(length * VOCABULARY) * sizeof *out);
    }
    rpi_memories_close(&memories);
    rpi_program_set_close(&programs);
    rpi_weights_destroy(weights);
    rpi_network_close(&network);
}

static void segments_say_what_one_sequence_says(void) {
    static int32_t tokens[ROWS * SEGMENTS * SEQUENCE];
    static float whole[VALUES], parts[VALUES];
    draw_tokens(tokens, ROWS * SEGMENTS * SEQUENCE);
    for (int b = 0; rpi_backend_at(b); b++) {
        run_segments(rpi_backend_at(b), SEGMENTS * SEQUENCE, 1, tokens, whole);
        run_segments(rpi_backend_at(b), SEQUENCE, SEGMENTS, tokens, parts);
        double most = 0, largest = 0;
        for (int i = 0; i < VALUES; i++) {
            most = fmax(most, fabs((double)whole[i] - (double)parts[i]));
            largest = fmax(largest, fabs((double)whole[i]));
        }
        CHECK_MSG(most < 1e-5 * largest, "%s: logits differ by %g of %g",
                  rpi_backend_at(b)->name, most, largest);
    }
}

/* ---- runs ---- */

static void compare_models(const char *a, const char *b) {
    CHECK(ranks_same_file(ranks_path(ranks_folder(a), "model.safetensors"),
                          ranks_path(ranks_folder(b), "model.safetensors")));
}

/* With dropout, and stopped in the middle of an epoch and at its end. */
static void a_run_goes_on_with_its_memories(void) {
    static const int64_t stops[] = {5, 9};
    for (int world = 1; world <= 2; world++) {
        rpi_train_options options = small();
        options.eval = false;
        options.overwrite = true;
        options.out = ranks_folder("whole");
        REQUIRE_OK(ranks_train(&options, world, NULL));
        for (int i = 0; i < 2; i++) {
            options.overwrite = true;
            options.resume = NULL;
            options.out = ranks_folder("parts");
            options.steps = stops[i];
            REQUIRE_OK(ranks_train(&options, world, NULL));
            options.resume = options.out;
            options.overwrite = false;
            options.steps = 12;
            REQUIRE_OK(ranks_train(&options, world, NULL));
            compare_models("whole", "parts");
        }
    }
}

/* What the memories hold matters: without them the same steps go elsewhere. */
static void rows_of_another_batch_remember_nothing(void) {
    rpi_train_options options = small();
    options.overwrite = true;
    options.eval = false;
    options.out = ranks_folder("first");
    options.steps = 5;
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    options.resume = options.out;
    options.overwrite = false;
    options.steps = 6;
    REQUIRE_OK(ranks_train(&options, 1, NULL));
    CHECK(strstr(ranks_notes(), "its rows were others, and remember nothing now"));
}

typedef struct run {
    rpi_train_options options;
    double losses[12];
} run;

static rp_status take_steps(void *context, rp_comm *comm) {
    run *r = context;
    rpi_trainer t;
    rpi_step_metrics own;
    rpi_told_step told;
    rp_status status = rpi_trainer_open(&t, &r->options, comm);
    for (int i = 0; i < 12 && status == RP_OK; i++) {
        status = rpi_trainer_step(&t, &own);
        if (status == RP_OK) status = rpi_step_reports_flush(&t.reports);
        while (status == RP_OK && rpi_step_reports_take(&t.reports, &told))
            if (t.place.rank == 0) r->losses[i] = told.metrics.loss;
    }
    rpi_trainer_close(&t);
    return status;
}

/* Rows keep their memories however they are shared out. */
static void ranks_and_micro_batches_change_nothing(void) {
    run alone = {.options = small()};
    alone.options.model = SHAPE ",memory=20,dropout=0,cutoffs=108:115";
    run shared = alone, forgetful = alone;
    shared.options.accumulate = 2;
    forgetful.options.model = SHAPE ",memory=1,dropout=0,cutoffs=108:115";
    REQUIRE_OK(ranks_run(1, take_steps, &alone));
    REQUIRE_OK(ranks_run(3, take_steps, &shared));
    REQUIRE_OK(ranks_run(1, take_steps, &forgetful));
    for (int i = 0; i < 12; i++)
        CHECK_MSG(fabs(alone.losses[i] - shared.losses[i]) < 2e-3 * alone.losses[i],
                  "step %d: the loss is %g alone, %g shared", i + 1, alone.losses[i],
                  shared.losses[i]);
    CHECK(alone.losses[8] != forgetful.losses[8]);
}

static double loss_of(const char *folder, int64_t memory) {
    rpi_eval_result result;
    rpi_eval_options options = {
        .model = folder, .seq_length = SEQUENCE, .memory = memory, .threads = 1};
    CHECK_OK(rpi_eval(&options, &result));
    return result.evaluation.loss;
}

static rp_status keep_text(void *context, const char *text, size_t bytes) {
    return rpi_text_append(context, text, bytes);
}

static rp_status generate(const char *folder, int64_t memory, rpi_text *out_text) {
    rpi_generated done;
    rpi_generate_options options = {.model = folder,
                                    .prompt = "trains on ",
                                    .prompt_bytes = strlen("trains on "),
                                    .most = 40,
                                    .memory = memory,
                                    .choice = {.temperature = 0, .top_p = 1},
                                    .threads = 1,
                                    .on_text = keep_text,
                                    .context = out_text};
    RP_TRY(rpi_generate(&options, &done));
    rpi_ids_free(&done.tokens);
    return rpi_text_append(out_text, "", 1);
}

/* Weights are for a memory of any length. */
static void a_run_writes_and_is_evaluated_with_any_memory(void) {
    rpi_train_options options = small();
    rpi_train_result result = learnt(1, "reference");
    rpi_text text = {0};
    options.out = ranks_folder("learnt");
    CHECK(loss_of(options.out, 0) == loss_of(options.out, 20));
    CHECK_NEAR(loss_of(options.out, 0), result.test.loss, 1e-6);
    CHECK(loss_of(options.out, 1) > loss_of(options.out, 20));
    REQUIRE_OK(generate(options.out, 0, &text));
    CHECK_MSG(strncmp(text.at, "seeds. the red poll trains on seeds.", 36) == 0, "it writes %s",
              text.at);
    text.count = 0;
    CHECK_OK(generate(options.out, 3, &text));
    rpi_text_free(&text);
    options.model = "gpt2:layers=1,hidden=16,heads=2,vocabulary=257,positions=16";
    options.out = ranks_folder("no-memory");
    options.steps = 1;
    REQUIRE_OK(ranks_train(&options, 1, NULL));
    CHECK_FAILS(generate(options.out, 3, &text), INVALID,
                "--memory is for a model that remembers earlier segments, as transformer-xl "
                "does; gpt2 does not");
    rpi_text_free(&text);
}

static void smoothing_has_no_part_in_clusters(void) {
    rpi_train_options options = small();
    options.label_smoothing = 0.1;
    CHECK_FAILS(ranks_train(&options, 1, NULL), INVALID,
                "label smoothing of 0.1, and an adaptive softmax has none: cutoffs=none");
}

CASES({"text_is_learnt", text_is_learnt},
      {"segments_say_what_one_sequence_says", segments_say_what_one_sequence_says},
      {"a_run_goes_on_with_its_memories", a_run_goes_on_with_its_memories},
      {"a_run_writes_and_is_evaluated_with_any_memory",
       a_run_writes_and_is_evaluated_with_any_memory},
      {"smoothing_has_no_part_in_clusters", smoothing_has_no_part_in_clusters},
      {"rows_of_another_batch_remember_nothing", rows_of_another_batch_remember_nothing},
      {"ranks_and_micro_batches_change_nothing", ranks_and_micro_batches_change_nothing})
