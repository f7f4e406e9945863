/* How the elements that topk and randk keep of a bucket travel, as fp32, 16 bits or levels of
 * one scale (the option `values`): what a thread does with one value, or with an octet of them.
 */
#ifndef RPI_CUDA_KEPT_LANES_H
#define RPI_CUDA_KEPT_LANES_H

#include "codec/sparse_arithmetic.h"
#include "cuda/quant_lanes.h"

/* Of so many values: bits are 0 where they are no levels. */
RPI_HOST_DEVICE uint64_t rpi_kept_bytes(const rpi_device_call *call, uint32_t kept) {
    if (!call->bits) return (uint64_t)kept * (call->wire_type == RPI_DEVICE_F32 ? 4 : 2);
    return kept ? RPI_QUANT_HEAD + ((uint64_t)kept * (uint64_t)call->bits + 7) / 8 : 0;
}

/* ---- encoding ---- */

/* How the values of a bucket travel, and whether it is damaged. */
typedef struct rpi_kept_way {
    rpi_quant_scale scale; /* where they are levels */
    int damaged;
} rpi_kept_way;

/* range: of the `kept` values; has_nan: an element of the bucket is not finite. */
RPI_HOST_DEVICE rpi_kept_way rpi_kept_way_of(const rpi_device_call *call, uint32_t kept,
                                             const rpi_quant_range *range) {
    rpi_kept_way way;
    way.scale = rpi_quant_damaged_scale();
    way.damaged = range->has_nan;
    if (!call->bits || !kept || way.damaged) return way;
    way.scale = rpi_quant_scale_of(range, call->bits);
    way.damaged = way.scale.min != way.scale.min;
    return way;
}

RPI_HOST_DEVICE uint32_t rpi_kept_level(const rpi_device_call *call, const rpi_kept_way *way,
                                        float y) {
    if (!(way->scale.unit > 0)) return 0;
    return rpi_quant_level(y, way->scale, 0.5f, (float)((1 << call->bits) - 1));
}

/* What y decodes to. */
RPI_HOST_DEVICE float rpi_kept_travelled(const rpi_device_call *call, const rpi_kept_way *way,
                                         float y) {
    if (call->bits) return rpi_quant_value(rpi_kept_level(call, way, y), way->scale);
    if (call->wire_type == RPI_DEVICE_F32) return y;
    return rpi_element_of_bits(call->wire_type, rpi_element_to_bits(call->wire_type, y));
}

/* Before the levels of values, at `out`. By one lane. */
RPI_HOST_DEVICE void rpi_kept_put_scale(const rpi_device_call *call, const rpi_kept_way *way,
                                        uint32_t kept, uint8_t *out) {
    if (!call->bits || !kept) return;
    rpi_float_store(out, way->scale.min);
    rpi_float_store(out + 4, way->scale.unit);
}

/* n values from number j, a multiple of 8, on; `out`: of the bucket's values. */
RPI_HOST_DEVICE void rpi_kept_put_octet(const rpi_device_call *call, const rpi_kept_way *way,
                                        uint32_t j, int n, const rpi_octet *y, uint8_t *out) {
    uint64_t levels = 0;
    for (int k = 0; k < n; k++) {
        float value = way->damaged ? rpi_float_of_bits(RPI_NAN_BITS) : y->value[k];
        if (!call->bits)
            rpi_element_store(call->wire_type, out, j + (uint64_t)k, value);
        else if (!way->damaged)
            levels |= (uint64_t)rpi_kept_level(call, way, value) << (call->bits * k);
    }
    if (call->bits)
        rpi_bytes_store(out + RPI_QUANT_HEAD + (uint64_t)(j / RPI_OCTET) * (uint64_t)call->bits,
                        levels, rpi_levels_bytes(n, call->bits));
}

/* ---- decoding ---- */

/* `in`: the values of a bucket, as above. */
RPI_HOST_DEVICE rpi_quant_scale rpi_kept_scale(const rpi_device_call *call, uint32_t kept,
                                               const uint8_t *in) {
    rpi_quant_scale scale = {0, 0};
    if (!call->bits || !kept) return scale;
    scale.min = rpi_float_load(in);
    scale.unit = rpi_float_load(in + 4);
    return rpi_quant_sound(scale);
}

/* At most 16 bits from bit number `bit` on. */
RPI_HOST_DEVICE uint32_t rpi_bits_load(const uint8_t *in, uint64_t bit, int bits) {
    const uint8_t *at = in + bit / 8;
    int shift = (int)(bit % 8), bytes = (shift + bits + 7) / 8;
    return (uint32_t)(rpi_bytes_load(at, bytes) >> shift) & ((1u << bits) - 1);
}

RPI_HOST_DEVICE float rpi_kept_value(const rpi_device_call *call, rpi_quant_scale scale,
                                     const uint8_t *in, uint32_t j) {
    if (!call->bits) return rpi_element_load(call->wire_type, in, j);
    uint64_t bit = (uint64_t)j * (uint64_t)call->bits;
    return rpi_quant_value(rpi_bits_load(in + RPI_QUANT_HEAD, bit, call->bits), scale);
}

#endif
