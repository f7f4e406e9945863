/* Several files that appear together, each complete or not at all: all are written under other
 * names before the first is put in place. */
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
/* Everything is written: RP_IO if not every byte was. The path is still unchanged. */
rp_status rpi_output_finish(rpi_output_file *file);
/* Finish, and put the file in place; closed either way. */
rp_status rpi_output_commit(rpi_output_file *file);
/* Leave nothing behind; closed files are fine. */
void rpi_output_discard(rpi_output_file *file);

#endif
