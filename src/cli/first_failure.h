/* Finds which rank failed first. That is said only after a moment: where a rank was killed and
 * another fails because of it, the second may be seen first. */
#ifndef RPI_CLI_FIRST_FAILURE_H
#define RPI_CLI_FIRST_FAILURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rpi_first_failure {
    int rank; /* -1: none so far */
    int status;
    bool was_told;   /* the launcher had sent it a signal to end before */
    bool is_named;   /* it has been said */
    int64_t name_ns; /* when it will be */
} rpi_first_failure;

/* A rank has ended with this status of waitpid(), not 0; was_told: after the launcher had sent
 * it a signal to end, of which it may have died. */
void rpi_first_failure_note(rpi_first_failure *first, int rank, int status, bool was_told);
/* Is it to be said now? */
bool rpi_first_failure_is_due(const rpi_first_failure *first);
/* When it will be; RPI_NEVER_NS: never. */
int64_t rpi_first_failure_due_ns(const rpi_first_failure *first);
/* The exit code of a launch with this failure. stop_signal: by which signal the launch was told
 * to end; 0: it was not. A rank that had to be killed for that has not failed, and the code is
 * 128 + stop_signal. */
int rpi_first_failure_code(const rpi_first_failure *first, int stop_signal);
/* 128 + signal when it was killed. */
int rpi_exit_code_of(int status);
/* "was killed by signal 9 (Killed)" or "ended with exit code 3". */
const char *rpi_ending_text(int status, char *text, size_t bytes);

#endif
