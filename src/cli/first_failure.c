#include "cli/first_failure.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* A death that is seen within this time after a failure counts as the first. */
#define HOLD_S 0.2

void rpi_first_failure_note(rpi_first_failure *first, int rank, int status, bool was_told) {
    bool was_first = first->rank < 0;
    if (was_first) first->name_ns = rpi_deadline_ns(HOLD_S);
    if (!was_first && (first->is_named || was_told || !WIFSIGNALED(status))) return;
    first->rank = rank;
    first->status = status;
    first->was_told = was_told;
    if (WIFSIGNALED(status)) first->name_ns = rpi_now_ns();
}

bool rpi_first_failure_is_due(const rpi_first_failure *first) {
    return first->rank >= 0 && !first->is_named && rpi_now_ns() >= first->name_ns;
}

int64_t rpi_first_failure_due_ns(const rpi_first_failure *first) {
    return first->rank >= 0 && !first->is_named ? first->name_ns : RPI_NEVER_NS;
}

int rpi_first_failure_code(const rpi_first_failure *first, int stop_signal) {
    if (stop_signal && first->was_told && WIFSIGNALED(first->status)) return 128 + stop_signal;
    return rpi_exit_code_of(first->status);
}

int rpi_exit_code_of(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

const char *rpi_ending_text(int status, char *text, size_t bytes) {
    if (WIFSIGNALED(status))
        snprintf(text, bytes, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, bytes, "ended with exit code %d", WEXITSTATUS(status));
    return text;
}
