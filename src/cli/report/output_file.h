/* Several files that appear together, each whole or not at all: all are written aside before
 * the first is put in place. */
#ifndef RPI_CLI_REPORT_OUTPUT_FILE_H
#define RPI_CLI_REPORT_OUTPUT_FILE_H

#include "base/regular_file.h"

#include <stdbool.h>

typedef struct rpi_output_file {
    FILE *stream;                /* write here; NULL: not open */
    rpi_replacement replacement; /* what is no regular file (a device, a pipe) has none */
    bool direct;
} rpi_output_file;

/* Begin a file; a device or a pipe is written directly. RP_IO names the path. */
rp_status rpi_output_open(const char *path, rpi_output_file *out_file);
/* All is written: RP_IO when not every byte got through. The path is still as it was. */
rp_status rpi_output_finish(rpi_output_file *file);
/* Finish, and put the file in place; closed either way. */
rp_status rpi_output_commit(rpi_output_file *file);
/* Leave nothing behind; what is not open is fine. */
void rpi_output_discard(rpi_output_file *file);

#endif
