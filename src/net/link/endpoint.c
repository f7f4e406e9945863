#include "net/link/endpoint.h"

#include "net/bytes/frame.h"

#include <stdlib.h>

/* Frames are counted in 32 bits; this leaves room for the bytes that a kind adds to them. */
enum { FRAME_BYTES_MAX = 1 << 30 };

rp_status rpi_endpoint_check(const rpi_endpoint_options *options) {
    if (options->world < 1 || options->rank < 0 || options->rank >= options->world)
        return RP_FAIL(INVALID, "rank %d of a world of %d", options->rank, options->world);
    if (options->frame_bytes < RPI_FRAME_HEADER_BYTES || options->frame_bytes > FRAME_BYTES_MAX)
        return RP_FAIL(INVALID, "frames of %zu bytes; %d to %d are allowed",
                       options->frame_bytes, RPI_FRAME_HEADER_BYTES, FRAME_BYTES_MAX);
    if (options->streams < 0 || options->streams > RPI_STREAMS_MAX)
        return RP_FAIL(INVALID, "links of %d streams; 1 to %d are allowed", options->streams,
                       RPI_STREAMS_MAX);
    return RP_OK;
}

rp_status rpi_streams_find(int *out_streams) {
    const char *text = getenv("REDPOLL_STREAMS");
    char *end = NULL;
    *out_streams = 1;
    if (!text || !*text) return RP_OK;
    long count = strtol(text, &end, 10);
    if (*end || count < 1 || count > RPI_STREAMS_MAX)
        return RP_FAIL(INVALID, "REDPOLL_STREAMS is '%.40s'; 1 to %d connections a link", text,
                       RPI_STREAMS_MAX);
    *out_streams = (int)count;
    return RP_OK;
}

rp_status rpi_peer_check(const rpi_endpoint *endpoint, int peer) {
    if (peer < 0 || peer >= endpoint->world || peer == endpoint->rank)
        return RP_FAIL(INVALID, "rank %d cannot connect to rank %d in a world of %d",
                       endpoint->rank, peer, endpoint->world);
    return RP_OK;
}
