/* Streams of random numbers over Philox, for initialising, shuffling and tests.
 *
 * A stream is named by (seed, purpose, index): key = seed, counter = {block, index low,
 * index high, purpose}. Two streams with different names never share a block. */
#ifndef RPI_BASE_RNG_H
#define RPI_BASE_RNG_H

#include "redpoll/rng.h"

typedef enum rpi_rng_purpose {
    RPI_RNG_TEST = 1,  /* test and benchmark inputs */
    RPI_RNG_INIT,      /* parameter initialisation; index = parameter */
    RPI_RNG_SHUFFLE,   /* sampler; index = epoch */
    RPI_RNG_SYNTHETIC, /* made-up data; index = sample */
    RPI_RNG_AUGMENT,   /* augmentation; index = sample and epoch */
    RPI_RNG_TOPOLOGY,  /* who talks to whom; index = step */
    RPI_RNG_GENERATE,  /* tokens of a text; index = token */
    RPI_RNG_SPLIT,     /* which rank has which samples; index 0, then epoch and rank */
    RPI_RNG_MIXUP,     /* how pictures are blended; index = step */
    RPI_RNG_FORESIGHT, /* what may happen to a training; index = run */
} rpi_rng_purpose;

typedef struct rpi_rng {
    uint32_t key[2];
    uint32_t counter[4];
    uint32_t block[4];
    int used; /* words of block already given out; 4 forces a new block */
} rpi_rng;

rpi_rng rpi_rng_make(uint64_t seed, rpi_rng_purpose purpose, uint64_t index);
/* As if so many words had been drawn: of the same stream, whatever was drawn before. */
void rpi_rng_seek(rpi_rng *rng, uint64_t drawn);
uint32_t rpi_rng_u32(rpi_rng *rng);
/* Uniform in [0, 1), 24 bits. */
float rpi_rng_uniform(rpi_rng *rng);
/* Standard normal by Box-Muller; two words a number. */
float rpi_rng_normal(rpi_rng *rng);
/* Uniform integer in [0, bound), unbiased; bound > 0. */
uint32_t rpi_rng_below(rpi_rng *rng, uint32_t bound);
/* Any order of the numbers, all equally likely (Fisher and Yates); count below 2^32. */
void rpi_rng_shuffle(rpi_rng *rng, uint32_t *numbers, int64_t count);

#endif
