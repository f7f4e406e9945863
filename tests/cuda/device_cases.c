#include "cuda/device_cases.h"

#include "base/rng.h"
#include "harness/check.h"

#include <stdlib.h>

enum { COUNT_MAX = 20000, GUARD = DEVICE_CASES_GUARD, GUARD_BYTE = 0xa5 };
enum { WIRE_MAX = 11 * COUNT_MAX }; /* a head and a scale for each element */

static const char *const kinds[] = {"fp32", "bf16", "fp16", "q1",   "q2",    "q3",   "q4", "q5",
                                    "q6",   "q7",   "q8",   "sign", "randk", "topk", "v1", "v2",
                                    "v3",   "v4",   "v5",   "v6",   "v7",    "v8"};
static const rp_dtype dtypes[] = {RP_F32, RP_F16, RP_BF16};

typedef struct case_state {
    rpi_rng rng;
    char text[64];
    rp_codec codec;
    rp_dtype dtype;
    size_t count, bytes;
    rp_encode_context context;
    float x[COUNT_MAX], y[COUNT_MAX], y_wanted[COUNT_MAX];
    /* As allocators align memory of a GPU, where it matters: */
    _Alignas(16) float residual[COUNT_MAX], residual_wanted[COUNT_MAX];
    _Alignas(16) uint8_t elements[4 * COUNT_MAX];
    _Alignas(16) uint8_t wire[WIRE_MAX + 3 * GUARD], wire_wanted[WIRE_MAX];
    uint64_t offsets[COUNT_MAX];
} case_state;

static uint32_t below(case_state *s, uint32_t bound) {
    return rpi_rng_below(&s->rng, bound);
}

/* Few are odd: NaN, infinities, huge, subnormal, both zeros. */
static float odd_number(case_state *s) {
    static const uint32_t bits[] = {0x7fc00000, 0x7fa00001, 0xffc12345, 0x7f800000, 0xff800000,
                                    0x7f7fffff, 0xff7fffff, 0x00000001, 0x80000001, 0x80000000,
                                    0x477fefff, 0x477ff000, 0x33000001, 0x00000000};
    float value;
    memcpy(&value, &bits[below(s, sizeof bits / sizeof *bits)], sizeof value);
    return value;
}

static void draw_elements(case_state *s) {
    float scale = (float[]){1, 1e-3f, 1e4f, 1e-39f, 1e38f}[below(s, 5)];
    int constant = below(s, 12) == 0, odd = below(s, 4) == 0;
    int coarse = below(s, 6) == 0; /* many are equal, or 0 */
    int uneven = below(s, 3) == 0; /* some are spread more widely */
    for (size_t i = 0; i < s->count; i++) {
        float value = constant ? 0.3f : rpi_rng_normal(&s->rng);
        if (coarse) value = (float)(int)value;
        if (uneven) value *= (float)(1 << (i / 300 * 7 % 12));
        s->x[i] = odd && below(s, 700) == 0 ? odd_number(s) : value * scale;
        s->residual[i] = scale * 0.1f * rpi_rng_normal(&s->rng);
    }
    rp_codec wire;
    const char *as = s->dtype == RP_F16 ? "fp16" : s->dtype == RP_BF16 ? "bf16" : "fp32";
    REQUIRE_OK(rp_codec_parse(as, &wire));
    REQUIRE_OK(rp_codec_encode(&wire, RP_F32, s->x, s->count, NULL, s->elements, NULL));
}

static uint32_t draw_bucket(case_state *s) {
    static const uint32_t usual[] = {512, 512, 128, 64, 1024, 8192, 4096, 1, 7, 8, 9, 100};
    return below(s, 3) ? usual[below(s, 12)] : 1 + below(s, 12000);
}

static void draw_sparse(case_state *s, const char *kind) {
    static const char *const values[] = {"bf16", "fp16", "fp32", "q2", "q3",
                                         "q4",   "q5",   "q6",   "q7", "q8"};
    uint32_t bucket = 1 + (draw_bucket(s) - 1) % 8192, most = bucket < 1024 ? bucket : 1024;
    uint32_t k = below(s, 2) ? 1 + below(s, most) : 1 + below(s, most < 40 ? most : 40);
    snprintf(s->text, sizeof s->text, "%s:k=%u,bucket=%u,values=%s", kind, k, bucket,
             values[below(s, 10)]);
}

static void draw_varied(case_state *s, const char *kind, int stochastic) {
    uint32_t bucket = below(s, 3) ? 256 * (1 + below(s, 64)) : 1 + below(s, 65536);
    snprintf(s->text, sizeof s->text, "%s:bucket=%u,quarters=%u%s", kind, bucket, below(s, 4),
             stochastic ? ",rounding=stochastic" : "");
}

static void draw(case_state *s, const char *kind, uint64_t number) {
    s->rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, number);
    s->dtype = dtypes[below(s, 3)];
    s->count = below(s, 3) ? 1 + below(s, 3000) : 1 + below(s, COUNT_MAX - 1);
    int levels = kind[0] == 'q' || kind[0] == 'v';
    int stochastic = levels && strcmp(kind, "v1") != 0 && below(s, 3) == 0;
    int feedback = below(s, 2) == 0 && !(strcmp(kind, "q1") == 0 && stochastic);
    if (strcmp(kind, "randk") == 0 || strcmp(kind, "topk") == 0)
        draw_sparse(s, kind);
    else if (kind[0] == 'v')
        draw_varied(s, kind, stochastic);
    else if (kind[0] == 'q' || kind[0] == 's')
        snprintf(s->text, sizeof s->text, "%s:bucket=%u%s", kind, draw_bucket(s),
                 stochastic ? ",rounding=stochastic" : "");
    else
        snprintf(s->text, sizeof s->text, "%s", kind);
    REQUIRE_OK(rp_codec_parse(s->text, &s->codec));
    draw_elements(s);
    s->context = (rp_encode_context){.seed = 7, .step = number, .tensor = 3, .role = 1};
    s->context.first = below(s, 2) ? below(s, 1000) : (UINT64_C(1) << 35) - 100;
    if (s->codec.bucket && kind[0] == 'r') /* pieces are cut between buckets */
        s->context.first = s->context.first / s->codec.bucket * s->codec.bucket;
    s->context.residual = feedback ? s->residual : NULL;
}

static void complain(const case_state *s, const char *what, size_t at) {
    check_failed(__FILE__, __LINE__, "%s %zu %s by %s, first %llu: %s differs at %zu",
                 s->context.residual ? "with feedback" : "without feedback", s->count,
                 rp_dtype_name(s->dtype), s->text, (unsigned long long)s->context.first, what,
                 at);
}

/* Unequal byte, or `bytes`. */
static size_t differs_at(const void *a, const void *b, size_t bytes) {
    const uint8_t *left = a, *right = b;
    size_t i = 0;
    while (i < bytes && left[i] == right[i]) i++;
    return i;
}

/* At an odd address now and then: frames do not align what they carry. */
static uint8_t *place_of_wire(case_state *s) {
    return s->wire + GUARD + (below(s, 3) ? 0 : below(s, GUARD));
}

static void check_beside(const case_state *s, const uint8_t *at) {
    for (size_t i = 0; i < GUARD; i++) {
        if (at[s->bytes + i] != GUARD_BYTE) complain(s, "what lies behind", s->bytes + i);
        if ((at - GUARD)[i] != GUARD_BYTE) complain(s, "what lies in front", GUARD - i);
    }
}

static uint8_t *encode(case_state *s, const device_runner *runner) {
    rp_encode_context wanted = s->context;
    uint8_t *at = place_of_wire(s);
    rpi_device_call call;
    memcpy(s->residual_wanted, s->residual, sizeof s->residual);
    if (wanted.residual) wanted.residual = s->residual_wanted;
    CHECK_OK(rp_codec_encode(&s->codec, s->dtype, s->elements, s->count, &wanted,
                             s->wire_wanted, &s->bytes));
    memset(s->wire, GUARD_BYTE, sizeof s->wire);
    CHECK_OK(rpi_device_call_of(&s->codec, s->dtype, s->count, &s->context, &call));
    call.x = s->elements;
    call.encoded = at;
    uint64_t bytes = s->bytes; /* what varies says its own */
    call.bytes = &bytes;
    runner->encode(&call, s->bytes);
    CHECK(bytes == s->bytes);
    size_t same = differs_at(at, s->wire_wanted, s->bytes);
    if (same < s->bytes) complain(s, "byte", same);
    check_beside(s, at);
    same = differs_at(s->residual, s->residual_wanted, 4 * s->count);
    if (same < 4 * s->count) complain(s, "residual", same / 4);
    return at;
}

static void decode(case_state *s, const device_runner *runner, uint8_t *at, int adds) {
    rp_encode_context context = s->context;
    context.residual = NULL;
    size_t bytes = s->count * (adds ? sizeof(float) : rp_dtype_bytes(s->dtype));
    for (size_t i = 0; i < s->count; i++) s->y_wanted[i] = rpi_rng_normal(&s->rng);
    memcpy(s->y, s->y_wanted, sizeof s->y);
    rp_status status = adds ? rp_codec_decode_add(&s->codec, s->dtype, at, s->bytes, s->count,
                                                  &context, s->y_wanted)
                            : rp_codec_decode(&s->codec, s->dtype, at, s->bytes, s->count,
                                              &context, s->y_wanted);
    rpi_device_call call;
    CHECK_OK(rpi_device_call_of(&s->codec, s->dtype, s->count, &context, &call));
    CHECK(rpi_device_offsets(&s->codec, s->dtype, s->count, at, s->bytes, s->offsets) ==
          status);
    if (status == RP_CORRUPT && rpi_device_places(&call)) return; /* nobody decodes it */
    CHECK(status == RP_OK);
    call.offsets = s->offsets;
    call.encoded = at;
    call.y = s->y;
    runner->decode(&call, s->bytes, adds);
    size_t same = differs_at(s->y, s->y_wanted, sizeof s->y);
    if (same < bytes || memcmp(s->y, s->y_wanted, sizeof s->y) != 0)
        complain(s, adds ? "the sum" : "what is decoded", same);
}

/* Any bytes may come from a peer. */
static void spoil(case_state *s, uint8_t *at) {
    for (int i = 0; i < 3; i++) at[below(s, (uint32_t)s->bytes)] ^= (uint8_t)below(s, 256);
    if (below(s, 2)) memset(at, 0xff, s->bytes < 8 ? s->bytes : 8);
}

void device_cases_run(const device_runner *runner, int cases) {
    case_state *s = malloc(sizeof *s);
    REQUIRE(s);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int i = 0; i < cases && !check_failures(); i++) {
            draw(s, kinds[k], (uint64_t)i * 100 + k);
            uint8_t *at = encode(s, runner);
            if (below(s, 3) == 0) spoil(s, at);
            decode(s, runner, at, 0);
            decode(s, runner, at, 1);
        }
    free(s);
}
