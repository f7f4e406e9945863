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
#include "comm/protocol/clear_to_send.h"
#include "comm/protocol/control_frame.h"
#include "comm/protocol/operation_kinds.h"
#include "comm/protocol/unexpected.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>

/* A source that is later than this is told which rank waits for it. */
#define LATE_NS INT64_C(50000000)

/* ---- numbers and schedules ---- */

static uint64_t round_of(uint64_t sequence) {
    return sequence - RPI_EXCHANGE_SEQUENCE;
}

static bool has_exchange_number(uint64_t sequence) {
    return sequence >> RPI_NUMBER_KIND_SHIFT == RPI_EXCHANGE_SEQUENCE >> RPI_NUMBER_KIND_SHIFT;
}

static bool is_exchange(const rp_request *request) {
    return request->kind == &rpi_operation_exchange;
}

/* Until here the request has its caller's number, or none. */
static rp_status number(rp_request *request) {
    rp_comm *comm = request->comm;
    uint64_t round = request->sequence ? request->sequence : comm->last_exchange + 1;
    if (round <= comm->last_exchange)
        return RP_FAIL(
            INVALID,
            "neighbor-all-reduce: round %llu is not later than round %llu, which this "
            "rank has posted; rounds rise",
            (unsigned long long)round, (unsigned long long)comm->last_exchange);
    comm->last_exchange = round;
    request->sequence = RPI_EXCHANGE_SEQUENCE | round;
    return RP_OK;
}

static rp_status compile(rp_request *request, const char *algorithm,
                         const rpi_plan_request *plan, const rpi_load *load) {
    (void)algorithm, (void)plan;
    rp_comm *comm = request->comm;
    const rpi_neighborhood *neighborhood = &request->neighborhood;
    rpi_compiled_schedule *compiled = comm->compiled_schedules;
    while (compiled && !rpi_neighborhood_fits(neighborhood, load->device, compiled))
        compiled = compiled->sibling;
    if (!compiled) {
        RP_TRY(rpi_neighborhood_compiled_schedule(neighborhood, load->device, &compiled));
        compiled->sibling = comm->compiled_schedules;
        comm->compiled_schedules = compiled;
    }
    request->compiled = compiled;
    return RP_OK;
}

/* ---- lists that do not match ---- */

static void fail_lists(rp_request *request, int rank, const char *does) {
    rp_comm *comm = request->comm;
    char lists[224];
    rpi_comm_fail_text(comm, RP_MISMATCH, rank, "%s %llu: rank %d %s rank %d, which %s",
                       rpi_collective_name(request->collective),
                       (unsigned long long)round_of(request->sequence), rank, does, comm->rank,
                       rpi_neighborhood_text(&request->neighborhood, lists, sizeof lists));
}

static bool expects(rp_request *request, int rank) {
    if (rpi_neighborhood_source(&request->neighborhood, rank) >= 0) return true;
    fail_lists(request, rank, "sends its vector to");
    return false;
}

bool rpi_exchange_sends(rp_request *request, int rank) {
    if (rpi_neighborhood_destination(&request->neighborhood, rank) >= 0) return true;
    fail_lists(request, rank, "expects the vector of");
    return false;
}

static void fail_over(rp_comm *comm, int rank, uint64_t sequence, const char *does) {
    rpi_comm_fail_text(comm, RP_MISMATCH, rank,
                       "%s %llu: rank %d %s rank %d, where that round is over and had no such "
                       "neighbour (its last is %llu): both ranks must name each other, in the "
                       "same round",
                       rpi_collective_name(RPI_NEIGHBOUR_ALL_REDUCE),
                       (unsigned long long)round_of(sequence), rank, does, comm->rank,
                       (unsigned long long)round_of(comm->seen_exchange));
}

static rp_status refuse(rp_comm *comm, int rank, const rpi_frame_header *header) {
    fail_over(comm, rank, header->sequence, "sends its vector to");
    return RP_MISMATCH;
}

static bool check_over(rp_comm *comm) {
    for (size_t i = 0; comm->unexpected.count && i < comm->unexpected.room; i++) {
        const rpi_index_slot *slot = &comm->unexpected.slots[i];
        const rpi_unexpected *unexpected = slot->value;
        if (!unexpected || !has_exchange_number(slot->sequence) ||
            slot->sequence >= comm->seen_exchange ||
            rpi_request_find(comm, slot->rank, slot->sequence))
            continue;
        fail_over(comm, slot->rank, slot->sequence,
                  unexpected->frames.first || unexpected->asks ? "sends its vector to"
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
    } else if (!comm->peers[rank].reject_due) {
        comm->peers[rank].reject_due = header->sequence;
        comm->rejects_due = true;
    }
}

/* Its frames of that round have come before this frame, because frames of a link keep their
 * order. */
static void receive_reject(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rp_request *request = rpi_request_find(comm, rank, header->sequence);
    if (!request || has_heard(request, rank)) return;
    char lists[224];
    rpi_comm_fail_text(comm, RP_MISMATCH, rank,
                       "%s %llu: rank %d %s; round %llu is over on rank %d, which had rank %d "
                       "not among its destinations",
                       rpi_collective_name(request->collective),
                       (unsigned long long)round_of(request->sequence), comm->rank,
                       rpi_neighborhood_text(&request->neighborhood, lists, sizeof lists),
                       (unsigned long long)round_of(request->sequence), rank, comm->rank);
}

void rpi_exchange_receive(rp_comm *comm, int rank, const rpi_frame_header *header) {
    if (!has_exchange_number(header->sequence))
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
        if (!peer->reject_due || !rpi_peer_link(peer) || peer->broken) continue;
        header.sequence = peer->reject_due;
        if (rpi_control_frame_send(comm, rank, &header) == RP_OK)
            peer->reject_due = 0;
        else
            comm->rejects_due = true;
    }
}

/* ---- who is late ---- */

/* A source from which nothing has come, and which does not know that we wait for it. */
static bool is_to_be_told(const rp_request *request, int place) {
    int rank = request->neighborhood.places[place].rank;
    return place != request->neighborhood.self && !request->edges[rank].expected &&
           !has_heard(request, rank);
}

/* Later rounds are reported when they are among the first. */
int64_t rpi_exchanges_next_ns(const rp_comm *comm) {
    int rounds = 0;
    for (const rp_request *request = comm->queue; request && rounds < RPI_EXPECTED_EXCHANGES;
         rounds += is_exchange(request), request = request->next)
        for (int i = 0; is_exchange(request) && i <= request->neighborhood.sources; i++)
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
         rounds += is_exchange(request), request = request->next)
        for (int i = 0; is_exchange(request) && i <= request->neighborhood.sources; i++) {
            if (!is_to_be_told(request, i)) continue;
            int rank = request->neighborhood.places[i].rank;
            rpi_frame_header header = request->header;
            header.kind = RPI_FRAME_PROBE;
            request->edges[rank].expected =
                rpi_control_frame_send(comm, rank, &header) == RP_OK;
        }
}

/* ---- the kind ---- */

/* Places are the peers of its schedule. */
static int rank_of(const rp_request *request, int peer) {
    return request->neighborhood.places[peer].rank;
}

static int source(const rp_request *request, int rank) {
    return rpi_neighborhood_source(&request->neighborhood, rank);
}

static int destination(const rp_request *request, int rank) {
    return rpi_neighborhood_destination(&request->neighborhood, rank);
}

static void see(const rp_request *request) {
    request->comm->seen_exchange = request->sequence;
}

static bool is_future(const rp_comm *comm, int rank, const rpi_frame_header *header) {
    (void)rank;
    return header->sequence > comm->seen_exchange;
}

static void name(const rp_request *request, char *text, size_t bytes) {
    snprintf(text, bytes, "%s %llu", rpi_collective_name(request->collective),
             (unsigned long long)round_of(request->sequence));
}

const rpi_operation_kind rpi_operation_exchange = {
    .noun = "round",
    .first = RPI_EXCHANGE_SEQUENCE,
    .takes_turns = true,
    .needs_cts = true,
    .among_neighbors = true,
    .ahead_bytes = RPI_EDGE_WEIGHT_BYTES,
    .compile = compile,
    .number = number,
    .rank_of = rank_of,
    .source = source,
    .destination = destination,
    .see = see,
    .check_over = check_over,
    .expects = expects,
    .has_cts = rpi_cts_has_come,
    .await_cts = rpi_cts_await,
    .is_future = is_future,
    .refuse = refuse,
    .name = name,
};
