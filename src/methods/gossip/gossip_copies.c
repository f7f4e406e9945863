#include "methods/gossip/gossip_copies.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "plan/plan.h"
#include "redpoll/codec.h"

#include <stdio.h>
#include <string.h>

/* ---- gamma ---- */

enum {
    SAMPLE =
        1 << 15, /* elements of a sample, at least: several buckets, or one that is longer */
    ROUNDS = 64  /* rounds in which a codec is given what it left: some lose most of that */
};
static const double REST =
    .002; /* of the square; what is left then are a few elements, and chance */

typedef struct sample {
    size_t count;
    float *x, *y;
    uint8_t *bytes;
} sample;

/* x becomes what the codec leaves of it: x minus its decoded encoding. */
static rp_status take_away(const rp_codec *codec, uint64_t round, sample *s) {
    size_t length = 0;
    rp_encode_context context = {.step = round};
    RP_TRY(rp_codec_encode(codec, RP_F32, s->x, s->count, &context, s->bytes, &length));
    RP_TRY(rp_codec_decode(codec, RP_F32, s->bytes, length, s->count, &context, s->y));
    for (size_t i = 0; i < s->count; i++) s->x[i] -= s->y[i];
    return RP_OK;
}

static double square_of(const sample *s) {
    double sum = 0;
    for (size_t i = 0; i < s->count; i++) sum += (double)s->x[i] * (double)s->x[i];
    return sum;
}

static rp_status measure(const rp_codec *codec, sample *s, double *out_taken) {
    rpi_rng rng = rpi_rng_make(1, RPI_RNG_SYNTHETIC, 0);
    for (size_t i = 0; i < s->count; i++) s->x[i] = rpi_rng_normal(&rng);
    double first = square_of(s), before = first;
    *out_taken = 1;
    for (uint64_t round = 0; round < ROUNDS && before > REST * first; round++) {
        RP_TRY(take_away(codec, round, s));
        double after = square_of(s), taken = 1 - after / before;
        if (taken < *out_taken) *out_taken = taken;
        before = after;
    }
    return RP_OK;
}

static rp_status find_taken(const rp_codec *codec, double *out_taken) {
    size_t granule = rp_codec_granule(codec);
    size_t count = (SAMPLE + granule - 1) / granule * granule;
    sample s = {.count = count};
    rp_status status = rpi_alloc_array(2 * count, sizeof *s.x, "a sample", &s.x);
    if (status == RP_OK)
        status = rpi_alloc(rp_codec_encoded_bytes(codec, RP_F32, count), "a sample", &s.bytes);
    s.y = s.x ? s.x + count : NULL;
    if (status == RP_OK) status = measure(codec, &s, out_taken);
    rpi_free(s.bytes);
    rpi_free(s.x);
    return status;
}

static rp_status find_least(const rp_segment *segments, size_t count, double *out_least,
                            char out_text[80]) {
    double least = 1, taken = 0;
    char text[80], last[80] = "";
    out_text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const rp_codec *codec = &segments[i].codec;
        if (rp_codec_is_exact(codec, segments[i].dtype)) continue;
        if (strcmp(rp_codec_text(codec, text, sizeof text), last) == 0) continue;
        RP_TRY(find_taken(codec, &taken));
        snprintf(last, sizeof last, "%s", text);
        if (taken >= least) continue;
        least = taken;
        snprintf(out_text, 80, "%s", text);
    }
    *out_least = least;
    return RP_OK;
}

rp_status rpi_copies_taken(const rp_segment *segments, size_t count, double *out_taken) {
    char text[80];
    return find_least(segments, count, out_taken, text);
}

/* A codec that sends next to nothing has 1.5 d: there it costs more to follow late than
 * to go too far. The factor falls with d to 0.7, and where d itself is more than that
 * gamma is d^2. */
static double gamma_of(double d) {
    double share = 1.5 - 4 * d;
    if (share < .7) share = .7;
    return d * (d > share ? d : share);
}

rp_status rpi_copies_gamma(const rp_segment *segments, size_t count, double *out_gamma) {
    double least = 1;
    char text[80];
    RP_TRY(find_least(segments, count, &least, text));
    if (least <= 0)
        return RP_FAIL(INVALID,
                       "choco: codec %s adds more than it takes, and copies would not come "
                       "nearer with any gamma; take more bits, or rounding=nearest",
                       text);
    *out_gamma = gamma_of(least);
    return RP_OK;
}

/* ---- what neighbours have decoded ---- */

enum { STRETCH = 1 << 16 }; /* elements, or a granule */

/* Encodings concatenate at granules, so that stretch by stretch they have the bytes of the
 * whole. */
static size_t stretch_of(const rp_segment *segment) {
    size_t granule = rp_codec_granule(&segment->codec);
    size_t stretch = granule > STRETCH ? granule : STRETCH / granule * granule;
    return stretch < segment->count ? stretch : segment->count;
}

size_t rpi_copies_scratch(const rp_segment *segments, size_t count) {
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        const rp_segment *s = &segments[i];
        if (rp_codec_is_exact(&s->codec, s->dtype)) continue;
        size_t bytes = rp_codec_encoded_bytes(&s->codec, s->dtype, stretch_of(s));
        if (bytes > most) most = bytes;
    }
    return most;
}

static rp_status decode_segment(const rp_segment *s, const rp_encode_context *call,
                                void *scratch) {
    size_t stretch = stretch_of(s);
    for (size_t first = 0; first < s->count; first += stretch) {
        size_t count = s->count - first < stretch ? s->count - first : stretch, bytes = 0;
        char *data = (char *)s->data + first * rp_dtype_bytes(s->dtype);
        rp_encode_context context = *call;
        context.tensor = s->tensor;
        context.first = s->first + first;
        RP_TRY(rp_codec_encode(&s->codec, s->dtype, data, count, &context, scratch, &bytes));
        RP_TRY(rp_codec_decode(&s->codec, s->dtype, scratch, bytes, count, &context, data));
    }
    return RP_OK;
}

rp_status rpi_copies_decode(const rp_segment *segments, size_t count, uint64_t seed,
                            uint64_t step, int rank, void *scratch) {
    rp_encode_context call = {
        .seed = seed, .step = step, .role = RPI_ROLE_SENDER + 2 * (uint32_t)rank};
    for (size_t i = 0; i < count; i++)
        if (!rp_codec_is_exact(&segments[i].codec, segments[i].dtype))
            RP_TRY(decode_segment(&segments[i], &call, scratch));
    return RP_OK;
}
