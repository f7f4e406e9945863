/* Exchanges with neighbours: the numbers of their rounds, and lists that do not match.
 *
 * Whoever is named by neither rank of an edge has no part in it, so that only the two can find
 * out that they disagree:
 *
 *   a frame, or an ASK, of a round in which no vector is expected from there   at once
 *   a vector that does not come: its source is told that it is waited for      EXPECT, once
 *      the source has that round before it, or in flight                       it compares
 *      the round is over there, so that all it sent stands before its answer   PASSED
 */
#include "comm/protocol/round_protocol.h"
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

rp_status rpi_round_routine(rp_comm *comm, const rpi_neighborhood *hood, bool device,
                            rpi_routine **out_routine) {
    for (rpi_routine *routine = comm->routines; routine; routine = routine->sibling)
        if (rpi_neighborhood_fits(hood, device, routine)) {
            *out_routine = routine;
            return RP_OK;
        }
    rpi_routine *routine = NULL;
    RP_TRY(rpi_neighborhood_routine(hood, device, &routine));
    routine->sibling = comm->routines;
    comm->routines = routine;
    *out_routine = routine;
    return RP_OK;
}

/* ---- lists that do not match ---- */

static void fail_lists(rp_request *request, int rank, const char *does) {
    rp_comm *comm = request->comm;
    char lists[224];
    rpi_comm_fail_text(comm, RP_MISMATCH, rank, "%s %llu: rank %d %s rank %d, which %s",
                       rpi_collective_name(request->collective),
                       rpi_sequence_number(request->sequence), rank, does, comm->rank,
                       rpi_neighborhood_text(&request->hood, lists, sizeof lists));
}

bool rpi_round_expects(rp_request *request, int rank) {
    if (!rpi_is_round(request->sequence) || rpi_neighborhood_source(&request->hood, rank) >= 0)
        return true;
    fail_lists(request, rank, "sends its vector to");
    return false;
}

bool rpi_round_sends(rp_request *request, int rank) {
    if (rpi_neighborhood_destination(&request->hood, rank) >= 0) return true;
    fail_lists(request, rank, "expects the vector of");
    return false;
}

void rpi_round_fail_passed(rp_comm *comm, int rank, uint64_t sequence, const char *does) {
    rpi_comm_fail_text(comm, RP_MISMATCH, rank,
                       "%s %llu: rank %d %s rank %d, where that round is over and had no such "
                       "neighbour (its last is %llu): both ranks must name each other, in the "
                       "same round",
                       rpi_collective_name(RPI_NEIGHBOUR_ALL_REDUCE),
                       rpi_sequence_number(sequence), rank, does, comm->rank,
                       rpi_sequence_number(comm->seen_round));
}

bool rpi_rounds_check_passed(rp_comm *comm) {
    for (size_t i = 0; comm->aside.count && i < comm->aside.room; i++) {
        const rpi_index_slot *slot = &comm->aside.slots[i];
        const rpi_aside *aside = slot->value;
        if (!aside || !rpi_is_round(slot->sequence) || slot->sequence >= comm->seen_round ||
            rpi_request_find(comm, slot->rank, slot->sequence))
            continue;
        rpi_round_fail_passed(comm, slot->rank, slot->sequence,
                              aside->frames.first || aside->asks ? "sends its vector to"
                                                                 : "expects the vector of");
        return false;
    }
    return true;
}

/* ---- EXPECT and PASSED ---- */

/* Has a frame of its vector come? */
static bool has_heard(const rp_request *request, int rank) {
    int place = rpi_neighborhood_source(&request->hood, rank);
    if (place < 0 || request->chunks_done) return true;
    for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        if (chunk->received[place] || chunk->aside[place].first) return true;
    const rpi_aside *aside = rpi_aside_find(request->comm, rank, request->sequence);
    return aside && aside->frames.first;
}

static void hear_expect(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rp_request *request = rpi_request_find(comm, rank, header->sequence);
    if (request && !rpi_request_is_same(request, header)) {
        rpi_receive_fail_mismatch(request, rank, header);
    } else if (request) {
        (void)rpi_round_sends(request, rank);
    } else if (rpi_receive_is_future(comm, rank, header)) {
        rpi_aside *aside = NULL;
        if (rpi_aside_get_for_word(comm, rank, header->sequence, &aside) == RP_OK)
            aside->expects = true;
    } else if (!comm->peers[rank].passed) {
        comm->peers[rank].passed = header->sequence;
        comm->passed_due = true;
    }
}

/* What it sent in that round has come before this word: frames of a link keep their order. */
static void hear_passed(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rp_request *request = rpi_request_find(comm, rank, header->sequence);
    if (!request || has_heard(request, rank)) return;
    char lists[224];
    rpi_comm_fail_text(comm, RP_MISMATCH, rank,
                       "%s %llu: rank %d %s; round %llu is over on rank %d, which had rank %d "
                       "not among its destinations",
                       rpi_collective_name(request->collective),
                       rpi_sequence_number(request->sequence), comm->rank,
                       rpi_neighborhood_text(&request->hood, lists, sizeof lists),
                       rpi_sequence_number(request->sequence), rank, comm->rank);
}

void rpi_round_hear(rp_comm *comm, int rank, const rpi_frame_header *header) {
    if (!rpi_is_round(header->sequence))
        rpi_comm_fail_text(comm, RP_CORRUPT, rank,
                           "rank %d spoke of operation %llu as of a round of neighbours", rank,
                           (unsigned long long)header->sequence);
    else if (header->kind == RPI_FRAME_EXPECT)
        hear_expect(comm, rank, header);
    else
        hear_passed(comm, rank, header);
}

void rpi_rounds_tell_passed(rp_comm *comm) {
    rpi_frame_header header = {
        .kind = RPI_FRAME_PASSED, .communicator = comm->id, .epoch = comm->epoch};
    comm->passed_due = false;
    for (int rank = 0; rank < comm->world; rank++) {
        rpi_peer *peer = &comm->peers[rank];
        if (!peer->passed || !rpi_peer_link(peer) || peer->broken) continue;
        header.sequence = peer->passed;
        if (rpi_flow_tell(comm, rank, &header) == RP_OK)
            peer->passed = 0;
        else
            comm->passed_due = true;
    }
}

/* ---- who is late ---- */

/* A source of which nothing has come, and which does not know that it is waited for. */
static bool is_to_be_told(const rp_request *request, int place) {
    int rank = request->hood.places[place].rank;
    return place != request->hood.self && !request->edges[rank].expected &&
           !has_heard(request, rank);
}

/* Later ones are told of when they are among the first. */
int64_t rpi_rounds_next_ns(const rp_comm *comm) {
    int rounds = 0;
    for (const rp_request *request = comm->queue; request && rounds < RPI_EXPECTED_ROUNDS;
         rounds += rpi_is_round(request->sequence), request = request->next)
        for (int i = 0; rpi_is_round(request->sequence) && i <= request->hood.sources; i++)
            if (is_to_be_told(request, i))
                return (comm->looked_ns > comm->progress_ns ? comm->looked_ns
                                                            : comm->progress_ns) +
                       LATE_NS;
    return RPI_NEVER_NS;
}

void rpi_rounds_expect(rp_comm *comm, int64_t idle_ns) {
    if (idle_ns < LATE_NS || rpi_now_ns() < rpi_rounds_next_ns(comm)) return;
    comm->looked_ns = rpi_now_ns();
    int rounds = 0;
    for (rp_request *request = comm->queue; request && rounds < RPI_EXPECTED_ROUNDS;
         rounds += rpi_is_round(request->sequence), request = request->next)
        for (int i = 0; rpi_is_round(request->sequence) && i <= request->hood.sources; i++) {
            if (!is_to_be_told(request, i)) continue;
            int rank = request->hood.places[i].rank;
            rpi_frame_header header = request->header;
            header.kind = RPI_FRAME_EXPECT;
            request->edges[rank].expected = rpi_flow_tell(comm, rank, &header) == RP_OK;
        }
}
