#include "train/checkpoint/checkpoint_files.h"

#include "train/checkpoint/rank_checksums.h"

#include "train/checkpoint/checkpoint.h"

#include "base/status.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *rpi_checkpoint_path(const char *folder, char *path, size_t bytes) {
    snprintf(path, bytes, "%s/model.safetensors", folder);
    return path;
}

void rpi_checkpoint_earlier_path(const char *folder, int64_t step,
                                 char path[RPI_CHECKPOINT_PATH]) {
    snprintf(path, RPI_CHECKPOINT_PATH, "%s/model-step-%lld.safetensors", folder,
             (long long)step);
}

bool rpi_checkpoint_is_earlier(const char *name, int64_t *out_step) {
    long long step = 0;
    int used = 0;
    if (sscanf(name, "model-step-%lld.safetensors%n", &step, &used) != 1) return false;
    if (!used || name[used] || step < 0) return false;
    *out_step = step;
    return true;
}

int rpi_checkpoint_earlier(const char *folder, int64_t *steps, int most) {
    int count = 0;
    DIR *stream = opendir(folder);
    if (!stream) return 0;
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        int64_t step = 0;
        if (!rpi_checkpoint_is_earlier(entry->d_name, &step)) continue;
        int at = count < most ? count++ : most;
        while (at > 0 && steps[at - 1] < step) {
            if (at < most) steps[at] = steps[at - 1];
            at--;
        }
        if (at < most) steps[at] = step;
    }
    closedir(stream);
    return count;
}

void rpi_checkpoint_rank_path(const char *folder, int rank, int world, int64_t step,
                              char path[RPI_CHECKPOINT_PATH]) {
    snprintf(path, RPI_CHECKPOINT_PATH, "%s/rank-%d-of-%d-step-%lld.safetensors", folder, rank,
             world, (long long)step);
}

bool rpi_checkpoint_has_rank_files(const rpi_trainer *t, int64_t world, bool differs,
                                   bool keeps) {
    if (t->network.memory_count || keeps) return true;
    return world > 1 && (differs || rpi_weights_state_count(t->weights) > 0);
}

bool rpi_checkpoint_keeps_alone(const rpi_trainer *t) {
    float *states[RPI_STRATEGY_STATES];
    return t->place.holders == 1 && t->strategy->states &&
           t->strategy->states(t->strategy_self, states) > 0;
}

bool rpi_checkpoint_in_pieces(const rpi_trainer *t) {
    if (rpi_trainer_has_part(t)) return true;
    return t->options->checkpoint_pieces && t->place.world > 1 &&
           !t->strategy->replicas_differ && !t->place.servers;
}

void rpi_checkpoint_part_text(int rank, int world, int64_t step, char *text, size_t bytes) {
    snprintf(text, bytes, "rank %d of %d of step %lld", rank, world, (long long)step);
}

void rpi_checkpoint_shape_text(const rpi_trainer *t, char *text, size_t bytes) {
    t->network.task->describe(&t->source.shape, text, bytes);
}

void rpi_checkpoint_slot_name(const rpi_optimizer_state *optimizer, int slot,
                              const char *parameter, char name[RPI_CHECKPOINT_NAME]) {
    snprintf(name, RPI_CHECKPOINT_NAME, "optimizer.%s.%s",
             rpi_optimizer_state_slot_name(optimizer, slot), parameter);
}

const rpi_shape *rpi_checkpoint_own_shape(const rpi_trainer *t,
                                          const rpi_parameter *parameter) {
    return &rpi_graph_value(t->network.graph, parameter->value)->shape;
}

int rpi_checkpoint_slots(const rpi_trainer *t) {
    return rpi_trainer_passes_values(t) ? t->optimizer.kind->slot_count
                                        : t->optimizer.slot_count;
}

void rpi_checkpoint_entry_name(const char *kind, const char *parameter,
                               char name[RPI_CHECKPOINT_NAME]) {
    snprintf(name, RPI_CHECKPOINT_NAME, "%s.%s", kind, parameter);
}

void rpi_checkpoint_memory(const rpi_trainer *t, int layer, char name[RPI_CHECKPOINT_NAME],
                           rpi_shape *out_shape) {
    const rpi_network *network = &t->network;
    rpi_checkpoint_entry_name(
        "memory", rpi_graph_value(network->graph, network->memories[layer])->name, name);
    *out_shape = (rpi_shape){
        3, {t->memories.rows, t->memories.length, rpi_memories_width(&t->memories, layer)}};
}

int rpi_checkpoint_own_vectors(const rpi_trainer *t,
                               rpi_checkpoint_vector out_vectors[RPI_CHECKPOINT_OWN]) {
    const rpi_strategy *strategy = t->strategy;
    float *states[RPI_STRATEGY_STATES];
    int count = 0, kept = strategy->states ? strategy->states(t->strategy_self, states) : 0;
    if (!strategy->replicas_differ) return 0;
    out_vectors[count++] =
        (rpi_checkpoint_vector){.kind = "value", .arena = rpi_weights_values(t->weights)};
    for (int s = 0; s < t->optimizer.kind->slot_count; s++) {
        rpi_checkpoint_vector *slot = &out_vectors[count++];
        snprintf(slot->kind, sizeof slot->kind, "optimizer.%s",
                 t->optimizer.kind->slot_names[s]);
        slot->arena = rpi_optimizer_state_slot(&t->optimizer, s, 0);
    }
    for (int i = 0; i < kept; i++) {
        rpi_checkpoint_vector *state = &out_vectors[count++];
        snprintf(state->kind, sizeof state->kind, "%s.%d", strategy->name, i);
        state->arena = states[i];
    }
    return count;
}

/* ---- what every reader checks ---- */

rp_status rpi_checkpoint_number(const rpi_safetensors *file, const char *path, const char *key,
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

rp_status rpi_checkpoint_check_writer(const rpi_safetensors *file, const char *path) {
    if (rpi_safetensors_is_verified(file)) return RP_OK;
    return RP_FAIL(CORRUPT,
                   "%s has no checksum, as every checkpoint of redpoll has: it is damaged, or "
                   "of another writer",
                   path);
}

static rp_status check_part(const rpi_safetensors *file, const char *path, int rank, int world,
                            int64_t step) {
    char wanted[64];
    const char *part = rpi_safetensors_metadata(file, "part");
    rpi_checkpoint_part_text(rank, world, step, wanted, sizeof wanted);
    RP_TRY(rpi_checkpoint_check_writer(file, path));
    if (part && strcmp(part, wanted) == 0) return RP_OK;
    return RP_FAIL(CORRUPT, "%s is the part of %s, not of %s", path, part ? part : "no rank",
                   wanted);
}

rp_status rpi_checkpoint_open_rank(const rpi_safetensors *model, const char *folder, int rank,
                                   int world, int64_t step, rpi_safetensors **out_file) {
    char path[RPI_CHECKPOINT_PATH];
    rpi_safetensors *file = NULL;
    rpi_checkpoint_rank_path(folder, rank, world, step, path);
    rp_status status = rpi_safetensors_open(path, &file);
    if (status == RP_OK) status = check_part(file, path, rank, world, step);
    if (status == RP_OK) status = rpi_rank_checksums_check(model, file, rank);
    if (status == RP_OK) {
        *out_file = file;
        return RP_OK;
    }
    rpi_safetensors_close(file);
    return rpi_fail_context(status, "the part of rank %d of the checkpoint: ", rank);
}
