/* The output of one rank on one stream: its source, the line that is not complete yet, and its
 * destination. */
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
    long count; /* of all lines; line n is at n % RPI_LAST_LINES */
} rpi_last_lines;

typedef struct rpi_rank_output {
    int fd; /* our end of a pipe, non-blocking; -1: none, or closed */
    int rank;
    rpi_rank_file *file; /* takes the bytes unchanged, while it can be written; NULL: none */
    FILE *sink;          /* stdout or stderr, for lines that are not in a file */
    const char *before;  /* the text before a line; NULL: none */
    const char *name;    /* "[name] " instead of "[rank] "; NULL: the rank */
    /* the sink is a terminal: control characters are made visible (visible_text.h) */
    bool is_shown;
    rpi_last_lines *last; /* keeps lines; NULL: not needed */
    /* a carriage return was printed last: a newline that follows belongs to it */
    bool after_return;
    /* something was lost, for example because standard error goes to a full disk */
    bool has_lost;
    size_t bytes;
    char line[RPI_LINE_BYTES];
} rpi_rank_output;

/* Copies what has arrived, line by line, each after "[rank] ". Closes fd at the end of the
 * stream. */
void rpi_rank_output_take(rpi_rank_output *output);
/* The same with text that the caller has read. */
void rpi_rank_output_feed(rpi_rank_output *output, const char *text, size_t bytes);
/* Takes the rest, complete or not, and closes. */
void rpi_rank_output_finish(rpi_rank_output *output);

/* Prints the kept lines as "[3] LINE". */
void rpi_last_lines_print(const rpi_last_lines *last, int rank, bool is_shown, FILE *stream);

/* Is output made visible rather than passed on there? Not if it is no terminal, as only a
 * terminal obeys control characters, or if the user asked for raw output. */
bool rpi_output_is_shown(FILE *sink, bool is_raw);

#endif
