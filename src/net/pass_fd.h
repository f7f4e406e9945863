/* Descriptors handed to another process over a Unix socket. */
#ifndef RPI_NET_PASS_FD_H
#define RPI_NET_PASS_FD_H

#include "base/status.h"

enum { RPI_PASS_FDS = 4 };

/* One message with `count` descriptors; the sender keeps its own. */
rp_status rpi_fds_send(int socket, const int *fds, int count, int64_t deadline_ns);
/* That message: exactly `count` descriptors, close-on-exec, now the caller's. RP_PEER: closed;
 * RP_CORRUPT: another number of them; RP_TIMEOUT. */
rp_status rpi_fds_receive(int socket, int *fds, int count, int64_t deadline_ns);

#endif
