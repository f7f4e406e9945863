/* BERT's head of spans beside transformers in double precision (make_spans_golden.py): logits,
 * loss and all gradients of one batch with padding, on every backend; its folders in and out,
 * and its start from a folder of pre-training. */
#include "golden.h"
#include "train/huggingface/hf_config.h"
#include "train/huggingface/hf_export.h"
#include "train/huggingface/hf_weights.h"

#include "harness/check.h"
#include "solo.h"
#include "train/checkpoint/safetensors.h"

#include <math.h>
#include <sys/stat.h>

enum { BATCH = 3, LENGTH = 11, PLACES = BATCH * LENGTH, ENDS = 2, MOST = 4096 };
#define TOLERANCE 1e-4 /* of logits; relative L2 of gradients */
#define FAR_BELOW (-1e9f)

typedef struct opened {
    char folder[700], model[RPI_MODEL_TEXT], note[4096];
    rpi_network network;
    rpi_weights *weights;
    rpi_safetensors *expected;
    int32_t tokens[PLACES], segments[PLACES], documents[PLACES], ends[BATCH * ENDS];
    float outside[BATCH * ENDS * LENGTH], scale;
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
    read_numbers(o, "ends", (rpi_shape){2, {BATCH, ENDS}}, o->ends);
    for (int i = 0; i < BATCH * ENDS * LENGTH; i++) {
        int row = i / (ENDS * LENGTH), place = i % LENGTH;
        o->outside[i] = o->documents[row * LENGTH + place] ? FAR_BELOW : 0;
    }
    o->scale = 1.0f / (BATCH * ENDS);
}

static rp_status load(opened *o, bool partial) {
    RP_TRY(rpi_network_build(o->model, &(rpi_data_shape){.sequence = LENGTH}, &o->network));
    RP_TRY(rpi_weights_create(o->network.graph, o->network.loss, &o->weights));
    rpi_network_initialise(&o->network, o->weights, 3);
    return rpi_hf_load(o->folder, &o->network, o->weights, partial, o->note, sizeof o->note);
}

static void open_folder(const char *folder, opened *o) {
    const rpi_hf_family *family = NULL;
    *o = (opened){0};
    snprintf(o->folder, sizeof o->folder, "%s", folder);
    REQUIRE_OK(rpi_hf_config_read(o->folder, o->model, &family));
    CHECK_MSG(strstr(o->model, ",spans=on"), "%s", o->model);
    REQUIRE_OK(load(o, false));
    CHECK_MSG(!o->note[0], "%s", o->note);
}

static void close_folder(opened *o) {
    rpi_safetensors_close(o->expected);
    rpi_weights_destroy(o->weights);
    rpi_network_close(&o->network);
}

static const char *golden_folder(const char *name) {
    static char path[700];
    snprintf(path, sizeof path, "%s/%s", HUGGINGFACE_GOLDEN, name);
    return path;
}

/* ---- one batch ---- */

static void run(opened *o, const rpi_backend *backend, bool training,
                rpi_instance **out_instance, const float **out_result) {
    const rpi_network *n = &o->network;
    rpi_program_options options = {.training = training,
                                   .dimensions = {{"batch", BATCH}, {"sequence", LENGTH}},
                                   .result_count = 1,
                                   .results = {training ? n->loss : n->logits}};
    const void *inputs[] = {o->tokens,  o->segments, o->documents,
                            o->outside, o->ends,     &o->scale};
    rpi_tensor tensor = {0};
    REQUIRE_OK(solo_open(n->graph, o->weights, training ? n->loss : RPI_NO_VALUE, backend,
                         &options, out_instance));
    CHECK_OK(rpi_instance_run(*out_instance, &(rpi_run_options){.inputs = inputs}));
    CHECK_OK(rpi_instance_result(*out_instance, options.results[0], &tensor));
    *out_result = tensor.data;
}

static void check_logits(opened *o, const rpi_backend *backend) {
    static float wanted[BATCH * ENDS * LENGTH];
    double most = 0;
    const float *logits = NULL;
    rpi_instance *instance = NULL;
    read_floats(o, "logits", (rpi_shape){3, {BATCH, ENDS, LENGTH}}, wanted);
    run(o, backend, false, &instance, &logits);
    for (int i = 0; i < BATCH * ENDS * LENGTH; i++)
        if (o->outside[i] == 0) most = fmax(most, fabs((double)logits[i] - (double)wanted[i]));
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

static void check_loss(opened *o, const rpi_backend *backend) {
    float wanted;
    const float *loss = NULL;
    rpi_instance *instance = NULL;
    read_floats(o, "loss", (rpi_shape){0}, &wanted);
    run(o, backend, true, &instance, &loss);
    CHECK_MSG(fabsf(*loss - wanted) <= 1e-5f * wanted, "%s: the loss is %.7g, not %.7g",
              backend->name, (double)*loss, (double)wanted);
    check_gradients(o, backend);
    solo_close(instance);
}

static void spans_are_those_of_transformers(void) {
    static opened o;
    open_folder(golden_folder("bert-spans"), &o);
    read_batch(&o);
    for (int b = 0; rpi_backend_at(b); b++) {
        check_logits(&o, rpi_backend_at(b));
        check_loss(&o, rpi_backend_at(b));
    }
    close_folder(&o);
}

/* ---- folders ---- */

static void write_run(const opened *o, const char *folder) {
    static rpi_named_tensor tensors[64];
    char path[800];
    const rpi_metadata metadata[] = {{"model", o->model}, {"step", "7"}};
    REQUIRE(o->network.parameter_count <= 64);
    for (int p = 0; p < o->network.parameter_count; p++)
        tensors[p] = (rpi_named_tensor){o->network.parameters[p].name, RP_F32,
                                        o->network.parameters[p].shape,
                                        rpi_network_elements(&o->network, o->weights, p)};
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECK_OK(rpi_safetensors_write(path, tensors, o->network.parameter_count, metadata, 2));
}

static void they_go_out_and_come_back(void) {
    static opened in, out;
    rpi_hf_exported done;
    char run_folder[690], to[690];
    open_folder(golden_folder("bert-spans"), &in);
    snprintf(run_folder, sizeof run_folder, "%s/run", check_folder());
    snprintf(to, sizeof to, "%s/out", check_folder());
    write_run(&in, run_folder);
    REQUIRE_OK(rpi_hf_export(run_folder, to, false, &done));
    CHECK_MSG(strcmp(done.architecture, "BertForQuestionAnswering") == 0, "%s",
              done.architecture);
    open_folder(to, &out);
    CHECK_MSG(strcmp(in.model, out.model) == 0, "%s, not %s", out.model, in.model);
    CHECK(memcmp(rpi_weights_values(in.weights), rpi_weights_values(out.weights),
                 (size_t)rpi_weights_count(in.weights) * sizeof(float)) == 0);
    close_folder(&in);
    close_folder(&out);
}

/* What both have is the folder's, the new head is as its rule begins it, and said. */
static void check_start_from(const char *name) {
    static opened o;
    const rpi_hf_family *family = NULL;
    o = (opened){0};
    snprintf(o.folder, sizeof o.folder, "%s", golden_folder(name));
    REQUIRE_OK(rpi_hf_config_read(o.folder, o.model, &family));
    CHECK(!strstr(o.model, "spans"));
    REQUIRE_OK(rpi_model_add_head(o.model, "spans"));
    CHECK_MSG(strstr(o.model, ",spans=on"), "%s", o.model);
    REQUIRE_OK(load(&o, true));
    CHECK_MSG(strstr(o.note, "2 of ") &&
                  strstr(o.note, "start anew: qa_outputs.weight, qa_outputs.bias"),
              "%s", o.note);
    CHECK_MSG(strstr(o.note, "of no use to model bert are 9"), "%s", o.note);
    const rpi_weight *head = rpi_weights_find(o.weights, "qa_outputs.weight");
    const float *values = rpi_weights_values(o.weights) + head->first;
    double squares = 0;
    for (int64_t i = 0; i < head->count; i++) squares += (double)values[i] * (double)values[i];
    CHECK_NEAR(sqrt(squares / (double)head->count), 0.02, 0.008);
    close_folder(&o);
}

static void pre_training_is_a_start(void) {
    check_start_from("bert");
    check_start_from("megatron-bert");
}

CASES({"spans are those of transformers", spans_are_those_of_transformers},
      {"they go out and come back", they_go_out_and_come_back},
      {"pre-training is a start", pre_training_is_a_start})
