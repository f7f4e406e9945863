/* Threads of the library take no signals: those are the program's. */
#include "net/bytes/signal_masked_thread.h"

#include "harness/check.h"

#include <signal.h>

static void *look_at_mask(void *context) {
    pthread_sigmask(SIG_SETMASK, NULL, context);
    return NULL;
}

static void all_signals_are_blocked_in_it_and_none_besides(void) {
    pthread_t thread;
    sigset_t mine, inside, after;
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &mine, NULL);
    REQUIRE_OK(rpi_signal_masked_thread("a test", look_at_mask, &inside, &thread));
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    static const int some[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGALRM, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        CHECK_EQ(sigismember(&inside, some[i]), 1);
        CHECK_EQ(sigismember(&after, some[i]), some[i] == SIGUSR2);
    }
}

CASES({"all_signals_are_blocked_in_it_and_none_besides",
       all_signals_are_blocked_in_it_and_none_besides})
