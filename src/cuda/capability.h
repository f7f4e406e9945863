/* Which GPUs the kernels are for. */
#ifndef RPI_CUDA_CAPABILITY_H
#define RPI_CUDA_CAPABILITY_H

#include <stdbool.h>
#include <stddef.h>

/* architectures: as CMAKE_CUDA_ARCHITECTURES has them, "80-real 90", with ";" or " ": machine
 * code runs on GPUs of its major number and no smaller minor one, code for any ("-virtual", or
 * without an end) on all that came later. capability: 75, of one of 7.5. What is not understood
 * ("native") may fit. */
bool rpi_capability_fits(const char *architectures, int capability);

/* For people: "7.5, 8.0, 9.0 and later". Returns text. */
const char *rpi_capability_text(const char *architectures, char *text, size_t bytes);

#endif
