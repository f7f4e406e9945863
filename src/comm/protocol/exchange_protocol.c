/* Exchanges with neighbours: the numbers of their rounds, and lists that do not match.
 *
 * Whoever is named by neither rank of an edge has no part in it, so that only the two can find
 * out that they disagree:
 *
 *   a frame, or a CTS request, where no vector is expected from there          at once
 *   a vector that does not come: its source is told that it is waited for      PROBE, once
 *      the source has that round before it, or in flight                       it compares
 *      the round is over there, so that all it sent stands before its answer   REJECT
 */
#include "comm/protocol/exchange_protocol.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/protocol/control_frame.h"
#include "comm/protocol/unexpected.h"

#include "base/clock.h"
#include "base/status.h"

/* A source that is later than this is told who waits for it. */
#define LATE_NS INT64_C(50000000)

/* ---- numbers and schedules ---- */

rp_status rpi_exchange_compiled_schedule(rp_comm *comm, const rpi_neighborhood *neighborhood,
                                         bool device, rpi_compiled_schedule **out_compiled) {
    for (rpi_compiled_schedule *compiled = comm->compiled_schedules; compiled;
         compiled = compiled->sibling)
        if (rpi_neighborhood_fits(neighborhood, device, compiled)) {
            *out_compiled = compiled;
            return RP_OK;
        }
    rpi_compiled_schedule *compiled = NULL;
    RP_TRY(rpi_neighborhood_compiled_schedule(neighborhood, device, &compiled));
    compiled->sibling = comm->compiled_schedules;
    comm->compiled_schedules = compiled;
    *out_compiled = compiled;
    return RP_OK;
}

/* ---- lists that do not match ---- */

static void fail_lists(rp_request *request, int rank, const char *does) {
    rp_comm *comm = request->comm;
    char lists[224];
    rpi_comm_fail_text(comm, RP_MISMATCH, rank, "%s %llu: rank %d %s rank %d, which %s",
                       rpi_collective_name(request->collective),
                       rpi_sequence_number(request->sequence), rank, does, comm->rank,
                       rpi_neighborhood_text(&request->neighborhood, lists, sizeof lists));
}

bool rpi_exchange_expects(rp_request *request, int rank) {
    if (!rpi_is_exchange(request->sequence) ||
        rpi_neighborhood_source(&request->neighborhood, rank) >= 0)
        return true;
    fail_lists(request, rank, "sends its vector to");
    return false;
}

bool rpi_exchange_sends(rp_request *request, int rank) {
    if (rpi_neighborhood_destination(&request->neighborhood, rank) >= 0) return true;
    fail_lists(request, rank, "expects the vector of");
    return false;
}

void rpi_exchange_fail_over(rp_comm *comm, int rank, uint64_t sequence, const char *does) {
    rpi_comm_fail_text(comm, RP_MISMATCH, rank,
                       "%s %llu: rank %d %s rank %d, where that round is over and had no such "
                       "neighbour (its last is %llu): both ranks must name each other, in the "
                       "same round",
                       rpi_collective_name(RPI_NEIGHBOUR_ALL_REDUCE),
                       rpi_sequence_number(sequence), rank, does, comm->rank,
                       rpi_sequence_number(comm->seen_exchange));
}

bool rpi_exchanges_check_over(rp_comm *comm) {
    for (size_t i = 0; comm->unexpected.count && i < comm->unexpected.room; i++) {
        const rpi_index_slot *slot = &comm->unexpected.slots[i];
        const rpi_unexpected *unexpected = slot->value;
        if (!unexpected || !rpi_is_exchange(slot->sequence) ||
            slot->sequence >= comm->seen_exchange ||
            rpi_request_find(comm, slot->rank, slot->sequence))
            continue;
        rpi_exchange_fail_over(comm, slot->rank, slot->sequence,
                               unexpected->frames.first || unexpected->asks
                                   ? "sends its vector to"
                                   : "expects the vector of");
        return false;
    }
    return true;
}

/* ---- PROBE and REJECT ---- */

/* Has a frame of its vector come? */
static bool has_heard(const rp_request *request, int rank) {
    int place = rpi_neighborhood_source(&request->neighborhood, rank);
    if (place < 0 || request->chunks_done) return true;
    for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        if (chunk->received[place] || chunk->unexpected[place].first) return true;
    const rpi_unexpected *unexpected =
        rpi_unexpected_find(request->comm, rank, request->sequence);
    return unexpected && unexpected->frames.first;
}

static void receive_probe(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rp_request *request = rpi_request_find(comm, rank, header->sequence);
    if (request && !rpi_request_is_same(request, header)) {
        rpi_receive_fail_mismatch(request, rank, header);
    } else if (request) {
        (void)rpi_exchange_sends(request, rank);
    } else if (rpi_receive_is_future(comm, rank, header)) {
        rpi_unexpected *unexpected = NULL;
        if (rpi_unexpected_get_for_control(comm, rank, header->sequence, &unexpected) == RP_OK)
            unexpected->expects = true;
    } else if (!comm->peers[rank].passed) {
        comm->peers[rank].passed = header->sequence;
        comm->rejects_due = true;
    }
}

/* What it sent in that round has come before this frame: frames of a link keep their order. */
static void receive_reject(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rp_request *request = rpi_request_find(comm, rank, header->sequence);
    if (!request || has_heard(request, rank)) return;
    char lists[224];
    rpi_comm_fail_text(comm, RP_MISMATCH, rank,
                       "%s %llu: rank %d %s; round %llu is over on rank %d, which had rank %d "
                       "not among its destinations",
                       rpi_collective_name(request->collective),
                       rpi_sequence_number(request->sequence), comm->rank,
                       rpi_neighborhood_text(&request->neighborhood, lists, sizeof lists),
                       rpi_sequence_number(request->sequence), rank, comm->rank);
}

void rpi_exchange_receive(rp_comm *comm, int rank, const rpi_frame_header *header) {
    if (!rpi_is_exchange(header->sequence))
        rpi_comm_fail_text(comm, RP_CORRUPT, rank,
                           "rank %d spoke of operation %llu as of a round of neighbours", rank,
                           (unsigned long long)header->sequence);
    else if (header->kind == RPI_FRAME_PROBE)
        receive_probe(comm, rank, header);
    else
        receive_reject(comm, rank, header);
}

void rpi_exchanges_send_rejects(rp_comm *comm) {
    rpi_frame_header header = {
        .kind = RPI_FRAME_REJECT, .communicator = comm->id, .epoch = comm->epoch};
    comm->rejects_due = false;
    for (int rank = 0; rank < comm->world; rank++) {
        rpi_peer *peer = &comm->peers[rank];
        if (!peer->passed || !rpi_peer_link(peer) || peer->broken) continue;
        header.sequence = peer->passed;
        if (rpi_control_frame_send(comm, rank, &header) == RP_OK)
            peer->passed = 0;
        else
            comm->rejects_due = true;
    }
}

/* ---- who is late ---- */

/* A source of which nothing has come, and which does not know that it is waited for. */
static bool is_to_be_told(const rp_request *request, int place) {
    int rank = request->neighborhood.places[place].rank;
    return place != request->neighborhood.self && !request->edges[rank].expected &&
           !has_heard(request, rank);
}

/* Later ones are told of when they are among the first. */
int64_t rpi_exchanges_next_ns(const rp_comm *comm) {
    int rounds = 0;
    for (const rp_request *request = comm->queue; request && rounds < RPI_EXPECTED_EXCHANGES;
         rounds += rpi_is_exchange(request->sequence), request = request->next)
        for (int i = 0;
             rpi_is_exchange(request->sequence) && i <= request->neighborhood.sources; i++)
            if (is_to_be_told(request, i))
                return (comm->looked_ns > comm->progress_ns ? comm->looked_ns
                                                            : comm->progress_ns) +
                       LATE_NS;
    return RPI_NEVER_NS;
}

void rpi_exchanges_probe(rp_comm *comm, int64_t idle_ns) {
    if (idle_ns < LATE_NS || rpi_now_ns() < rpi_exchanges_next_ns(comm)) return;
    comm->looked_ns = rpi_now_ns();
    int rounds = 0;
    for (rp_request *request = comm->queue; request && rounds < RPI_EXPECTED_EXCHANGES;
         rounds += rpi_is_exchange(request->sequence), request = request->next)
        for (int i = 0;
             rpi_is_exchange(request->sequence) && i <= request->neighborhood.sources; i++) {
            if (!is_to_be_told(request, i)) continue;
            int rank = request->neighborhood.places[i].rank;
            rpi_frame_header header = request->header;
            header.kind = RPI_FRAME_PROBE;
            request->edges[rank].expected =
                rpi_control_frame_send(comm, rank, &header) == RP_OK;
        }
}
