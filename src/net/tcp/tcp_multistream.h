/* The TCP connections of one link: one as a rule, several where REDPOLL_STREAMS says so, over
 * one interface or over several.
 *
 *     committed 1 2 3 4 5        each whole on one stream, the one with least to send
 *     streams   1 3 . | 2 4 5    every frame behind its number
 *     looked at 1 2 3 4 5        in the order in which they were committed
 *
 * A frame that is next is the oldest of its stream, whose earlier frames have all been taken:
 * it always has room, and no stream can keep another from going on for good. A stream that is
 * slower gets less to carry, since more of its frames still wait. The link fails with the first
 * stream that does; frames that have come whole and are next are still shown. */
#ifndef RPI_NET_TCP_MULTISTREAM_H
#define RPI_NET_TCP_MULTISTREAM_H

#include "net/tcp/tcp_stream.h"

typedef struct rpi_tcp_multistream {
    rpi_tcp_stream *streams; /* [count] */
    int count;
    size_t frame_bytes;
    /* Of several streams; with one stream all of it belongs to that. */
    rpi_sticky_error sticky; /* the first stream that has failed */
    int reserved, held;      /* the stream whose region is reserved; whose frame is peeked at;
                              * -1: none */
    size_t starved;          /* bytes for which the last reserve() found no room; 0: none */
    size_t bulk_starved;     /* the same of bulk */
    uint32_t next_out, next_in; /* numbers of frames */
} rpi_tcp_multistream;

/* Takes over the connections, also if it fails; close() follows in either case. */
rp_status rpi_tcp_multistream_open(rpi_tcp_multistream *multistream, rpi_link *link,
                                   const rpi_channel *channels, int count, size_t frame_bytes);
void rpi_tcp_multistream_close(rpi_tcp_multistream *multistream);
/* In a child made by fork() (transport.h). */
void rpi_tcp_multistream_close_after_fork(rpi_tcp_multistream *multistream);

/* As in the contract of a transport (transport.h). */
rp_status rpi_tcp_multistream_reserve(rpi_tcp_multistream *multistream, size_t bytes,
                                      rpi_traffic traffic, void **out_region);
rp_status rpi_tcp_multistream_commit(rpi_tcp_multistream *multistream, size_t bytes,
                                     rpi_traffic traffic);
rp_status rpi_tcp_multistream_peek(rpi_tcp_multistream *multistream, const void **out_frame,
                                   size_t *out_bytes);
void rpi_tcp_multistream_release(rpi_tcp_multistream *multistream);
/* Send and receive as much as the kernel takes and has. */
void rpi_tcp_multistream_move(rpi_tcp_multistream *multistream);
bool rpi_tcp_multistream_is_ready(rpi_tcp_multistream *multistream);
bool rpi_tcp_multistream_is_flushed(const rpi_tcp_multistream *multistream);
bool rpi_tcp_multistream_is_delivered(const rpi_tcp_multistream *multistream);
void rpi_tcp_multistream_describe(const rpi_tcp_multistream *multistream, char *text,
                                  size_t bytes);

#endif
