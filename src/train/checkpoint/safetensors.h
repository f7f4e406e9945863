/* Files of named tensors in the safetensors format, which PyTorch's safetensors reads too:
 *
 *     8 bytes: length of the header, little-endian
 *     header:  JSON {"name": {"dtype", "shape", "data_offsets"}, "__metadata__": {...}}
 *     the tensors' bytes, one after another
 *
 * A file is written under another name, synced and renamed, so that the file under its name is
 * always whole. Files that Redpoll writes have a checksum of the whole file in their metadata
 * (checksum.h), which the reader verifies; files of other writers have none. The reader accepts
 * any bytes. */
#ifndef RPI_TRAIN_SAFETENSORS_H
#define RPI_TRAIN_SAFETENSORS_H

#include "base/tensor.h"

#include <stdbool.h>

typedef struct rpi_named_tensor {
    const char *name;
    rp_dtype dtype;
    rpi_shape shape;
    const void *data;
} rpi_named_tensor;

typedef struct rpi_metadata {
    const char *key, *value;
} rpi_metadata;

/* RP_IO: the file cannot be written, or the disk is full; then nothing new is left, and the old
 * file of this name stays. RP_INVALID: a dtype that the format does not have (c64, c128). */
rp_status rpi_safetensors_write(const char *path, const rpi_named_tensor *tensors, int count,
                                const rpi_metadata *metadata, int metadata_count);
/* The same; *out_checksum: the file's. */
rp_status rpi_safetensors_write_summed(const char *path, const rpi_named_tensor *tensors,
                                       int count, const rpi_metadata *metadata,
                                       int metadata_count, uint32_t *out_checksum);

typedef struct rpi_safetensors rpi_safetensors;

/* Opens and checks a whole file; one with a checksum is read to its end. RP_NOT_FOUND, RP_IO,
 * RP_CORRUPT: the file is not of this format, or not as it was written. */
rp_status rpi_safetensors_open(const char *path, rpi_safetensors **out_file);
void rpi_safetensors_close(rpi_safetensors *file); /* NULL is fine */

int rpi_safetensors_count(const rpi_safetensors *file);
/* data is NULL: see rpi_safetensors_read(). Valid until the file is closed. */
const rpi_named_tensor *rpi_safetensors_at(const rpi_safetensors *file, int index);
/* Where a tensor's bytes begin among those of all tensors, which gives the order of writing. */
uint64_t rpi_safetensors_begin(const rpi_safetensors *file, int index);
/* NULL: there is none. */
const rpi_named_tensor *rpi_safetensors_find(const rpi_safetensors *file, const char *name);
const char *rpi_safetensors_path(const rpi_safetensors *file);
const char *rpi_safetensors_metadata(const rpi_safetensors *file, const char *key);

/* Did it have a checksum, which was right? */
bool rpi_safetensors_is_verified(const rpi_safetensors *file);
uint32_t rpi_safetensors_checksum(const rpi_safetensors *file); /* 0: it had none */

/* Copies a tensor's elements to out. RP_NOT_FOUND: there is no tensor of this name;
 * RP_MISMATCH: it has another dtype or shape; the message names both. */
rp_status rpi_safetensors_read(const rpi_safetensors *file, const char *name, rp_dtype dtype,
                               const rpi_shape *shape, void *out);
/* Reads elements [first, first + count) of a tensor, in its own order, after checking that they
 * exist. */
rp_status rpi_safetensors_read_part(const rpi_safetensors *file, const rpi_named_tensor *tensor,
                                    int64_t first, int64_t count, void *out);
/* Reads a whole tensor of f32; RP_CORRUPT: an element is NaN or infinite. */
rp_status rpi_safetensors_read_finite(const rpi_safetensors *file, const char *name,
                                      const rpi_shape *shape, float *out);
/* RP_CORRUPT, with what to do: elements of `name` that were read contain NaN or infinity. */
rp_status rpi_safetensors_check_finite(const rpi_safetensors *file, const char *name,
                                       const float *elements, int64_t count);

#endif
