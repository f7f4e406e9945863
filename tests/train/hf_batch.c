/* What a model of a Hugging Face folder makes of one batch, for tests in other languages:
 *
 *     hf_batch run FOLDER BATCH FOUND      logits, losses and gradients of a batch of its task
 *     hf_batch data DATA LENGTH COUNT OUT  the first held-out samples of data
 *
 * Files are safetensors. A batch holds the task's inputs by their names, and `scale` and
 * `sample_scale` of the losses; what is found, for each backend, BACKEND.logits and
 * .sample_logits of an evaluation and .loss, .sample_loss and .gradient.NAME of a step of
 * training. Tensors that the folder lacks begin as those of a new model, which is printed; a
 * folder that is refused is an exit code of 1 and the message. */
#include "base/memory.h"
#include "engine/backend.h"
#include "harness/check.h"
#include "solo.h"
#include "train/checkpoint/safetensors.h"
#include "train/data/source.h"
#include "train/huggingface/hf_config.h"
#include "train/huggingface/hf_weights.h"

#include <stdlib.h>

enum { MOST_TENSORS = 4096, LONGEST_NAME = 300, MOST_AXES = 4 };

typedef struct batch {
    rpi_safetensors *file;
    void *inputs[RPI_TASK_INPUTS + 2];
    int64_t count, length;
} batch;

typedef struct found {
    rpi_named_tensor tensors[MOST_TENSORS];
    char names[MOST_TENSORS][LONGEST_NAME];
    int count;
} found;

static rp_status read_input(batch *b, const char *name, int index, rpi_shape *out_shape) {
    const rpi_named_tensor *tensor = rpi_safetensors_find(b->file, name);
    if (!tensor) return RP_FAIL(NOT_FOUND, "the batch has no '%s'", name);
    size_t bytes = rp_dtype_bytes(tensor->dtype);
    RP_TRY(rpi_alloc_array((size_t)rpi_shape_count(&tensor->shape), bytes, name,
                           &b->inputs[index]));
    *out_shape = tensor->shape;
    return rpi_safetensors_read(b->file, name, tensor->dtype, &tensor->shape, b->inputs[index]);
}

static rp_status read_batch(const char *path, const rpi_task *task, batch *b) {
    rpi_shape shape;
    int i = 0;
    RP_TRY(rpi_safetensors_open(path, &b->file));
    for (; i < task->input_count; i++) {
        RP_TRY(read_input(b, task->inputs[i].name, i, &shape));
        if (i == 0) b->count = shape.size[0], b->length = shape.size[1];
    }
    RP_TRY(read_input(b, "scale", i, &shape));
    return task->sample_metric ? read_input(b, "sample_scale", i + 1, &shape) : RP_OK;
}

static void keep(found *f, const char *backend, const char *name, rpi_shape shape,
                 const float *values) {
    size_t bytes = (size_t)rpi_shape_count(&shape) * sizeof(float);
    float *copy = malloc(bytes);
    if (!copy || f->count == MOST_TENSORS) abort();
    memcpy(copy, values, bytes);
    snprintf(f->names[f->count], LONGEST_NAME, "%s.%s", backend, name);
    f->tensors[f->count] = (rpi_named_tensor){f->names[f->count], RP_F32, shape, copy};
    f->count++;
}

static rp_status keep_result(found *f, const char *backend, const char *name,
                             rpi_instance *instance, rpi_value_id value) {
    rpi_tensor tensor;
    if (value == RPI_NO_VALUE) return RP_OK;
    RP_TRY(rpi_instance_result(instance, value, &tensor));
    keep(f, backend, name, tensor.shape, tensor.data);
    return RP_OK;
}

/* As the folder has the tensor: under its name, and turned where that is. */
static void keep_gradient(found *f, const char *backend, const rpi_hf_family *family,
                          const rpi_weight *w, const float *gradient) {
    char theirs[RPI_HF_NAME], name[RPI_HF_NAME + 16];
    float *turned = NULL;
    rpi_shape shape = w->shape;
    const rpi_hf_tensor *row = rpi_hf_tensor_find(family, w->name, NULL, theirs);
    if (!row) return;
    if (row->transposed) {
        turned = malloc((size_t)w->count * sizeof *turned);
        if (!turned) abort();
        rpi_hf_transpose(gradient, shape.size[0], shape.size[1], turned);
        shape = (rpi_shape){2, {shape.size[1], shape.size[0]}};
    }
    snprintf(name, sizeof name, "gradient.%s", theirs);
    keep(f, backend, name, shape, turned ? turned : gradient);
    free(turned);
}

static void keep_gradients(found *f, const char *backend, const rpi_hf_family *family,
                           const rpi_network *n, rpi_weights *weights) {
    for (int p = 0; p < n->parameter_count; p++) {
        const rpi_weight *w = rpi_weights_find(weights, n->parameters[p].name);
        if (w && !n->parameters[p].is_state)
            keep_gradient(f, backend, family, w, rpi_weights_gradients(weights) + w->first);
    }
}

/* Both losses of a task that has two. */
static rp_status run(const rpi_hf_family *family, const rpi_network *n, rpi_weights *weights,
                     const rpi_backend *backend, const batch *b, bool training, found *f) {
    bool has_two = n->task->sample_metric != NULL;
    rpi_value_id first = training ? (has_two ? n->label_loss : n->loss) : n->logits;
    rpi_value_id second = training ? n->sample_loss : n->sample_logits;
    rpi_program_options options = {.training = training,
                                   .dimensions = {{"batch", b->count}, {"sequence", b->length}},
                                   .result_count = has_two ? 2 : 1,
                                   .results = {first, second}};
    rpi_instance *instance = NULL;
    const void *inputs[RPI_NETWORK_INPUTS] = {0};
    memcpy(inputs, b->inputs, sizeof b->inputs);
    RP_TRY(solo_open(n->graph, weights, training ? n->loss : RPI_NO_VALUE, backend, &options,
                     &instance));
    rp_status status = rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs});
    const char *name = backend->name;
    if (status == RP_OK)
        status = keep_result(f, name, training ? "loss" : "logits", instance, first);
    if (status == RP_OK && has_two)
        status =
            keep_result(f, name, training ? "sample_loss" : "sample_logits", instance, second);
    if (status == RP_OK && training) keep_gradients(f, name, family, n, weights);
    solo_close(instance);
    return status;
}

static rp_status run_folder(const char *folder, const char *batch_path, const char *out) {
    static batch b;
    static found f;
    rpi_network n;
    rpi_weights *weights = NULL;
    rpi_model_choice choice;
    char model[RPI_MODEL_TEXT], note[4096];
    const rpi_hf_family *family = NULL;
    RP_TRY(rpi_hf_config_read(folder, model, &family));
    RP_TRY(rpi_model_parse(model, &choice));
    RP_TRY(read_batch(batch_path, rpi_task_find(rpi_model_task(&choice)), &b));
    RP_TRY(rpi_network_build(model, &(rpi_data_shape){.sequence = (int)b.length}, &n));
    RP_TRY(rpi_weights_create(n.graph, n.loss, &weights));
    rpi_network_initialise(&n, weights, 1);
    RP_TRY(rpi_hf_load(folder, &n, weights, true, note, sizeof note));
    printf("%s\n%s\n", model, note);
    for (int i = 0; rpi_backend_at(i); i++) {
        RP_TRY(run(family, &n, weights, rpi_backend_at(i), &b, false, &f));
        RP_TRY(run(family, &n, weights, rpi_backend_at(i), &b, true, &f));
    }
    return rpi_safetensors_write(out, f.tensors, f.count, NULL, 0);
}

/* ---- data ---- */

/* A source of tokens has no other axes than these, and numbers. */
static int64_t size_of(const char *axis, int64_t count, int64_t length) {
    const rpi_data_shape shape = {.sequence = (int)length};
    return strcmp(axis, "batch") == 0 ? count : rpi_data_axis(&shape, axis);
}

static rp_status write_samples(const char *data, int64_t length, int64_t count,
                               const char *out) {
    rpi_source source;
    rpi_source_batch samples;
    rpi_named_tensor tensors[RPI_TASK_INPUTS];
    rpi_source_options options = {
        .data = data, .sequence = length, .global_batch = 1, .most = count, .world = 1};
    RP_TRY(rpi_source_open(&options, &source));
    const rpi_task *task = rpi_task_find(source.kind->task);
    RP_TRY(rpi_source_hold_out(&source, 0, count, &samples));
    for (int i = 0; i < task->input_count; i++) {
        const rpi_task_input *input = &task->inputs[i];
        tensors[i] = (rpi_named_tensor){
            .name = input->name, .dtype = input->dtype, .data = samples.inputs[i]};
        for (int a = 0; a < MOST_AXES && input->axes[a]; a++)
            tensors[i].shape.size[tensors[i].shape.dims++] =
                size_of(input->axes[a], count, length);
    }
    rp_status status = rpi_safetensors_write(out, tensors, task->input_count, NULL, 0);
    printf("%lld of %lld samples\n", (long long)count, (long long)source.test_count);
    rpi_source_close(&source);
    return status;
}

int main(int count, char **words) {
    rp_status status = RP_INVALID;
    if (count == 5 && strcmp(words[1], "run") == 0)
        status = run_folder(words[2], words[3], words[4]);
    else if (count == 6 && strcmp(words[1], "data") == 0)
        status = write_samples(words[2], strtoll(words[3], NULL, 10),
                               strtoll(words[4], NULL, 10), words[5]);
    else
        fprintf(stderr,
                "usage: hf_batch run FOLDER BATCH FOUND | data DATA LENGTH COUNT OUT\n");
    if (status != RP_OK) fprintf(stderr, "%s\n", rp_last_error()->message);
    return status == RP_OK ? 0 : 1;
}
