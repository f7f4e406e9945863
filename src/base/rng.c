#include "base/rng.h"

#include "base/philox.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

void rp_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    if (!counter || !key || !out) {
        (void)RP_FAIL(INVALID, "counter, key or out is NULL");
        return;
    }
    rpi_philox_block block =
        rpi_philox(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
    memcpy(out, block.word, sizeof block.word);
}

rpi_rng rpi_rng_make(uint64_t seed, rpi_rng_purpose purpose, uint64_t index) {
    return (rpi_rng){
        .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .counter = {0, (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)purpose},
        .used = 4,
    };
}

void rpi_rng_seek(rpi_rng *rng, uint64_t drawn) {
    rng->counter[0] = (uint32_t)(drawn / 4);
    rng->used = 4;
    for (uint64_t i = 0; i < drawn % 4; i++) (void)rpi_rng_u32(rng);
}

uint32_t rpi_rng_u32(rpi_rng *rng) {
    if (rng->used == 4) {
        rp_philox4x32(rng->counter, rng->key, rng->block);
        rng->counter[0]++;
        rng->used = 0;
    }
    return rng->block[rng->used++];
}

float rpi_rng_uniform(rpi_rng *rng) {
    return (float)(rpi_rng_u32(rng) >> 8) * 0x1p-24f;
}

float rpi_rng_normal(rpi_rng *rng) {
    double u = ((double)rpi_rng_u32(rng) + 1.0) * 0x1p-32; /* (0, 1] */
    double v = (double)rpi_rng_u32(rng) * 0x1p-32;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

uint32_t rpi_rng_below(rpi_rng *rng, uint32_t bound) {
    uint32_t reject_under = (0u - bound) % bound; /* 2^32 mod bound */
    for (;;) {
        uint64_t product = (uint64_t)rpi_rng_u32(rng) * bound;
        if ((uint32_t)product >= reject_under) return (uint32_t)(product >> 32);
    }
}

void rpi_rng_shuffle(rpi_rng *rng, uint32_t *numbers, int64_t count) {
    for (int64_t i = count - 1; i > 0; i--) {
        uint32_t j = rpi_rng_below(rng, (uint32_t)(i + 1)), taken = numbers[i];
        numbers[i] = numbers[j];
        numbers[j] = taken;
    }
}
