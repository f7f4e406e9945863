/* The outgoing frames of a TCP connection (tcp_stream_state.h): two lanes, gathered so that one
 * call sends many. */
#ifndef RPI_NET_TCP_OUT_H
#define RPI_NET_TCP_OUT_H

#include "net/tcp/tcp_stream_state.h"

/* As in the contract of a transport (transport.h). number: of the frame in its link, if frames
 * are numbered. */
rp_status rpi_tcp_stream_reserve(rpi_tcp_stream *stream, size_t bytes, void **out_region);
/* The same of bulk: RP_PENDING while half of the longest frame waits for the kernel. */
rp_status rpi_tcp_stream_reserve_bulk(rpi_tcp_stream *stream, size_t bytes, void **out_region);
/* The same for an urgent frame, if frames are not numbered; it is then committed as one. */
rp_status rpi_tcp_stream_reserve_first(rpi_tcp_stream *stream, size_t bytes, void **out_region);
rp_status rpi_tcp_stream_commit_first(rpi_tcp_stream *stream, size_t bytes);
rp_status rpi_tcp_stream_commit(rpi_tcp_stream *stream, size_t bytes, uint32_t number);
/* All that the kernel takes. */
void rpi_tcp_stream_send(rpi_tcp_stream *stream);
void rpi_tcp_stream_note_writable(rpi_tcp_stream *stream);
/* Nothing more is sent. */
void rpi_tcp_stream_mute(rpi_tcp_stream *stream);
/* Whether there is room for a frame of this length. */
bool rpi_tcp_stream_has_room(rpi_tcp_stream *stream, size_t bytes);
/* Few bytes wait for the kernel, for a next frame of any length; otherwise short frames would
 * be at a disadvantage. */
bool rpi_tcp_stream_has_bulk_room(const rpi_tcp_stream *stream);
/* The last reserve() of some kind found no room, */
bool rpi_tcp_stream_awaits_room(const rpi_tcp_stream *stream);
/* and there is some now: reported once, as a caller that waits asks again, or no longer waits.
 */
bool rpi_tcp_stream_room_has_come(rpi_tcp_stream *stream);

/* The kernel has nothing left to send. Its bytes would be lost if the peer writes to a closed
 * connection, which the kernel answers with a reset. */
bool rpi_tcp_stream_is_delivered(const rpi_tcp_stream *stream);

#endif
