/* Folders that transformers wrote (make_huggingface_golden.py), and what its models make of
 * their tokens: the same logits here, in f16, bf16 and from shards; and, token by token, the
 * same choices as its generate() has made. */
#include "train/huggingface/hf_config.h"
#include "train/huggingface/hf_weights.h"

#include "engine/instance.h"
#include "harness/check.h"
#include "train/checkpoint/safetensors.h"
#include "train/generation/decoder.h"

#include <math.h>

enum { TOKENS = 40, VOCABULARY = 257, PROMPT = 7 };

typedef struct opened {
    rpi_network network;
    rpi_weights *weights;
    rpi_session *session;
    rpi_program *program;
    rpi_instance *instance;
    int32_t tokens[TOKENS];
    float wanted[TOKENS * VOCABULARY];
} opened;

static void read_expected(const char *folder, opened *o) {
    char path[700];
    rpi_safetensors *file = NULL;
    snprintf(path, sizeof path, "%s/expected.safetensors", folder);
    REQUIRE_OK(rpi_safetensors_open(path, &file));
    CHECK_OK(
        rpi_safetensors_read(file, "tokens", RP_I32, &(rpi_shape){1, {TOKENS}}, o->tokens));
    CHECK_OK(rpi_safetensors_read(file, "logits", RP_F32, &(rpi_shape){2, {TOKENS, VOCABULARY}},
                                  o->wanted));
    rpi_safetensors_close(file);
}

static rp_status load(const char *folder, opened *o) {
    char model[RPI_MODEL_TEXT], note[4096];
    const rpi_hf_family *family = NULL;
    RP_TRY(rpi_hf_config_read(folder, model, &family));
    RP_TRY(rpi_network_build(model, &(rpi_data_shape){.sequence = TOKENS}, &o->network));
    RP_TRY(rpi_weights_create(o->network.graph, o->network.loss, &o->weights));
    RP_TRY(rpi_hf_load(folder, &o->network, o->weights, false, note, sizeof note));
    CHECK_MSG(!note[0], "%s", note);
    return RP_OK;
}

static rp_status run(opened *o, rpi_tensor *logits) {
    rpi_program_options options = {.dimensions = {{"batch", 1}, {"sequence", TOKENS}},
                                   .result_count = 1,
                                   .results = {o->network.logits}};
    const void *inputs[RPI_TASK_INPUTS + 1] = {o->tokens};
    RP_TRY(rpi_session_create(o->weights, rpi_backend_default(),
                              &(rpi_backend_options){.threads = 1}, &o->session));
    RP_TRY(
        rpi_program_compile(o->session, o->network.graph, RPI_NO_VALUE, &options, &o->program));
    RP_TRY(rpi_instance_create(o->program, &o->instance));
    RP_TRY(rpi_instance_forward(o->instance, &(rpi_run_options){.inputs = inputs}));
    return rpi_instance_result(o->instance, o->network.logits, logits);
}

static void check_logits(const char *name) {
    static opened o;
    char folder[600];
    rpi_tensor logits = {0};
    double most = 0;
    o = (opened){0};
    snprintf(folder, sizeof folder, "%s/%s", HUGGINGFACE_GOLDEN, name);
    read_expected(folder, &o);
    REQUIRE_OK(load(folder, &o));
    REQUIRE_OK(run(&o, &logits));
    const float *found = logits.data;
    for (int i = 0; i < TOKENS * VOCABULARY; i++)
        most = fmax(most, fabs((double)found[i] - (double)o.wanted[i]));
    CHECK_MSG(most <= 1e-4, "%s: logits differ by %g", name, most);
    rpi_instance_destroy(o.instance);
    rpi_program_destroy(o.program);
    rpi_session_destroy(o.session);
    rpi_weights_destroy(o.weights);
    rpi_network_close(&o.network);
}

static void gpt2_is_that_of_transformers(void) {
    check_logits("gpt2");
}

static void llama_is_that_of_transformers(void) {
    check_logits("llama");
}

/* A window of 6 tokens. */
static void mistral_is_that_of_transformers(void) {
    check_logits("mistral");
}

/* Biases everywhere, and positions stretched by frequency. */
static void llama31_is_that_of_transformers(void) {
    check_logits("llama31");
}

/* Biases of queries, keys and values, and positions stretched alike. */
static void qwen2_is_that_of_transformers(void) {
    check_logits("qwen2");
}

/* Norms of each head's queries and keys, wider heads than hidden has, and a window. */
static void qwen3_is_that_of_transformers(void) {
    check_logits("qwen3");
}

/* ---- pictures ---- */

enum { SIDE = 12, CLASSES = 5, PIXELS = 3 * SIDE * SIDE };

static void read_pictures(const char *folder, float *pixels, float *logits) {
    char path[700];
    rpi_safetensors *file = NULL;
    snprintf(path, sizeof path, "%s/expected.safetensors", folder);
    REQUIRE_OK(rpi_safetensors_open(path, &file));
    CHECK_OK(rpi_safetensors_read(file, "pixels", RP_F32, &(rpi_shape){4, {1, 3, SIDE, SIDE}},
                                  pixels));
    CHECK_OK(
        rpi_safetensors_read(file, "logits", RP_F32, &(rpi_shape){2, {1, CLASSES}}, logits));
    rpi_safetensors_close(file);
}

static rp_status open_vit(const char *folder, int classes, bool partial, opened *o, char *note,
                          size_t bytes) {
    char model[RPI_MODEL_TEXT];
    const rpi_hf_family *family = NULL;
    rpi_data_shape shape = {.channels = 3, .height = SIDE, .width = SIDE, .classes = classes};
    RP_TRY(rpi_hf_config_read(folder, model, &family));
    CHECK_MSG(strcmp(model, "vit:layers=2,hidden=16,heads=4,image=12,"
                            "norm-epsilon=0.001") == 0,
              "%s", model);
    RP_TRY(rpi_network_build(model, &shape, &o->network));
    RP_TRY(rpi_weights_create(o->network.graph, o->network.loss, &o->weights));
    return rpi_hf_load(folder, &o->network, o->weights, partial, note, bytes);
}

static void close_vit(opened *o) {
    rpi_weights_destroy(o->weights);
    rpi_network_close(&o->network);
    *o = (opened){0};
}

static void vit_is_that_of_transformers(void) {
    static opened o;
    static float pixels[PIXELS], wanted[CLASSES];
    char folder[600], note[4096];
    rpi_tensor logits = {0};
    o = (opened){0};
    snprintf(folder, sizeof folder, "%s/vit", HUGGINGFACE_GOLDEN);
    read_pictures(folder, pixels, wanted);
    REQUIRE_OK(open_vit(folder, CLASSES, false, &o, note, sizeof note));
    CHECK_MSG(!note[0], "%s", note);
    rpi_program_options options = {
        .dimensions = {{"batch", 1}}, .result_count = 1, .results = {o.network.logits}};
    const void *inputs[RPI_TASK_INPUTS + 1] = {pixels};
    REQUIRE_OK(rpi_session_create(o.weights, rpi_backend_default(),
                                  &(rpi_backend_options){.threads = 1}, &o.session));
    REQUIRE_OK(
        rpi_program_compile(o.session, o.network.graph, RPI_NO_VALUE, &options, &o.program));
    REQUIRE_OK(rpi_instance_create(o.program, &o.instance));
    REQUIRE_OK(rpi_instance_forward(o.instance, &(rpi_run_options){.inputs = inputs}));
    REQUIRE_OK(rpi_instance_result(o.instance, o.network.logits, &logits));
    for (int i = 0; i < CLASSES; i++)
        CHECK_NEAR(((const float *)logits.data)[i], wanted[i], 1e-4);
    rpi_instance_destroy(o.instance);
    rpi_program_destroy(o.program);
    rpi_session_destroy(o.session);
    close_vit(&o);
}

static void a_head_of_other_classes_starts_anew(void) {
    static opened o;
    char folder[600], note[4096];
    snprintf(folder, sizeof folder, "%s/vit", HUGGINGFACE_GOLDEN);
    REQUIRE_OK(open_vit(folder, CLASSES + 1, true, &o, note, sizeof note));
    CHECK_MSG(strstr(note, "2 of 40 tensors are missing in ") &&
                  strstr(note, " and start anew: classifier.weight, classifier.bias"),
              "%s", note);
    close_vit(&o);
    CHECK_FAILS(open_vit(folder, CLASSES + 1, false, &o, note, sizeof note), MISMATCH,
                "classifier.weight is of 5 classes; the data have 6");
    close_vit(&o);
}

/* ---- token by token ---- */

/* The largest difference of the logits behind the index-th token. */
static double difference(const opened *o, const float *logits, int index) {
    double most = 0;
    for (int i = 0; i < VOCABULARY; i++)
        most = fmax(most, fabs((double)logits[i] - (double)o->wanted[index * VOCABULARY + i]));
    return most;
}

static int largest(const float *logits) {
    int at = 0;
    for (int i = 1; i < VOCABULARY; i++)
        if (logits[i] > logits[at]) at = i;
    return at;
}

/* The prompt, then what was chosen, in pieces of `step` tokens. */
static void check_pieces(const rpi_trained_model *model, const opened *o, int step) {
    rpi_decoder *decoder = NULL;
    char note[2048];
    const float *logits = NULL;
    REQUIRE_OK(rpi_decoder_open(model, &(rpi_decoder_options){.memory = TOKENS, .threads = 1},
                                &decoder, note, sizeof note));
    REQUIRE_OK(rpi_decoder_read(decoder, o->tokens, PROMPT, &logits));
    for (int read = PROMPT; read < TOKENS; read += step) {
        CHECK_EQ(largest(logits), o->tokens[read]);
        int some = TOKENS - read < step ? TOKENS - read : step;
        REQUIRE_OK(rpi_decoder_read(decoder, o->tokens + read, some, &logits));
        double found = difference(o, logits, read + some - 1);
        CHECK_MSG(found <= 1e-4, "%d tokens at %d: logits differ by %g", step, read, found);
    }
    CHECK_FAILS(rpi_decoder_read(decoder, o->tokens, 1, &logits), INVALID,
                "1 tokens behind 40; there is memory for 40");
    rpi_decoder_close(decoder);
}

static void choices_are_those_of_transformers(void) {
    static const char *const names[] = {"gpt2",    "llama", "mistral",
                                        "llama31", "qwen2", "qwen3"};
    static opened o;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char folder[600], name[604];
        rpi_trained_model model;
        rpi_decoder_facts facts;
        snprintf(folder, sizeof folder, "%s/%s", HUGGINGFACE_GOLDEN, names[i]);
        snprintf(name, sizeof name, "hf:%s", folder);
        read_expected(folder, &o);
        REQUIRE_OK(rpi_trained_model_open(name, &model));
        REQUIRE_OK(rpi_decoder_examine(&model, &facts));
        CHECK_EQ(facts.positions, TOKENS);
        CHECK_EQ(facts.vocabulary, VOCABULARY);
        check_pieces(&model, &o, 1);
        check_pieces(&model, &o, 5);
        rpi_trained_model_close(&model);
    }
}

CASES({"GPT-2 is that of transformers", gpt2_is_that_of_transformers},
      {"LLaMA is that of transformers", llama_is_that_of_transformers},
      {"Mistral is that of transformers", mistral_is_that_of_transformers},
      {"LLaMA-3.1 is that of transformers", llama31_is_that_of_transformers},
      {"Qwen2 is that of transformers", qwen2_is_that_of_transformers},
      {"Qwen3 is that of transformers", qwen3_is_that_of_transformers},
      {"ViT is that of transformers", vit_is_that_of_transformers},
      {"a head of other classes starts anew", a_head_of_other_classes_starts_anew},
      {"choices are those of transformers", choices_are_those_of_transformers})
