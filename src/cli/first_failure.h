/* Finds which rank failed first. It is named only after a moment: if a rank was killed and
 * another one fails because of that, the second may be seen first. */
#ifndef RPI_CLI_FIRST_FAILURE_H
#define RPI_CLI_FIRST_FAILURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rpi_first_failure {
    int rank; /* -1: none so far */
    int status;
    bool was_told;   /* the launcher had sent it a signal to end before */
    bool is_named;   /* it has been named */
    int64_t name_ns; /* when it will be named */
} rpi_first_failure;

/* Notes that a rank has ended with this status of waitpid(), which is not 0; was_told: the
 * launcher had sent it a signal to end before, of which it may have died. */
void rpi_first_failure_note(rpi_first_failure *first, int rank, int status, bool was_told);
/* Is it time to name it? */
bool rpi_first_failure_is_due(const rpi_first_failure *first);
/* When it is to be named; RPI_NEVER_NS: never. */
int64_t rpi_first_failure_due_ns(const rpi_first_failure *first);
/* The exit code of a launch with this failure. stop_signal: the signal that told the launch to
 * end; 0: none. A rank that had to be killed for that has not failed, and the code is 128 +
 * stop_signal. */
int rpi_first_failure_code(const rpi_first_failure *first, int stop_signal);
/* 128 + signal if it was killed. */
int rpi_exit_code_of(int status);
/* "was killed by signal 9 (Killed)" or "ended with exit code 3". */
const char *rpi_ending_text(int status, char *text, size_t bytes);

#endif
