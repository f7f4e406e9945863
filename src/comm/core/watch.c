#include "comm/core/watch.h"

#include "comm/core/communicator.h"

/* In beats: not an operation of the communicator, which has none meanwhile. */
#define WAITING RPI_P2P_SEQUENCE

void rpi_comm_watch(rp_comm *comm) {
    atomic_store(&comm->is_watched, true);
}

int64_t rpi_comm_moved_ns(const rp_comm *comm) {
    return atomic_load(&comm->progress_ns);
}

double rpi_comm_timeout_s(const rp_comm *comm) {
    return atomic_load(&comm->timeout_s);
}

double rpi_comm_warn_after_s(const rp_comm *comm) {
    return comm->warn_after_s;
}

bool rpi_comm_has_beats(const rp_comm *comm) {
    return comm->group != NULL;
}

void rpi_comm_set_status(rp_comm *comm, const rpi_comm_status *own) {
    if (!comm->group) return;
    rpi_control_note(comm->group, own->waits ? WAITING : 0);
    rpi_control_note_gap(comm->group, (rpi_control_gap){.from = own->from, .step = own->step});
}

void rpi_comm_get_status(const rp_comm *comm, int rank, rpi_comm_status *out_word) {
    rpi_control_beat beat;
    rpi_control_beat_of(comm->group, rank, &beat);
    *out_word = (rpi_comm_status){.waits = beat.sequence == WAITING,
                                  .from = beat.sequence ? beat.gap.from : -1,
                                  .step = beat.gap.step,
                                  .heard_ns = beat.heard_ns};
}
