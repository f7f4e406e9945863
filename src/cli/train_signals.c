#include "cli/train_signals.h"

#include "train/train.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t save_asked, stop_signal;
static const char *volatile stop_line; /* NULL: it is not said */

static void on_save(int number) {
    (void)number;
    save_asked = 1;
}

static void on_stop(int number) {
    const char *line = stop_line;
    int kept = errno;
    stop_signal = number;
    if (line) {
        ssize_t written = write(STDERR_FILENO, line, strlen(line));
        (void)written;
    }
    errno = kept;
}

enum { STACK_BYTES = 1 << 17 }; /* the state of AVX-512 and AMX takes more than 11 KiB */

/* Handlers have a stack of their own: kernels of oneDNN point the stack register of the thread
 * that calls them into the heap, and what a signal saves there would go over the heap. Signals
 * of the process go to its first thread, which is the caller. */
static void take_stack(void) {
    static char memory[STACK_BYTES];
    stack_t old, stack = {.ss_sp = memory, .ss_size = sizeof memory};
    if (sigaltstack(NULL, &old) == 0 && (old.ss_flags & SS_DISABLE)) sigaltstack(&stack, NULL);
}

static void take(int number, void (*handler)(int), int flags) {
    struct sigaction old,
        action = {.sa_handler = handler, .sa_flags = flags | SA_RESTART | (int)SA_ONSTACK};
    take_stack();
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

void rpi_train_take_save_signal(void) {
    take(SIGUSR1, on_save, 0);
}

void rpi_train_take_stop_signals(bool says_so, bool saves) {
    const char *line = saves
                           ? "\nredpoll: ending after this step, with a checkpoint; once more "
                             "ends it at once\n"
                           : "\nredpoll: ending after this step, without a checkpoint, as "
                             "--no-checkpoint says; once more ends it at once\n";
    stop_line = says_so ? line : NULL;
    take(SIGTERM, on_stop, (int)SA_RESETHAND);
    take(SIGINT, on_stop, (int)SA_RESETHAND);
}

static void drop(int number) {
    struct sigaction old;
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler == on_stop)
        signal(number, SIG_DFL);
}

void rpi_train_drop_stop_signals(void) {
    drop(SIGTERM);
    drop(SIGINT);
}

int rpi_train_asked(void *context) {
    (void)context;
    int asked = stop_signal ? RPI_ASKED_STOP : 0;
    if (!save_asked) return asked;
    save_asked = 0;
    return asked | RPI_ASKED_SAVE;
}

int rpi_train_stop_signal(void) {
    return stop_signal ? stop_signal : SIGTERM;
}
