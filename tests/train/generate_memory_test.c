/* A decoder with a memory says what the model itself says: of a text that fits the memory, in
 * one pass over all of it; of a longer one, token by token with the memories of training. */
#include "base/rng.h"
#include "harness/check.h"
#include "train/generation/decoder.h"
#include "train/program_set.h"
#include "train/segment_memory.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 150, VOCABULARY = 43 };

#define SHAPE "transformer-xl:layers=2,hidden=24,heads=2,head=8,inner=32,vocabulary=43,"

typedef struct model {
    char text[256];
    rpi_network network;
    rpi_weights *weights;
    rpi_program_set programs;
} model;

/* With segments of so many tokens. Weights are larger than at the start: they shall matter. */
static void open_model(const char *options, int sequence, const rpi_backend *backend,
                       model *m) {
    *m = (model){0};
    snprintf(m->text, sizeof m->text, SHAPE "%s", options);
    REQUIRE_OK(
        rpi_network_build(m->text, &(rpi_data_shape){.sequence = sequence}, &m->network));
    REQUIRE_OK(rpi_weights_create(m->network.graph, m->network.loss, &m->weights));
    rpi_network_initialise(&m->network, m->weights, 3);
    float *w = rpi_weights_values(m->weights);
    for (int64_t i = 0; i < rpi_weights_count(m->weights); i++) w[i] *= 8;
    rpi_weights_changed(m->weights, 0, rpi_weights_count(m->weights));
    REQUIRE_OK(
        rpi_program_set_open(&m->network, m->weights, backend, NULL, RP_F32, &m->programs));
}

static void close_model(model *m) {
    rpi_program_set_close(&m->programs);
    rpi_weights_destroy(m->weights);
    rpi_network_close(&m->network);
}

static void draw_tokens(int32_t *tokens, int count) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < count; i++) tokens[i] = (int32_t)rpi_rng_below(&rng, VOCABULARY);
}

/* Logits of all tokens, read by the network itself, a segment at a time. */
static void read_by_network(model *m, const int32_t *tokens, int count, float *out) {
    static const float scale = 1;
    int sequence = m->network.shape.sequence;
    rpi_memories memories;
    rpi_instance *instance = NULL;
    m->network.plain_correct = m->network.logits; /* to be read */
    REQUIRE_OK(rpi_memories_open(&m->network, 1, &memories));
    REQUIRE_OK(rpi_program_set_get(&m->programs, false, 1, &instance));
    for (int first = 0; first < count; first += sequence) {
        const void *inputs[RPI_NETWORK_INPUTS] = {tokens + first, tokens + first, &scale};
        rpi_tensor logits;
        rpi_memories_inputs(&memories, 0, inputs);
        REQUIRE_OK(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs}));
        REQUIRE_OK(rpi_memories_take(&memories, instance, 0, 1));
        rpi_memories_turn(&memories);
        REQUIRE_OK(rpi_instance_result(instance, m->network.logits, &logits));
        memcpy(out + (ptrdiff_t)first * VOCABULARY, logits.data,
               (size_t)sequence * VOCABULARY * sizeof *out);
    }
    rpi_memories_close(&memories);
}

/* Logits behind the first `prompt` tokens, which are read at once, and behind each further. */
static void read_by_decoder(const model *m, const int32_t *tokens, int count, int prompt,
                            float *out) {
    rpi_trained_model trained = {.step = -1};
    rpi_decoder *decoder = NULL;
    char note[2048];
    snprintf(trained.text, sizeof trained.text, "%s", m->text);
    rpi_decoder_options options = {.memory = count, .session = m->programs.session};
    REQUIRE_OK(rpi_decoder_open(&trained, &options, &decoder, note, sizeof note));
    for (int read = 0, some = prompt; read < count; read += some, some = 1) {
        const float *logits = NULL;
        REQUIRE_OK(rpi_decoder_read(decoder, tokens + read, some, &logits));
        memcpy(out + (ptrdiff_t)(read + some - 1) * VOCABULARY, logits,
               VOCABULARY * sizeof *out);
    }
    rpi_decoder_close(decoder);
}

static void compare(const char *backend, const float *got, const float *wanted, int first,
                    int count) {
    double most = 0, largest = 0;
    for (int i = first * VOCABULARY; i < count * VOCABULARY; i++) {
        most = fmax(most, fabs((double)got[i] - (double)wanted[i]));
        largest = fmax(largest, fabs((double)wanted[i]));
    }
    CHECK_MSG(most < 2e-5 * largest, "%s: logits differ by %g of %g", backend, most, largest);
}

static int32_t tokens[TOKENS];
static float whole[TOKENS * VOCABULARY], parts[TOKENS * VOCABULARY];

static void a_text_that_fits_is_one_pass(void) {
    draw_tokens(tokens, TOKENS);
    for (int b = 0; rpi_backend_at(b); b++) {
        model m;
        open_model("memory=149,clamp=40", TOKENS, rpi_backend_at(b), &m);
        read_by_network(&m, tokens, TOKENS, whole);
        read_by_decoder(&m, tokens, TOKENS, 17, parts);
        compare(rpi_backend_at(b)->name, parts, whole, 16, TOKENS);
        close_model(&m);
    }
}

/* However the prompt is cut: 140 tokens are 128 and 12. */
static void a_longer_text_remembers_as_much_everywhere(void) {
    static const int prompts[] = {1, 9, 140};
    draw_tokens(tokens, TOKENS);
    for (int b = 0; rpi_backend_at(b); b++) {
        model m;
        open_model("memory=6", 1, rpi_backend_at(b), &m);
        read_by_network(&m, tokens, TOKENS, whole);
        for (int i = 0; i < 3; i++) {
            read_by_decoder(&m, tokens, TOKENS, prompts[i], parts);
            compare(rpi_backend_at(b)->name, parts, whole, prompts[i] - 1, TOKENS);
        }
        close_model(&m);
    }
}

/* The loss of each token as the next one is that of a softmax over what the decoder gives. */
static void clusters_are_joined(void) {
    static const float scale = 1;
    static float scores[VOCABULARY];
    const rpi_backend *backend = rpi_backend_default();
    model m;
    rpi_instance *instance = NULL;
    draw_tokens(tokens, 1);
    open_model("memory=6,cutoffs=10:20:38", 1, backend, &m);
    read_by_decoder(&m, tokens, 1, 1, scores);
    double sum = 0;
    for (int i = 0; i < VOCABULARY; i++) sum += exp((double)scores[i]);
    rpi_memories memories;
    REQUIRE_OK(rpi_memories_open(&m.network, 1, &memories));
    REQUIRE_OK(rpi_program_set_get(&m.programs, false, 1, &instance));
    for (int32_t label = 0; label < VOCABULARY; label++) {
        const void *inputs[RPI_NETWORK_INPUTS] = {tokens, &label, &scale};
        rpi_tensor loss;
        rpi_memories_inputs(&memories, 0, inputs);
        REQUIRE_OK(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs}));
        REQUIRE_OK(rpi_instance_result(instance, m.network.plain_loss, &loss));
        CHECK_NEAR(log(sum) - (double)scores[label], (double)*(const float *)loss.data, 1e-4);
    }
    rpi_memories_close(&memories);
    close_model(&m);
}

static void no_position_is_the_last(void) {
    rpi_trained_model trained = {.text = SHAPE "memory=6", .step = -1};
    rpi_decoder_facts facts;
    REQUIRE_OK(rpi_decoder_examine(&trained, &facts));
    CHECK_EQ(facts.vocabulary, VOCABULARY);
    CHECK(facts.positions >= 1 << 30);
}

CASES({"a_text_that_fits_is_one_pass", a_text_that_fits_is_one_pass},
      {"a_longer_text_remembers_as_much_everywhere",
       a_longer_text_remembers_as_much_everywhere},
      {"clusters_are_joined", clusters_are_joined},
      {"no_position_is_the_last", no_position_is_the_last})
