#include "train/replicas.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/status.h"
#include "net/bytes/frame.h"
#include "train/trainer.h"

enum { TEXT = 1536 };

/* ---- checksums ---- */

static uint32_t checksum_of(const float *values, int64_t first, int64_t count, uint32_t crc) {
    return rpi_crc32c(crc, values + first, (size_t)count * sizeof *values);
}

/* The slots of the optimizer's state that all ranks have. */
static int slots_of(const rpi_trainer *t) {
    return rpi_optimizer_state_is_part(&t->optimizer) ? 0 : t->optimizer.kind->slot_count;
}

static uint32_t checksum_of_all(const rpi_trainer *t) {
    int64_t count = rpi_weights_count(t->weights);
    uint32_t crc = checksum_of(rpi_weights_values(t->weights), 0, count, 0);
    for (int s = 0; s < slots_of(t); s++)
        crc = checksum_of(rpi_optimizer_state_slot(&t->optimizer, s, 0), 0, count, crc);
    return crc;
}

/* The parameters, then each slot of the optimizer: one number a tensor. */
static int tensors_of(const rpi_trainer *t) {
    return rpi_weights_parameter_count(t->weights) * (1 + slots_of(t));
}

static void checksums_of_tensors(const rpi_trainer *t, uint32_t *out) {
    int parameters = rpi_weights_parameter_count(t->weights);
    for (int i = 0; i < tensors_of(t); i++) {
        const rpi_weight *w = rpi_weights_parameter(t->weights, i % parameters);
        int slot = i / parameters - 1;
        const float *values = slot < 0 ? rpi_weights_values(t->weights)
                                       : rpi_optimizer_state_slot(&t->optimizer, slot, 0);
        out[i] = checksum_of(values, w->first, w->count, 0);
    }
}

/* ---- telling who, where and what to do ---- */

static int holders(const rpi_trainer *t, const uint32_t *all, uint32_t checksum) {
    int count = 0;
    for (int r = 0; r < t->place.holders; r++) count += all[r] == checksum;
    return count;
}

/* A replica that holds what most replicas hold; of several such the one with the lowest number.
 */
static int typical_replica(const rpi_trainer *t, const uint32_t *all) {
    int typical = 0;
    for (int r = 1; r < t->place.holders; r++)
        if (holders(t, all, all[r]) > holders(t, all, all[typical])) typical = r;
    return typical;
}

/* "rank 2 differs from the other ranks", or, if no copy is that of most ranks, "ranks 1 and 3
 * differ from rank 0". */
static void tell_who(const rpi_trainer *t, const uint32_t *all, int typical, char text[TEXT]) {
    int alike = holders(t, all, all[typical]), others = t->place.holders - alike, told = 0;
    rpi_append(text, TEXT, others == 1 ? "rank" : "ranks");
    for (int r = 0; r < t->place.holders; r++) {
        if (all[r] == all[typical]) continue;
        rpi_append(text, TEXT, "%s %d",
                   told == 0            ? ""
                   : told == others - 1 ? " and"
                                        : ",",
                   rpi_train_place_twin(&t->place, r));
        told++;
    }
    rpi_append(text, TEXT, others == 1 ? " differs from " : " differ from ");
    if (2 * alike > t->place.holders && alike > 1)
        rpi_append(text, TEXT, "the other ranks");
    else
        rpi_append(text, TEXT, "rank %d", rpi_train_place_twin(&t->place, typical));
}

/* From the tables of all ranks: the first tensor that differs from `typical` on any rank, and
 * how many do. */
static void tell_where(const rpi_trainer *t, const uint32_t *tables, int typical,
                       char text[TEXT]) {
    int tensors = tensors_of(t), parameters = rpi_weights_parameter_count(t->weights);
    int first = -1, differing = 0;
    for (int i = 0; i < tensors; i++) {
        bool differs = false;
        for (int r = 0; r < t->place.holders; r++)
            differs |= tables[(size_t)r * (size_t)tensors + (size_t)i] !=
                       tables[(size_t)typical * (size_t)tensors + (size_t)i];
        if (differs && first < 0) first = i;
        differing += differs;
    }
    if (first < 0) return;
    const char *name = rpi_weights_parameter(t->weights, first % parameters)->name;
    int slot = first / parameters - 1;
    rpi_append(text, TEXT, " in ");
    if (slot >= 0) rpi_append(text, TEXT, "the %s of ", t->optimizer.kind->slot_names[slot]);
    rpi_append(text, TEXT, "%s", name);
    if (differing > 1)
        rpi_append(text, TEXT, " and %d more tensor%s", differing - 1,
                   differing == 2 ? "" : "s");
}

static void tell_what_to_do(const rpi_trainer *t, char text[TEXT]) {
    const rpi_train_options *o = t->options;
    bool has_trained = t->step > 0 && (!o->resume || t->step != t->good_step);
    if (!has_trained) {
        const char *from = o->resume ? o->resume : o->weights;
        if (from)
            rpi_append(text, TEXT, "every rank reads its own %s: are these the same files?",
                       from);
        else
            rpi_append(text, TEXT,
                       "do all ranks run the same build, on processors that round alike?");
        return;
    }
    rpi_append(
        text, TEXT,
        "replicas stay equal bit for bit unless memory is broken or hosts differ in build "
        "or processor; ");
    if (t->good_folder[0])
        rpi_append(text, TEXT,
                   "the last checkpoint with equal ones is that of step %lld: --resume %s",
                   (long long)t->good_step, t->good_folder);
    else
        rpi_append(text, TEXT, "there is no checkpoint to go on from (--checkpoint-every N)");
}

static rp_status report(const rpi_trainer *t, const uint32_t *all, const uint32_t *tables) {
    char who[TEXT] = "", where[TEXT] = "", advice[TEXT] = "";
    int typical = typical_replica(t, all);
    tell_who(t, all, typical, who);
    tell_where(t, tables, typical, where);
    tell_what_to_do(t, advice);
    /* All ranks must know before the first one gives up. */
    (void)rp_barrier(rpi_trainer_replicas(t));
    return RP_FAIL(MISMATCH, "replicas" RPI_REPLICAS_UNEQUAL "%lld: %s%s; %s",
                   (long long)t->step, who, where, advice);
}

/* ---- comparing ---- */

static rp_status compare_tensors(const rpi_trainer *t, const uint32_t *all) {
    size_t tensors = (size_t)tensors_of(t);
    uint32_t *tables = NULL;
    RP_TRY(rpi_alloc_array(tensors * ((size_t)t->place.holders + 1), sizeof *tables,
                           "checksums", &tables));
    uint32_t *own = tables + tensors * (size_t)t->place.holders;
    checksums_of_tensors(t, own);
    rp_status status =
        rp_all_gather(rpi_trainer_replicas(t), own, tables, tensors, RP_U32, NULL, NULL);
    if (status == RP_OK) status = report(t, all, tables);
    rpi_free(tables);
    return status;
}

/* ---- copies that ranks of a replica have ---- */

/* The checksum of a rank's copy: of the whole tensor, or of what it owns, which is cut alike on
 * all ranks. */
static uint32_t checksum_of_copy(const rpi_trainer *t, const rpi_weight *w) {
    const rpi_arena_range tensor = {w->first, w->count};
    rpi_arena_range run = {0};
    uint32_t crc = 0;
    if (!rpi_trainer_passes_values(t))
        return checksum_of(rpi_weights_values(t->weights), w->first, w->count, 0);
    while (rpi_optimizer_state_next(&t->optimizer, tensor, &run))
        crc = checksum_of(rpi_optimizer_state_values(&t->optimizer, run.first), 0, run.count,
                          crc);
    return crc;
}

/* For each parameter of which all ranks that share its layer have a copy: its record and its
 * checksum. Returns their number. */
static int checksums_of_copies(const rpi_trainer *t, int32_t *records, uint32_t *out) {
    int count = 0;
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_parameter *p = &t->network.parameters[i];
        const rpi_weight *w = rpi_weights_find(t->weights, p->name);
        if (!w || w->is_state || p->shard.kind != RPI_SHARD_WHOLE) continue;
        records[count] = i;
        out[count++] = checksum_of_copy(t, w);
    }
    return count;
}

static rp_status report_copy(const rpi_trainer *t, int tensor_rank, int record) {
    char advice[TEXT] = "", one[RPI_GRID_TEXT], other[RPI_GRID_TEXT];
    rpi_grid_place at = rpi_grid_place_of(&t->place.grid, t->place.rank);
    at.at[RPI_AXIS_TENSOR] = 0;
    int first = rpi_grid_rank(&t->place.grid, &at);
    tell_what_to_do(t, advice);
    (void)rp_barrier(t->comms.tensor);
    return RP_FAIL(MISMATCH, "copies" RPI_REPLICAS_UNEQUAL "%lld: %s differs from %s in %s; %s",
                   (long long)t->step,
                   rpi_train_place_text(&t->place, first + tensor_rank, other),
                   rpi_train_place_text(&t->place, first, one),
                   t->network.parameters[record].name, advice);
}

static rp_status compare_copies(const rpi_trainer *t, int32_t *records, uint32_t *own,
                                uint32_t *all) {
    int ranks = t->place.grid.size[RPI_AXIS_TENSOR];
    int count = checksums_of_copies(t, records, own);
    RP_TRY(rp_all_gather(t->comms.tensor, own, all, (size_t)count, RP_U32, NULL, NULL));
    for (int i = 0; i < count; i++)
        for (int r = 1; r < ranks; r++)
            if (all[(ptrdiff_t)r * count + i] != all[i]) return report_copy(t, r, records[i]);
    return RP_OK;
}

static rp_status check_copies(const rpi_trainer *t) {
    size_t most = (size_t)t->network.parameter_count;
    size_t ranks = (size_t)t->place.grid.size[RPI_AXIS_TENSOR];
    int32_t *records = NULL;
    uint32_t *checksums = NULL;
    if (!rpi_trainer_is_split(t)) return RP_OK;
    RP_TRY(rpi_alloc_array(most, sizeof *records, "checksums", &records));
    rp_status status =
        rpi_alloc_array(most * (ranks + 1), sizeof *checksums, "checksums", &checksums);
    if (status == RP_OK) status = compare_copies(t, records, checksums, checksums + most);
    rpi_free(records);
    rpi_free(checksums);
    return status;
}

rp_status rpi_replicas_check(rpi_trainer *t) {
    RP_TRY(rpi_trainer_complete(t));
    RP_TRY(check_copies(t));
    if (t->place.holders == 1 || t->strategy->replicas_differ) return RP_OK;
    if (rpi_trainer_passes_values(t)) return RP_OK; /* each element is on one rank only */
    uint32_t own = checksum_of_all(t), *all = NULL;
    RP_TRY(rpi_alloc_array((size_t)t->place.holders, sizeof *all, "checksums", &all));
    rp_status status = rp_all_gather(rpi_trainer_replicas(t), &own, all, 1, RP_U32, NULL, NULL);
    if (status == RP_OK && holders(t, all, all[0]) < t->place.holders)
        status = compare_tensors(t, all);
    rpi_free(all);
    return status;
}
