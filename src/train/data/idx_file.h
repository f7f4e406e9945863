/* IDX files, as MNIST and its relatives come: big-endian sizes, then bytes; plain or gzip.
 *
 *     0 0 type dims | size of each dimension, 4 bytes | elements        type 8: unsigned bytes
 */
#ifndef RPI_TRAIN_IDX_FILE_H
#define RPI_TRAIN_IDX_FILE_H

#include "train/data/dataset.h"

/* Images (3 dimensions: count, height, width; or 4: count, channels, height, width) and their
 * labels (1 dimension) of two files. Allocated on success, nothing on failure. RP_NOT_FOUND: a
 * file is missing; RP_CORRUPT: no regular file, wrong magic, sizes, or length, a .gz that is no
 * gzip or lacks its end; RP_NOMEM: more than this machine's memory. */
rp_status rpi_idx_read(const char *images_path, const char *labels_path,
                       rpi_images *out_images);

#endif
