/* The incoming bytes of a TCP connection (tcp_stream_state.h): read ahead and divided into
 * frames, each contiguous and aligned. */
#ifndef RPI_NET_TCP_IN_H
#define RPI_NET_TCP_IN_H

#include "net/tcp/tcp_stream_state.h"

/* As in the contract of a transport (transport.h). */
rp_status rpi_tcp_stream_peek(rpi_tcp_stream *stream, const void **out_frame,
                              size_t *out_bytes);
void rpi_tcp_stream_release(rpi_tcp_stream *stream);
/* One read, while rpi_tcp_stream_may_receive(). */
void rpi_tcp_stream_receive(rpi_tcp_stream *stream);
void rpi_tcp_stream_note_readable(rpi_tcp_stream *stream);
/* Received bytes are still read, but no more are waited for. */
void rpi_tcp_stream_hang_up(rpi_tcp_stream *stream);
/* A call that was `doing` something has failed: this is the failure of the stream, if it is the
 * first. */
rp_status rpi_tcp_stream_keep_errno(rpi_tcp_stream *stream, const char *doing);

#endif
