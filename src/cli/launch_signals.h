/* The signals that a launcher receives and passes on to its ranks. */
#ifndef RPI_CLI_LAUNCH_SIGNALS_H
#define RPI_CLI_LAUNCH_SIGNALS_H

#include "base/status.h"

#include <signal.h>

/* Blocks SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGCHLD, and reads them from a
 * descriptor instead. A signal that this process was started to ignore (SIGHUP under nohup,
 * SIGINT in the background of a script) is left ignored, as ranks ignore it, too. */
rp_status rpi_launch_signals_take(sigset_t *before, int *out_fd);

#endif
