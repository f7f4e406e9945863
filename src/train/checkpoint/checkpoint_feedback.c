/* Error feedback of another layout, on its way to this rank. */
#include "train/checkpoint/checkpoint_origin.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/network_piece.h"

#include <string.h>

/* The residual of one old rank for one tensor, on its way into this rank's sums. */
typedef struct owed {
    float *part, *whole; /* as that rank had it, and in the whole tensor */
    double *sums;        /* over old ranks, of this rank's part of the tensor */
} owed;

static int64_t largest_tensor(const rpi_network *network) {
    int64_t most = 0;
    for (int i = 0; i < network->parameter_count; i++) {
        int64_t count = rpi_shape_count(&network->parameters[i].shape);
        if (count > most) most = count;
    }
    return most;
}

static rp_status add_own_run(void *context, const rpi_parameter *parameter,
                             const rpi_shard_run *run) {
    const owed *o = context;
    (void)parameter;
    for (int64_t e = 0; e < run->count; e++)
        o->sums[run->local + e] += (double)o->whole[run->whole + e];
    return RP_OK;
}

/* If several tensor ranks had the same elements, the first one's residual counts. */
static rp_status put_in_whole(const rpi_shard_record *record, int ranks, int rank,
                              const owed *o) {
    const rpi_grid grid = {{ranks, 1, 1, 1}};
    rpi_shard_cursor cursor;
    int64_t count = 1;
    for (int d = 0; d < record->dims; d++) count *= record->shape[d];
    memset(o->whole, 0, (size_t)count * sizeof *o->whole);
    RP_TRY(rpi_shard_begin(record, &grid, rank, RPI_REPLICAS_COPY, &cursor));
    for (rpi_shard_run run; rpi_shard_next(&cursor, &run);)
        if (run.holder == 0)
            memcpy(o->whole + run.whole, o->part + run.local,
                   (size_t)run.count * sizeof *o->whole);
    return RP_OK;
}

static rp_status add_tensor(const rpi_trainer *t, int index, const rpi_safetensors *file,
                            const char *name, int ranks, int rank, owed *o) {
    rpi_shard_record record = rpi_parameter_record(&t->network.parameters[index]);
    rpi_shape shape = {.dims = record.dims};
    RP_TRY(rpi_shard_check(&record, ranks));
    rpi_shard_shape(&record, ranks, rank, shape.size);
    RP_TRY(rpi_safetensors_read_finite(file, name, &shape, o->part));
    RP_TRY(put_in_whole(&record, ranks, rank, o));
    return rpi_network_runs(&t->network, index, add_own_run, o);
}

/* Adds an old rank's residual to the sums. Tensors may be missing: another stage had them, or
 * that run sent them exactly. */
static rp_status add_residual(const rpi_trainer *t, const rpi_safetensors *file,
                              const rpi_checkpoint_origin *from, int rank, owed *o,
                              double *sums) {
    bool has_parts = from->stages > 1 || from->tensor_ranks > 1 || rpi_trainer_has_part(t);
    int ranks = (int)from->tensor_ranks;
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_parameter *parameter = &t->network.parameters[i];
        if (parameter->is_state || !rpi_parameter_compresses(parameter)) continue;
        const rpi_weight *weight = rpi_weights_find(t->weights, parameter->name);
        char name[RPI_CHECKPOINT_NAME];
        rpi_checkpoint_entry_name("residual", parameter->name, name);
        if (!weight || (has_parts && !rpi_safetensors_find(file, name))) continue;
        o->sums = sums + weight->first;
        RP_TRY(add_tensor(t, i, file, name, ranks, rank % ranks, o));
    }
    return RP_OK;
}

/* Sums the residuals of all old ranks, in double, and takes this rank's part. */
static rp_status gather_residuals(rpi_trainer *t, const rpi_safetensors *model,
                                  const char *folder, const rpi_checkpoint_origin *from,
                                  owed *o, double *sums) {
    for (int rank = 0; rank < from->world; rank++) {
        rpi_safetensors *file = NULL;
        RP_TRY(
            rpi_checkpoint_open_rank(model, folder, rank, (int)from->world, from->step, &file));
        rp_status status = add_residual(t, file, from, rank, o, sums);
        rpi_safetensors_close(file);
        RP_TRY(status);
    }
    int64_t count = rpi_weights_count(t->weights);
    for (int64_t e = 0; e < count; e++)
        t->residual[e] = t->place.works ? (float)(sums[e] / t->place.workers) : 0;
    return RP_OK;
}

rp_status rpi_checkpoint_share_residuals(rpi_trainer *t, const rpi_safetensors *model,
                                         const char *folder,
                                         const rpi_checkpoint_origin *from) {
    size_t count = (size_t)rpi_weights_count(t->weights);
    size_t most = (size_t)largest_tensor(&t->network);
    owed o = {0};
    double *sums = NULL;
    rp_status status = rpi_alloc_array(most, sizeof *o.part, "error feedback", &o.part);
    if (status == RP_OK)
        status = rpi_alloc_array(most, sizeof *o.whole, "error feedback", &o.whole);
    if (status == RP_OK) status = rpi_alloc_array(count, sizeof *sums, "error feedback", &sums);
    if (status == RP_OK) status = gather_residuals(t, model, folder, from, &o, sums);
    rpi_free(o.part);
    rpi_free(o.whole);
    rpi_free(sums);
    return status;
}
