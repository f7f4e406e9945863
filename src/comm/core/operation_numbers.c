/* The numbers of operations on pairs and of rounds of neighbours. */
#include "comm/core/communicator.h"
#include "comm/core/request.h"

#include "base/status.h"

static uint64_t sequence_of(bool upward, int tag, uint32_t number) {
    return RPI_P2P_SEQUENCE | (upward ? RPI_P2P_UPWARD : 0) |
           (uint64_t)tag << RPI_P2P_TAG_SHIFT | number;
}

rp_status rpi_p2p_number(rp_request *request) {
    rp_comm *comm = request->comm;
    if (request->peer == RPI_ANYBODY) {
        request->sequence = sequence_of(false, request->tag, 0);
        return RP_OK;
    }
    rpi_tag *tag = NULL;
    RP_TRY(rpi_tags_get(&comm->peers[request->peer].tags, request->tag, &tag));
    uint32_t *count = rpi_p2p_is_send(request) ? &tag->sent : &tag->received;
    *count = rpi_tag_next(*count);
    bool upward = rpi_p2p_is_send(request) == (comm->rank < request->peer);
    request->sequence = sequence_of(upward, request->tag, *count);
    return RP_OK;
}

/* Until here the request has its caller's number. */
rp_status rpi_exchange_number(rp_request *request) {
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
