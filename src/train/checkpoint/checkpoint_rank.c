/* What a rank saves: what belongs to it alone, and its pieces of what all ranks have. */
#include "base/status.h"
#include "redpoll/version.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/network_piece.h"
#include "train/checkpoint/tensor_list.h"

#include <stdio.h>

/* Lists what this rank has of its own of one parameter. */
static void list_own(const rpi_trainer *t, const rpi_parameter *parameter,
                     rpi_tensor_list *list) {
    rpi_checkpoint_vector vectors[RPI_CHECKPOINT_OWN];
    const rpi_weight *weight = rpi_weights_find(t->weights, parameter->name);
    int count = parameter->is_state ? 0 : rpi_checkpoint_own_vectors(t, vectors);
    for (int i = 0; i < count; i++) {
        rpi_checkpoint_entry_name(vectors[i].kind, parameter->name, rpi_tensor_list_name(list));
        rpi_tensor_list_add(list, parameter, vectors[i].arena + weight->first);
    }
}

static void list_memories(const rpi_trainer *t, rpi_tensor_list *list) {
    for (int i = 0; i < t->network.memory_count; i++) {
        rpi_named_tensor tensor = {
            .name = rpi_tensor_list_name(list), .dtype = RP_F32, .data = t->memories.now[i]};
        rpi_checkpoint_memory(t, i, rpi_tensor_list_name(list), &tensor.shape);
        list->tensors[list->count++] = tensor;
    }
}

static void list_rank(const rpi_trainer *t, rpi_tensor_list *list) {
    list_memories(t, list);
    for (int i = 0; i < t->network.parameter_count; i++)
        list_own(t, &t->network.parameters[i], list);
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_parameter *parameter = &t->network.parameters[i];
        const rpi_weight *weight = rpi_weights_find(t->weights, parameter->name);
        if (!weight) continue;
        if (parameter->is_state) {
            rpi_checkpoint_entry_name("state", parameter->name, rpi_tensor_list_name(list));
            rpi_tensor_list_add(list, parameter,
                                rpi_weights_states(t->weights) + weight->first);
        } else if (t->residual && rpi_parameter_compresses(parameter)) {
            rpi_checkpoint_entry_name("residual", parameter->name, rpi_tensor_list_name(list));
            rpi_tensor_list_add(list, parameter, t->residual + weight->first);
            list->tensors[list->count - 1].shape = *rpi_checkpoint_own_shape(t, parameter);
        }
    }
}

/* Adds the rank's part of a tensor that is cut like a parameter. */
static rp_status add_pieces(const rpi_trainer *t, const char *name, int record,
                            const float *elements, rpi_piece_list *list) {
    rpi_tensor_piece tensor = rpi_network_piece(&t->network, record);
    tensor.tensor = name;
    rpi_piece_saver saver = {
        .grid = &t->place.grid, .rank = t->place.rank, .replicas = RPI_REPLICAS_SLICE};
    if (rpi_trainer_is_staged(t))
        (void)rpi_stage_holds(&t->stage, &t->network, record, &saver.first_stage,
                              &saver.last_stage);
    return rpi_piece_list_share(list, &tensor, &saver, elements);
}

/* If a rank has all running statistics they are in the model's file, as whole tensors. */
static rp_status list_state(const rpi_trainer *t, const float *states, int record,
                            rpi_piece_list *list) {
    if (!rpi_trainer_has_part(t)) return RP_OK;
    const char *name = t->network.parameters[record].name;
    const rpi_weight *weight = rpi_weights_find(t->weights, name);
    return add_pieces(t, name, record, states + weight->first, list);
}

/* Adds what this rank owns of a slot in a range of the arena, where ranks own parts. */
static rp_status add_owned_in(const rpi_trainer *t, const char *name, int record, int slot,
                              rpi_arena_range tensor, rpi_piece_list *list) {
    const rpi_weight *weight = rpi_weights_find(t->weights, t->network.parameters[record].name);
    rpi_arena_range run = {0};
    while (rpi_optimizer_state_next(&t->optimizer, tensor, &run)) {
        const rpi_tensor_piece piece = rpi_network_piece_run(
            &t->network, record, name, run.first - weight->first, run.count);
        RP_TRY(rpi_piece_list_add(list, &piece,
                                  rpi_optimizer_state_slot(&t->optimizer, slot, run.first)));
    }
    return RP_OK;
}

typedef struct owned_runs {
    const rpi_trainer *t;
    const char *name;
    int record, slot;
    int64_t begin; /* where the tensor begins in the arena */
    rpi_piece_list *list;
} owned_runs;

/* If several tensor ranks have a run, the first of them saves it. */
static rp_status add_owned_run(void *context, const rpi_parameter *parameter,
                               const rpi_shard_run *run) {
    const owned_runs *o = context;
    (void)parameter;
    if (run->holder > 0) return RP_OK;
    return add_owned_in(o->t, o->name, o->record, o->slot,
                        (rpi_arena_range){o->begin + run->local, run->count}, o->list);
}

static rp_status add_owned(const rpi_trainer *t, const char *name, int record, int slot,
                           rpi_piece_list *list) {
    const rpi_parameter *parameter = &t->network.parameters[record];
    const rpi_weight *weight = rpi_weights_find(t->weights, parameter->name);
    owned_runs runs = {t, name, record, slot, weight->first, list};
    if (parameter->is_copied)
        return rpi_network_runs(&t->network, record, add_owned_run, &runs);
    return add_owned_in(t, name, record, slot, (rpi_arena_range){weight->first, weight->count},
                        list);
}

/* If two stages hold a table the first of them saves it. */
static rp_status add_counted(const rpi_trainer *t, const char *name, int record, int slot,
                             rpi_piece_list *list) {
    bool is_counted = !rpi_trainer_is_staged(t) || rpi_stage_counts(&t->stage, record);
    return is_counted ? add_owned(t, name, record, slot, list) : RP_OK;
}

static rp_status add_slot(const rpi_trainer *t, int slot, int record, rpi_piece_list *list) {
    char name[RPI_CHECKPOINT_NAME];
    const rpi_parameter *parameter = &t->network.parameters[record];
    const rpi_weight *weight = rpi_weights_find(t->weights, parameter->name);
    rpi_checkpoint_slot_name(&t->optimizer, slot, parameter->name, name);
    if (t->ownership.count) return add_counted(t, name, record, slot, list);
    return add_pieces(t, name, record,
                      rpi_optimizer_state_slot(&t->optimizer, slot, weight->first), list);
}

static rp_status list_pieces(const rpi_trainer *t, const float *states, rpi_piece_list *list) {
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_parameter *parameter = &t->network.parameters[i];
        const rpi_weight *weight = rpi_weights_find(t->weights, parameter->name);
        if (!weight) continue;
        if (parameter->is_state) {
            RP_TRY(list_state(t, states, i, list));
            continue;
        }
        if (rpi_trainer_passes_values(t))
            RP_TRY(add_counted(t, parameter->name, i, t->optimizer.kind->slot_count, list));
        else
            RP_TRY(add_pieces(t, parameter->name, i,
                              rpi_weights_value_at(t->weights, weight->index), list));
        for (int s = 0; s < rpi_checkpoint_slots(t); s++) RP_TRY(add_slot(t, s, i, list));
    }
    return RP_OK;
}

/* The file also says which rank's part it is, because a name is easily changed or copied. */
static rp_status write_rank_with(const rpi_trainer *t, const char *folder,
                                 const rpi_tensor_list *list, const char *pieces,
                                 uint32_t *out_checksum) {
    char path[RPI_CHECKPOINT_PATH];
    rpi_checkpoint_rank_path(folder, t->place.rank, t->place.world, t->step, path);
    char part[64], remembered[24], counter[24];
    rpi_checkpoint_part_text(t->place.rank, t->place.world, t->step, part, sizeof part);
    snprintf(remembered, sizeof remembered, "%d", (int)t->memories.remembered);
    rpi_metadata metadata[5] = {{"redpoll", rp_version()}, {"part", part}};
    size_t entries = 2;
    if (t->network.memory_count) metadata[entries++] = (rpi_metadata){"remembered", remembered};
    if (t->strategy->counter) {
        snprintf(counter, sizeof counter, "%llu",
                 (unsigned long long)*t->strategy->counter(t->strategy_self));
        metadata[entries++] = (rpi_metadata){"counter", counter};
    }
    if (pieces) metadata[entries++] = (rpi_metadata){RPI_PIECES_KEY, pieces};
    return rpi_safetensors_write_summed(path, list->tensors, list->count, metadata,
                                        (int)entries, out_checksum);
}

/* Lists what belongs to the rank alone, then the rank's pieces, and writes them. */
static rp_status list_and_write(const rpi_trainer *t, const char *folder, const float *states,
                                bool has_own, rpi_piece_list *pieces, uint32_t *out_checksum) {
    size_t own = (size_t)t->network.parameter_count * (1 + RPI_CHECKPOINT_OWN);
    const char *text = NULL;
    rpi_tensor_list list;
    if (rpi_checkpoint_in_pieces(t)) {
        RP_TRY(list_pieces(t, states, pieces));
        RP_TRY(rpi_piece_list_text(pieces, &text));
    }
    RP_TRY(rpi_tensor_list_open(own + (size_t)t->network.memory_count + (size_t)pieces->count,
                                &list));
    if (has_own) list_rank(t, &list);
    for (int i = 0; i < pieces->count; i++) list.tensors[list.count++] = pieces->tensors[i];
    rp_status status = write_rank_with(t, folder, &list, text, out_checksum);
    rpi_tensor_list_close(&list);
    return status;
}

rp_status rpi_checkpoint_write_rank(const rpi_trainer *t, const char *folder,
                                    const float *states, uint32_t *out_checksum) {
    bool differs = t->strategy->replicas_differ || t->residual;
    bool has_own = rpi_checkpoint_has_rank_files(t, t->place.world, differs,
                                                 rpi_checkpoint_keeps_alone(t));
    rpi_piece_list pieces = {0};
    *out_checksum = 0;
    if (!has_own && !rpi_checkpoint_in_pieces(t)) return RP_OK;
    rp_status status = list_and_write(t, folder, states, has_own, &pieces, out_checksum);
    rpi_piece_list_close(&pieces);
    return status;
}
