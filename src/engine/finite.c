#include "engine/finite.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { PIECE = 1024 };

/* Looks at the bits, all ones in the exponent, because this vectorises and a comparison of
 * floats would not. */
static bool all_finite(const float *elements, int64_t count) {
    const uint32_t exponent = 0x7f800000;
    uint32_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &elements[i], sizeof bits);
        found |= (bits & exponent) == exponent;
    }
    return !found;
}

int64_t rpi_first_nonfinite(const float *elements, int64_t count) {
    for (int64_t first = 0; first < count; first += PIECE) {
        int64_t piece = count - first < PIECE ? count - first : PIECE;
        if (all_finite(elements + first, piece)) continue;
        for (int64_t i = first; i < first + piece; i++)
            if (!isfinite(elements[i])) return i;
    }
    return -1;
}

int64_t rpi_first_nonfinite_bf16(const uint16_t *elements, int64_t count) {
    const uint16_t exponent = 0x7f80;
    for (int64_t i = 0; i < count; i++)
        if ((elements[i] & exponent) == exponent) return i;
    return -1;
}
