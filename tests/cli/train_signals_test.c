/* Handlers of a training process run on a stack of their own. */
#include "cli/train_signals.h"

#include "harness/check.h"

#include <signal.h>

static void check_handler(int number) {
    struct sigaction action;
    CHECK(sigaction(number, NULL, &action) == 0);
    CHECK(action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
    CHECK_MSG(action.sa_flags & (int)SA_ONSTACK, "signal %d is taken on the thread's stack",
              number);
}

static void handlers_leave_the_stack_of_kernels_alone(void) {
    stack_t stack;
    signal(SIGINT, SIG_DFL); /* a shell in the background has it ignored */
    rpi_train_take_save_signal();
    rpi_train_take_stop_signals(false, true);
    check_handler(SIGUSR1);
    check_handler(SIGTERM);
    check_handler(SIGINT);
    CHECK(sigaltstack(NULL, &stack) == 0 && !(stack.ss_flags & SS_DISABLE));
    raise(SIGUSR1);
    raise(SIGTERM);
    CHECK(rpi_train_asked(NULL) != 0);
    CHECK_EQ(rpi_train_stop_signal(), SIGTERM);
    rpi_train_drop_stop_signals();
}

CASES({"handlers leave the stack of kernels alone", handlers_leave_the_stack_of_kernels_alone})
