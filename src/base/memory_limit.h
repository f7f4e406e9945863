/* How much memory the processes of a host may have together. */
#ifndef RPI_BASE_MEMORY_LIMIT_H
#define RPI_BASE_MEMORY_LIMIT_H

#include <stddef.h>

/* Bytes: what the host has, or what the control groups of this process allow, memory.max or
 * memory.limit_in_bytes, where that is less; INFINITY: neither can be seen. root: as of
 * rpi_cpu_quota(). */
double rpi_memory_limit(const char *root);
/* What this process holds now; 0: it cannot be seen. */
double rpi_memory_resident(void);

#endif
