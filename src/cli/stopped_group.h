/* Is a rank stopped (SIGSTOP), so that it will not end by itself? */
#ifndef RPI_CLI_STOPPED_GROUP_H
#define RPI_CLI_STOPPED_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

/* Of a process group: a process of it is stopped, and none of it works. Those that wait for a
 * child of the group, as shells do, are left out. Reads /proc; false without it. */
bool rpi_group_is_stopped(pid_t group);

#endif
