#include "cli/gaussian.h"

#include "base/rng.h"

#include <math.h>

/* Box-Muller on one Philox block: four numbers from four words. */
static void four_normals(uint64_t seed, int rank, uint64_t block, float out[4]) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)rank,
                           RPI_RNG_TEST};
    uint32_t words[4];
    rp_philox4x32(counter, key, words);
    for (int i = 0; i < 4; i += 2) {
        float u = ((float)(words[i] >> 8) + 1.0f) * 0x1p-24f; /* (0, 1] */
        float angle = (float)(words[i + 1] >> 8) * (0x1p-24f * 6.2831853f);
        float radius = sqrtf(-2.0f * logf(u));
        out[i] = radius * cosf(angle);
        out[i + 1] = radius * sinf(angle);
    }
}

void rpi_gaussian(uint64_t seed, int rank, uint64_t first, size_t count, float *out) {
    float block[4];
    for (size_t i = 0; i < count;) {
        uint64_t index = first + i;
        four_normals(seed, rank, index / 4, block);
        for (uint64_t lane = index % 4; lane < 4 && i < count; lane++) out[i++] = block[lane];
    }
}
