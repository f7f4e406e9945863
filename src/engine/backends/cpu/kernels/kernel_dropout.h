/* Dropout whose mask is a function of (seed, step, tensor, element): nothing is stored, and the
 * backward pass draws the same mask again.
 *
 * Normative, with known answers in kernel_dropout_test. Element e takes 16 bits of
 * Philox4x32-10: lane = e mod 16, slot = (e / 16) mod 8, block = 16 (e / 128) + lane key =
 * {seed low, seed high} counter = {block low, step, tensor, 0xd7000000 + block high} r = word
 * slot / 2 of the result, its low half for an even slot, else its high half and is dropped
 * where r < round(65536 p). What is kept is multiplied by 65536 / (65536 - round(65536 p)), so
 * that the mean is kept exactly. For p that rounds to 1 everything is 0. NaN and infinity stay
 * NaN where they are dropped (0 times them is NaN).
 *
 * Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Srivastava et al.,
 * "Dropout", JMLR 2014. */
#ifndef RPI_ENGINE_KERNEL_DROPOUT_H
#define RPI_ENGINE_KERNEL_DROPOUT_H

#include "engine/backends/cpu/kernels/kernel.h"
#include "redpoll/rng.h"

typedef struct rpi_dropout_mask {
    double probability; /* of being dropped, 0 to 1 */
    uint64_t seed;
    uint32_t step, tensor;
} rpi_dropout_mask;

typedef struct rpi_kernel_dropout {
    rpi_dropout_mask mask;
    int64_t first; /* element of x[0] in the whole tensor: where that is cut */
    int64_t count;
    rpi_kernel_rows x;        /* stride does not matter: elements side by side */
    rpi_kernel_rows residual; /* added after the mask; without data: nothing */
    rpi_kernel_rows y;        /* may be x or residual */
} rpi_kernel_dropout;

/* The number of a tensor: another one for another name, whatever else a model holds. */
uint32_t rpi_dropout_tensor(const char *name);

void rpi_kernel_dropout_apply(const rpi_kernel_run *run, const rpi_kernel_dropout *it);

/* ---- inside ---- */

enum { RPI_DROPOUT_GROUP = 128, RPI_DROPOUT_BLOCKS = 16 };
#define RPI_DROPOUT_PURPOSE 0xd7000000u

/* Numbers below it are dropped. */
static inline uint32_t rpi_dropout_threshold(double probability) {
    return (uint32_t)(probability * 65536 + 0.5);
}

static inline float rpi_dropout_scale(uint32_t threshold) {
    return threshold < 65536 ? 65536.0f / (float)(65536 - threshold) : 0;
}

static inline uint32_t rpi_dropout_number(const rpi_dropout_mask *mask, uint64_t element) {
    uint64_t slot = element / 16 % 8, block = element / 128 * 16 + element % 16;
    const uint32_t key[2] = {(uint32_t)mask->seed, (uint32_t)(mask->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)block, mask->step, mask->tensor,
                                 RPI_DROPOUT_PURPOSE + (uint32_t)(block >> 32)};
    uint32_t word[4];
    rp_philox4x32(counter, key, word);
    return slot % 2 ? word[slot / 2] >> 16 : word[slot / 2] & 0xffff;
}

/* 0 or the scale: what element e is multiplied by. */
static inline float rpi_dropout_factor(const rpi_dropout_mask *mask, uint64_t element) {
    uint32_t threshold = rpi_dropout_threshold(mask->probability);
    return rpi_dropout_number(mask, element) < threshold ? 0 : rpi_dropout_scale(threshold);
}

/* Elements of groups [begin, end) one by one; group 0 holds x[0]. */
static inline void rpi_dropout_apply_groups(const rpi_kernel_dropout *it, int64_t begin,
                                            int64_t end) {
    int64_t before = it->first % RPI_DROPOUT_GROUP, last = end * RPI_DROPOUT_GROUP - before;
    int64_t i = begin * RPI_DROPOUT_GROUP - before;
    for (i = i < 0 ? 0 : i; i < last && i < it->count; i++) {
        float y = rpi_kernel_get(it->x, 0, i) *
                  rpi_dropout_factor(&it->mask, (uint64_t)(it->first + i));
        if (it->residual.data) y += rpi_kernel_get(it->residual, 0, i);
        rpi_kernel_put(it->y, 0, i, y);
    }
}

RPI_KERNEL_DECLARE(dropout);

#endif
