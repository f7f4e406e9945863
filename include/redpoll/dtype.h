/** Element types, their sizes, and exact conversions of the 16-bit floats. */
#ifndef REDPOLL_DTYPE_H
#define REDPOLL_DTYPE_H

#include "redpoll/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** X(constant suffix, value, name, bytes, is floating). Values travel on the wire. A bool is a
 *  byte of 0 or 1; c64 and c128 are complex numbers of two f32 and two f64. */
#define RP_DTYPE_TABLE(X)                                                                      \
    X(F32, 1, "f32", 4, 1)                                                                     \
    X(F16, 2, "f16", 2, 1)                                                                     \
    X(BF16, 3, "bf16", 2, 1)                                                                   \
    X(F64, 4, "f64", 8, 1)                                                                     \
    X(I8, 5, "i8", 1, 0)                                                                       \
    X(U8, 6, "u8", 1, 0)                                                                       \
    X(I16, 7, "i16", 2, 0)                                                                     \
    X(I32, 8, "i32", 4, 0)                                                                     \
    X(I64, 9, "i64", 8, 0)                                                                     \
    X(U16, 10, "u16", 2, 0)                                                                    \
    X(U32, 11, "u32", 4, 0)                                                                    \
    X(U64, 12, "u64", 8, 0)                                                                    \
    X(BOOL, 13, "bool", 1, 0)                                                                  \
    X(C64, 14, "c64", 8, 0)                                                                    \
    X(C128, 15, "c128", 16, 0)

typedef enum rp_dtype {
#define RP_DTYPE_CONSTANT(name, value, text, bytes, floating) RP_##name = (value),
    RP_DTYPE_TABLE(RP_DTYPE_CONSTANT)
#undef RP_DTYPE_CONSTANT
} rp_dtype;

/** Bytes an element; 0 for a value that is no dtype. */
RP_API size_t rp_dtype_bytes(rp_dtype dtype);
/** "f32" ...; "unknown" for a value that is no dtype. Static. */
RP_API const char *rp_dtype_name(rp_dtype dtype);
/** 1 for f16, bf16, f32 and f64. */
RP_API int rp_dtype_is_float(rp_dtype dtype);
/** Look a name up. RP_INVALID with the names allowed when there is none such. */
RP_API rp_status rp_dtype_parse(const char *name, rp_dtype *dtype);

/** Round to nearest even, as IEEE 754 says: overflow gives infinity, NaN stays NaN (quiet),
 *  subnormals are kept. Widening is exact. */
RP_API uint16_t rp_f32_to_f16(float value);
RP_API float rp_f16_to_f32(uint16_t bits);
RP_API uint16_t rp_f32_to_bf16(float value);
RP_API float rp_bf16_to_f32(uint16_t bits);

#ifdef __cplusplus
}
#endif
#endif
