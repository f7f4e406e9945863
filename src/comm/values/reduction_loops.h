/* The loops of reductions, compiled once for each instruction set: by reductions.c for any
 * processor, by reductions_avx2.c with AVX2. Plain C that the compiler vectorises; both give
 * the same bits, since no loop adds in another order. */
#include "comm/values/reduction_kernels.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* a: the accumulator, b: the element. Elements lie at any address, hence memcpy. */
#define LOOP(name, type, expression)                                                           \
    static void name(const void *restrict in, size_t count, void *restrict into) {             \
        const char *from = in;                                                                 \
        type *to = into;                                                                       \
        for (size_t i = 0; i < count; i++) {                                                   \
            type a = to[i], b;                                                                 \
            memcpy(&b, from + sizeof b * i, sizeof b);                                         \
            to[i] = (type)(expression);                                                        \
        }                                                                                      \
    }

/* Of two equal ones (zeros of both signs) b. */
#define FLOAT_LOOPS(name, type)                                                                \
    LOOP(product_##name, type, (a * b))                                                        \
    LOOP(min_##name, type, ((a < b) | (a != a)) ? a : b)                                       \
    LOOP(max_##name, type, ((a > b) | (a != a)) ? a : b)

#define ORDER_LOOPS(name, type)                                                                \
    LOOP(min_##name, type, a < b ? a : b)                                                      \
    LOOP(max_##name, type, a > b ? a : b)

FLOAT_LOOPS(f32, float)
FLOAT_LOOPS(f64, double)
ORDER_LOOPS(i8, int8_t)
ORDER_LOOPS(u8, uint8_t)
ORDER_LOOPS(i16, int16_t)
ORDER_LOOPS(u16, uint16_t)
ORDER_LOOPS(i32, int32_t)
ORDER_LOOPS(u32, uint32_t)
ORDER_LOOPS(i64, int64_t)
ORDER_LOOPS(u64, uint64_t)

/* Products wrap, so they are unsigned, and not narrower than `unsigned`. */
LOOP(product_u8, uint8_t, 1u * a * b)
LOOP(product_u16, uint16_t, 1u * a * b)
LOOP(product_u32, uint32_t, (a * b))
LOOP(product_u64, uint64_t, (a * b))

#define COMPLEX_LOOP(name, type)                                                               \
    static void product_##name(const void *restrict in, size_t count, void *restrict into) {   \
        const char *from = in;                                                                 \
        type *to = into;                                                                       \
        for (size_t i = 0; i < count; i++) {                                                   \
            type re = to[2 * i], im = to[2 * i + 1], b[2];                                     \
            memcpy(b, from + sizeof b * i, sizeof b);                                          \
            to[2 * i] = re * b[0] - im * b[1];                                                 \
            to[2 * i + 1] = re * b[1] + im * b[0];                                             \
        }                                                                                      \
    }
COMPLEX_LOOP(c64, float)
COMPLEX_LOOP(c128, double)

LOOP(band, uint8_t, (a & b))
LOOP(bor, uint8_t, (a | b))
LOOP(bxor, uint8_t, (a ^ b))

/* Some lines at a time are read before any of them is written, because outputs may be inputs,
 * and because a processor delays reads at addresses that agree with an earlier store in the
 * lower bits, as those of vectors and frames do. At any address.
 *
 * RPI_ADD_TWO_FETCHES: lines ahead are prefetched, the result's for writing.
 * RPI_ADD_TWO_FETCHES_ALSO: those of `also`, the frame with the result, too. If its reader
 * still has them in its cache that takes up to twice as long, as they are taken from it early;
 * if more data moves than a cache holds, no core has them, and it takes 4 to 8 % less (2 to 64
 * MiB). */
enum { ADD_TWO_LANES = 8, ADD_TWO_AHEAD = 64 };
#define ADD_TWO_LOOP(name, type)                                                               \
    typedef type name##_lane __attribute__((vector_size(32), aligned(1), may_alias));          \
    static inline __attribute__((always_inline)) size_t add_two_lanes_##name(                  \
        const void *first, const void *second, type factor, size_t lanes, void *into,          \
        void *also, bool fetches, bool fetches_also) {                                         \
        const name##_lane *a = first, *b = second;                                             \
        name##_lane *one = into, *other = also;                                                \
        size_t i = 0;                                                                          \
        for (; i + ADD_TWO_LANES <= lanes; i += ADD_TWO_LANES) {                               \
            name##_lane sum[ADD_TWO_LANES];                                                    \
            for (int k = 0; fetches && k < ADD_TWO_LANES; k += 2) {                            \
                __builtin_prefetch(&a[i + k + ADD_TWO_AHEAD]);                                 \
                __builtin_prefetch(&b[i + k + ADD_TWO_AHEAD]);                                 \
                __builtin_prefetch(&one[i + k + ADD_TWO_AHEAD], 1);                            \
                if (fetches_also) __builtin_prefetch(&other[i + k + ADD_TWO_AHEAD], 1);        \
            }                                                                                  \
            for (int k = 0; k < ADD_TWO_LANES; k++) sum[k] = (a[i + k] + b[i + k]) * factor;   \
            for (int k = 0; k < ADD_TWO_LANES; k++) one[i + k] = sum[k];                       \
            for (int k = 0; k < ADD_TWO_LANES; k++) other[i + k] = sum[k];                     \
        }                                                                                      \
        return i * sizeof(name##_lane);                                                        \
    }                                                                                          \
    static void add_two_##name(const void *first, const void *second, double factor,           \
                               size_t count, void *into, void *also, int form) {               \
        size_t lanes = count * sizeof(type) / sizeof(name##_lane), at;                         \
        const type by = (type)factor;                                                          \
        if (!also) also = into;                                                                \
        if (form == RPI_ADD_TWO_PLAIN)                                                         \
            at = add_two_lanes_##name(first, second, by, lanes, into, also, false, false);     \
        else if (form == RPI_ADD_TWO_FETCHES)                                                  \
            at = add_two_lanes_##name(first, second, by, lanes, into, also, true, false);      \
        else                                                                                   \
            at = add_two_lanes_##name(first, second, by, lanes, into, also, true, true);       \
        for (; at < count * sizeof(type); at += sizeof(type)) {                                \
            type a, b;                                                                         \
            memcpy(&a, (const char *)first + at, sizeof a);                                    \
            memcpy(&b, (const char *)second + at, sizeof b);                                   \
            a = (a + b) * by;                                                                  \
            memcpy((char *)into + at, &a, sizeof a);                                           \
            memcpy((char *)also + at, &a, sizeof a);                                           \
        }                                                                                      \
    }
ADD_TWO_LOOP(f32, float)
ADD_TWO_LOOP(f64, double)

#define BY_NUMBER(order)                                                                       \
    {                                                                                          \
        [RP_F32] = order##_f32, [RP_F64] = order##_f64, [RP_I8] = order##_i8,                  \
        [RP_U8] = order##_u8, [RP_I16] = order##_i16, [RP_U16] = order##_u16,                  \
        [RP_I32] = order##_i32, [RP_U32] = order##_u32, [RP_I64] = order##_i64,                \
        [RP_U64] = order##_u64                                                                 \
    }

#define REDUCE_LOOPS                                                                           \
    {                                                                                          \
        .product = {[RP_F32] = product_f32, [RP_F64] = product_f64, [RP_I8] = product_u8,      \
                    [RP_U8] = product_u8,   [RP_I16] = product_u16, [RP_U16] = product_u16,    \
                    [RP_I32] = product_u32, [RP_U32] = product_u32, [RP_I64] = product_u64,    \
                    [RP_U64] = product_u64, [RP_C64] = product_c64, [RP_C128] = product_c128}, \
        .min = BY_NUMBER(min), .max = BY_NUMBER(max), .band = band, .bor = bor, .bxor = bxor,  \
        .add_two = {[RP_F32] = add_two_f32, [RP_F64] = add_two_f64},                           \
    }
