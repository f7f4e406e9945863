/* How a communicator ends: posted bytes leave, and members learn that this rank has left. */
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/core/request.h"
#include "comm/protocol/control_frame.h"
#include "comm/protocol/numbering.h"
#include "comm/protocol/open_close.h"
#include "comm/protocol/window_table.h"
#include "comm/world/create.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "net/world/view_world.h"

/* How long destroy waits for posted bytes to leave, at most. */
#define LINGER_S 5.0

/* Everything posted has left this process, and with `last` also this host. */
static bool is_delivered(const rpi_context *context, bool last) {
    for (int i = 0; context->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = context->mesh->endpoints[i];
        const rpi_transport *transport = endpoint->transport;
        (void)transport->progress(endpoint);
        rp_status status = transport->delivered && last ? transport->delivered(endpoint)
                                                        : transport->flushed(endpoint);
        if (status == RP_PENDING) return false;
    }
    return true;
}

/* One more than the rank whose death failed the communicator; 0: no death did. */
static uint64_t whose_death(const rp_comm *comm) {
    rpi_failure failure = rpi_comm_failure(comm);
    bool is_death = failure.status == RP_PEER && failure.rank >= 0 &&
                    failure.rank < comm->world && failure.rank != comm->rank;
    return is_death ? (uint64_t)failure.rank + 1 : 0;
}

static rpi_frame_header fin_header(const rp_comm *comm) {
    return (rpi_frame_header){.kind = RPI_FRAME_FIN,
                              .communicator = comm->id,
                              .epoch = comm->epoch,
                              .round = comm->is_made ? RPI_FRAME_BEFORE_OPEN : 0,
                              .count = rpi_making_is_void(comm) ? RPI_FIN_VOID : 0,
                              .sequence = whose_death(comm)};
}

static void note_fin(rp_comm *comm) {
    rpi_frame_header header = fin_header(comm);
    if (rpi_comm_is_numbered(comm)) rpi_context_note_fin(comm, &header);
}

/* Members that continue in the context learn that nothing more comes from here and, if a death
 * is the reason, whose death it is. Those whose link is full learn it when there is room, as
 * long as destroy waits. */
static bool send_fin(rp_comm *comm, int *next) {
    rpi_frame_header header = fin_header(comm);
    for (; rpi_comm_is_numbered(comm) && *next < comm->world; ++*next) {
        const rpi_peer *peer = &comm->peers[*next];
        if (!rpi_peer_link(peer) || peer->broken) continue;
        peer->connection->full = false;
        if (rpi_number_is_untold(comm, *next)) {
            if (header.count == RPI_FIN_VOID) continue; /* has nothing to drop */
            if (rpi_number_send_one(comm, *next) == RP_PENDING) return false;
        }
        if (rpi_control_frame_send(comm, *next, &header) == RP_PENDING) return false;
    }
    return true;
}

void rpi_comm_send_death(rp_comm *comm) {
    int64_t deadline_ns = rpi_deadline_ns(LINGER_S);
    int told = 0;
    if (!comm->context->mesh) return;
    rpi_progress_acquire(comm->context);
    note_fin(comm);
    rpi_progress_release(comm->context);
    for (bool done = false; !done && rpi_now_ns() < deadline_ns;) {
        rpi_progress_acquire(comm->context);
        done = send_fin(comm, &told);
        (void)is_delivered(comm->context, false);
        rpi_progress_release(comm->context);
        if (!done) rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 2000);
    }
}

/* Peers may still need the last frames that we posted. Closing the links of the last
 * communicator shows that this rank has left, but not that another rank has died. Rank 0 would
 * report that, unless it is stopped. */
static void linger(rp_comm *comm, bool last) {
    int64_t deadline_ns = rpi_deadline_ns(LINGER_S);
    bool failed = rpi_comm_has_failed(comm);
    int told = last && !(failed && whose_death(comm)) ? comm->world : 0;
    if (!last) note_fin(comm);
    for (;;) {
        bool all_told = send_fin(comm, &told);
        for (; failed && !all_told; all_told = send_fin(comm, &told))
            told++; /* waits for nobody */
        bool done = is_delivered(comm->context, last) && all_told;
        if (done || failed || rpi_now_ns() >= deadline_ns) return;
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 2000);
    }
}

static void cancel_all(rp_comm *comm) {
    char text[160] = "an operation that was not started";
    if (comm->queue) rpi_request_text(comm->queue, text, sizeof text);
    rpi_comm_fail_text(comm, RP_CANCELLED, comm->rank,
                       "%s destroyed communicator '%s' with %s in flight",
                       rpi_rank_name(comm, comm->rank).text, comm->name, text);
    rpi_comm_end_requests(comm);
}

/* A lost rank is in no later view. */
static void tell_world(const rp_comm *comm) {
    const rpi_context *context = comm->context;
    uint64_t dead = whose_death(comm);
    if (context->view_world && dead)
        rpi_world_note_lost(context->view_world, context->view, comm->members[dead - 1]);
}

void rp_comm_destroy(rp_comm *comm) {
    RPI_FPENV_SCOPE;
    if (!comm) return;
    rpi_context *context = comm->context;
    rpi_failure decision;
    /* The others learn the reason before they learn that this rank has left. */
    if (comm->is_revoked && comm->group)
        (void)rpi_control_wait_failed(comm->group, rpi_deadline_ns(RPI_CONTROL_DECISION_S),
                                      &decision);
    rpi_progress_acquire(context);
    if (comm->in_flight > 0) cancel_all(comm);
    rpi_comm_await_decision(comm);
    rpi_comm_check_control(comm);
    rpi_windows_close(comm);
    tell_world(comm);
    bool last = rpi_context_remove(comm);
    if (context->mesh) linger(comm, last);
    rpi_progress_release(context);
    rpi_comm_free(comm);
    if (last) rpi_context_close(context);
}

void rp_comm_forget(rp_comm *comm) {
    if (comm) rpi_context_close_after_fork(comm->context);
}
