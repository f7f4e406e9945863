/* The signals that a launcher takes over and passes on to its ranks. */
#ifndef RPI_CLI_LAUNCH_SIGNALS_H
#define RPI_CLI_LAUNCH_SIGNALS_H

#include "base/status.h"

#include <signal.h>

/* Block SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGCHLD, and read them from a
 * descriptor instead. What our starter had us ignore (nohup: SIGHUP; a script's background:
 * SIGINT) the ranks ignore too, and it is not taken. */
rp_status rpi_launch_signals_take(sigset_t *before, int *out_fd);

#endif
