/* Open files: is what a world needs within this process's limit? Better said before than by
 * what cannot be opened in the middle. */
#ifndef RPI_NET_DESCRIPTOR_LIMIT_H
#define RPI_NET_DESCRIPTOR_LIMIT_H

#include "base/status.h"

/* RP_IO: `rank` of `world` needs `needed` more descriptors than the soft limit leaves, and how
 * to raise it. */
rp_status rpi_descriptors_check(int rank, int world, long needed);

#endif
