/* BERT beside transformers in double precision (make_bert_golden.py), by its folders: logits,
 * losses and all gradients of one batch with padding, on every backend; and its folders out. */
#include "golden.h"
#include "train/huggingface/hf_config.h"
#include "train/huggingface/hf_export.h"
#include "train/huggingface/hf_weights.h"

#include "harness/check.h"
#include "solo.h"
#include "train/checkpoint/safetensors.h"
#include "train/data/token_samples.h"

#include <math.h>
#include <sys/stat.h>

enum { BATCH = 3, LENGTH = 11, PLACES = BATCH * LENGTH, VOCABULARY = 37, MOST = 4096 };
#define TOLERANCE 1e-4 /* of logits; relative L2 of gradients */

typedef struct opened {
    char folder[700], model[RPI_MODEL_TEXT], note[4096];
    rpi_network network;
    rpi_weights *weights;
    rpi_safetensors *expected;
    int32_t tokens[PLACES], segments[PLACES], documents[PLACES], labels[PLACES], next[BATCH];
    float scale, sample_scale;
} opened;

static void read_numbers(const opened *o, const char *name, rpi_shape shape, int32_t *out) {
    REQUIRE_OK(rpi_safetensors_read(o->expected, name, RP_I32, &shape, out));
}

static void read_floats(const opened *o, const char *name, rpi_shape shape, float *out) {
    REQUIRE_OK(rpi_safetensors_read(o->expected, name, RP_F32, &shape, out));
}

static void read_batch(opened *o) {
    const rpi_shape places = {2, {BATCH, LENGTH}};
    char path[800];
    snprintf(path, sizeof path, "%s/expected.safetensors", o->folder);
    REQUIRE_OK(rpi_safetensors_open(path, &o->expected));
    read_numbers(o, "tokens", places, o->tokens);
    read_numbers(o, "segments", places, o->segments);
    read_numbers(o, "documents", places, o->documents);
    read_numbers(o, "labels", places, o->labels);
    read_numbers(o, "next", (rpi_shape){1, {BATCH}}, o->next);
    int valid = 0;
    for (int i = 0; i < PLACES; i++) valid += o->labels[i] != RPI_LABEL_IGNORED;
    o->scale = 1.0f / (float)valid;
    o->sample_scale = 1.0f / BATCH;
}

static rp_status load(opened *o) {
    const rpi_hf_family *family = NULL;
    RP_TRY(rpi_hf_config_read(o->folder, o->model, &family));
    RP_TRY(rpi_network_build(o->model, &(rpi_data_shape){.sequence = LENGTH}, &o->network));
    RP_TRY(rpi_weights_create(o->network.graph, o->network.loss, &o->weights));
    return rpi_hf_load(o->folder, &o->network, o->weights, false, o->note, sizeof o->note);
}

static void open_folder(const char *name, opened *o) {
    *o = (opened){0};
    snprintf(o->folder, sizeof o->folder, "%s/%s", HUGGINGFACE_GOLDEN, name);
    read_batch(o);
    REQUIRE_OK(load(o));
    CHECK_MSG(!o->note[0], "%s", o->note);
}

static void close_folder(opened *o) {
    rpi_safetensors_close(o->expected);
    rpi_weights_destroy(o->weights);
    rpi_network_close(&o->network);
}

/* ---- one batch ---- */

static void run(opened *o, const rpi_backend *backend, bool training,
                rpi_instance **out_instance) {
    const rpi_network *n = &o->network;
    rpi_program_options options = {.training = training,
                                   .dimensions = {{"batch", BATCH}, {"sequence", LENGTH}},
                                   .result_count = 2,
                                   .results = {n->logits, n->sample_logits}};
    if (training) options.results[0] = n->label_loss, options.results[1] = n->sample_loss;
    const void *inputs[] = {o->tokens, o->segments, o->documents,    o->labels,
                            o->next,   &o->scale,   &o->sample_scale};
    REQUIRE_OK(solo_open(n->graph, o->weights, training ? n->loss : RPI_NO_VALUE, backend,
                         &options, out_instance));
    CHECK_OK(rpi_instance_run(*out_instance, &(rpi_run_options){.inputs = inputs}));
}

static const float *result_of(rpi_instance *instance, rpi_value_id value) {
    rpi_tensor tensor = {0};
    CHECK_OK(rpi_instance_result(instance, value, &tensor));
    return tensor.data;
}

/* Places of the padding see one another here, and the text there: nobody looks at them. */
static void check_logits(opened *o, const rpi_backend *backend) {
    static float wanted[PLACES * VOCABULARY];
    float next[BATCH * 2];
    double most = 0;
    rpi_instance *instance = NULL;
    read_floats(o, "logits", (rpi_shape){3, {BATCH, LENGTH, VOCABULARY}}, wanted);
    read_floats(o, "next_logits", (rpi_shape){2, {BATCH, 2}}, next);
    run(o, backend, false, &instance);
    const float *logits = result_of(instance, o->network.logits);
    for (int i = 0; i < PLACES * VOCABULARY; i++)
        if (!o->documents[i / VOCABULARY])
            most = fmax(most, fabs((double)logits[i] - (double)wanted[i]));
    const float *seen = result_of(instance, o->network.sample_logits);
    for (int i = 0; i < BATCH * 2; i++)
        most = fmax(most, fabs((double)seen[i] - (double)next[i]));
    CHECK_MSG(most <= TOLERANCE, "%s: logits differ by %g", backend->name, most);
    solo_close(instance);
}

static void check_gradients(const opened *o, const rpi_backend *backend) {
    static float wanted[MOST];
    for (int p = 0; p < o->network.parameter_count; p++) {
        const rpi_weight *w = rpi_weights_find(o->weights, o->network.parameters[p].name);
        char name[200];
        REQUIRE(w && w->count <= MOST);
        snprintf(name, sizeof name, "gradient.%s", w->name);
        read_floats(o, name, w->shape, wanted);
        double error =
            golden_distance(rpi_weights_gradients(o->weights) + w->first, wanted, w->count);
        CHECK_MSG(error <= TOLERANCE, "%s: gradient of %s is off by %.2e", backend->name,
                  w->name, error);
    }
}

static void check_losses(opened *o, const rpi_backend *backend) {
    float wanted[2];
    rpi_instance *instance = NULL;
    read_floats(o, "losses", (rpi_shape){1, {2}}, wanted);
    run(o, backend, true, &instance);
    float label = *result_of(instance, o->network.label_loss);
    float sample = *result_of(instance, o->network.sample_loss);
    CHECK_MSG(fabsf(label - wanted[0]) <= 1e-5f * wanted[0] &&
                  fabsf(sample - wanted[1]) <= 1e-5f * wanted[1],
              "%s: losses are %.7g and %.7g, not %.7g and %.7g", backend->name, (double)label,
              (double)sample, (double)wanted[0], (double)wanted[1]);
    check_gradients(o, backend);
    solo_close(instance);
}

static void check_folder_of(const char *name) {
    static opened o;
    open_folder(name, &o);
    for (int b = 0; rpi_backend_at(b); b++) {
        check_logits(&o, rpi_backend_at(b));
        check_losses(&o, rpi_backend_at(b));
    }
    close_folder(&o);
}

static void bert_is_that_of_transformers(void) {
    check_folder_of("bert");
}

static void megatrons_is_that_of_transformers(void) {
    check_folder_of("megatron-bert");
}

/* ---- out, and old files ---- */

/* A checkpoint of the parameters, under names that `rename` makes, or ours. */
static void write_tensors(opened *o, const char *path, const rpi_metadata *metadata, int count,
                          const char *(*rename)(const char *name, char text[RPI_HF_NAME])) {
    static rpi_named_tensor tensors[64];
    static char names[64][RPI_HF_NAME];
    int tensor_count = o->network.parameter_count;
    REQUIRE(tensor_count <= 64);
    for (int p = 0; p < tensor_count; p++) {
        const rpi_parameter *parameter = &o->network.parameters[p];
        const char *other = rename ? rename(parameter->name, names[p]) : NULL;
        tensors[p] =
            (rpi_named_tensor){other ? other : parameter->name, RP_F32, parameter->shape,
                               rpi_network_elements(&o->network, o->weights, p)};
    }
    CHECK_OK(rpi_safetensors_write(path, tensors, tensor_count, metadata, count));
}

static const char *path_of(const char *folder, const char *name) {
    static char path[2][800];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", check_folder(), folder);
    mkdir(path[turn], 0777);
    size_t used = strlen(path[turn]);
    if (*name) snprintf(path[turn] + used, sizeof path[turn] - used, "/%s", name);
    return path[turn];
}

static void check_same(const opened *a, const opened *b) {
    CHECK_MSG(strcmp(a->model, b->model) == 0, "%s, not %s", b->model, a->model);
    CHECK(rpi_weights_count(a->weights) == rpi_weights_count(b->weights));
    CHECK(memcmp(rpi_weights_values(a->weights), rpi_weights_values(b->weights),
                 (size_t)rpi_weights_count(a->weights) * sizeof(float)) == 0);
}

static void check_export(const char *name, const char *architecture) {
    static opened in, out;
    rpi_hf_exported done;
    char to[690], run_name[64];
    open_folder(name, &in);
    snprintf(run_name, sizeof run_name, "run-%s", name);
    const rpi_metadata metadata[] = {{"model", in.model}, {"step", "7"}};
    write_tensors(&in, path_of(run_name, "model.safetensors"), metadata, 2, NULL);
    snprintf(to, sizeof to, "%s/out-%s", check_folder(), name);
    REQUIRE_OK(rpi_hf_export(path_of(run_name, ""), to, false, &done));
    CHECK_MSG(strcmp(done.architecture, architecture) == 0, "%s", done.architecture);
    CHECK_EQ(done.step, 7);
    out = (opened){0};
    snprintf(out.folder, sizeof out.folder, "%s", to);
    REQUIRE_OK(load(&out));
    CHECK_MSG(!out.note[0], "%s", out.note);
    check_same(&in, &out);
    close_folder(&in);
    close_folder(&out);
}

static void both_go_out_and_come_back(void) {
    check_export("bert", "BertForPreTraining");
    check_export("megatron-bert", "MegatronBertForPreTraining");
}

static void copy_config(const opened *o, const char *to) {
    char text[4000], path[800];
    snprintf(path, sizeof path, "%s/config.json", o->folder);
    FILE *from = fopen(path, "r"), *stream = fopen(to, "w");
    REQUIRE(from && stream);
    fwrite(text, 1, fread(text, 1, sizeof text, from), stream);
    fclose(from);
    fclose(stream);
}

/* bert-base-uncased is such a file. */
static void gamma_and_beta_are_read(void) {
    static opened in, old;
    open_folder("bert", &in);
    old = (opened){0};
    snprintf(old.folder, sizeof old.folder, "%s", path_of("old", ""));
    copy_config(&in, path_of("old", "config.json"));
    write_tensors(&in, path_of("old", "model.safetensors"), NULL, 0, rpi_hf_old_name);
    REQUIRE_OK(load(&old));
    CHECK_MSG(!old.note[0], "%s", old.note);
    check_same(&in, &old);
    close_folder(&in);
    close_folder(&old);
}

CASES({"BERT is that of transformers", bert_is_that_of_transformers},
      {"Megatron's is that of transformers", megatrons_is_that_of_transformers},
      {"both go out and come back", both_go_out_and_come_back},
      {"gamma and beta are read", gamma_and_beta_are_read})
