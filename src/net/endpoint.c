#include "net/endpoint.h"

#include "net/frame.h"

/* Frames are counted in 32 bits; this leaves room for what a kind wraps around them. */
enum { FRAME_BYTES_MAX = 1 << 30 };

rp_status rpi_endpoint_check(const rpi_endpoint_options *options) {
    if (options->world < 1 || options->rank < 0 || options->rank >= options->world)
        return RP_FAIL(INVALID, "rank %d of a world of %d", options->rank, options->world);
    if (options->frame_bytes < RPI_FRAME_HEADER_BYTES || options->frame_bytes > FRAME_BYTES_MAX)
        return RP_FAIL(INVALID, "frames of %zu bytes; %d to %d are allowed",
                       options->frame_bytes, RPI_FRAME_HEADER_BYTES, FRAME_BYTES_MAX);
    return RP_OK;
}

rp_status rpi_peer_check(const rpi_endpoint *endpoint, int peer) {
    if (peer < 0 || peer >= endpoint->world || peer == endpoint->rank)
        return RP_FAIL(INVALID, "rank %d cannot connect to rank %d in a world of %d",
                       endpoint->rank, peer, endpoint->world);
    return RP_OK;
}
