/* A file as it reads when it is unpacked: what its first bytes say it is packed by (packings.c)
 * is unpacked on the way, also where several packed streams follow each other. */
#ifndef RPI_TRAIN_UNPACKED_FILE_H
#define RPI_TRAIN_UNPACKED_FILE_H

#include "train/texts/packing.h"

typedef struct rpi_unpacked_file rpi_unpacked_file;

/* RP_NOT_FOUND, RP_IO, RP_CORRUPT (a folder, a device) as of rpi_regular_file_descriptor();
 * RP_UNSUPPORTED: packed, and this build is without the library. */
rp_status rpi_unpacked_file_open(const char *path, rpi_unpacked_file **out_file);
void rpi_unpacked_file_close(rpi_unpacked_file *file); /* NULL is fine */

/* As many bytes as come at once, `most` at most; *out_count 0: the file is at its end.
 * RP_CORRUPT names the file: what is packed is damaged, or its end is missing. */
rp_status rpi_unpacked_file_read(rpi_unpacked_file *file, void *out, size_t most,
                                 size_t *out_count);
/* How much was read of the file as it lies on the disk. */
int64_t rpi_unpacked_file_offset(const rpi_unpacked_file *file);

#endif
