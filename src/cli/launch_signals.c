#include "cli/launch_signals.h"

#include "base/lacking.h"
#include "base/status.h"
#include "cli/file_limit.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/signalfd.h>

static bool is_ignored(int number) {
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

rp_status rpi_launch_signals_take(sigset_t *before, int *out_fd) {
    static const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t mask;
    sigemptyset(&mask);
    rpi_file_limit_heed(); /* the limit of file sizes also holds for the files of ranks */
    /* If it were ignored, waitpid() would not have the status of a rank. */
    signal(SIGCHLD, SIG_DFL);
    sigaddset(&mask, SIGCHLD);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        if (!is_ignored(taken[i])) sigaddset(&mask, taken[i]);
    sigprocmask(SIG_BLOCK, &mask, before);
    *out_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return *out_fd < 0 ? RP_FAIL_ERRNO(IO, "cannot watch signals (signalfd4%s)",
                                       rpi_lacking_call(errno))
                       : RP_OK;
}
