/* Opening what a user names as a file. A pipe without a writer would block for ever, a device
 * may never end, and a folder opens as well as a file does: none of them is one. */
#ifndef RPI_BASE_REGULAR_FILE_H
#define RPI_BASE_REGULAR_FILE_H

#include "redpoll/status.h"

#include <stdint.h>
#include <stdio.h>

/* Open an existing regular file for reading, as a stream or a descriptor to close(), and tell
 * its size; never blocks. RP_NOT_FOUND: there is none; RP_IO: it cannot be opened; RP_CORRUPT:
 * it is something else, which is said, or a pointer of Git LFS. */
rp_status rpi_regular_file_open(const char *path, FILE **out_stream, int64_t *out_bytes);
rp_status rpi_regular_file_descriptor(const char *path, int *out_fd, int64_t *out_bytes);

/* A whole file of at most `most` bytes with a NUL behind it; free with rpi_free(). RP_CORRUPT
 * also when it is longer. */
rp_status rpi_regular_file_read(const char *path, size_t most, char **out_text,
                                size_t *out_bytes);

/* Open for writing, "w" or "a" as of fopen(); made where there is none. What would block is
 * refused (RP_IO). */
rp_status rpi_regular_file_write(const char *path, const char *mode, FILE **out_stream);

/* Replace a file, or make it, so that under its name there is always a whole one: write to the
 * stream of the first, then call the second with how that went, which it returns unless it
 * fails itself. On RP_OK the file is on the disk; else what was there stays, and nothing is
 * left beside it. RP_IO: cannot be written, or the disk is full. */
enum { RPI_PATH_BYTES = 1024 };
typedef struct rpi_replacement {
    FILE *stream;
    char path[RPI_PATH_BYTES], aside[RPI_PATH_BYTES];
} rpi_replacement;
rp_status rpi_replacement_open(const char *path, rpi_replacement *out_replacement);
rp_status rpi_replacement_close(rpi_replacement *replacement, rp_status status);

#endif
