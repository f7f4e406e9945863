/* Gaussian test vectors, a pure function of (seed, rank, index), so that any rank can make any
 * part of any other's input. */
#ifndef RPI_CLI_GAUSSIAN_H
#define RPI_CLI_GAUSSIAN_H

#include <stddef.h>
#include <stdint.h>

/* out[i] = element first + i of the vector of (seed, rank): independent standard normals. */
void rpi_gaussian(uint64_t seed, int rank, uint64_t first, size_t count, float *out);

#endif
