/* The file of a rank in --output-dir, which both of its streams share, line by line. */
#ifndef RPI_CLI_RANK_FILE_H
#define RPI_CLI_RANK_FILE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct rpi_rank_file {
    const char *launcher; /* for messages: "redpoll run" */
    const char *folder;
    int rank;
    int fd;             /* -1: not opened, closed, or given up */
    bool has_failed;    /* something could not be written, which has been said */
    const void *writer; /* who wrote last, and may go on with its line; NULL: nobody */
    bool is_in_line;    /* what it wrote ends within a line */
} rpi_rank_file;

/* "FOLDER/rank-3.log", empty. A folder's name is kept. RP_IO: cannot be written. */
rp_status rpi_rank_file_open(rpi_rank_file *file, const char *launcher, const char *folder,
                             int rank);
/* Appends bytes of one writer as they are. Where another writer has left a line unfinished they
 * begin on a line of their own. Returns how many bytes are in the file: all of them, or as many
 * whole lines as go in where the file takes no more; then that has been reported with the name
 * of the file, and the file is given up. */
size_t rpi_rank_file_write(rpi_rank_file *file, const void *writer, const char *text,
                           size_t bytes);
/* Who wrote last will not go on with its line. */
void rpi_rank_file_end_writers(rpi_rank_file *file);
/* False: the file lacks some of what was written, which has been reported. A file that was
 * never opened is fine. */
bool rpi_rank_file_close(rpi_rank_file *file);

#endif
