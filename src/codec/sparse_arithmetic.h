/* Where the sparse codecs keep elements, for the CPU and for kernels of a GPU. docs/codecs.md
 * is normative. */
#ifndef RPI_CODEC_SPARSE_ARITHMETIC_H
#define RPI_CODEC_SPARSE_ARITHMETIC_H

#include "base/float_bits.h"

#include <stdint.h>

enum { RPI_SPARSE_KEPT_MAX = 1024, RPI_SPARSE_BUCKET_MAX = 8192 };

/* ---- topk ---- */

enum { RPI_TOPK_HEAD = 2, RPI_TOPK_DAMAGED = 0xffff };

/* The bits of a float without its sign, which are in the order of what they stand for. */
RPI_HOST_DEVICE uint32_t rpi_magnitude_of(float value) {
    return rpi_float_bits(value) & 0x7fffffffu;
}

/* Bits of an index: as many as the largest one needs. */
RPI_HOST_DEVICE int rpi_topk_index_bits(uint32_t bucket) {
    int bits = 0;
    while (bucket > 1 && bits < 32 && (bucket - 1) >> bits) bits++;
    return bits;
}

/* ---- randk: a bucket is cut into as many runs as elements are kept, and one of each is ----
 */

enum { RPI_RANDK_WORDS = 4 }; /* places that one block of Philox says */

/* Elements kept of a bucket of `count`; a short last one keeps its share, rounded up. */
RPI_HOST_DEVICE uint32_t rpi_randk_kept(uint32_t k, uint64_t bucket, uint64_t count) {
    return (uint32_t)((count * k + bucket - 1) / bucket);
}

/* The block of Philox that says the first places of bucket number `bucket`. */
RPI_HOST_DEVICE uint64_t rpi_randk_block(uint32_t k, uint64_t bucket) {
    return bucket * ((k + RPI_RANDK_WORDS - 1) / RPI_RANDK_WORDS);
}

/* Where run j of `kept` begins in a bucket of `count` elements. */
RPI_HOST_DEVICE uint32_t rpi_randk_run(uint32_t j, uint32_t count, uint32_t kept) {
    return j * count / kept;
}

/* The element of a run that is kept. */
RPI_HOST_DEVICE uint32_t rpi_randk_place(uint32_t from, uint32_t to, uint32_t word) {
    return from + (uint32_t)((uint64_t)word * (to - from) >> 32);
}

#endif
