/* Rows of a file that cannot be used: the first five are named in one line, the rest counted;
 * or all of them are left out, which is told. */
#ifndef RPI_TRAIN_BROKEN_ROWS_H
#define RPI_TRAIN_BROKEN_ROWS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { RPI_BROKEN_NAMED = 5 };

/* Zeros with the first three filled in. */
typedef struct rpi_broken_rows {
    const char *path;
    const char *unit; /* "row" */
    bool skips;       /* they are left out */

    int64_t count;
    rp_status status; /* of the first */
    char text[800];   /* "PATH:3: why; line 7: why", "PATH:1 (row 3): why" */
    char first[300];  /* why, of the first */
} rpi_broken_rows;

/* This thread's last failure, `status`, is what is wrong with the row. line, row: as of an
 * rpi_text_part; where: NULL for these, else "question q7". Only RP_CORRUPT and RP_INVALID are
 * a row's own; others are returned. */
rp_status rpi_broken_rows_add(rpi_broken_rows *rows, rp_status status, int64_t line,
                              int64_t row, const char *where);
/* Have enough been named, so that looking for more is of no use? */
bool rpi_broken_rows_are_enough(const rpi_broken_rows *rows);
/* At the end, of `all` rows, 0: not counted. RP_OK where none is broken, or they are left out
 * and others remain; else the status of the first, with all that are named and the way to go on
 * without. */
rp_status rpi_broken_rows_end(const rpi_broken_rows *rows, int64_t all);
/* Warns of those that were left out, if there are. */
void rpi_broken_rows_tell(const rpi_broken_rows *rows, int64_t all);

#endif
