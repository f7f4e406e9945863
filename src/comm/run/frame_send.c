/* A part into a frame, and onto its link. */
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

/* Of an edge between neighbours, whose weight goes ahead of the vector. */
static size_t put_share(const rpi_chunk *chunk, const rpi_action *action, void *payload) {
    const rp_request *request = chunk->request;
    if (request->collective != RPI_NEIGHBOUR_ALL_REDUCE) return 0;
    memcpy(payload, &request->hood.places[action->peer].weight, RPI_SHARE_BYTES);
    return RPI_SHARE_BYTES;
}

/* *out_bytes: of encodings, no more than there is room for. */
static rp_status fill_encodings(rpi_chunk *chunk, const rpi_action *action,
                                const rpi_action *fold, void *payload, size_t *out_bytes) {
    *out_bytes = fold ? rpi_part_fold(chunk, fold, payload) : 0;
    if (fold || action->from == RPI_SLOT_TOKEN) return RP_OK;
    if (action->encodes)
        return rpi_part_encode(chunk, rpi_encoding_of(action), payload, out_bytes);
    const rpi_wire *wire = rpi_wire_of(chunk, action->from);
    if (wire->state == RPI_WIRE_VALUES) {
        const rpi_wire_plan *plan =
            &chunk->request->routine->wires[action->from - RPI_SLOT_WIRE];
        rpi_encoding again = {plan->source, action->part, plan->role, plan->level};
        return rpi_part_encode(chunk, again, payload, out_bytes);
    }
    memcpy(payload, wire->data, wire->bytes);
    *out_bytes = wire->bytes;
    return RP_OK;
}

static void seal(const rpi_chunk *chunk, const rpi_action *action, uint8_t kind, void *region,
                 size_t bytes) {
    const rp_request *request = chunk->request;
    const rpi_link *link =
        rpi_peer_link(&request->comm->peers[rpi_request_rank(request, action->peer)]);
    rpi_frame_header header = request->header;
    header.kind = kind;
    header.chunk = chunk->index;
    header.part = action->part;
    header.round = rpi_frame_round(action->round);
    if (action->level == RPI_LEVEL_HOST) header.round |= RPI_FRAME_EXACT;
    if (request->comm->is_made && header.sequence == 1) header.round |= RPI_FRAME_EARLY;
    if (request->cut.split.layout == RPI_SPLIT_BLOCKS)
        header.count = request->cut.runs[action->part].count;
    rpi_frame_seal(region, &header, bytes, link->endpoint->transport->checksum);
}

/* *out_bytes: of payload, no more than rpi_action_bytes(). */
static rp_status fill_frame(rpi_chunk *chunk, const rpi_action *action, const rpi_action *fold,
                            void *payload, size_t *out_bytes) {
    size_t ahead = put_share(chunk, action, payload);
    RP_TRY(fill_encodings(chunk, action, fold, (unsigned char *)payload + ahead, out_bytes));
    *out_bytes += ahead;
    return RP_OK;
}

static bool is_put(const rpi_chunk *chunk, const rpi_action *send) {
    return send->from >= RPI_SLOT_WIRE &&
           chunk->wires[send->from - RPI_SLOT_WIRE].state == RPI_WIRE_PUT;
}

rp_status rpi_frame_send(rpi_chunk *chunk, const rpi_action *action, const rpi_action *fold) {
    rp_request *request = chunk->request;
    rp_comm *comm = request->comm;
    int rank = rpi_request_rank(request, action->peer);
    rpi_peer *peer = &comm->peers[rank];
    if (peer->broken) return RP_PENDING;
    rpi_link *link = rpi_port_link(peer->port);
    if (!link) return RP_PENDING;
    rpi_traffic_prepare(comm, rank, request->urgency);
    if (rpi_port_was_full(peer->port)) return RP_PENDING;
    size_t bytes = rpi_action_bytes(request, chunk->index, action);
    uint8_t kind = RPI_FRAME_DATA;
    RP_TRY(rpi_flow_admit(chunk, action, bytes, &kind));
    const rpi_transport *transport = link->endpoint->transport;
    bool put = is_put(chunk, action);
    const void *payload = fold || put ? NULL : rpi_in_place_payload(chunk, action, bytes);
    void *region = NULL;
    rp_status status = transport->lend(
        link, payload || put ? transport->sharing->frame_bytes : RPI_FRAME_HEADER_BYTES + bytes,
        &region);
    if (status != RP_OK) {
        rpi_port_is_full(peer->port);
        if (status != RP_PENDING) rpi_peer_break(comm, rank, status);
        return RP_PENDING;
    }
    if (!payload && !put)
        RP_TRY(fill_frame(chunk, action, fold, (unsigned char *)region + RPI_FRAME_HEADER_BYTES,
                          &bytes));
    if (!rpi_in_place_stands(chunk, fold ? fold : action)) return RP_PENDING;
    seal(chunk, action, kind, region, bytes);
    status = put       ? transport->sharing->post_written(link, bytes)
             : payload ? rpi_in_place_post(chunk, action, payload, bytes)
                       : transport->post(link, RPI_FRAME_HEADER_BYTES + bytes);
    rpi_traffic_posted(comm, rank);
    comm->written_frames += put;
    if (status < 0) rpi_peer_break(comm, rank, status);
    rpi_flow_sent(chunk, action, bytes, kind);
    rpi_comm_count_sent(comm, RPI_FRAME_HEADER_BYTES + bytes);
    if (bytes)
        atomic_fetch_add_explicit(
            &comm->values_sent, rpi_cut_part_values(&request->cut, chunk->index, action->part),
            memory_order_relaxed);
    return payload ? RP_PENDING : RP_OK;
}
