/* Converts floats to and from the three float types that codecs take. */
#ifndef RPI_CLI_ELEMENTS_H
#define RPI_CLI_ELEMENTS_H

#include "redpoll/dtype.h"

/* out[first + i] = values[i], rounded to dtype (f32, f16 or bf16). */
void rpi_elements_store(rp_dtype dtype, const float *values, size_t count, void *out,
                        size_t first);
float rpi_element_load(rp_dtype dtype, const void *data, size_t i);

/* f32, f16 or bf16. */
rp_status rpi_parse_float_dtype(const char *text, rp_dtype *out_dtype);

#endif
