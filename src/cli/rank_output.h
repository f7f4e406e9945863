/* What one rank prints on one stream: where it comes from, the line that is not complete yet,
 * and where it goes. */
#ifndef RPI_CLI_RANK_OUTPUT_H
#define RPI_CLI_RANK_OUTPUT_H

#include "cli/rank_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { RPI_LINE_BYTES = 8192 }; /* longer lines are broken */
enum { RPI_LAST_LINES = 5, RPI_LAST_LINE_BYTES = 400 };

/* The last lines of a rank, of both streams. */
typedef struct rpi_last_lines {
    char text[RPI_LAST_LINES][RPI_LAST_LINE_BYTES];
    size_t bytes[RPI_LAST_LINES];
    long count; /* of all lines; number n stands at n % RPI_LAST_LINES */
} rpi_last_lines;

typedef struct rpi_rank_output {
    int fd; /* our end of a pipe, non-blocking; -1: none, or closed */
    int rank;
    rpi_rank_file *file;  /* takes the bytes as they are, while it can be written; NULL: none */
    FILE *sink;           /* stdout or stderr, for lines that no file takes */
    const char *before;   /* what goes before a line; NULL: nothing */
    const char *name;     /* "[name] " in place of "[rank] "; NULL: the rank */
    bool is_shown;        /* the sink is a terminal: controls are shown (visible_text.h) */
    rpi_last_lines *last; /* remembers lines; NULL: nobody asks */
    bool after_return; /* a carriage return was printed last: a newline that comes now belongs
                          to it */
    bool has_lost;     /* something was lost: standard error goes to a disk that is full, for
                          example */
    size_t bytes;
    char line[RPI_LINE_BYTES];
} rpi_rank_output;

/* Copy what has come, line by line, each behind "[rank] ". Closes fd at the end of the stream.
 */
void rpi_rank_output_take(rpi_rank_output *output);
/* The same with what somebody else has read. */
void rpi_rank_output_feed(rpi_rank_output *output, const char *text, size_t bytes);
/* Take the rest, complete or not, and close. */
void rpi_rank_output_finish(rpi_rank_output *output);

/* "[3] LINE", as many as there are. */
void rpi_last_lines_print(const rpi_last_lines *last, int rank, bool is_shown, FILE *stream);

/* Is what ranks print to be shown rather than passed on there? Not where it is no terminal,
 * which alone obeys it, or where the user asked for it as it is. */
bool rpi_output_is_shown(FILE *sink, bool is_raw);

#endif
