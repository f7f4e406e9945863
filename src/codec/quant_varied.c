/* v1 ... v8: the quantiser whose bits follow the variance. Elements of a bucket that are spread
 * more widely get more bits, as reverse water-filling asks (Cover and Thomas, chapter 10), and
 * levels lie as close as the error of normally distributed elements is least (Max, "Quantizing
 * for Minimum Distortion", 1960) unless outliers say otherwise. docs/codecs.md is normative. */
#include "codec/quant_varied.h"

#include "base/status.h"
#include "codec/quant_run.h"

#include <math.h>
#include <string.h>

enum { MIN_BYTES = 4, UNIT_BYTES = 2, HEAD_BYTES = 1 + MIN_BYTES + UNIT_BYTES };
enum { BUCKET = 64 * RPI_VARIED_RUN, BUCKET_MOST = 65536 };
enum { RUNS_MOST = BUCKET_MOST / RPI_VARIED_RUN };

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* ---- choosing bits and scales ---------------------------------------------------------- */

/* Of elements of variance 1: by how much the b-th bit lowers the error, [0] unused. */
static const double gain[RPI_VARIED_BITS + 2] = {
    0, 0.6366, 0.2446, 0.08136, 0.0259, 0.00805, 0.002454, 0.000737, 0.0002163, 0.000062};
/* Distance of their levels. */
static const double spacing[RPI_VARIED_BITS + 1] = {0,      1.596,  0.9957, 0.586, 0.3352,
                                                    0.1881, 0.1041, 0.0569, 0.0308};

rpi_varied_run rpi_varied_look(const rpi_quant_kernels *kernels, const float *x,
                               const float *residual, size_t count) {
    rpi_quant_range range = rpi_quant_no_range();
    rpi_varied_run run = {.count = count};
    kernels->range(x, residual, count, &range);
    run.low = range.min + 0.0f; /* turns -0 into 0, whose order in a minimum is undefined */
    run.high = range.max + 0.0f;
    run.damaged = range.has_nan || !isfinite(run.low) || !isfinite(run.high);
    if (run.damaged) return run;
    double shift = (double)run.low + ((double)run.high - (double)run.low) / 2, moment[2];
    kernels->moments(x, residual, count, shift, moment);
    double mean = moment[0] / (double)count;
    double variance = moment[1] / (double)count - mean * mean;
    run.mean = shift + mean;
    run.variance = variance > 0 ? variance : 0;
    return run;
}

double rpi_varied_price(int bits, uint32_t quarters) {
    double part = (2 * (double)quarters + 1) / (2 * RPI_VARIED_QUARTERS);
    return gain[bits] * (1 - part) + gain[bits + 1] * part;
}

/* Two bits at least where rounding is stochastic: one may miss by the whole range. */
int rpi_varied_bits(const rpi_varied_run *run, double price, rp_rounding rounding) {
    int bits = 0;
    if (run->low >= run->high) return 0;
    while (bits < RPI_VARIED_BITS && run->variance * gain[bits + 1] >= price) bits++;
    return rounding == RP_STOCHASTIC && bits < 2 ? 2 : bits;
}

/* The next number up of which 16 bits are enough. */
static float round_up(double unit) {
    float rounded = (float)unit;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    bits = (bits + 0xffff) & 0xffff0000u;
    memcpy(&rounded, &bits, sizeof bits);
    return rounded;
}

/* Where levels begin that lie around the mean, within what there is. */
static double first_level(const rpi_varied_run *run, double unit, double top) {
    double low = run->mean - unit * top / 2, last = (double)run->high - unit * top;
    if (low > last) low = last;
    return low > (double)run->low ? low : (double)run->low;
}

/* The elements without the one that lies farthest out: a single large one may make up nearly
 * all of the variance. */
typedef struct body {
    double mean, variance;
} body;

static body body_of(const rpi_varied_run *run) {
    double above = (double)run->high - run->mean, below = run->mean - (double)run->low;
    double far = above > below ? above : -below, rest = (double)run->count - 1;
    double shift = far / rest;
    double variance = ((double)run->count * run->variance - far * far) / rest - shift * shift;
    return (body){run->mean - shift, variance > 0 ? variance : 0};
}

/* How far the body's mean lies from the nearest level. */
static double miss_of(double mean, double low, double unit, double top) {
    double level = floor((mean - low) / unit + 0.5);
    if (level < 0) level = 0;
    if (level > top) level = top;
    return mean - (low + unit * level);
}

/* What rounding the body loses, and how far the two outermost elements lie beyond the levels.
 */
static double error_of(const rpi_varied_run *run, body b, double unit, double top) {
    double low = first_level(run, unit, top), high = low + unit * top;
    double below = low - (double)run->low, above = (double)run->high - high;
    double miss = miss_of(b.mean, low, unit, top), error = b.variance + miss * miss;
    if (error > unit * unit / 12) error = unit * unit / 12;
    error *= (double)run->count;
    if (below > 0) error += below * below;
    if (above > 0) error += above * above;
    return error;
}

/* From the distance that suits a normal distribution to the one that reaches every element. */
static double best_unit(const rpi_varied_run *run, int bits, double top) {
    enum { STEPS = 3 };
    double widest = ((double)run->high - (double)run->low) / top;
    double narrowest = spacing[bits] * sqrt(run->variance);
    if (narrowest >= widest) return widest;
    body b = body_of(run);
    double best = narrowest, least_error = error_of(run, b, narrowest, top);
    for (int i = 1; i <= STEPS; i++) {
        double unit = narrowest + (widest - narrowest) * ((double)i / STEPS);
        double error = error_of(run, b, unit, top);
        if (error >= least_error) continue;
        least_error = error;
        best = unit;
    }
    return best;
}

/* Stochastic rounding is right on average only where no element lies beyond the levels. */
static rpi_quant_scale scale_of(const rpi_varied_run *run, int bits, rp_rounding rounding) {
    double top = (double)((1 << bits) - 1);
    double unit = rounding == RP_STOCHASTIC ? ((double)run->high - (double)run->low) / top
                                            : best_unit(run, bits, top);
    rpi_quant_scale scale = {.unit = round_up(unit)};
    scale.min = (float)first_level(run, (double)scale.unit, top);
    return isfinite(scale.min + scale.unit * (float)top) ? scale : rpi_quant_damaged_scale();
}

rpi_varied_way rpi_varied_way_of(const rpi_varied_run *run, int bits, rp_rounding rounding) {
    if (run->damaged) return (rpi_varied_way){RPI_VARIED_DAMAGED, rpi_quant_damaged_scale()};
    rpi_quant_scale scale = {0, 0};
    if (bits && run->low < run->high) scale = scale_of(run, bits, rounding);
    if (isnan(scale.min)) return (rpi_varied_way){RPI_VARIED_DAMAGED, scale};
    if (scale.unit > 0) return (rpi_varied_way){bits, scale};
    if (run->mean * run->mean <= run->variance || run->mean == 0)
        return (rpi_varied_way){RPI_VARIED_ZEROS, {0, 0}};
    return (rpi_varied_way){RPI_VARIED_CONSTANT, {(float)run->mean, 0}};
}

/* ---- bytes ----------------------------------------------------------------------------- */

static bool has_levels(int width) {
    return width >= 1 && width <= RPI_VARIED_BITS;
}

size_t rpi_varied_bytes(size_t count, int width) {
    if (has_levels(width)) return HEAD_BYTES + rpi_packed_bytes(count, width);
    return width == RPI_VARIED_CONSTANT ? 1 + MIN_BYTES : 1;
}

/* Widths are such that a bit more than codec->bits is never reached on average: the variance
 * that a width asks for grows faster than the width, and all have their mean to share. */
static int most_bits(const rp_codec *codec) {
    return codec->bits < RPI_VARIED_BITS ? codec->bits + 1 : RPI_VARIED_BITS;
}

static size_t most_bytes(const rp_codec *codec, size_t count) {
    size_t runs = (count + RPI_VARIED_RUN - 1) / RPI_VARIED_RUN;
    return runs * HEAD_BYTES + rpi_packed_bytes(count, most_bits(codec));
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
    rpi_varied_run run[RUNS_MOST];
    rpi_varied_way way[RUNS_MOST];
} bucket_plan;

/* No run gets more bits than `most`. How many bytes the bucket comes to. */
static size_t plan_widths(const rp_codec *codec, double price, int most, bucket_plan *plan) {
    rp_rounding rounding = (rp_rounding)codec->rounding;
    size_t bytes = 0;
    for (size_t r = 0; r < plan->runs; r++) {
        int bits = rpi_varied_bits(&plan->run[r], price, rounding);
        plan->way[r] = rpi_varied_way_of(&plan->run[r], bits < most ? bits : most, rounding);
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
        plan_widths(codec, price, most_bits(codec), plan); /* no bucket comes to so much */
}

static void put_way(uint8_t *out, const rpi_varied_way *way) {
    uint32_t unit;
    *out = (uint8_t)way->width;
    if (way->width != RPI_VARIED_CONSTANT && !has_levels(way->width)) return;
    memcpy(out + 1, &way->scale.min, MIN_BYTES);
    if (!has_levels(way->width)) return;
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
        if (has_levels(way->width))
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
    if (has_levels(width)) memcpy(&unit, in + 1 + MIN_BYTES, UNIT_BYTES);
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
        if (has_levels(width))
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
        if (has_levels(width))
            kernels->dequantise_add(from + HEAD_BYTES, width, scale, n, to);
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
    RPI_CODEC_BUCKET(BUCKET, BUCKET_MOST, "elements that share out bits; 256 share a scale"),
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
