/* Checks that a world's descriptors fit into this process's limit of open files, so that the
 * error comes at the start and not when one cannot be opened later. */
#ifndef RPI_NET_DESCRIPTOR_LIMIT_H
#define RPI_NET_DESCRIPTOR_LIMIT_H

#include "base/status.h"

/* RP_IO: `rank` of `world` needs `needed` more descriptors than the soft limit leaves; the
 * message says how to raise it. */
rp_status rpi_descriptors_check(int rank, int world, long needed);

#endif
