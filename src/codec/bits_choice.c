#include "redpoll/adaptive.h"

#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"

#include <math.h>
#include <stdbool.h>

/* ---- measuring ----------------------------------------------------------------------- */

typedef struct sample {
    float *y, *decoded; /* one bucket */
    unsigned char *encoded;
} sample;

static void free_sample(sample *s) {
    rpi_free(s->y);
    rpi_free(s->decoded);
    rpi_free(s->encoded);
}

static rp_status make_sample(const rp_codec *like, size_t bucket, sample *s) {
    rp_codec longest = *like;
    longest.bits = RP_BITS_MOST;
    RP_TRY(rpi_alloc_array(bucket, sizeof *s->y, "a bucket", &s->y));
    RP_TRY(rpi_alloc_array(bucket, sizeof *s->decoded, "a bucket", &s->decoded));
    return rpi_alloc(rp_codec_encoded_bytes(&longest, RP_F32, bucket), "a bucket", &s->encoded);
}

static rp_status add_lost(const rp_codec *codec, const sample *s, size_t count, double *lost) {
    size_t bytes = 0;
    double square = 0;
    RP_TRY(rp_codec_encode(codec, RP_F32, s->y, count, NULL, s->encoded, &bytes));
    RP_TRY(rp_codec_decode(codec, RP_F32, s->encoded, bytes, count, NULL, s->decoded));
    for (size_t i = 0; i < count; i++) {
        double difference = (double)s->y[i] - (double)s->decoded[i];
        square += difference * difference;
    }
    *lost += square;
    return RP_OK;
}

static rp_status measure(const rp_codec *like, const float *x, const float *residual,
                         size_t count, const sample *s, double lost[RP_BITS_MOST + 1]) {
    rp_codec codec = *like;
    for (size_t i = 0, n; i < count; i += n) {
        n = count - i < like->bucket ? count - i : like->bucket;
        for (size_t k = 0; k < n; k++) s->y[k] = x[i + k] + (residual ? residual[i + k] : 0.0f);
        for (int bits = 1; bits <= RP_BITS_MOST; bits++) {
            codec.bits = (uint8_t)bits;
            RP_TRY(add_lost(&codec, s, n, &lost[bits]));
        }
    }
    return RP_OK;
}

static rp_status check_like(const rp_codec *like) {
    const rpi_codec_kind *kind = rpi_codec_kind_of(like);
    rp_codec widest = like ? *like : (rp_codec){0};
    widest.bits = RP_BITS_MOST;
    char why[RPI_CODEC_FAULT_BYTES];
    if (kind->bits_min == 1 && kind->bits_max == RP_BITS_MOST && !rpi_codec_fault(&widest, why))
        return RP_OK;
    return RP_FAIL(
        INVALID,
        "codec %s has no bits to choose for each tensor; use q1 to q8, with a bucket "
        "that is allowed for 8 bits",
        kind->name);
}

rp_status rp_bits_measure(const rp_codec *like, const float *x, const float *residual,
                          size_t count, double lost[RP_BITS_MOST + 1]) {
    RP_TRY(check_like(like));
    if (!lost) return RP_FAIL(INVALID, "there is nowhere to put what is lost");
    if (!count) return RP_OK;
    if (count > RPI_ELEMENTS_MAX)
        return RP_FAIL(INVALID, "%zu elements are more than can be; is that negative?", count);
    if (!x) return RP_FAIL(INVALID, "%zu elements and no data", count);
    sample s = {0};
    rp_status status = make_sample(like, count < like->bucket ? count : like->bucket, &s);
    if (status == RP_OK) status = measure(like, x, residual, count, &s, lost);
    free_sample(&s);
    return status;
}

/* ---- choosing ------------------------------------------------------------------------ */

static int is_measured(const rp_bits_choice *tensor) {
    for (int bits = 1; bits <= RP_BITS_MOST; bits++)
        if (!isfinite(tensor->lost[bits])) return 0;
    return 1;
}

static size_t bytes_with(const rp_codec *like, const rp_bits_choice *tensor, int bits) {
    rp_codec codec = *like;
    codec.bits = (uint8_t)bits;
    return rp_codec_encoded_bytes(&codec, RP_F32, tensor->count);
}

/* Fewer bits for a tensor: how many, and what a byte that is saved so costs. */
typedef struct step {
    double lost, rate;
    int bits;
} step;

/* The best way down for one tensor within `room`; bits 0: there is none. Several bits at once
 * where the first alone would be dear. */
static step step_down(const rp_codec *like, int least, const rp_bits_choice *tensor,
                      double room) {
    step best = {0, INFINITY, 0};
    size_t bytes = bytes_with(like, tensor, tensor->bits);
    for (int bits = tensor->bits - 1; bits >= least; bits--) {
        double lost = tensor->lost[bits] - tensor->lost[tensor->bits];
        double saved = (double)(bytes - bytes_with(like, tensor, bits));
        if (saved <= 0 || lost > room || lost / saved >= best.rate) continue;
        best = (step){lost, lost / saved, bits};
    }
    return best;
}

/* From most bits down, always where a saved byte costs the least error, as long as there is
 * room. Of equal ones the first, so that all ranks go the same way. */
static void descend(const rp_codec *like, int least, rp_bits_choice *tensors, size_t count,
                    double room) {
    for (;;) {
        step best = {0, INFINITY, 0};
        size_t at = 0;
        for (size_t i = 0; i < count; i++) {
            if (!is_measured(&tensors[i])) continue;
            step tried = step_down(like, least, &tensors[i], room);
            if (!tried.bits || tried.rate >= best.rate) continue;
            best = tried;
            at = i;
        }
        if (!best.bits) return;
        tensors[at].bits = (uint8_t)best.bits;
        room -= best.lost;
    }
}

rp_status rp_bits_choose(const rp_codec *like, int least, rp_bits_choice *tensors,
                         size_t count) {
    RP_TRY(check_like(like));
    if (least < 1 || least > RP_BITS_MOST)
        return RP_FAIL(INVALID, "least is %d bits; 1 to %d are allowed", least, RP_BITS_MOST);
    if (count && !tensors) return RP_FAIL(INVALID, "%zu tensors, and no list of them", count);
    double room = 0;
    size_t like_bytes = 0, bytes = 0;
    for (size_t i = 0; i < count; i++) {
        int measured = is_measured(&tensors[i]);
        tensors[i].bits = measured ? RP_BITS_MOST : like->bits;
        if (measured) room += tensors[i].lost[like->bits] - tensors[i].lost[RP_BITS_MOST];
    }
    descend(like, least, tensors, count, room);
    double lost = 0, like_lost = 0;
    for (size_t i = 0; i < count; i++) {
        like_bytes += bytes_with(like, &tensors[i], like->bits);
        bytes += bytes_with(like, &tensors[i], tensors[i].bits);
        if (!is_measured(&tensors[i])) continue;
        lost += tensors[i].lost[tensors[i].bits];
        like_lost += tensors[i].lost[like->bits];
    }
    bool holds = bytes <= like_bytes && lost <= like_lost; /* but for rounding */
    for (size_t i = 0; i < count && !holds; i++) tensors[i].bits = like->bits;
    return RP_OK;
}
