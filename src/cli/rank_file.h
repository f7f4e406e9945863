/* The file of a rank in --output-dir, which both of its streams write, line by line. */
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
    bool has_failed;    /* something could not be written, which has been reported */
    const void *writer; /* the last writer, who may continue its line; NULL: none */
    bool is_in_line;    /* it ends within a line */
} rpi_rank_file;

/* Opens "FOLDER/rank-3.log" as an empty file. Borrows the folder's name. RP_IO: it cannot be
 * written. */
rp_status rpi_rank_file_open(rpi_rank_file *file, const char *launcher, const char *folder,
                             int rank);
/* Appends bytes of one writer unchanged. If another writer has left a line unfinished they
 * begin on a new line. Returns how many bytes are in the file: all of them, or as many whole
 * lines as fit if the file takes no more; then that has been reported with the name of the
 * file, and the file is given up. */
size_t rpi_rank_file_write(rpi_rank_file *file, const void *writer, const char *text,
                           size_t bytes);
/* The last writer will not continue its line. */
void rpi_rank_file_end_writers(rpi_rank_file *file);
/* False: a part of what was written is missing in the file, which has been reported. A file
 * that was never opened is fine. */
bool rpi_rank_file_close(rpi_rank_file *file);

#endif
