/* One stream of one rank: its pipe, and the line that is not complete yet. */
#ifndef RPI_CLI_RANK_OUTPUT_H
#define RPI_CLI_RANK_OUTPUT_H

#include <stddef.h>
#include <stdio.h>

enum { RPI_LINE_BYTES = 8192 }; /* longer lines are broken */

typedef struct rpi_rank_output {
    int fd; /* our end of the pipe, non-blocking; -1: closed */
    int rank;
    FILE *sink;         /* stdout or stderr */
    const char *before; /* what goes before a line; NULL: nothing */
    size_t bytes;
    char line[RPI_LINE_BYTES];
} rpi_rank_output;

/* Copy what has come, line by line, each behind "[rank] ". Closes fd at the end of the stream.
 */
void rpi_rank_output_take(rpi_rank_output *output);
/* Take the rest, complete or not, and close. */
void rpi_rank_output_finish(rpi_rank_output *output);

#endif
