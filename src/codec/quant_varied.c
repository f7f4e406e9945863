/* v1 ... v8: the quantiser whose bits follow the variance (varied_arithmetic.h). docs/codecs.md
 * is normative. */
#include "codec/quant_varied.h"

#include "base/status.h"
#include "codec/quant_run.h"

#include <math.h>
#include <string.h>

enum { MIN_BYTES = 4, UNIT_BYTES = 2, HEAD_BYTES = RPI_VARIED_HEAD };
enum { BUCKET = 64 * RPI_VARIED_RUN };

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

rpi_varied_run rpi_varied_look(const rpi_quant_kernels *kernels, const float *x,
                               const float *residual, size_t count) {
    rpi_quant_range range = rpi_quant_no_range();
    double moment[2];
    kernels->range(x, residual, count, &range);
    rpi_varied_run run = rpi_varied_begin(count, &range);
    if (run.damaged) return run;
    kernels->moments(x, residual, count, rpi_varied_shift(&run), moment);
    rpi_varied_take_moments(&run, moment[0], moment[1]);
    return run;
}

static size_t most_bytes(const rp_codec *codec, size_t count) {
    return rpi_varied_most_bytes(codec->bits, count);
}

static size_t varied_encoded_bytes(const rp_codec *codec, rp_dtype dtype, size_t count) {
    (void)dtype;
    size_t rest = count % codec->bucket;
    return count / codec->bucket * most_bytes(codec, codec->bucket) +
           (rest ? most_bytes(codec, rest) : 0);
}

/* ---- encode ---------------------------------------------------------------------------- */

typedef struct bucket_plan {
    size_t runs;
    rpi_varied_run run[RPI_VARIED_RUNS_MAX];
    rpi_varied_way way[RPI_VARIED_RUNS_MAX];
} bucket_plan;

/* No run gets more bits than `most`. How many bytes the bucket comes to. */
static size_t plan_widths(const rp_codec *codec, double price, int most, bucket_plan *plan) {
    int stochastic = codec->rounding == RP_STOCHASTIC;
    size_t bytes = 0;
    for (size_t r = 0; r < plan->runs; r++) {
        int bits = rpi_varied_bits(&plan->run[r], price, stochastic);
        plan->way[r] = rpi_varied_way_of(&plan->run[r], bits < most ? bits : most, stochastic);
        bytes += rpi_varied_bytes(plan->run[r].count, plan->way[r].width);
    }
    return bytes;
}

/* The mean variance of the runs, which are looked at. */
static double look_at_runs(rpi_quant_encoder *e, size_t begin, size_t count,
                           bucket_plan *plan) {
    double all = 0;
    plan->runs = 0;
    for (size_t done = 0, n; done < count; done += n) {
        n = least(count - done, RPI_VARIED_RUN);
        rpi_varied_run *run = &plan->run[plan->runs++];
        *run = rpi_varied_look(e->kernels, rpi_quant_floats_at(e, begin + done, n),
                               rpi_quant_residual_at(e, begin + done), n);
        all += run->variance * (double)n;
    }
    return all / (double)count;
}

static void plan_bucket(rpi_quant_encoder *e, size_t begin, size_t count, bucket_plan *plan) {
    const rp_codec *codec = e->codec;
    double price = rpi_varied_price(codec->bits, codec->option[0]);
    price *= look_at_runs(e, begin, count, plan);
    if (plan_widths(codec, price, RPI_VARIED_BITS, plan) > most_bytes(codec, count))
        plan_widths(codec, price, rpi_varied_most_bits(codec->bits),
                    plan); /* no bucket comes to so much */
}

static void put_way(uint8_t *out, const rpi_varied_way *way) {
    uint32_t unit;
    *out = (uint8_t)way->width;
    if (way->width != RPI_VARIED_CONSTANT && !rpi_varied_has_levels(way->width)) return;
    memcpy(out + 1, &way->scale.min, MIN_BYTES);
    if (!rpi_varied_has_levels(way->width)) return;
    memcpy(&unit, &way->scale.unit, sizeof unit);
    unit >>= 16;
    memcpy(out + 1 + MIN_BYTES, &unit, UNIT_BYTES);
}

static size_t encode_bucket(rpi_quant_encoder *e, size_t begin, size_t count, uint8_t *out) {
    bucket_plan plan; /* filled as far as it is needed */
    plan_bucket(e, begin, count, &plan);
    uint8_t *to = out;
    for (size_t r = 0, n; r < plan.runs; r++, begin += n) {
        const rpi_varied_way *way = &plan.way[r];
        n = plan.run[r].count;
        put_way(to, way);
        if (rpi_varied_has_levels(way->width))
            rpi_quant_encode_levels(e, begin, n, way->width, way->scale, to + HEAD_BYTES);
        else
            rpi_quant_settle_flat(e, begin, n, way->scale.min);
        to += rpi_varied_bytes(n, way->width);
    }
    return (size_t)(to - out);
}

static size_t varied_encode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                            size_t count, const rp_encode_context *context, void *out) {
    rpi_quant_encoder e;
    rpi_quant_begin(&e, codec, isa, dtype, x, count, context);
    uint8_t *to = out;
    for (size_t i = 0, n; i < count; i += n) {
        n = least(count - i, codec->bucket);
        to += encode_bucket(&e, i, n, to);
    }
    return (size_t)(to - (uint8_t *)out);
}

/* ---- decode ---------------------------------------------------------------------------- */

/* Runs end with their bucket. */
static size_t run_at(const rp_codec *codec, size_t i, size_t count) {
    size_t end = least(count, (i / codec->bucket + 1) * codec->bucket);
    return least(end - i, RPI_VARIED_RUN);
}

/* Flat runs are levels of 0 bits: all of them the minimum. */
static rpi_quant_scale scale_at(const uint8_t *in, int width) {
    rpi_quant_scale scale = {0, 0};
    uint32_t unit = 0;
    if (width == RPI_VARIED_DAMAGED) return rpi_quant_damaged_scale();
    if (width == RPI_VARIED_ZEROS) return scale;
    memcpy(&scale.min, in + 1, MIN_BYTES);
    if (rpi_varied_has_levels(width)) memcpy(&unit, in + 1 + MIN_BYTES, UNIT_BYTES);
    unit <<= 16;
    memcpy(&scale.unit, &unit, sizeof unit);
    return rpi_quant_sound(scale);
}

static void fill(const rpi_convert_kernels *convert, float value, size_t count, void *y) {
    float flat[RPI_VARIED_RUN];
    for (size_t i = 0; i < count; i++) flat[i] = value;
    if (convert)
        convert->narrow(flat, count, y);
    else
        memcpy(y, flat, count * sizeof *flat);
}

static void varied_decode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                          size_t count, const rp_encode_context *context, void *y) {
    (void)context;
    const rpi_quant_kernels *kernels = rpi_quant_kernels_for(isa);
    const rpi_convert_kernels *convert = dtype == RP_F32 ? NULL : rpi_convert(dtype, isa);
    const uint8_t *from = in;
    for (size_t i = 0, n; i < count; i += n) {
        n = run_at(codec, i, count);
        int width = *from;
        char *to = (char *)y + rp_dtype_bytes(dtype) * i;
        rpi_quant_scale scale = scale_at(from, width);
        if (rpi_varied_has_levels(width))
            rpi_quant_decode_levels(kernels, convert, from + HEAD_BYTES, width, scale, n, to);
        else
            fill(convert, scale.min, n, to);
        from += rpi_varied_bytes(n, width);
    }
}

static void varied_decode_add(const rp_codec *codec, rpi_isa isa, rp_dtype dtype,
                              const void *in, size_t count, const rp_encode_context *context,
                              void *sum) {
    (void)dtype, (void)context; /* sums of all three types are floats */
    const rpi_quant_kernels *kernels = rpi_quant_kernels_for(isa);
    const uint8_t *from = in;
    for (size_t i = 0, n; i < count; i += n) {
        n = run_at(codec, i, count);
        int width = *from;
        float *to = (float *)sum + i;
        rpi_quant_scale scale = scale_at(from, width);
        if (rpi_varied_has_levels(width))
            kernels->dequantise_sum(from + HEAD_BYTES, width, scale, n, to, to);
        else
            for (size_t k = 0; k < n; k++) to[k] += scale.min;
        from += rpi_varied_bytes(n, width);
    }
}

/* ---- what cannot have been encoded ----------------------------------------------------- */

static rp_status varied_check(const rp_codec *codec, rp_dtype dtype, const void *in,
                              size_t bytes, size_t count) {
    (void)dtype;
    const uint8_t *from = in;
    size_t left = bytes;
    for (size_t i = 0, n, needed; i < count; i += n, left -= needed, from += needed) {
        n = run_at(codec, i, count);
        if (!left) return RP_FAIL(CORRUPT, "codec v: the bytes end before element %zu", i);
        int width = *from;
        if (width > RPI_VARIED_CONSTANT && width != RPI_VARIED_DAMAGED)
            return RP_FAIL(CORRUPT,
                           "codec v: elements from %zu on have %d bits; 0 to %d can be", i,
                           width, RPI_VARIED_BITS);
        needed = rpi_varied_bytes(n, width);
        if (left < needed)
            return RP_FAIL(CORRUPT, "codec v: the bytes end inside the run of element %zu", i);
    }
    if (!left) return RP_OK;
    return RP_FAIL(CORRUPT, "codec v: %zu bytes are behind the last run", left);
}

static const char *varied_conflict(const rp_codec *codec) {
    if (codec->bits == 1 && codec->rounding == RP_STOCHASTIC)
        return "v1 rounds to nearest alone; stochastic rounding takes v2 to v8";
    return NULL;
}

static const char *const quarters[] = {"0", "1", "2", "3", NULL};

static const rpi_codec_option options[] = {
    RPI_CODEC_BUCKET(BUCKET, RPI_VARIED_BUCKET_MAX,
                     "elements that share out bits; 256 share a scale"),
    RPI_QUANT_ROUNDING,
    {.name = "quarters",
     .words = quarters,
     .help = "of a bit that an element has more",
     .max = RPI_VARIED_QUARTERS - 1,
     RPI_CODEC_FIELD(option[0])},
    {0},
};

const rpi_codec_kind rpi_codec_varied = {
    .name = "v",
    .summary = "quantiser whose bits follow the variance, 0 to 8 for each 256 elements",
    .wire_id = 8,
    .bits_min = 1,
    .bits_max = 8,
    .options = options,
    .varies = true,
    .supports = rpi_quant_supports,
    .is_exact = rpi_quant_is_exact,
    .encoded_bytes = varied_encoded_bytes,
    .encode = varied_encode,
    .decode = varied_decode,
    .decode_add = varied_decode_add,
    .check = varied_check,
    .conflict = varied_conflict,
};
