#include "train/same_samples.h"

#include "base/memory.h"
#include "base/status.h"
#include "net/bytes/frame.h"

static uint32_t checksum_of(const rpi_trainer *t, const rpi_source_batch *batch) {
    const rpi_task *task = t->network.task;
    uint32_t crc = 0;
    for (int i = 0; i < task->input_count; i++) {
        size_t bytes = rpi_task_input_bytes(&task->inputs[i], &t->source.shape);
        crc = rpi_crc32c(crc, batch->inputs[i], (size_t)batch->count * bytes);
    }
    return crc;
}

/* Along the data axis it lies where the rank does, along all others it is the first. */
static int first_of_replica(const rpi_train_place *place, int rank) {
    rpi_grid_place at = rpi_grid_place_of(&place->grid, rank), first = {0};
    first.at[RPI_AXIS_DATA] = at.at[RPI_AXIS_DATA];
    return rpi_grid_rank(&place->grid, &first);
}

static rp_status compare(const rpi_trainer *t, rp_comm *comm, const uint32_t *all) {
    const rpi_train_place *place = &t->place;
    char one[RPI_GRID_TEXT], other[RPI_GRID_TEXT];
    for (int rank = 0; rank < place->world; rank++) {
        int first = first_of_replica(place, rank);
        if (all[rank] == all[first]) continue;
        (void)rp_barrier(comm); /* all must know before the first one gives up */
        return RP_FAIL(
            MISMATCH,
            "%s learns from other %ss than %s, with which it shares a model: are the "
            "files of --data the same on their hosts?",
            rpi_train_place_text(place, rank, other), t->network.task->sample,
            rpi_train_place_text(place, first, one));
    }
    return RP_OK;
}

rp_status rpi_same_samples_check(rpi_trainer *t, rp_comm *comm) {
    if (rpi_train_place_is_alone(&t->place) || t->step >= t->total_steps) return RP_OK;
    rpi_source_batch batch;
    uint32_t *all = NULL;
    RP_TRY(rpi_source_deal(&t->source, t->step, &batch));
    uint32_t own = checksum_of(t, &batch);
    RP_TRY(rpi_alloc_array((size_t)t->place.world, sizeof *all, "checksums", &all));
    rp_status status = rp_all_gather(comm, &own, all, 1, RP_U32, NULL, NULL);
    if (status == RP_OK) status = compare(t, comm, all);
    rpi_free(all);
    return status;
}
