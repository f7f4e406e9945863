/* Codecs give the bytes and values of the scalar kernels in the default floating-point
 * environment, whatever environment the caller is in, and leave it as it was. */
#include "codec_cases.h"
#include "harness/float_env.h"

typedef struct results {
    unsigned char *bytes, *y, *sum;
    float *residual;
    size_t size, y_bytes, sum_bytes, count;
    rp_status status;
    bool kept; /* the caller's environment */
} results;

static bool feeds_back(rp_dtype dtype) {
    return rp_dtype_is_float(dtype);
}

static results make_room(const rp_codec *codec, rp_dtype dtype, size_t count,
                         const float *residual) {
    size_t element = rp_dtype_bytes(dtype);
    bool widens = dtype == RP_F16 || dtype == RP_BF16;
    results r = {.size = rp_codec_encoded_bytes(codec, dtype, count),
                 .y_bytes = element * count,
                 .sum_bytes = (widens ? 4 : element) * count,
                 .count = count};
    r.bytes = codec_buffer(r.size);
    r.y = codec_buffer(r.y_bytes);
    r.sum = codec_buffer(r.sum_bytes);
    r.residual = codec_buffer(4 * count);
    memset(r.sum, 0, r.sum_bytes);
    memcpy(r.residual, residual, 4 * count);
    return r;
}

static void release(results *r) {
    free(r->bytes), free(r->y), free(r->sum), free(r->residual);
}

static rp_encode_context context_of(results *r, rp_dtype dtype) {
    return (rp_encode_context){
        .seed = 7, .step = 3, .tensor = 1, .residual = feeds_back(dtype) ? r->residual : NULL};
}

/* Twice added, so that sums of subnormals are made too. */
static void by_scalar_kernels(const rp_codec *codec, rp_dtype dtype, const void *x,
                              results *r) {
    const rpi_codec_kind *kind = rpi_codec_kind_of(codec);
    rp_encode_context context = context_of(r, dtype);
    r->size = kind->encode(codec, RPI_ISA_SCALAR, dtype, x, r->count, &context, r->bytes);
    kind->decode(codec, RPI_ISA_SCALAR, dtype, r->bytes, r->count, &context, r->y);
    for (int k = 0; k < 2; k++)
        kind->decode_add(codec, RPI_ISA_SCALAR, dtype, r->bytes, r->count, &context, r->sum);
}

static void by_library(const rp_codec *codec, rp_dtype dtype, const void *x, int env,
                       results *r) {
    rp_encode_context context = context_of(r, dtype);
    rp_status status[4];
    float_env_set(env);
    r->kept = true;
    status[0] = rp_codec_encode(codec, dtype, x, r->count, &context, r->bytes, &r->size);
    r->kept &= float_env_is(env);
    status[1] = rp_codec_decode(codec, dtype, r->bytes, r->size, r->count, &context, r->y);
    r->kept &= float_env_is(env);
    for (int k = 0; k < 2; k++)
        status[2 + k] =
            rp_codec_decode_add(codec, dtype, r->bytes, r->size, r->count, &context, r->sum);
    r->kept &= float_env_is(env);
    float_env_reset();
    r->status = RP_OK;
    for (int k = 0; k < 4; k++)
        if (status[k] != RP_OK) r->status = status[k];
}

static const char *difference(const results *a, const results *b) {
    if (a->status != RP_OK || b->status != RP_OK) return "fails";
    if (a->size != b->size || !codec_same(a->bytes, b->bytes, a->size))
        return "encodes otherwise";
    if (!codec_same(a->residual, b->residual, 4 * a->count)) return "has other residuals";
    if (!codec_same(a->y, b->y, a->y_bytes)) return "decodes otherwise";
    if (!codec_same(a->sum, b->sum, a->sum_bytes)) return "adds otherwise";
    return b->kept ? NULL : "changes the caller's environment";
}

static void compare(const rp_codec *codec, rp_dtype dtype, codec_input input, rpi_rng *rng) {
    size_t count = 2 * rp_codec_granule(codec) + 37;
    void *x = codec_buffer(rp_dtype_bytes(dtype) * count);
    float *residual = codec_buffer(4 * count);
    codec_fill(x, dtype, count, input, rng);
    codec_fill(residual, RP_F32, count, input, rng);
    bool feedback_diverges = codec->bits == 1 && codec->rounding == RP_STOCHASTIC;
    results wanted = make_room(codec, dtype, count, residual);
    if (!feedback_diverges || !feeds_back(dtype)) by_scalar_kernels(codec, dtype, x, &wanted);
    for (int env = 0; env < float_env_count(); env++) {
        if (feedback_diverges && feeds_back(dtype)) break; /* refused */
        results got = make_room(codec, dtype, count, residual);
        by_library(codec, dtype, x, env, &got);
        char text[64];
        const char *what = difference(&wanted, &got);
        CHECK_MSG(!what, "%s of %s, input %d, %s: %s", rp_codec_text(codec, text, sizeof text),
                  rp_dtype_name(dtype), (int)input, float_envs[env].name, what);
        release(&got);
    }
    release(&wanted);
    free(x), free(residual);
}

static void the_caller_s_environment_changes_nothing(void) {
    static const codec_input inputs[] = {INPUT_NORMAL, INPUT_SUBNORMAL, INPUT_TINY_RANGE,
                                         INPUT_LARGE, INPUT_DAMAGED};
    rp_codec codecs[CODEC_CASES_MAX];
    int count = codec_cases(codecs, CODEC_CASES_MAX);
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int i = 0; i < count; i++)
        for (int d = 0; d < CODEC_DTYPES; d++)
            for (size_t k = 0; k < sizeof inputs / sizeof inputs[0]; k++)
                if (rp_codec_supports(&codecs[i], codec_dtypes[d]))
                    compare(&codecs[i], codec_dtypes[d], inputs[k], &rng);
}

static void a_refused_call_leaves_the_environment(void) {
    rp_codec q4 = {0};
    float x[4] = {0};
    unsigned char bytes[64] = {0};
    REQUIRE_OK(rp_codec_parse("q4", &q4));
    for (int env = 0; env < float_env_count(); env++) {
        float_env_set(env);
        rp_status refused[] = {rp_codec_encode(&q4, RP_I32, x, 4, NULL, bytes, NULL),
                               rp_codec_encode(&q4, RP_F32, NULL, 4, NULL, bytes, NULL),
                               rp_codec_decode(&q4, RP_F32, bytes, 3, 4, NULL, x),
                               rp_codec_decode_add(&q4, RP_F32, bytes, 3, 4, NULL, x)};
        bool kept = float_env_is(env);
        float_env_reset();
        for (int i = 0; i < 4; i++) CHECK(refused[i] < 0);
        CHECK_MSG(kept, "%s: changed", float_envs[env].name);
    }
}

CASES({"the caller's environment changes nothing", the_caller_s_environment_changes_nothing},
      {"a refused call leaves the environment", a_refused_call_leaves_the_environment})
