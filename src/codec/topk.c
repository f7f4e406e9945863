/* topk: the k elements of each bucket that are largest in magnitude. docs/codecs.md is
 * normative for the bytes and for which of equal elements are kept.
 *
 * Few are wanted as a rule, and they are found in two passes over a bucket in the cache: the
 * k-th largest of the maxima of disjoint groups is no more than the k-th largest element and
 * rarely much less, so that few elements are at least so large, and the choice is among these.
 */
#include "codec/sparse.h"
#include "codec/topk_kernels.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

enum { HEAD_BYTES = RPI_TOPK_HEAD, DAMAGED = RPI_TOPK_DAMAGED, NOT_FINITE = 0x7f800000 };
enum { GROUPS_MIN = 64, GROUPS_MAX = 1024 };

static const rpi_topk_kernels *kernels_for(rpi_isa isa) {
#if defined(__x86_64__)
    if (isa >= RPI_ISA_AVX2) return &rpi_topk_avx2;
#elif defined(__aarch64__)
    if (isa >= RPI_ISA_NEON) return &rpi_topk_neon;
#endif
    (void)isa;
    return &rpi_topk_scalar;
}

static size_t least_of(size_t a, size_t b) {
    return a < b ? a : b;
}

static int index_bits(const rp_codec *codec) {
    return rpi_topk_index_bits(codec->bucket);
}

static size_t index_bytes(const rp_codec *codec, size_t kept) {
    return (kept * (size_t)index_bits(codec) + 7) / 8;
}

static size_t body_bytes(const rp_codec *codec, size_t kept) {
    return index_bytes(codec, kept) + rpi_sparse_value_bytes(codec, kept);
}

static size_t largest_bytes(const rp_codec *codec, size_t count) {
    return HEAD_BYTES + body_bytes(codec, least_of(codec->option[0], count));
}

static size_t topk_encoded_bytes(const rp_codec *codec, rp_dtype dtype, size_t count) {
    (void)dtype;
    size_t rest = count % codec->bucket;
    return count / codec->bucket * largest_bytes(codec, codec->bucket) +
           (rest ? largest_bytes(codec, rest) : 0);
}

/* ---- choosing ------------------------------------------------------------------------ */

typedef struct workspace {
    const rpi_topk_kernels *kernels;
    float y[RPI_SPARSE_BUCKET_MAX];
    uint32_t magnitude[RPI_SPARSE_BUCKET_MAX], group[GROUPS_MAX];
    uint16_t index[RPI_SPARSE_BUCKET_MAX];
    rpi_sparse_bucket bucket;
} workspace;

/* By halving [low, high), where at least k of n values are no less than low and fewer than k no
 * less than high: counting is cheap, comparing values with each other is not. The k-th largest,
 * or up to slack - 1 less. */
static uint32_t kth_largest(const rpi_topk_kernels *kernels, const void *values, size_t n,
                            size_t k, uint32_t low, uint32_t high, uint32_t slack) {
    while (high - low > slack) {
        uint32_t middle = low + (high - low) / 2;
        if (kernels->count(values, n, middle) >= k)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static size_t groups_for(size_t k) {
    size_t groups = GROUPS_MIN;
    while (groups < 4 * k && groups < GROUPS_MAX) groups *= 2;
    return groups;
}

/* No more than the k-th largest magnitude of y, and not much less; at least 1, since zeros need
 * not be sent. most: the largest. */
static uint32_t lower_bound(const workspace *w, const float *y, size_t count, size_t groups,
                            size_t k, uint32_t most) {
    enum { SLACK = 1 << 14 }; /* a 512th of the value */
    uint32_t bound;
    if (count >= 4 * groups && k <= groups / 2)
        bound = kth_largest(w->kernels, w->group, groups, k, 0, most + 1, SLACK);
    else
        bound = kth_largest(w->kernels, y, count, k, 0, most + 1, SLACK);
    return bound ? bound : 1;
}

/* Of equal magnitudes those that come first are kept. */
static void choose(workspace *w, const float *y, size_t found, size_t k, uint32_t bound,
                   uint32_t most) {
    rpi_sparse_bucket *b = &w->bucket;
    uint32_t least = bound;
    size_t ties = found;
    if (found > k) {
        least = kth_largest(w->kernels, w->magnitude, found, k, bound, most + 1, 1);
        ties = k - w->kernels->count(w->magnitude, found, least + 1);
    }
    b->kept = 0;
    for (size_t i = 0; i < found; i++) {
        if (w->magnitude[i] < least || (w->magnitude[i] == least && ties == 0)) continue;
        ties -= w->magnitude[i] == least;
        b->index[b->kept] = w->index[i];
        b->value[b->kept++] = y[w->index[i]];
    }
}

/* False: the bucket holds NaN or infinity. */
static bool choose_largest(workspace *w, const float *y, size_t count, size_t k) {
    size_t groups = groups_for(k);
    uint32_t most = 0;
    w->kernels->group_max(y, count, groups, w->group);
    for (size_t g = 0; g < groups; g++) most = w->group[g] > most ? w->group[g] : most;
    if (most >= NOT_FINITE) return false;
    uint32_t bound = lower_bound(w, y, count, groups, k, most);
    choose(w, y, w->kernels->collect(y, count, bound, w->magnitude, w->index), k, bound, most);
    return true;
}

/* ---- bytes --------------------------------------------------------------------------- */

static void pack_indices(const rp_codec *codec, const rpi_sparse_bucket *b, uint8_t *out) {
    int bits = index_bits(codec), held_bits = 0;
    uint64_t held = 0;
    for (size_t i = 0; i < b->kept; i++) {
        held |= (uint64_t)b->index[i] << held_bits;
        for (held_bits += bits; held_bits >= 8; held_bits -= 8, held >>= 8)
            *out++ = (uint8_t)held;
    }
    if (held_bits) *out = (uint8_t)held;
}

static void unpack_indices(const rp_codec *codec, const uint8_t *in, rpi_sparse_bucket *b) {
    int bits = index_bits(codec), held_bits = 0;
    uint32_t held = 0, mask = (1u << bits) - 1;
    for (size_t i = 0; i < b->kept; i++) {
        for (; held_bits < bits; held_bits += 8) held |= (uint32_t)*in++ << held_bits;
        b->index[i] = (uint16_t)(held & mask);
        held >>= bits;
        held_bits -= bits;
    }
}

static void put_head(uint8_t *out, size_t head) {
    uint16_t number = (uint16_t)head;
    memcpy(out, &number, HEAD_BYTES);
}

static size_t head_of(const uint8_t *in) {
    uint16_t number;
    memcpy(&number, in, HEAD_BYTES);
    return number;
}

static size_t spoil(float *residual, size_t count, uint8_t *out) {
    put_head(out, DAMAGED);
    if (residual) memset(residual, 0, count * sizeof *residual);
    return HEAD_BYTES;
}

static size_t encode_bucket(const rp_codec *codec, rpi_isa isa, workspace *w, const float *y,
                            size_t count, float *residual, uint8_t *out) {
    size_t k = least_of(codec->option[0], count);
    if (!choose_largest(w, y, count, k)) return spoil(residual, count, out);
    rpi_sparse_bucket *b = &w->bucket;
    uint8_t *values = out + HEAD_BYTES + index_bytes(codec, b->kept);
    put_head(out, b->kept);
    pack_indices(codec, b, out + HEAD_BYTES);
    rpi_sparse_encode_values(codec, isa, b, values);
    if (!rpi_sparse_is_finite(b->value, b->kept)) return spoil(residual, count, out);
    if (residual) rpi_sparse_settle(b, residual);
    return HEAD_BYTES + body_bytes(codec, b->kept);
}

static size_t topk_encode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                          size_t count, const rp_encode_context *context, void *out) {
    workspace w; /* filled as it is needed */
    w.kernels = kernels_for(isa);
    uint8_t *to = out;
    for (size_t i = 0, n; i < count; i += n) {
        n = least_of(count - i, codec->bucket);
        float *residual = context->residual ? context->residual + i : NULL;
        const float *y = rpi_sparse_feed(
            dtype, isa, (const char *)x + rp_dtype_bytes(dtype) * i, n, residual, w.y);
        to += encode_bucket(codec, isa, &w, y, n, residual, to);
    }
    return (size_t)(to - (uint8_t *)out);
}

/* ---- decode -------------------------------------------------------------------------- */

/* Reads a bucket that is sound; where the next one begins. kept is DAMAGED for a damaged one.
 */
static const uint8_t *read_bucket(const rp_codec *codec, rpi_isa isa, const uint8_t *in,
                                  rpi_sparse_bucket *b) {
    b->kept = head_of(in);
    in += HEAD_BYTES;
    if (b->kept == DAMAGED) return in;
    unpack_indices(codec, in, b);
    rpi_sparse_decode_values(codec, isa, in + index_bytes(codec, b->kept), b);
    return in + body_bytes(codec, b->kept);
}

static void topk_decode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                        size_t count, const rp_encode_context *context, void *y) {
    (void)context;
    rpi_sparse_bucket b;
    const uint8_t *from = in;
    for (size_t i = 0, n; i < count; i += n) {
        n = least_of(count - i, codec->bucket);
        char *to = (char *)y + rp_dtype_bytes(dtype) * i;
        from = read_bucket(codec, isa, from, &b);
        if (b.kept == DAMAGED)
            rpi_sparse_spoil(dtype, isa, n, to);
        else
            rpi_sparse_scatter(&b, dtype, isa, n, to);
    }
}

static void topk_decode_add(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                            size_t count, const rp_encode_context *context, void *sum) {
    (void)dtype, (void)context; /* sums of all three types are floats */
    rpi_sparse_bucket b;
    const uint8_t *from = in;
    for (size_t i = 0, n; i < count; i += n) {
        n = least_of(count - i, codec->bucket);
        from = read_bucket(codec, isa, from, &b);
        if (b.kept == DAMAGED)
            rpi_sparse_spoil_sum(n, (float *)sum + i);
        else
            rpi_sparse_add(&b, (float *)sum + i);
    }
}

/* ---- what cannot have been encoded --------------------------------------------------- */

static rp_status check_indices(const rp_codec *codec, const uint8_t *in, size_t kept,
                               size_t number, size_t count) {
    rpi_sparse_bucket b;
    b.kept = kept;
    unpack_indices(codec, in, &b);
    for (size_t i = 0; i < kept; i++)
        if (b.index[i] >= count || (i && b.index[i] <= b.index[i - 1]))
            return RP_FAIL(CORRUPT,
                           "codec topk: bucket %zu of %zu elements keeps element %u behind %u",
                           number, count, b.index[i], i ? b.index[i - 1] : 0);
    return RP_OK;
}

/* *in is moved on to the next bucket. */
static rp_status check_bucket(const rp_codec *codec, const uint8_t **in, size_t left,
                              size_t number, size_t count) {
    if (left < HEAD_BYTES)
        return RP_FAIL(CORRUPT, "codec topk: the bytes end before bucket %zu", number);
    size_t kept = head_of(*in);
    *in += HEAD_BYTES;
    if (kept == DAMAGED) return RP_OK;
    if (kept > least_of(codec->option[0], count))
        return RP_FAIL(CORRUPT, "codec topk: bucket %zu of %zu elements keeps %zu; k is %u",
                       number, count, kept, codec->option[0]);
    if (left - HEAD_BYTES < body_bytes(codec, kept))
        return RP_FAIL(CORRUPT, "codec topk: the bytes end inside bucket %zu", number);
    const uint8_t *indices = *in;
    *in += body_bytes(codec, kept);
    return check_indices(codec, indices, kept, number, count);
}

static rp_status topk_check(const rp_codec *codec, rp_dtype dtype, const void *in, size_t bytes,
                            size_t count) {
    (void)dtype;
    const uint8_t *at = in, *end = at + bytes;
    for (size_t i = 0, n; i < count; i += n) {
        n = least_of(count - i, codec->bucket);
        RP_TRY(check_bucket(codec, &at, (size_t)(end - at), i / codec->bucket, n));
    }
    if (at == end) return RP_OK;
    return RP_FAIL(CORRUPT, "codec topk: %zu bytes are behind the last bucket",
                   (size_t)(end - at));
}

static const rpi_codec_option options[] = {RPI_SPARSE_OPTIONS};

const rpi_codec_kind rpi_codec_topk = {
    .name = "topk",
    .summary = "the k elements of each bucket that are largest, and where they are",
    .wire_id = 5,
    .options = options,
    .varies = true,
    .sparse = true,
    .supports = rpi_sparse_supports,
    .is_exact = rpi_sparse_is_exact,
    .encoded_bytes = topk_encoded_bytes,
    .encode = topk_encode,
    .decode = topk_decode,
    .decode_add = topk_decode_add,
    .check = topk_check,
    .conflict = rpi_sparse_conflict,
};
