#include "train/parallel/activation_codec.h"

#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"

#include <math.h>

static rp_status check(const char *text, const rp_codec *codec) {
    const rpi_codec_kind *kind = rpi_codec_kind_of(codec);
    if (kind->sparse)
        return RP_FAIL(INVALID,
                       "--activations-codec %s: the next rank would compute with zeros for all "
                       "other activations, as nothing is held back on this way; name a codec "
                       "that sends each, such as q8",
                       text);
    if (codec->rounding == RP_STOCHASTIC)
        return RP_FAIL(INVALID,
                       "--activations-codec %s: activations are rounded to nearest, so that "
                       "those that are made again are the same; leave the rounding out",
                       text);
    if (kind->varies)
        return RP_FAIL(INVALID,
                       "--activations-codec %s: how many bytes it makes follows from the data, "
                       "and a message between stages has one length; q1 to q8 have",
                       text);
    return RP_OK;
}

rp_status rpi_activation_codec_parse(const char *text, rp_codec *out_codec) {
    rp_codec codec = {0};
    if (text && *text) {
        RP_TRY(rp_codec_parse(text, &codec));
        if (!rp_codec_is_exact(&codec, RP_F32)) RP_TRY(check(text, &codec));
    }
    *out_codec = codec;
    return RP_OK;
}

bool rpi_activation_codec_is_exact(const rpi_activation_codec *c) {
    return !c || c->is_off || rp_codec_is_exact(&c->codec, RP_F32);
}

rp_codec rpi_activation_codec_now(const rpi_activation_codec *c) {
    return rpi_activation_codec_is_exact(c) ? (rp_codec){0} : c->codec;
}

size_t rpi_activation_codec_bytes(const rp_codec *codec, int64_t count) {
    return rp_codec_encoded_bytes(codec, RP_F32, (size_t)count);
}

/* ---- by how much they are off ---- */

enum { RUN = 4096 };

/* Encodings of runs of whole granules, one behind the other, are the encoding of the whole. */
rp_status rpi_activation_codec_open(const char *text, rpi_activation_codec *out_codec) {
    rpi_activation_codec c = {0};
    RP_TRY(rpi_activation_codec_parse(text, &c.codec));
    size_t granule = rp_codec_granule(&c.codec);
    if (!rpi_activation_codec_is_exact(&c)) {
        c.run = (RUN + granule - 1) / granule * granule;
        size_t bytes = rpi_activation_codec_bytes(&c.codec, (int64_t)c.run);
        RP_TRY(rpi_alloc(bytes, "encoded activations", &c.encoded));
        rp_status status =
            rpi_alloc_array(c.run, sizeof *c.decoded, "decoded activations", &c.decoded);
        if (status != RP_OK) rpi_free(c.encoded);
        RP_TRY(status);
    }
    *out_codec = c;
    return RP_OK;
}

void rpi_activation_codec_close(rpi_activation_codec *c) {
    rpi_free(c->encoded);
    rpi_free(c->decoded);
    *c = (rpi_activation_codec){0};
}

static void compare(const float *elements, const float *decoded, size_t count,
                    rpi_activation_error *error) {
    for (size_t i = 0; i < count; i++) {
        double lost = (double)elements[i] - (double)decoded[i];
        error->lost += lost * lost;
        error->all += (double)elements[i] * (double)elements[i];
    }
}

void rpi_activation_codec_begin(rpi_activation_codec *c, int64_t step) {
    enum { FIRST = 3, EVERY = 10 };
    c->measures = c->begun++ < FIRST || step % EVERY == 0;
}

rp_status rpi_activation_codec_measure(rpi_activation_codec *c, rpi_link_way way,
                                       const float *elements, int64_t count) {
    if (rpi_activation_codec_is_exact(c) || !c->measures) return RP_OK;
    size_t all = (size_t)count;
    for (size_t first = 0; first < all; first += c->run) {
        size_t n = all - first < c->run ? all - first : c->run, bytes = 0;
        const float *x = elements + first;
        RP_TRY(rp_codec_encode(&c->codec, RP_F32, x, n, NULL, c->encoded, &bytes));
        RP_TRY(rp_codec_decode(&c->codec, RP_F32, c->encoded, bytes, n, NULL, c->decoded));
        compare(x, c->decoded, n, &c->errors[way]);
    }
    return RP_OK;
}

double rpi_activation_error_relative(const rpi_activation_error *error) {
    return error->all > 0 ? sqrt(error->lost / error->all) : NAN;
}
