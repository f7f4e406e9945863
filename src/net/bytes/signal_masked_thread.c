#include "net/bytes/signal_masked_thread.h"

#include "base/lacking.h"

#include <signal.h>
#include <string.h>

rp_status rpi_signal_masked_thread(const char *what, void *(*run)(void *), void *context,
                                   pthread_t *out_thread) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(out_thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return RP_FAIL(IO, "cannot start the thread of %s: %s%s", what, strerror(error),
                       rpi_lacking_threads(error));
    return RP_OK;
}
