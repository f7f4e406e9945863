/* Anonymous memory files for other processes to map. They are sealed against a change of their
 * size, so that nobody can take the memory away from the other side. If memfd_create() is
 * forbidden they are files without a name in /dev/shm or $XDG_RUNTIME_DIR, of this user. */
#ifndef RPI_NET_SEALED_MEMORY_H
#define RPI_NET_SEALED_MEMORY_H

#include "base/status.h"

#include <stddef.h>

/* Of `bytes`, zeroed; the caller closes the descriptor, which is close-on-exec. RP_UNSUPPORTED:
 * there can be none here; RP_NOMEM, RP_IO. */
rp_status rpi_sealed_make(size_t bytes, int *out_fd);
/* Checks that a received descriptor is such memory of exactly `bytes`; RP_CORRUPT: it is not.
 */
rp_status rpi_sealed_check(int fd, size_t bytes);
/* protection: PROT_READ, PROT_WRITE. munmap() undoes it; the descriptor may be closed. */
rp_status rpi_sealed_map(int fd, size_t bytes, int protection, void **out_memory);

#endif
