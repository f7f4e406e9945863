#include "train/checkpoint.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/checkpoint_files.h"
#include "train/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A whole number in the metadata. */
static rp_status read_number(const rpi_safetensors *file, const char *path, const char *key,
                             int64_t min, int64_t max, int64_t *out_number) {
    const char *text = rpi_safetensors_metadata(file, key);
    char *end = NULL;
    long long number = text ? strtoll(text, &end, 10) : 0;
    if (!text || end == text || *end || number < min || number > max)
        return RP_FAIL(CORRUPT, "%s is no checkpoint of redpoll: its %s is %s%s%s", path, key,
                       text ? "'" : "", text ? text : "missing", text ? "'" : "");
    *out_number = number;
    return RP_OK;
}

static rp_status check_model(const rpi_safetensors *file, const char *path, const char *model,
                             const char *shape) {
    const char *has = rpi_safetensors_metadata(file, "model");
    const char *has_shape = rpi_safetensors_metadata(file, "shape");
    if (!has || !has_shape) return RP_FAIL(CORRUPT, "%s is no checkpoint of redpoll", path);
    if (strcmp(has, model) != 0)
        return RP_FAIL(MISMATCH, "%s holds the model %s, not %s", path, has, model);
    if (shape && strcmp(has_shape, shape) != 0)
        return RP_FAIL(MISMATCH, "%s holds the model %s for %s, not for %s", path, has,
                       has_shape, shape);
    return RP_OK;
}

static rp_status read_model(rpi_trainer *t, const rpi_safetensors *file) {
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_parameter *parameter = &t->network.parameters[i];
        const rpi_weight *weight = rpi_weights_of(t->weights, parameter->value);
        RP_TRY(rpi_safetensors_read_finite(file, parameter->name, &parameter->shape,
                                           rpi_network_elements(&t->network, t->weights, i)));
        for (int s = 0; s < t->optimizer->slot_count && !parameter->is_state; s++) {
            char name[RPI_CHECKPOINT_NAME];
            rpi_checkpoint_slot_name(t->optimizer, s, parameter->name, name);
            RP_TRY(rpi_safetensors_read_finite(file, name, &parameter->shape,
                                               t->slots[s] + weight->first));
        }
    }
    rpi_weights_changed(t->weights, 0, rpi_weights_count(t->weights));
    return RP_OK;
}

static rp_status read_own_states(rpi_trainer *t, const rpi_safetensors *file) {
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_parameter *parameter = &t->network.parameters[i];
        if (!parameter->is_state) continue;
        char name[RPI_CHECKPOINT_NAME];
        rpi_checkpoint_entry_name("state", parameter->name, name);
        RP_TRY(rpi_safetensors_read_finite(file, name, &parameter->shape,
                                           rpi_network_elements(&t->network, t->weights, i)));
    }
    return RP_OK;
}

/* Add a rank's residual to the sums. */
static rp_status add_residual(rpi_trainer *t, const rpi_safetensors *file, float *scratch,
                              double *sums) {
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_parameter *parameter = &t->network.parameters[i];
        if (parameter->is_state || !rpi_parameter_compresses(parameter)) continue;
        const rpi_weight *weight = rpi_weights_of(t->weights, parameter->value);
        char name[RPI_CHECKPOINT_NAME];
        rpi_checkpoint_entry_name("residual", parameter->name, name);
        RP_TRY(rpi_safetensors_read_finite(file, name, &parameter->shape, scratch));
        for (int64_t e = 0; e < weight->count; e++)
            sums[weight->first + e] += (double)scratch[e];
    }
    return RP_OK;
}

static rp_status open_rank(const char *folder, int rank, int world, int64_t step,
                           rpi_safetensors **out_file) {
    char path[RPI_CHECKPOINT_PATH];
    rpi_checkpoint_rank_path(folder, rank, world, step, path);
    rp_status status = rpi_safetensors_open(path, out_file);
    return status == RP_OK
               ? status
               : rpi_fail_context(status, "the part of rank %d of the checkpoint: ", rank);
}

/* The sum over all old ranks, in double, and our part of it. */
static rp_status gather_residuals(rpi_trainer *t, const char *folder, int world, int64_t step,
                                  float *scratch, double *sums) {
    for (int rank = 0; rank < world; rank++) {
        rpi_safetensors *file = NULL;
        RP_TRY(open_rank(folder, rank, world, step, &file));
        rp_status status = add_residual(t, file, scratch, sums);
        rpi_safetensors_close(file);
        RP_TRY(status);
    }
    int64_t count = rpi_weights_count(t->weights);
    for (int64_t e = 0; e < count; e++) t->residual[e] = (float)(sums[e] / t->world);
    return RP_OK;
}

/* Another number of ranks: each takes an equal part of all that is owed. */
static rp_status share_residuals(rpi_trainer *t, const char *folder, int world, int64_t step) {
    size_t count = (size_t)rpi_weights_count(t->weights);
    float *scratch = NULL;
    double *sums = NULL;
    rp_status status = rpi_alloc_array(count, sizeof *scratch, "error feedback", &scratch);
    if (status == RP_OK) status = rpi_alloc_array(count, sizeof *sums, "error feedback", &sums);
    if (status == RP_OK) status = gather_residuals(t, folder, world, step, scratch, sums);
    rpi_free(scratch);
    rpi_free(sums);
    return status;
}

static rp_status read_own_residual(rpi_trainer *t, const rpi_safetensors *file) {
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_parameter *parameter = &t->network.parameters[i];
        if (parameter->is_state || !rpi_parameter_compresses(parameter)) continue;
        char name[RPI_CHECKPOINT_NAME];
        rpi_checkpoint_entry_name("residual", parameter->name, name);
        RP_TRY(rpi_safetensors_read_finite(
            file, name, &parameter->shape,
            t->residual + rpi_weights_of(t->weights, parameter->value)->first));
    }
    return RP_OK;
}

static rp_status read_rank(rpi_trainer *t, const char *folder, int64_t world, int64_t step,
                           bool feedback) {
    if (!rpi_checkpoint_has_rank_files(t, world, feedback)) return RP_OK;
    if (world != t->world)
        return t->residual && feedback ? share_residuals(t, folder, (int)world, step) : RP_OK;
    rpi_safetensors *file = NULL;
    RP_TRY(open_rank(folder, t->rank, t->world, step, &file));
    rp_status status = read_own_states(t, file);
    if (status == RP_OK && t->residual && feedback) status = read_own_residual(t, file);
    rpi_safetensors_close(file);
    return status;
}

/* What the user may not expect: another order of images, or another number of ranks. */
static void note_changes(const rpi_trainer *t, int64_t world, int64_t seed, int64_t batch,
                         bool feedback, char *note, size_t bytes) {
    size_t used = 0;
    note[0] = '\0';
    if (world != t->world)
        used += (size_t)snprintf(note + used, bytes - used,
                                 "saved by %lld ranks, continued by %d; ", (long long)world,
                                 t->world);
    if (seed != t->options->seed && used < bytes)
        used += (size_t)snprintf(note + used, bytes - used, "the seed was %lld, now %lld; ",
                                 (long long)seed, (long long)t->options->seed);
    if (batch != t->global_batch && used < bytes)
        used +=
            (size_t)snprintf(note + used, bytes - used, "the global batch was %lld, now %lld; ",
                             (long long)batch, (long long)t->global_batch);
    if (feedback && !t->residual && used < bytes)
        used += (size_t)snprintf(note + used, bytes - used,
                                 "its error feedback has no use here and is dropped; ");
    if (used >= 2 && used < bytes) note[used - 2] = '\0';
}

static rp_status load(rpi_trainer *t, const char *folder, const char *path,
                      const rpi_safetensors *file, char *note, size_t note_bytes) {
    int64_t step, world, seed, batch;
    char shape[64];
    rpi_checkpoint_shape_text(t, shape, sizeof shape);
    RP_TRY(check_model(file, path, t->network.text, shape));
    RP_TRY(read_number(file, path, "step", 0, INT64_MAX, &step));
    RP_TRY(read_number(file, path, "world", 1, 1 << 20, &world));
    RP_TRY(read_number(file, path, "seed", INT64_MIN, INT64_MAX, &seed));
    RP_TRY(read_number(file, path, "global_batch_size", 1, INT64_MAX, &batch));
    const char *kept = rpi_safetensors_metadata(file, "error_feedback");
    bool feedback = kept && strcmp(kept, "on") == 0;
    RP_TRY(read_model(t, file));
    RP_TRY(read_rank(t, folder, world, step, feedback));
    note_changes(t, world, seed, batch, feedback, note, note_bytes);
    t->step = t->good_step = step;
    snprintf(t->good_folder, sizeof t->good_folder, "%s", folder);
    return RP_OK;
}

rp_status rpi_checkpoint_load(rpi_trainer *t, const char *folder, char *note,
                              size_t note_bytes) {
    char path[RPI_CHECKPOINT_PATH];
    rpi_safetensors *file = NULL;
    RP_TRY(rpi_safetensors_open(rpi_checkpoint_path(folder, path, sizeof path), &file));
    rp_status status = load(t, folder, path, file, note, note_bytes);
    rpi_safetensors_close(file);
    return status;
}

rp_status rpi_checkpoint_check(const rpi_train_options *options) {
    char path[RPI_CHECKPOINT_PATH];
    rpi_safetensors *file = NULL;
    RP_TRY(
        rpi_safetensors_open(rpi_checkpoint_path(options->resume, path, sizeof path), &file));
    rp_status status = check_model(file, path, options->model, NULL);
    rpi_safetensors_close(file);
    return status;
}
