/* Bytes that nobody can guess. */
#ifndef RPI_NET_RANDOM_BYTES_H
#define RPI_NET_RANDOM_BYTES_H

#include "base/status.h"

#include <stddef.h>

/* From the kernel, by /dev/urandom if a seccomp profile forbids getrandom(). RP_IO says that
 * `what` could not be drawn. */
rp_status rpi_random_bytes(const char *what, void *out_bytes, size_t bytes);

#endif
