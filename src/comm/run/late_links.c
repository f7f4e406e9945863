/* With links on need, a rank that has a frame to send calls. That is enough as long as nothing
 * fails. But a rank that has left never sends, and a rank that waits for a frame of it would
 * not learn that, since the control connection reports deaths and not leaving. So a rank that
 * has waited in vain for a moment calls, too. It then learns that nobody listens there, or gets
 * the link, on which it asks once whether the other side is still a member: a rank that has
 * left the communicator answers that it has, and nobody need remember which ranks have been
 * told. */
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/protocol/control_frame.h"
#include "comm/run/executor.h"

#include "base/clock.h"

/* Longer than it takes to make a link, so that usually one side calls. */
#define LATE_NS (RPI_SECOND_NS / 20)

/* A rank for which this one waits: make a link to it, and ask on that. */
static void call(rp_comm *comm, int rank) {
    rpi_peer *peer = &comm->peers[rank];
    const rpi_frame_header header = {
        .kind = RPI_FRAME_PING, .communicator = comm->id, .epoch = comm->epoch};
    if (rank == comm->rank || peer->broken || peer->asked) return;
    bool has_link = rpi_connection_link(peer->connection) != NULL;
    if (has_link) peer->asked = rpi_control_frame_send(comm, rank, &header) == RP_OK;
    comm->calls_on |= !peer->asked;
}

static void call_all(rp_comm *comm) {
    for (int rank = 0; rank < comm->world; rank++) call(comm, rank);
}

/* Those whose frames the chunk could take now. */
static void call_for_chunk(rp_comm *comm, const rpi_chunk *chunk) {
    const rp_request *request = chunk->request;
    const rpi_compiled_schedule *compiled = request->compiled;
    for (int i = 0; i < compiled->schedule.count; i++) {
        const rpi_instruction *instruction = &compiled->instruction[i];
        if (instruction->kind != RPI_STEP_RECV || !(chunk->ready[i / 64] >> (i % 64) & 1))
            continue;
        if (rpi_instruction_is_void(request, chunk->index, instruction)) continue;
        call(comm, rpi_request_rank(request, instruction->peer));
    }
}

static bool may_call(const rp_comm *comm) {
    const rpi_mesh *mesh = comm->context->mesh;
    return mesh && mesh->on_need && comm->queue && rpi_comm_is_numbered(comm) &&
           (comm->calls_on || comm->called_ns <= comm->progress_ns);
}

int64_t rpi_links_next_ns(const rp_comm *comm) {
    if (!may_call(comm)) return RPI_NEVER_NS;
    return (comm->calls_on ? comm->called_ns : comm->progress_ns) + LATE_NS;
}

void rpi_links_call_late(rp_comm *comm, int64_t idle_ns) {
    int64_t now_ns = rpi_now_ns();
    if (idle_ns < LATE_NS || !may_call(comm)) return;
    if (comm->calls_on && now_ns < rpi_links_next_ns(comm)) return;
    comm->called_ns = now_ns;
    comm->calls_on = false;
    for (const rp_request *request = comm->queue; request; request = request->next) {
        if (request->stage == RPI_REQUEST_UNBOUND) call_all(comm);
        for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
            call_for_chunk(comm, chunk);
    }
}
