#include "redpoll/adaptive.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "codec/quant_run.h"
#include "codec/quant_varied.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

extern const rpi_codec_kind rpi_codec_varied;

enum { LOWEST = 1, LOWEST_STOCHASTIC = 1 + RPI_VARIED_QUARTERS }; /* v1 rounds to nearest */

static int bits_of(int level) {
    return 1 + (level - 1) / RPI_VARIED_QUARTERS;
}

static uint32_t quarters_of(int level) {
    return (uint32_t)((level - 1) % RPI_VARIED_QUARTERS);
}

static int lowest_level(const rp_codec *like) {
    return like->rounding == RP_STOCHASTIC ? LOWEST_STOCHASTIC : LOWEST;
}

static rp_status check_like(const rp_codec *like) {
    const rpi_codec_kind *kind = rpi_codec_kind_of(like);
    char why[RPI_CODEC_FAULT_BYTES];
    bool is_fixed_quantiser = kind->bits_max == RPI_VARIED_BITS && !kind->varies;
    if (is_fixed_quantiser && !rpi_codec_fault(like, why)) return RP_OK;
    return RP_FAIL(INVALID,
                   "auto meets the error of a quantiser, q1 to q8, by choosing bits; codec %s "
                   "has no bits to choose",
                   kind->name);
}

static rp_codec codec_of(const rp_codec *like, int level) {
    if (level == 0) return *like;
    rp_codec codec = rpi_codec_default(&rpi_codec_varied, bits_of(level));
    codec.rounding = like->rounding;
    codec.option[0] = quarters_of(level);
    return codec;
}

rp_status rp_level_codec(const rp_codec *like, int level, rp_codec *out_codec) {
    RP_TRY(check_like(like));
    if (!out_codec) return RP_FAIL(INVALID, "there is nowhere to put the codec");
    if (level < 0 || level >= RP_LEVELS || (level && level < lowest_level(like)))
        return RP_FAIL(INVALID, "level is %d; 0 and %d to %d are allowed", level,
                       lowest_level(like), RP_LEVELS - 1);
    *out_codec = codec_of(like, level);
    return RP_OK;
}

rp_status rp_level_like(const rp_codec *like, rp_codec *out_codec) {
    RP_TRY(check_like(like));
    int level = 1 + (like->bits - 1) * RPI_VARIED_QUARTERS, lowest = lowest_level(like);
    return rp_level_codec(like, level > lowest ? level : lowest, out_codec);
}

/* ---- measuring ----------------------------------------------------------------------- */

/* One bucket at a time. */
typedef struct sample {
    const rp_codec *like;
    const rpi_quant_kernels *kernels;
    float *y, *decoded;
    unsigned char *encoded;
    rpi_varied_run *runs;
    double (*lost)[RPI_VARIED_BITS + 1]; /* of each run, by bits */
    size_t (*bytes)[RPI_VARIED_BITS + 1];
} sample;

static void free_sample(sample *s) {
    rpi_free(s->y);
    rpi_free(s->decoded);
    rpi_free(s->encoded);
    rpi_free(s->runs);
    rpi_free(s->lost);
    rpi_free(s->bytes);
}

static rp_status make_sample(const rp_codec *like, size_t bucket, sample *s) {
    size_t runs = (bucket + RPI_VARIED_RUN - 1) / RPI_VARIED_RUN;
    s->like = like;
    s->kernels = rpi_quant_kernels_for(rpi_cpu_isa());
    RP_TRY(rpi_alloc_array(bucket, sizeof *s->y, "a bucket", &s->y));
    RP_TRY(rpi_alloc_array(bucket, sizeof *s->decoded, "a bucket", &s->decoded));
    RP_TRY(rpi_alloc(rp_codec_encoded_bytes(like, RP_F32, bucket), "a bucket", &s->encoded));
    RP_TRY(rpi_alloc_array(runs, sizeof *s->runs, "runs of a bucket", &s->runs));
    RP_TRY(rpi_alloc_array(runs, sizeof *s->lost, "runs of a bucket", &s->lost));
    return rpi_alloc_array(runs, sizeof *s->bytes, "runs of a bucket", &s->bytes);
}

static rp_status measure_like(const sample *s, size_t count, double measured[RP_MEASURED]) {
    size_t bytes = 0;
    double square = 0;
    RP_TRY(rp_codec_encode(s->like, RP_F32, s->y, count, NULL, s->encoded, &bytes));
    RP_TRY(rp_codec_decode(s->like, RP_F32, s->encoded, bytes, count, NULL, s->decoded));
    for (size_t i = 0; i < count; i++) {
        double difference = (double)s->y[i] - (double)s->decoded[i];
        square += difference * difference;
    }
    measured[0] += square;
    measured[RP_LEVELS] += (double)bytes;
    return RP_OK;
}

/* The squared error of a run that travels so. */
static double error_of(const sample *s, const float *y, size_t count,
                       const rpi_varied_way *way) {
    float residual[RPI_VARIED_RUN] = {0};
    uint8_t levels[RPI_VARIED_RUN];
    uint16_t random[RPI_VARIED_RUN];
    double moment[2];
    bool stochastic = s->like->rounding == RP_STOCHASTIC;
    if (way->width == RPI_VARIED_DAMAGED) return NAN;
    if (way->width < 1 || way->width > RPI_VARIED_BITS) {
        s->kernels->moments(y, NULL, count, (double)way->scale.min, moment);
        return moment[1];
    }
    if (stochastic) {
        rpi_quant_stream stream = {{0}, {0}};
        uint64_t block = (uint64_t)(y - s->y) / 8;
        s->kernels->random(&stream, block, RPI_VARIED_RUN / 8, random);
    }
    s->kernels->quantise(&(rpi_quant_run){.x = y,
                                          .residual = residual,
                                          .random = stochastic ? random : NULL,
                                          .count = count,
                                          .bits = way->width,
                                          .scale = way->scale,
                                          .out = levels});
    s->kernels->moments(residual, NULL, count, 0, moment);
    return moment[1];
}

static void measure_run(const sample *s, size_t r, const float *y, size_t count) {
    s->runs[r] = rpi_varied_look(s->kernels, y, NULL, count);
    for (int bits = 0; bits <= RPI_VARIED_BITS; bits++) {
        rpi_varied_way way =
            rpi_varied_way_of(&s->runs[r], bits, s->like->rounding == RP_STOCHASTIC);
        s->lost[r][bits] = error_of(s, y, count, &way);
        s->bytes[r][bits] = rpi_varied_bytes(count, way.width);
    }
}

/* The bits that each run of a bucket gets at each level, and what comes of it. */
static void measure_levels(const sample *s, size_t count, double measured[RP_MEASURED]) {
    size_t runs = 0;
    double variance = 0;
    for (size_t i = 0, n; i < count; i += n, runs++) {
        n = count - i < RPI_VARIED_RUN ? count - i : RPI_VARIED_RUN;
        measure_run(s, runs, s->y + i, n);
        variance += s->runs[runs].variance * (double)n;
    }
    variance /= (double)count;
    for (int level = 1; level < RP_LEVELS; level++) {
        double price = rpi_varied_price(bits_of(level), quarters_of(level)) * variance;
        for (size_t r = 0; r < runs; r++) {
            int bits = rpi_varied_bits(&s->runs[r], price, s->like->rounding == RP_STOCHASTIC);
            measured[level] += s->lost[r][bits];
            measured[RP_LEVELS + level] += (double)s->bytes[r][bits];
        }
    }
}

static void add_residual(const float *x, const float *residual, size_t count, float *y) {
    for (size_t k = 0; k < count; k++) y[k] = x[k] + (residual ? residual[k] : 0.0f);
}

static rp_status measure(const sample *s, const float *x, const float *residual, size_t count,
                         size_t bucket, double measured[RP_MEASURED]) {
    for (size_t i = 0, n; i < count; i += n) {
        n = count - i < s->like->bucket ? count - i : s->like->bucket;
        add_residual(x + i, residual ? residual + i : NULL, n, s->y);
        RP_TRY(measure_like(s, n, measured));
    }
    for (size_t i = 0, n; i < count; i += n) {
        n = count - i < bucket ? count - i : bucket;
        add_residual(x + i, residual ? residual + i : NULL, n, s->y);
        measure_levels(s, n, measured);
    }
    return RP_OK;
}

rp_status rp_levels_measure(const rp_codec *like, const float *x, const float *residual,
                            size_t count, double measured[RP_MEASURED]) {
    RPI_FPENV_SCOPE;
    RP_TRY(check_like(like));
    if (!measured) return RP_FAIL(INVALID, "there is nowhere to put what is measured");
    if (!count) return RP_OK;
    if (count > RPI_ELEMENTS_MAX)
        return RP_FAIL(INVALID, "%zu elements are more than can be; is that negative?", count);
    if (!x) return RP_FAIL(INVALID, "%zu elements and no data", count);
    size_t bucket = codec_of(like, RP_LEVELS - 1).bucket;
    size_t room = like->bucket > bucket ? like->bucket : bucket;
    sample s = {0};
    rp_status status = make_sample(like, count < room ? count : room, &s);
    if (status == RP_OK) status = measure(&s, x, residual, count, bucket, measured);
    free_sample(&s);
    return status;
}

/* ---- choosing ------------------------------------------------------------------------ */

/* A lower level for a tensor: what it loses more, and what a byte that it saves so costs. */
typedef struct step {
    double lost, rate;
    int level;
} step;

typedef struct chooser {
    rp_level_choice *tensors;
    size_t count;
    int lowest;
    step *steps; /* the best one of each tensor; level -1: there is none */
} chooser;

static bool is_measured(const rp_level_choice *tensor) {
    for (int i = 0; i < RP_MEASURED; i++)
        if (!isfinite(tensor->measured[i])) return false;
    return true;
}

static double bytes_at(const rp_level_choice *tensor, int level) {
    return tensor->measured[RP_LEVELS + level];
}

/* The choice with the least error; among equal ones that with the fewest bytes. */
static int best_level(const rp_level_choice *tensor, int lowest) {
    int best = 0;
    for (int level = lowest; level < RP_LEVELS; level++) {
        double lost = tensor->measured[level], least = tensor->measured[best];
        if (lost < least || (lost == least && bytes_at(tensor, level) < bytes_at(tensor, best)))
            best = level;
    }
    return best;
}

/* The best way down for one tensor within `room`, several levels at once where the first alone
 * would be dear. */
static step step_down(const rp_level_choice *tensor, int lowest, double room) {
    step best = {0, INFINITY, -1};
    double bytes = bytes_at(tensor, tensor->level);
    for (int level = 0; level < RP_LEVELS; level = level ? level + 1 : lowest) {
        double lost = tensor->measured[level] - tensor->measured[tensor->level];
        double saved = bytes - bytes_at(tensor, level);
        if (saved <= 0 || lost > room || lost / saved >= best.rate) continue;
        best = (step){lost, lost / saved, level};
    }
    return best;
}

/* From the least error down, always where a saved byte costs the least, as long as there is
 * room. Of equal ones the first, so that all ranks go the same way. */
static void descend(const chooser *c, double room) {
    for (size_t i = 0; i < c->count; i++) c->steps[i].level = -1;
    for (size_t i = 0; i < c->count; i++)
        if (is_measured(&c->tensors[i]))
            c->steps[i] = step_down(&c->tensors[i], c->lowest, room);
    for (;;) {
        size_t best = c->count;
        for (size_t i = 0; i < c->count; i++) {
            step *tried = &c->steps[i];
            if (tried->level >= 0 && tried->lost > room)
                *tried = step_down(&c->tensors[i], c->lowest, room);
            if (tried->level < 0) continue;
            if (best == c->count || tried->rate < c->steps[best].rate) best = i;
        }
        if (best == c->count) return;
        c->tensors[best].level = c->steps[best].level;
        room -= c->steps[best].lost;
        c->steps[best] = step_down(&c->tensors[best], c->lowest, room);
    }
}

/* Whether what was chosen is no worse than level 0 for all, but for rounding. */
static bool holds(const rp_level_choice *tensors, size_t count) {
    double lost = 0, like_lost = 0, bytes = 0, like_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_measured(&tensors[i])) continue;
        lost += tensors[i].measured[tensors[i].level];
        like_lost += tensors[i].measured[0];
        bytes += bytes_at(&tensors[i], tensors[i].level);
        like_bytes += bytes_at(&tensors[i], 0);
    }
    return lost <= like_lost && bytes <= like_bytes;
}

rp_status rp_levels_choose(const rp_codec *like, rp_level_choice *tensors, size_t count) {
    RPI_FPENV_SCOPE;
    RP_TRY(check_like(like));
    if (count && !tensors) return RP_FAIL(INVALID, "%zu tensors, and no list of them", count);
    if (!count) return RP_OK;
    chooser c = {.tensors = tensors, .count = count, .lowest = lowest_level(like)};
    RP_TRY(rpi_alloc_array(count, sizeof *c.steps, "levels of tensors", &c.steps));
    double room = 0;
    for (size_t i = 0; i < count; i++) {
        bool measured = is_measured(&tensors[i]);
        tensors[i].level = measured ? best_level(&tensors[i], c.lowest) : 0;
        if (measured) room += tensors[i].measured[0] - tensors[i].measured[tensors[i].level];
    }
    descend(&c, room);
    rpi_free(c.steps);
    bool is_no_worse = holds(tensors, count);
    for (size_t i = 0; i < count && !is_no_worse; i++) tensors[i].level = 0;
    return RP_OK;
}
