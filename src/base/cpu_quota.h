/* How much of the processors the control groups of a process allow. */
#ifndef RPI_BASE_CPU_QUOTA_H
#define RPI_BASE_CPU_QUOTA_H

#include <stdint.h>

/* In cores, 1.5 for 150 ms of every 100; INFINITY: no limit that can be seen. The tightest of
 * the process's own group and all groups above it, in version 1 (cpu.cfs_quota_us) and 2
 * (cpu.max) of control groups, which may be mounted side by side. In a container groups above
 * its own are out of sight. pid: 0 is this process. root: "" but in tests, the folder in which
 * /proc and the mounted hierarchies are looked up. */
double rpi_cpu_quota(const char *root, int64_t pid);

#endif
