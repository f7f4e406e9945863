/* Writes a part into a frame, and the frame onto its link. */
#include "comm/core/chunk.h"
#include "comm/core/request.h"
#include "comm/core/traffic.h"
#include "comm/parts/parts.h"
#include "comm/protocol/flow.h"
#include "comm/run/executor.h"
#include "comm/run/in_place.h"

#include "base/status.h"

#include <string.h>

/* ---- sending ---- */

/* Of an edge between neighbours, whose weight precedes the vector. */
static size_t put_edge_weight(const rpi_chunk *chunk, const rpi_instruction *instruction,
                              void *payload) {
    const rp_request *request = chunk->request;
    size_t ahead = request->kind->ahead_bytes;
    if (ahead) memcpy(payload, &request->neighborhood.places[instruction->peer].weight, ahead);
    return ahead;
}

/* *out_bytes: of encodings, no more than there is room for. */
static rp_status fill_encodings(rpi_chunk *chunk, const rpi_instruction *instruction,
                                const rpi_instruction *fold, void *payload, size_t *out_bytes) {
    *out_bytes = fold ? rpi_part_fold(chunk, fold, payload) : 0;
    if (fold || instruction->from == RPI_SLOT_RTR) return RP_OK;
    if (instruction->encodes)
        return rpi_part_encode(chunk, rpi_encoding_of(instruction), payload, out_bytes);
    const rpi_encoded_slot *encoded_slot = rpi_encoded_slot_of(chunk, instruction->from);
    if (encoded_slot->state == RPI_ENCODED_VALUES) {
        const rpi_encoded_plan *plan =
            &chunk->request->compiled->encoded_slots[instruction->from - RPI_SLOT_ENCODED];
        rpi_encoding again = {plan->source, instruction->part, plan->role, plan->level};
        return rpi_part_encode(chunk, again, payload, out_bytes);
    }
    memcpy(payload, encoded_slot->data, encoded_slot->bytes);
    *out_bytes = encoded_slot->bytes;
    return RP_OK;
}

static void seal(const rpi_chunk *chunk, const rpi_instruction *instruction, uint8_t kind,
                 void *region, size_t bytes) {
    const rp_request *request = chunk->request;
    const rpi_link *link =
        rpi_peer_link(&request->comm->peers[rpi_request_rank(request, instruction->peer)]);
    rpi_frame_header header = request->header;
    header.kind = kind;
    header.chunk = chunk->index;
    header.part = instruction->part;
    header.round = rpi_frame_round(instruction->round);
    if (instruction->level == RPI_LEVEL_HOST) header.round |= RPI_FRAME_EXACT;
    if (request->comm->is_made && header.sequence == 1) header.round |= RPI_FRAME_BEFORE_OPEN;
    if (request->partition.split.layout == RPI_SPLIT_BLOCKS)
        header.count = request->partition.extents[instruction->part].count;
    rpi_frame_seal(region, &header, bytes, link->endpoint->transport->checksum);
}

/* *out_bytes: of payload, no more than rpi_instruction_bytes(). */
static rp_status fill_frame(rpi_chunk *chunk, const rpi_instruction *instruction,
                            const rpi_instruction *fold, void *payload, size_t *out_bytes) {
    size_t ahead = put_edge_weight(chunk, instruction, payload);
    RP_TRY(
        fill_encodings(chunk, instruction, fold, (unsigned char *)payload + ahead, out_bytes));
    *out_bytes += ahead;
    return RP_OK;
}

static bool is_put(const rpi_chunk *chunk, const rpi_instruction *send) {
    return send->from >= RPI_SLOT_ENCODED &&
           chunk->encoded_slots[send->from - RPI_SLOT_ENCODED].state == RPI_ENCODED_PUT;
}

rp_status rpi_frame_send(rpi_chunk *chunk, const rpi_instruction *instruction,
                         const rpi_instruction *fold) {
    rp_request *request = chunk->request;
    rp_comm *comm = request->comm;
    int rank = rpi_request_rank(request, instruction->peer);
    rpi_peer *peer = &comm->peers[rank];
    if (peer->broken) return RP_PENDING;
    rpi_link *link = rpi_connection_link(peer->connection);
    if (!link) return RP_PENDING;
    rpi_traffic_prepare(comm, rank, request->urgency);
    if (rpi_connection_was_full(peer->connection)) return RP_PENDING;
    size_t bytes = rpi_instruction_bytes(request, chunk->index, instruction);
    uint8_t kind = RPI_FRAME_DATA;
    RP_TRY(rpi_flow_admit(chunk, instruction, bytes, &kind));
    const rpi_transport *transport = link->endpoint->transport;
    bool put = is_put(chunk, instruction);
    const void *payload = fold || put ? NULL : rpi_in_place_payload(chunk, instruction, bytes);
    void *region = NULL;
    rp_status status = transport->reserve(link,
                                          payload || put ? transport->zero_copy->frame_bytes
                                                         : RPI_FRAME_HEADER_BYTES + bytes,
                                          &region);
    if (status != RP_OK) {
        rpi_connection_note_full(peer->connection);
        if (status != RP_PENDING) rpi_peer_break(comm, rank, status);
        return RP_PENDING;
    }
    if (!payload && !put)
        RP_TRY(fill_frame(chunk, instruction, fold,
                          (unsigned char *)region + RPI_FRAME_HEADER_BYTES, &bytes));
    if (!rpi_in_place_is_valid(chunk, fold ? fold : instruction)) return RP_PENDING;
    seal(chunk, instruction, kind, region, bytes);
    status = put       ? transport->zero_copy->commit_written(link, bytes)
             : payload ? rpi_in_place_commit(chunk, instruction, payload, bytes)
                       : transport->commit(link, RPI_FRAME_HEADER_BYTES + bytes);
    rpi_traffic_posted(comm, rank);
    comm->written_frames += put;
    if (status < 0) rpi_peer_break(comm, rank, status);
    rpi_flow_sent(chunk, instruction, bytes, kind);
    rpi_comm_count_sent(comm, RPI_FRAME_HEADER_BYTES + bytes);
    if (bytes)
        atomic_fetch_add_explicit(
            &comm->values_sent,
            rpi_partition_part_values(&request->partition, chunk->index, instruction->part),
            memory_order_relaxed);
    return payload ? RP_PENDING : RP_OK;
}
