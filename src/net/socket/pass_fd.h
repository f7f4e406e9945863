/* Passing descriptors to another process over a Unix socket. */
#ifndef RPI_NET_PASS_FD_H
#define RPI_NET_PASS_FD_H

#include "base/status.h"

#include <stddef.h>

enum { RPI_PASS_FDS = 4 };

/* One message with `count` descriptors; the sender keeps its own. */
rp_status rpi_fds_send(int socket, const int *fds, int count, int64_t deadline_ns);
/* Receives that message: exactly `count` descriptors, close-on-exec, now the caller's. RP_PEER:
 * closed; RP_CORRUPT: another number of them; RP_TIMEOUT. */
rp_status rpi_fds_receive(int socket, int *fds, int count, int64_t deadline_ns);

/* Sends and receives whole messages, with a descriptor or without (-1), and never waits:
 * RP_PENDING if there is no room, or nothing has arrived. A descriptor for which the receiving
 * process has no number left is -1, too. RP_PEER: the other side has closed; RP_CORRUPT: fewer
 * bytes, or more descriptors. */
rp_status rpi_note_send(int socket, const void *note, size_t bytes, int fd);
rp_status rpi_note_receive(int socket, void *note, size_t bytes, int *out_fd);

#endif
