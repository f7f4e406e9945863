/* Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC '11). */
#ifndef RPI_BASE_PHILOX_H
#define RPI_BASE_PHILOX_H

#include "base/host_device.h"

#include <stdint.h>

typedef struct rpi_philox_block {
    uint32_t word[4];
} rpi_philox_block;

RPI_HOST_DEVICE void rpi_philox_round(uint32_t c[4], uint32_t k0, uint32_t k1) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
    uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t hi0 = (uint32_t)(p0 >> 32), lo0 = (uint32_t)p0;
    uint32_t hi1 = (uint32_t)(p1 >> 32), lo1 = (uint32_t)p1;
    c[0] = hi1 ^ c[1] ^ k0;
    c[1] = lo1;
    c[2] = hi0 ^ c[3] ^ k1;
    c[3] = lo0;
}

/* The block of a counter, of which low and high are the first two words, under a key. */
RPI_HOST_DEVICE rpi_philox_block rpi_philox(uint32_t low, uint32_t high, uint32_t third,
                                            uint32_t fourth, uint32_t k0, uint32_t k1) {
    rpi_philox_block block = {{low, high, third, fourth}};
    for (int round = 0; round < 10; round++) {
        rpi_philox_round(block.word, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return block;
}

#endif
