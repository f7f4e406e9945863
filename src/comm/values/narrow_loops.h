/* Narrowing f32 to f16 and bf16, to nearest even: the plain loops, which are also the end of
 * those with vectors. */
#ifndef RPI_COMM_NARROW_LOOPS_H
#define RPI_COMM_NARROW_LOOPS_H

#include "redpoll/dtype.h"

#include <stddef.h>
#include <stdint.h>

static inline void rpi_narrow_plain_f16(const float *from, size_t count, uint16_t *into) {
    for (size_t i = 0; i < count; i++) into[i] = rp_f32_to_f16(from[i]);
}

static inline void rpi_narrow_plain_bf16(const float *from, size_t count, uint16_t *into) {
    for (size_t i = 0; i < count; i++) into[i] = rp_f32_to_bf16(from[i]);
}

#endif
