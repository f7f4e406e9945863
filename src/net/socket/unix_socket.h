/* Stream sockets of the abstract namespace: they have no name in a file system. */
#ifndef RPI_NET_UNIX_SOCKET_H
#define RPI_NET_UNIX_SOCKET_H

#include "base/status.h"

enum { RPI_UNIX_NAME_BYTES = 64 };

/* Under a random name. Sockets are close-on-exec and do not block. */
rp_status rpi_unix_listen(char name[RPI_UNIX_NAME_BYTES], int *out_fd);
/* RP_PEER: nobody listens there any more; RP_TIMEOUT: its queue stayed full. */
rp_status rpi_unix_dial(const char *name, int64_t deadline_ns, int *out_fd);

#endif
