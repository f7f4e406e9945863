#include "net/bytes/frame.h"

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

/* Eight bytes in each iteration, by eight independent table look-ups ("slicing by 8"). */
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

/* The crc32 instruction can start every cycle and takes three, so three streams keep it busy.
 * To append a stream of n bytes to another, the sum of the other is multiplied by x^(8n) modulo
 * P. The carry-less product of two reflected words is one bit too low, and the instruction that
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

#    define WIDE_TARGET __attribute__((target("avx512f,vpclmulqdq")))

/* A block of 256 bytes B0 followed by B1 has the same sum as (B0 x^2048 mod P) + B1. To compute
 * this, each 16 bytes of B0 are moved onto the 16 bytes that are 256 further on by two
 * carry-less products: of their lower half with x^(2048 + 64) and of their upper half with
 * x^2048 modulo P. The last block then has the sum of all. A product of reflected words is one
 * bit too low, so the factors are x^-1 of these (Gopal et al., Fast CRC Computation Using
 * PCLMULQDQ, 2009). */
enum { STRIDE = 256, WIDE_LEAST = 1024 };
static uint64_t ahead[8]; /* the two factors, four times */

/* x^n modulo P, reflected, in the upper half of a word. */
static uint64_t power_of_x(int n) {
    uint32_t power = UINT32_C(0x80000000);
    while (n-- > 0) power = (power >> 1) ^ (power & 1 ? POLYNOMIAL : 0);
    return (uint64_t)power << 32;
}

WIDE_TARGET static uint32_t crc_avx512(uint32_t start, const unsigned char *data,
                                       size_t bytes) {
    if (bytes < WIDE_LEAST) return crc_sse42(start, data, bytes);
    __m512i block[4], factors = _mm512_loadu_si512(ahead);
    unsigned char last[STRIDE];
    for (int i = 0; i < 4; i++) block[i] = _mm512_loadu_si512(data + 64 * i);
    block[0] =
        _mm512_xor_si512(block[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)start)));
    for (data += STRIDE, bytes -= STRIDE; bytes >= STRIDE; data += STRIDE, bytes -= STRIDE)
        for (int i = 0; i < 4; i++)
            block[i] =
                _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(block[i], factors, 0x00),
                                          _mm512_clmulepi64_epi128(block[i], factors, 0x11),
                                          _mm512_loadu_si512(data + 64 * i), 0x96);
    for (int i = 0; i < 4; i++) _mm512_storeu_si512(last + 64 * i, block[i]);
    return crc_sse42(crc_sse42(0, last, STRIDE), data, bytes);
}

static bool has_wide_product(void) {
    return rpi_cpu_isa() == RPI_ISA_AVX512 && __builtin_cpu_supports("vpclmulqdq");
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
    if (has_sse42() && has_wide_product()) {
        for (int k = 0; k < 8; k += 2) {
            ahead[k] = power_of_x(8 * STRIDE + 63);
            ahead[k + 1] = power_of_x(8 * STRIDE - 1);
        }
        kernel = crc_avx512;
    }
#endif
}

uint32_t rpi_crc32c(uint32_t crc, const void *data, size_t bytes) {
    pthread_once(&once, choose);
    return ~kernel(~crc, data, bytes);
}
