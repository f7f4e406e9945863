#include "train/checkpoint/checkpoint.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/checkpoint_origin.h"
#include "train/checkpoint/network_piece.h"
#include "train/checkpoint/run_folder.h"
#include "train/checkpoint/safetensors.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static rp_status check_model(const rpi_safetensors *file, const char *path, const char *model,
                             const char *shape) {
    RP_TRY(rpi_checkpoint_check_writer(file, path));
    const char *has = rpi_safetensors_metadata(file, "model");
    const char *has_shape = rpi_safetensors_metadata(file, "shape");
    if (!has || !has_shape) return RP_FAIL(CORRUPT, "%s is no checkpoint of redpoll", path);
    if (!rpi_model_is_same(has, model))
        return RP_FAIL(MISMATCH, "%s holds the model %s, not %s", path, has, model);
    if (shape && strcmp(has_shape, shape) != 0)
        return RP_FAIL(MISMATCH, "%s holds the model %s for %s, not for %s", path, has,
                       has_shape, shape);
    return RP_OK;
}

static bool has_slot(const rpi_optimizer *kind, const char *name) {
    for (int s = 0; s < kind->slot_count; s++)
        if (strcmp(kind->slot_names[s], name) == 0) return true;
    return false;
}

/* An optimizer can go on from another one whose state has the same names. */
static rp_status check_optimizer(const rpi_safetensors *file, const char *path,
                                 const char *optimizer) {
    const char *has = rpi_safetensors_metadata(file, "optimizer");
    const rpi_optimizer *was = NULL, *now = NULL;
    RP_TRY(rpi_optimizer_find(optimizer, &now));
    if (!has || rpi_optimizer_find(has, &was) != RP_OK) return RP_OK;
    for (int s = 0; s < now->slot_count; s++)
        if (!has_slot(was, now->slot_names[s]))
            return RP_FAIL(MISMATCH,
                           "%s holds the state of --optimizer %s, from which %s, whose %s it "
                           "has not, cannot go on; leave --optimizer out, or say %s",
                           path, has, optimizer, now->slot_names[s], has);
    return RP_OK;
}

/* Reads what this rank owns of a slot of the optimizer. */
static rp_status read_owned(rpi_trainer *t, const char *name, int slot, int record,
                            const rpi_piece_files *pieces) {
    const rpi_parameter *parameter = &t->network.parameters[record];
    const rpi_weight *weight = rpi_weights_find(t->weights, parameter->name);
    const rpi_arena_range tensor = {weight->first, weight->count};
    rpi_arena_range run = {0};
    while (rpi_optimizer_state_next(&t->optimizer, tensor, &run)) {
        const rpi_tensor_piece piece = rpi_network_piece_run(
            &t->network, record, name, run.first - weight->first, run.count);
        RP_TRY(rpi_piece_files_read(pieces, &piece,
                                    rpi_optimizer_state_slot(&t->optimizer, slot, run.first)));
    }
    return RP_OK;
}

static rp_status read_slot(rpi_trainer *t, int slot, int record,
                           const rpi_piece_files *pieces) {
    char name[RPI_CHECKPOINT_NAME];
    rpi_checkpoint_slot_name(&t->optimizer, slot, t->network.parameters[record].name, name);
    return read_owned(t, name, slot, record, pieces);
}

/* Reads what this rank has of a parameter, or of running statistics. */
static rp_status read_values(rpi_trainer *t, int record, const rpi_piece_files *pieces) {
    const rpi_parameter *parameter = &t->network.parameters[record];
    const rpi_tensor_piece piece = rpi_network_piece(&t->network, record);
    if (!parameter->is_state && rpi_trainer_passes_values(t))
        return read_owned(t, parameter->name, t->optimizer.kind->slot_count, record, pieces);
    return rpi_piece_files_read(pieces, &piece,
                                rpi_network_elements(&t->network, t->weights, record));
}

/* Reads the exact values that owners update where ranks compute with what a codec makes of
 * them. They become kept values again or, in a run without such a codec, the parameter. If the
 * file has none, they begin as the parameter. */
static rp_status read_kept_values(rpi_trainer *t, int index, const rpi_piece_files *pieces) {
    char name[RPI_CHECKPOINT_NAME];
    const rpi_parameter *parameter = &t->network.parameters[index];
    rpi_checkpoint_entry_name(RPI_CHECKPOINT_KEPT, parameter->name, name);
    bool is_there = rpi_piece_files_has(pieces, name);
    t->optimizer.has_values =
        t->optimizer.keeps_values && (is_there || rpi_trainer_passes_values(t));
    if (!is_there) return RP_OK;
    if (t->optimizer.keeps_values)
        return read_slot(t, t->optimizer.kind->slot_count, index, pieces);
    rpi_tensor_piece piece = rpi_network_piece(&t->network, index);
    piece.tensor = name;
    return rpi_piece_files_read(pieces, &piece,
                                rpi_network_elements(&t->network, t->weights, index));
}

static rp_status read_pieces(rpi_trainer *t, const rpi_piece_files *pieces) {
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_parameter *parameter = &t->network.parameters[i];
        if (!rpi_weights_find(t->weights, parameter->name)) continue;
        RP_TRY(read_values(t, i, pieces));
        for (int s = 0; s < t->optimizer.kind->slot_count && !parameter->is_state; s++)
            RP_TRY(read_slot(t, s, i, pieces));
        if (!parameter->is_state) RP_TRY(read_kept_values(t, i, pieces));
    }
    rpi_weights_changed(t->weights, 0, rpi_weights_count(t->weights));
    return RP_OK;
}

static rp_status read_model(rpi_trainer *t, const rpi_safetensors *file, const char *folder) {
    rpi_piece_files *pieces = NULL;
    RP_TRY(rpi_piece_files_open(file, folder, &pieces));
    rp_status status = read_pieces(t, pieces);
    rpi_piece_files_close(pieces);
    return status;
}

static rp_status read_own_states(rpi_trainer *t, const rpi_safetensors *file) {
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_parameter *parameter = &t->network.parameters[i];
        if (!parameter->is_state || !rpi_weights_find(t->weights, parameter->name)) continue;
        char name[RPI_CHECKPOINT_NAME];
        rpi_checkpoint_entry_name("state", parameter->name, name);
        RP_TRY(rpi_safetensors_read_finite(file, name, &parameter->shape,
                                           rpi_network_elements(&t->network, t->weights, i)));
    }
    return RP_OK;
}

static rp_status read_own_residual(rpi_trainer *t, const rpi_safetensors *file) {
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_parameter *parameter = &t->network.parameters[i];
        const rpi_weight *weight = rpi_weights_find(t->weights, parameter->name);
        if (!weight || parameter->is_state || !rpi_parameter_compresses(parameter)) continue;
        char name[RPI_CHECKPOINT_NAME];
        rpi_checkpoint_entry_name("residual", parameter->name, name);
        RP_TRY(rpi_safetensors_read_finite(file, name, rpi_checkpoint_own_shape(t, parameter),
                                           t->residual + weight->first));
    }
    return RP_OK;
}

static rp_status read_own_vectors(rpi_trainer *t, const rpi_safetensors *file) {
    rpi_checkpoint_vector vectors[RPI_CHECKPOINT_OWN];
    int count = rpi_checkpoint_own_vectors(t, vectors);
    for (int i = 0; i < count * t->network.parameter_count; i++) {
        const rpi_parameter *parameter = &t->network.parameters[i / count];
        const rpi_checkpoint_vector *vector = &vectors[i % count];
        char name[RPI_CHECKPOINT_NAME];
        if (parameter->is_state) continue;
        rpi_checkpoint_entry_name(vector->kind, parameter->name, name);
        RP_TRY(rpi_safetensors_read_finite(
            file, name, &parameter->shape,
            vector->arena + rpi_weights_find(t->weights, parameter->name)->first));
    }
    rpi_weights_changed(t->weights, 0, rpi_weights_count(t->weights));
    return RP_OK;
}

static rp_status read_counter(rpi_trainer *t, const rpi_safetensors *file, const char *path) {
    int64_t number = 0;
    if (!t->strategy->counter) return RP_OK;
    RP_TRY(rpi_checkpoint_number(file, path, "counter", 0, INT64_MAX, &number));
    *t->strategy->counter(t->strategy_self) = (uint64_t)number;
    return RP_OK;
}

static rp_status read_apart(rpi_trainer *t, const rpi_safetensors *file, const char *path) {
    RP_TRY(read_own_vectors(t, file));
    RP_TRY(read_counter(t, file, path));
    t->strategy->resumed(t->strategy_self);
    return RP_OK;
}

static rp_status read_memories(rpi_trainer *t, const rpi_safetensors *file, const char *path) {
    int64_t remembered = 0;
    RP_TRY(rpi_checkpoint_number(file, path, "remembered", 0, t->memories.length, &remembered));
    for (int i = 0; i < t->network.memory_count; i++) {
        char name[RPI_CHECKPOINT_NAME];
        rpi_shape shape;
        rpi_checkpoint_memory(t, i, name, &shape);
        RP_TRY(rpi_safetensors_read_finite(file, name, &shape, t->memories.now[i]));
    }
    t->memories.remembered = (int32_t)remembered;
    return RP_OK;
}

static rp_status read_rank(rpi_trainer *t, const rpi_safetensors *model, const char *folder,
                           const rpi_checkpoint_origin *o) {
    bool feedback = o->feedback;
    int64_t world = o->world, step = o->step;
    bool goes_on = rpi_checkpoint_goes_on_apart(t, o);
    if (!rpi_checkpoint_has_rank_files(t, world, feedback || goes_on, goes_on)) return RP_OK;
    if (!rpi_checkpoint_is_same_layout(t, o))
        return t->residual && feedback && !o->apart
                   ? rpi_checkpoint_share_residuals(t, model, folder, o)
                   : RP_OK;
    rpi_safetensors *file = NULL;
    RP_TRY(rpi_checkpoint_open_rank(model, folder, t->place.rank, t->place.world, step, &file));
    rp_status status = read_own_states(t, file);
    /* a residual belongs to what was sent: parameters or gradients */
    bool fits = o->apart == goes_on;
    if (status == RP_OK && t->residual && feedback && fits) status = read_own_residual(t, file);
    if (status == RP_OK && goes_on) status = read_apart(t, file, folder);
    if (status == RP_OK && rpi_checkpoint_remembers(t, o))
        status = read_memories(t, file, folder);
    rpi_safetensors_close(file);
    return status;
}

/* Reads the chosen bits, which stay valid as without the interruption. */
static rp_status read_levels(rpi_trainer *t, const rpi_safetensors *file, const char *path) {
    const char *levels = rpi_safetensors_metadata(file, "codec_levels");
    if (!t->levels || !levels) return RP_OK;
    size_t count = (size_t)t->network.parameter_count;
    bool sound = strlen(levels) == count;
    rp_codec codec;
    for (size_t i = 0; i < count && sound; i++)
        sound = rp_level_codec(&t->codec.codec, levels[i] - '0', &codec) == RP_OK;
    if (!sound)
        return RP_FAIL(CORRUPT,
                       "%s: codec_levels are %zu characters from '0' to '%c', one a parameter",
                       path, count, '0' + RP_LEVELS - 1);
    for (size_t i = 0; i < count; i++) t->levels[i] = (uint8_t)(levels[i] - '0');
    return RP_OK;
}

/* Reads which buckets were faster lossy; another world compares again. */
static rp_status read_lossy_from(rpi_trainer *t, const rpi_safetensors *file, const char *path,
                                 int64_t world) {
    static const char key[] = "codec_lossy_from";
    if (!t->codec.fastest || !rpi_safetensors_metadata(file, key) || world != t->place.world)
        return RP_OK;
    return rpi_checkpoint_number(file, path, key, RPI_LOSSY_UNKNOWN, RPI_LOSSY_NEVER,
                                 &t->lossy_from);
}

static rp_status load(rpi_trainer *t, const char *folder, const char *path,
                      const rpi_safetensors *file, rpi_checkpoint_origin *out_origin) {
    char shape[64];
    rpi_checkpoint_shape_text(t, shape, sizeof shape);
    RP_TRY(check_model(file, path, t->network.text, shape));
    RP_TRY(check_optimizer(file, path, t->optimizer.kind->name));
    RP_TRY(rpi_checkpoint_origin_read(file, path, t->options->strategy, out_origin));
    RP_TRY(read_model(t, file, folder));
    RP_TRY(read_levels(t, file, path));
    RP_TRY(read_lossy_from(t, file, path, out_origin->world));
    return read_rank(t, file, folder, out_origin);
}

/* The checkpoints of a folder, in the order in which they are tried. */
enum { NEWEST = -1, NONE_LEFT = -2 };

static void path_of(const char *folder, int64_t which, char path[RPI_CHECKPOINT_PATH]) {
    if (which == NEWEST)
        rpi_checkpoint_path(folder, path, RPI_CHECKPOINT_PATH);
    else
        rpi_checkpoint_earlier_path(folder, which, path);
}

/* An earlier attempt may have changed something. */
static rp_status try_one(rpi_trainer *t, const char *folder, int64_t which,
                         rpi_checkpoint_origin *out_origin) {
    char path[RPI_CHECKPOINT_PATH];
    rpi_safetensors *file = NULL;
    if (t->residual)
        memset(t->residual, 0, (size_t)rpi_weights_count(t->weights) * sizeof *t->residual);
    rpi_memories_close_after_fork(&t->memories);
    path_of(folder, which, path);
    RP_TRY(rpi_safetensors_open(path, &file));
    rp_status status = load(t, folder, path, file, out_origin);
    rpi_safetensors_close(file);
    return status;
}

/* Explains that there is none: the run died before its first checkpoint, or the folder is
 * another one. */
static rp_status explain_nothing(const char *folder, rp_status status) {
    char path[RPI_CHECKPOINT_PATH];
    path_of(folder, NEWEST, path);
    if (status != RP_NOT_FOUND || access(path, F_OK) == 0) return status;
    return RP_FAIL(NOT_FOUND, "%s is missing: there is no checkpoint to go on from", path);
}

/* Is the failure one of the bytes on the disk? Another checkpoint may be sound. */
static bool is_damage(rp_status status) {
    return status == RP_CORRUPT || status == RP_NOT_FOUND || status == RP_IO;
}

/* How one rank has fared, in a form that all ranks exchange. */
typedef struct outcome {
    int64_t status;
    char message[504];
} outcome;

/* The first failure of any rank, which becomes this rank's, too. */
static rp_status agree(const rpi_trainer *t, rp_status own) {
    outcome mine = {.status = own}, *all = NULL;
    if (own != RP_OK)
        snprintf(mine.message, sizeof mine.message, "%s", rp_last_error()->message);
    RP_TRY(rpi_alloc_array((size_t)t->place.world, sizeof *all, "outcomes", &all));
    rp_status status = rp_all_gather(t->comm, &mine, all, sizeof mine, RP_U8, NULL, NULL);
    for (int rank = 0; rank < t->place.world && status == RP_OK; rank++)
        if (all[rank].status != RP_OK)
            status = rpi_fail((rp_status)all[rank].status, __FILE__, __LINE__, "%.*s",
                              (int)sizeof all[rank].message - 1, all[rank].message);
    rpi_free(all);
    return status;
}

static rp_status load_newest_sound(rpi_trainer *t, const char *folder,
                                   rpi_checkpoint_origin *out_origin, int64_t *out_which,
                                   char *note, size_t note_bytes) {
    int64_t earlier[RPI_CHECKPOINT_MOST_KEPT], which = NEWEST;
    int count = rpi_checkpoint_earlier(folder, earlier, RPI_CHECKPOINT_MOST_KEPT), next = 0;
    rpi_kept_error first = {0};
    for (;;) {
        RP_TRY(rp_broadcast(t->comm, &which, 1, RP_I64, NULL));
        if (which == NONE_LEFT) break;
        rp_status status = agree(t, try_one(t, folder, which, out_origin));
        *out_which = which;
        if (status == RP_OK) return RP_OK;
        if (!is_damage(status)) return status;
        if (next == 0) rpi_error_keep(&first);
        which = next < count ? earlier[next] : NONE_LEFT;
        if (which != NONE_LEFT)
            rpi_checkpoint_add_note(note, note_bytes, "%s; going on from the one of step %lld",
                                    rp_last_error()->message, (long long)which);
        next++;
    }
    rpi_error_put_back(&first);
    return count == 0 ? explain_nothing(folder, first.error.status) : first.error.status;
}

rp_status rpi_checkpoint_load(rpi_trainer *t, const char *folder, char *note,
                              size_t note_bytes) {
    rpi_checkpoint_origin saved = {0};
    int64_t which = NEWEST;
    note[0] = '\0';
    RP_TRY(load_newest_sound(t, folder, &saved, &which, note, note_bytes));
    rpi_checkpoint_note_changes(t, &saved, note, note_bytes);
    t->step = t->good_step = saved.step;
    snprintf(t->good_folder, sizeof t->good_folder, "%s", folder);
    t->newest_is_good = which == NEWEST && rpi_run_folder_continues(t->options);
    return RP_OK;
}

rp_status rpi_checkpoint_check(const rpi_train_options *options) {
    int64_t earlier[RPI_CHECKPOINT_MOST_KEPT];
    int count = rpi_checkpoint_earlier(options->resume, earlier, RPI_CHECKPOINT_MOST_KEPT);
    rpi_kept_error first = {0};
    for (int i = -1; i < count; i++) {
        char path[RPI_CHECKPOINT_PATH];
        rpi_safetensors *file = NULL;
        path_of(options->resume, i < 0 ? NEWEST : earlier[i], path);
        rp_status status = rpi_safetensors_open(path, &file);
        if (status == RP_OK) status = check_model(file, path, options->model, NULL);
        if (status == RP_OK) status = check_optimizer(file, path, options->optimizer);
        rpi_safetensors_close(file);
        if (!is_damage(status)) return status;
        if (i < 0) rpi_error_keep(&first);
    }
    rpi_error_put_back(&first);
    return count == 0 ? explain_nothing(options->resume, first.error.status)
                      : first.error.status;
}

void rpi_checkpoint_take_over(rpi_trainer *t, const char *folder) {
    char path[RPI_CHECKPOINT_PATH];
    rpi_safetensors *file = NULL;
    int64_t step = -1;
    path_of(folder, NEWEST, path);
    rp_status status = rpi_safetensors_open(path, &file);
    if (status == RP_OK)
        status = rpi_checkpoint_number(file, path, "step", 0, INT64_MAX, &step);
    rpi_safetensors_close(file);
    t->newest_is_good &= status == RP_OK && step == t->good_step;
}
