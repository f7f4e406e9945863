/* A TCP connection of a link as a whole: tcp_stream_state.h has its state and a picture,
 * tcp_in.h and tcp_out.h are its two directions. */
#ifndef RPI_NET_TCP_STREAM_H
#define RPI_NET_TCP_STREAM_H

#include "net/tcp/tcp_stream_state.h"

/* Takes over the connection, also if it fails; close() follows in either case. */
rp_status rpi_tcp_stream_open(rpi_tcp_stream *stream, rpi_link *link, rpi_channel channel,
                              size_t frame_bytes, bool numbered);
void rpi_tcp_stream_close(rpi_tcp_stream *stream);

/* Events of epoll, edge-triggered. */
void rpi_tcp_stream_event(rpi_tcp_stream *stream, uint32_t events);
/* Send and receive as much as the kernel takes and has. */
void rpi_tcp_stream_move(rpi_tcp_stream *stream);
bool rpi_tcp_stream_is_ready(rpi_tcp_stream *stream);

#endif
