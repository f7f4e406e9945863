#include "net/frame.h"

#include "base/cpu.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL UINT32_C(0x82f63b78) /* Castagnoli, bit-reflected */

typedef uint32_t (*crc_kernel)(uint32_t state, const unsigned char *data, size_t bytes);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static crc_kernel kernel;
static uint32_t tables[8][256]; /* tables[k][b]: byte b followed by k zero bytes */

static uint64_t load64(const unsigned char *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

static void fill_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++) state = (state >> 1) ^ (state & 1 ? POLYNOMIAL : 0);
        tables[0][byte] = state;
    }
    for (int k = 1; k < 8; k++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = tables[k - 1][byte];
            tables[k][byte] = (before >> 8) ^ tables[0][before & 255];
        }
}

/* Eight bytes a turn by eight independent look-ups ("slicing by 8"). */
static uint32_t crc_scalar(uint32_t state, const unsigned char *data, size_t bytes) {
    for (; bytes >= 8; data += 8, bytes -= 8) {
        uint64_t word = load64(data) ^ state;
        state = 0;
        for (int k = 0; k < 8; k++) state ^= tables[7 - k][(word >> (8 * k)) & 255];
    }
    while (bytes-- > 0) state = (state >> 8) ^ tables[0][(state ^ *data++) & 255];
    return state;
}

#if defined(__x86_64__)
#    include <immintrin.h>

#    define CRC_TARGET __attribute__((target("sse4.2,pclmul")))

/* The crc32 instruction starts every cycle and ends three later: three streams keep it busy.
 * A stream of n bytes is moved behind the next by multiplying with x^(8n) modulo P: the
 * carry-less product of two reflected words stands one bit too low and the instruction that
 * reduces it adds x^32, so the factors are x^(8n - 33). */
typedef struct lanes {
    size_t bytes; /* a lane */
    uint32_t by_one, by_two;
} lanes;
static const lanes lane_sizes[] = {{2048, UINT32_C(0xa51b6135), UINT32_C(0x82f89c77)},
                                   {256, UINT32_C(0xb9e02b86), UINT32_C(0xdd7e3b0c)}};

CRC_TARGET static uint64_t times(uint64_t state, uint32_t factor) {
    return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)state),
                                                            _mm_cvtsi32_si128((int)factor), 0));
}

CRC_TARGET static uint32_t crc_sse42(uint32_t start, const unsigned char *data, size_t bytes) {
    uint64_t state = start;
    for (int i = 0; i < 2; i++) {
        size_t lane = lane_sizes[i].bytes;
        for (; bytes >= 3 * lane; data += 3 * lane, bytes -= 3 * lane) {
            uint64_t second = 0, third = 0;
            for (const unsigned char *at = data; at < data + lane; at += 8) {
                state = _mm_crc32_u64(state, load64(at));
                second = _mm_crc32_u64(second, load64(at + lane));
                third = _mm_crc32_u64(third, load64(at + 2 * lane));
            }
            uint64_t moved =
                times(state, lane_sizes[i].by_two) ^ times(second, lane_sizes[i].by_one);
            state = _mm_crc32_u64(0, moved) ^ third;
        }
    }
    for (; bytes >= 8; data += 8, bytes -= 8) state = _mm_crc32_u64(state, load64(data));
    uint32_t rest = (uint32_t)state;
    while (bytes-- > 0) rest = _mm_crc32_u8(rest, *data++);
    return rest;
}

static bool has_sse42(void) {
    __builtin_cpu_init();
    return rpi_cpu_isa() != RPI_ISA_SCALAR && __builtin_cpu_supports("sse4.2") &&
           __builtin_cpu_supports("pclmul");
}
#endif

static void choose(void) {
    fill_tables();
    kernel = crc_scalar;
#if defined(__x86_64__)
    if (has_sse42()) kernel = crc_sse42;
#endif
}

uint32_t rpi_crc32c(uint32_t crc, const void *data, size_t bytes) {
    pthread_once(&once, choose);
    return ~kernel(~crc, data, bytes);
}
