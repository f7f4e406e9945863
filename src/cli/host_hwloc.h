/* The processors of this host as hwloc sees them, if this build has it (libhwloc-dev). hwloc
 * knows hosts that the kernel describes badly, and those that HWLOC_SYNTHETIC or HWLOC_XMLFILE
 * name in place of this one. */
#ifndef RPI_CLI_HOST_HWLOC_H
#define RPI_CLI_HOST_HWLOC_H

#include "base/status.h"
#include "cli/bind_host.h"

/* Such as "2.9.0"; NULL: this build has none. */
const char *rpi_hwloc_version(void);
/* RP_IO: hwloc does not know. */
rp_status rpi_hwloc_find(rpi_bind_host *out_host);

#endif
