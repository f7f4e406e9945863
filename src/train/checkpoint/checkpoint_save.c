#include "train/checkpoint/checkpoint.h"

#include "base/memory.h"
#include "base/status.h"
#include "redpoll/version.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/piece_files.h"
#include "train/checkpoint/rank_checksums.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/tensor_list.h"
#include "train/checkpoint/whole_slots.h"
#include "train/consensus.h"
#include "train/divergence.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What rank 0 writes for all ranks. */
typedef struct of_all {
    float *states; /* the means of running statistics */
    rpi_whole_slots slots;
    char *rank_checksums; /* NULL: there are no rank files */
} of_all;

static const float *values_of(const rpi_trainer *t, const of_all *all,
                              const rpi_weight *weight) {
    if (rpi_trainer_passes_values(t))
        return rpi_whole_slots_at(&all->slots, t, t->optimizer.kind->slot_count, weight->first);
    return rpi_weights_value_at(t->weights, weight->index);
}

static void list_model(const rpi_trainer *t, const of_all *all, rpi_tensor_list *list) {
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_parameter *parameter = &t->network.parameters[i];
        const rpi_weight *weight = rpi_weights_find(t->weights, parameter->name);
        if (rpi_trainer_has_part(t)) continue;
        if (!parameter->is_state && rpi_checkpoint_in_pieces(t)) continue;
        snprintf(rpi_tensor_list_name(list), RPI_CHECKPOINT_NAME, "%s", parameter->name);
        rpi_tensor_list_add(list, parameter,
                            parameter->is_state ? all->states + weight->first
                                                : values_of(t, all, weight));
        for (int s = 0; s < rpi_checkpoint_slots(t) && !parameter->is_state; s++) {
            rpi_checkpoint_slot_name(&t->optimizer, s, parameter->name,
                                     rpi_tensor_list_name(list));
            rpi_tensor_list_add(list, parameter,
                                rpi_whole_slots_at(&all->slots, t, s, weight->first));
        }
    }
}

/* One character a parameter, '0' for level 0; empty if no bits are chosen. Allocated. */
static rp_status levels_text(const rpi_trainer *t, char **out_text) {
    size_t count = t->levels ? (size_t)t->network.parameter_count : 0;
    RP_TRY(rpi_alloc(count + 1, "bits of tensors", out_text));
    for (size_t i = 0; i < count; i++) (*out_text)[i] = (char)('0' + t->levels[i]);
    (*out_text)[count] = '\0';
    return RP_OK;
}

enum { MODEL_METADATA = 22 };

static rp_status write_model_with(const rpi_trainer *t, const char *folder, const of_all *all,
                                  const char *levels) {
    char step[24], world[24], parts[24], stages[24], tensor[24], seed[24], batch[24], shape[64],
        lossy_from[24], codec[RP_ADAPTIVE_TEXT], path[RPI_CHECKPOINT_PATH];
    rpi_metadata metadata[MODEL_METADATA] = {{0}};
    size_t entries = 0;
    snprintf(step, sizeof step, "%lld", (long long)t->step);
    snprintf(world, sizeof world, "%d", t->place.world);
    snprintf(parts, sizeof parts, "%d", t->place.workers);
    snprintf(stages, sizeof stages, "%d", t->place.grid.size[RPI_AXIS_STAGE]);
    snprintf(tensor, sizeof tensor, "%d", t->place.grid.size[RPI_AXIS_TENSOR]);
    snprintf(seed, sizeof seed, "%lld", (long long)t->options->seed);
    snprintf(batch, sizeof batch, "%lld", (long long)t->global_batch);
    snprintf(lossy_from, sizeof lossy_from, "%lld", (long long)t->lossy_from);
    rpi_checkpoint_shape_text(t, shape, sizeof shape);
    metadata[entries++] = (rpi_metadata){"format", "pt"};
    metadata[entries++] = (rpi_metadata){"redpoll", rp_version()};
    metadata[entries++] = (rpi_metadata){"model", t->network.text};
    metadata[entries++] = (rpi_metadata){"shape", shape};
    metadata[entries++] = (rpi_metadata){"data", t->options->data};
    metadata[entries++] = (rpi_metadata){"step", step};
    metadata[entries++] = (rpi_metadata){"world", world};
    metadata[entries++] = (rpi_metadata){"batch_parts", parts};
    metadata[entries++] = (rpi_metadata){"seed", seed};
    metadata[entries++] = (rpi_metadata){"global_batch_size", batch};
    metadata[entries++] = (rpi_metadata){"codec", rp_adaptive_codec_text(&t->codec, codec)};
    metadata[entries++] = (rpi_metadata){"optimizer", t->optimizer.kind->name};
    metadata[entries++] = (rpi_metadata){"error_feedback", t->residual ? "on" : "off"};
    metadata[entries++] = (rpi_metadata){"strategy", t->options->strategy};
    metadata[entries++] =
        (rpi_metadata){"strategy_state", rpi_checkpoint_keeps_alone(t) ? "on" : "off"};
    if (rpi_trainer_is_staged(t)) metadata[entries++] = (rpi_metadata){"stages", stages};
    if (rpi_trainer_is_split(t)) metadata[entries++] = (rpi_metadata){"tensor_ranks", tensor};
    if (t->stage_record)
        metadata[entries++] = (rpi_metadata){RPI_STAGE_RECORD_KEY, t->stage_record};
    if (t->levels) metadata[entries++] = (rpi_metadata){"codec_levels", levels};
    if (t->levels && t->codec.fastest)
        metadata[entries++] = (rpi_metadata){"codec_lossy_from", lossy_from};
    if (rpi_checkpoint_in_pieces(t))
        metadata[entries++] = (rpi_metadata){RPI_PIECE_RANKS_KEY, world};
    if (all->rank_checksums)
        metadata[entries++] = (rpi_metadata){RPI_RANK_CHECKSUMS_KEY, all->rank_checksums};
    rpi_tensor_list list;
    RP_TRY(rpi_tensor_list_open((size_t)t->network.parameter_count * (2 + RPI_OPTIMIZER_SLOTS),
                                &list));
    list_model(t, all, &list);
    rpi_checkpoint_path(folder, path, sizeof path);
    rp_status status = rpi_safetensors_write(path, list.tensors, list.count, metadata, entries);
    rpi_tensor_list_close(&list);
    return status;
}

static rp_status write_model(const rpi_trainer *t, const char *folder, const of_all *all) {
    char *levels = NULL;
    RP_TRY(levels_text(t, &levels));
    rp_status status = write_model_with(t, folder, all, levels);
    rpi_free(levels);
    return status;
}

static int64_t kept_of(const rpi_train_options *options) {
    return options->keep > 0 ? options->keep : 1;
}

typedef struct newest_names {
    char newest[RPI_CHECKPOINT_PATH], earlier[RPI_CHECKPOINT_PATH];
} newest_names;

/* Gives the newest model its second name. A link costs nothing. Where the file system has no
 * links the file is renamed, and for a moment the newest model has only its second name, which
 * loading also tries. */
static rp_status put_newest_by(const newest_names *names) {
    unlink(names->earlier);
    if (link(names->newest, names->earlier) == 0 || rename(names->newest, names->earlier) == 0)
        return RP_OK;
    return RP_FAIL_ERRNO(IO, "cannot rename %s to %s", names->newest, names->earlier);
}

static void take_newest_back(const newest_names *names) {
    if (access(names->newest, F_OK) == 0)
        unlink(names->earlier);
    else
        rename(names->earlier, names->newest);
}

/* On rank 0: the new model takes the name of the newest one, which is kept beside it if it may
 * be. */
static rp_status replace_newest(const rpi_trainer *t, const char *folder, const of_all *all) {
    bool stays = t->newest_is_good && t->good_step != t->step && kept_of(t->options) > 1;
    if (!stays) return write_model(t, folder, all);
    newest_names names;
    rpi_checkpoint_path(folder, names.newest, sizeof names.newest);
    rpi_checkpoint_earlier_path(folder, t->good_step, names.earlier);
    RP_TRY(put_newest_by(&names));
    rp_status status = write_model(t, folder, all);
    if (status != RP_OK) take_newest_back(&names);
    return status;
}

/* On rank 0: removes models beyond the number to keep, and those of later steps, which this run
 * repeats because a checkpoint was damaged. *out_steps: the steps that are left, newest first;
 * -1 fills the rest. A file that cannot be removed does no harm. */
static void remove_models(const rpi_trainer *t, const char *folder, int64_t *out_steps) {
    int64_t keep = kept_of(t->options), earlier[RPI_CHECKPOINT_MOST_KEPT];
    int count = rpi_checkpoint_earlier(folder, earlier, RPI_CHECKPOINT_MOST_KEPT), kept = 0;
    out_steps[kept++] = t->step;
    for (int i = 0; i < count; i++) {
        char path[RPI_CHECKPOINT_PATH];
        rpi_checkpoint_earlier_path(folder, earlier[i], path);
        if (earlier[i] <= t->good_step && earlier[i] < t->step && kept < keep)
            out_steps[kept++] = earlier[i];
        else
            unlink(path);
    }
    while (kept < keep) out_steps[kept++] = -1;
}

static bool stays(const rpi_trainer *t, const int64_t *steps, int64_t step, int world) {
    if (step == t->step) return world == t->place.world;
    for (int64_t i = 1; i < kept_of(t->options); i++)
        if (steps[i] == step) return true;
    return false;
}

/* Removes rank files of steps that have no checkpoint any more. Each rank removes those with
 * its own number; rank 0 also those of ranks that do not exist any more. */
static void remove_parts(const rpi_trainer *t, const char *folder, const int64_t *steps) {
    DIR *stream = opendir(folder);
    if (!stream) return;
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        int rank, world, used = 0;
        long long step;
        if (sscanf(entry->d_name, "rank-%d-of-%d-step-%lld.safetensors%n", &rank, &world, &step,
                   &used) != 3 ||
            !used)
            continue;
        bool whole = !entry->d_name[used]; /* false: a killed run was writing it */
        bool ours = rank == t->place.rank || (t->place.rank == 0 && rank >= t->place.world);
        char path[RPI_CHECKPOINT_PATH + 256];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (ours && !(whole && stays(t, steps, step, world))) unlink(path);
    }
    closedir(stream);
}

/* Rank 0 looks at the models in the folder, because the other ranks may have disks of their
 * own. */
static rp_status remove_old(rpi_trainer *t, const char *folder) {
    int64_t steps[RPI_CHECKPOINT_MOST_KEPT];
    size_t keep = (size_t)kept_of(t->options);
    if (t->place.rank == 0) remove_models(t, folder, steps);
    RP_TRY(rp_broadcast(t->comm, steps, keep, RP_I64, NULL));
    remove_parts(t, folder, steps);
    return RP_OK;
}

/* A failure here fails all ranks, with this rank's reason. */
static rp_status tell(rpi_trainer *t, rp_status status) {
    if (status == RP_OK) return RP_OK;
    rpi_fail_context(status, "rank %d cannot save the checkpoint of step %lld: ", t->place.rank,
                     (long long)t->step);
    char message[RPI_ERROR_BYTES];
    snprintf(message, sizeof message, "%s", rp_last_error()->message);
    rp_comm_abort(t->comm, status, message);
    return rpi_fail(status, __FILE__, __LINE__, "%s", message);
}

/* Makes everything sound and brings it here. Collective. */
static rp_status gather(rpi_trainer *t, of_all *all) {
    rp_status status = rpi_alloc_array((size_t)rpi_weights_states_count(t->weights),
                                       sizeof *all->states, "running statistics", &all->states);
    if (status != RP_OK) return tell(t, status);
    RP_TRY(rpi_trainer_complete(t));
    rpi_optimizer_state_keep_values(&t->optimizer);
    RP_TRY(rpi_trainer_average_states(t, all->states));
    RP_TRY(rpi_divergence_check(t, all->states));
    return rpi_checkpoint_in_pieces(t) ? RP_OK
                                       : tell(t, rpi_whole_slots_gather(t, &all->slots));
}

static rp_status write_all(rpi_trainer *t, const char *folder, of_all *all) {
    uint32_t checksum = 0;
    rpi_consensus consensus = {0};
    RP_TRY(tell(t, rpi_checkpoint_write_rank(t, folder, all->states, &checksum)));
    RP_TRY(rpi_rank_checksums_gather(t, checksum, &all->rank_checksums));
    rp_status status = rpi_consensus_enter(t, &consensus);
    if (status == RP_OK && t->place.rank == 0) status = tell(t, replace_newest(t, folder, all));
    rpi_consensus_leave(t, &consensus);
    return status == RP_OK ? remove_old(t, folder) : status;
}

rp_status rpi_checkpoint_save(rpi_trainer *t, const char *folder) {
    of_all all = {0};
    rp_status status = gather(t, &all);
    if (status == RP_OK) status = write_all(t, folder, &all);
    rpi_whole_slots_free(&all.slots);
    rpi_free(all.states);
    rpi_free(all.rank_checksums);
    if (status != RP_OK) return status;
    t->good_step = t->step;
    snprintf(t->good_folder, sizeof t->good_folder, "%s", folder);
    t->newest_is_good = true;
    return RP_OK;
}
