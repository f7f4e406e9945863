/* Names of element types in safetensors files. */
#ifndef RPI_TRAIN_SAFETENSORS_DTYPE_H
#define RPI_TRAIN_SAFETENSORS_DTYPE_H

#include "redpoll/dtype.h"

#include <stdbool.h>

/* "F32"; static; NULL: the format has no such elements. */
const char *rpi_safetensors_dtype(rp_dtype dtype);
bool rpi_safetensors_dtype_parse(const char *name, rp_dtype *out_dtype);

#endif
