/* The loops of reductions, compiled once for each instruction set: by reductions.c for any
 * processor, by reductions_avx2.c with AVX2. Plain C that the compiler vectorises; the two give
 * the same bits, since no loop adds in another order. */
#include "comm/reductions.h"

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

/* Products wrap, so they are of unsigned numbers, and no narrower than those of `unsigned`. */
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
    }
