/* A file that appears whole or not at all: written aside, renamed when all of it is there. */
#ifndef RPI_CLI_REPORT_OUTPUT_FILE_H
#define RPI_CLI_REPORT_OUTPUT_FILE_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct rpi_output_file {
    FILE *stream; /* write here; NULL once finished */
    char *path, *aside;
} rpi_output_file;

/* Begin a file beside `path`; what is no regular file (a device, a pipe) is written directly.
 * RP_IO names the path. */
rp_status rpi_output_open(const char *path, rpi_output_file *out_file);
/* All is written: RP_IO when not every byte got through. The path is still as it was. */
rp_status rpi_output_finish(rpi_output_file *file);
/* Finish unless finished, put it in place, and free. */
rp_status rpi_output_commit(rpi_output_file *file);
/* Leave nothing behind, unless committed. */
void rpi_output_discard(rpi_output_file *file);

/* Make a folder with its parents; one that is there is fine. */
rp_status rpi_output_folder(const char *path);

#endif
