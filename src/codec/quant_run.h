/* What kinds of quantisers share: the data as floats, its random numbers, levels of a run of
 * elements written and read. A kind decides where runs begin and which scale each has. */
#ifndef RPI_CODEC_QUANT_RUN_H
#define RPI_CODEC_QUANT_RUN_H

#include "codec/codec_convert.h"
#include "codec/quant_kernels.h"

enum {
    RPI_RANDOM_BLOCK = 8, /* elements */
    RPI_RANDOM_STEP = RPI_RANDOM_BLOCKS * RPI_RANDOM_BLOCK,
    RPI_RANDOM_WINDOW = RPI_TILE + RPI_RANDOM_STEP
};

/* The random numbers of the elements around the one being encoded. */
typedef struct rpi_random_window {
    rpi_quant_stream stream;
    uint64_t first; /* element of bits[0], a multiple of RPI_RANDOM_BLOCK */
    size_t count;
    uint16_t bits[RPI_RANDOM_WINDOW];
} rpi_random_window;

typedef struct rpi_quant_encoder {
    const rp_codec *codec;
    const rpi_quant_kernels *kernels;
    const rpi_convert_kernels *convert; /* NULL: x are floats already */
    const void *x;
    size_t count;
    float *residual;
    uint64_t first;
    rpi_random_window window;
    size_t held, held_count; /* which elements are in tile */
    float tile[RPI_TILE];
} rpi_quant_encoder;

/* A row of the options of both. */
extern const char *const rpi_quant_roundings[];
#define RPI_QUANT_ROUNDING                                                                     \
    {                                                                                          \
        .name = "rounding", .words = rpi_quant_roundings,                                      \
        .help = "of levels; stochastic is unbiased", .max = RP_STOCHASTIC,                     \
        RPI_CODEC_FIELD(rounding)                                                              \
    }

const rpi_quant_kernels *rpi_quant_kernels_for(rpi_isa isa);
int rpi_quant_supports(const rp_codec *codec, rp_dtype dtype);
int rpi_quant_is_exact(const rp_codec *codec, rp_dtype dtype);

/* Its buffers are filled when they are needed. */
void rpi_quant_begin(rpi_quant_encoder *e, const rp_codec *codec, rpi_isa isa, rp_dtype dtype,
                     const void *x, size_t count, const rp_encode_context *context);
/* Up to RPI_TILE elements from i on, as floats; their residuals, or NULL. */
const float *rpi_quant_floats_at(rpi_quant_encoder *e, size_t i, size_t count);
float *rpi_quant_residual_at(const rpi_quant_encoder *e, size_t i);
/* Levels of `count` elements from `begin` on, and the residuals that they leave. */
void rpi_quant_encode_levels(rpi_quant_encoder *e, size_t begin, size_t count, int bits,
                             rpi_quant_scale scale, uint8_t *out);
/* The residuals of elements that all decode to `value`; 0 where that is NaN. */
void rpi_quant_settle_flat(rpi_quant_encoder *e, size_t begin, size_t count, float value);

/* convert: NULL where y are floats. */
void rpi_quant_decode_levels(const rpi_quant_kernels *kernels,
                             const rpi_convert_kernels *convert, const uint8_t *in, int bits,
                             rpi_quant_scale scale, size_t count, void *y);

#endif
