/* NaN and infinity among floats. */
#ifndef RPI_ENGINE_FINITE_H
#define RPI_ENGINE_FINITE_H

#include <stdint.h>

/* The index of the first element that is NaN or infinite; -1: there is none. As fast as reading
 * the elements. */
int64_t rpi_first_nonfinite(const float *elements, int64_t count);
int64_t rpi_first_nonfinite_bf16(const uint16_t *elements, int64_t count);

#endif
