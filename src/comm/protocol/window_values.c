/* Windows: loops over elements. */
#include "comm/protocol/window_table.h"

#include <string.h>

bool rpi_window_takes_dtype(rp_dtype dtype) {
    return dtype == RP_F32 || dtype == RP_F64 || dtype == RP_I32 || dtype == RP_I64;
}

/* Integers are multiplied as unsigned ones: they wrap. */
#define LOOPS(name, type, factor)                                                              \
    static void scale_##name(const type *from, double weight, size_t count, type *into) {      \
        type by = (type)(factor)weight;                                                        \
        for (size_t i = 0; i < count; i++) into[i] = by * from[i];                             \
    }                                                                                          \
    static void add_scaled_##name(const type *from, double weight, size_t count, type *into) { \
        type by = (type)(factor)weight;                                                        \
        for (size_t i = 0; i < count; i++) into[i] += by * from[i];                            \
    }                                                                                          \
    static void add_##name(const type *from, size_t count, type *into) {                       \
        for (size_t i = 0; i < count; i++) into[i] += from[i];                                 \
    }
LOOPS(f32, float, double)
LOOPS(f64, double, double)
LOOPS(i32, uint32_t, int64_t)
LOOPS(i64, uint64_t, int64_t)

#define DIVIDE(name, type)                                                                     \
    static void divide_##name(type *values, type by, size_t count) {                           \
        for (size_t i = 0; i < count; i++) values[i] /= by;                                    \
    }
DIVIDE(f32, float)
DIVIDE(f64, double)
DIVIDE(i32, int32_t)
DIVIDE(i64, int64_t)

void rpi_window_scale(const void *from, rp_dtype dtype, double weight, size_t count,
                      void *into) {
    size_t bytes = count * rp_dtype_bytes(dtype);
    if (weight == 1 || !count) {
        if (from != into && bytes) memcpy(into, from, bytes);
        return;
    }
    switch (dtype) {
    case RP_F32: scale_f32(from, weight, count, into); break;
    case RP_F64: scale_f64(from, weight, count, into); break;
    case RP_I32: scale_i32(from, weight, count, into); break;
    default: scale_i64(from, weight, count, into);
    }
}

static void add(const void *from, rp_dtype dtype, size_t count, void *into) {
    switch (dtype) {
    case RP_F32: add_f32(from, count, into); break;
    case RP_F64: add_f64(from, count, into); break;
    case RP_I32: add_i32(from, count, into); break;
    default: add_i64(from, count, into);
    }
}

void rpi_window_add_scaled(const void *from, rp_dtype dtype, double weight, size_t count,
                           void *into) {
    if (weight == 1) {
        add(from, dtype, count, into);
        return;
    }
    switch (dtype) {
    case RP_F32: add_scaled_f32(from, weight, count, into); break;
    case RP_F64: add_scaled_f64(from, weight, count, into); break;
    case RP_I32: add_scaled_i32(from, weight, count, into); break;
    default: add_scaled_i64(from, weight, count, into);
    }
}

void rpi_window_divide(void *values, rp_dtype dtype, int64_t by, size_t count) {
    switch (dtype) {
    case RP_F32: divide_f32(values, (float)by, count); break;
    case RP_F64: divide_f64(values, (double)by, count); break;
    case RP_I32: divide_i32(values, (int32_t)by, count); break;
    default: divide_i64(values, by, count);
    }
}
