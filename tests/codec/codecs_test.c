/* Properties that every codec of the catalogue must have, for every type it takes. */
#include "codec_cases.h"

typedef struct encoding {
    unsigned char *bytes;
    float *residual;
    size_t size, count;
    uint64_t first;
} encoding;

/* The context that decoding is given, too. */
static rp_encode_context context_at(uint64_t first) {
    return (rp_encode_context){.seed = 11, .step = 5, .tensor = 3, .role = 1, .first = first};
}

static encoding encode_with(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                            size_t count, uint64_t first, const float *residual) {
    size_t most = rp_codec_encoded_bytes(codec, dtype, count);
    encoding e = {.count = count, .first = first, .bytes = codec_buffer(most)};
    e.residual = codec_buffer(4 * count);
    if (residual) memcpy(e.residual, residual, 4 * count);
    rp_encode_context context = context_at(first);
    context.residual = residual ? e.residual : NULL;
    e.size = rpi_codec_kind_of(codec)->encode(codec, isa, dtype, x, count, &context, e.bytes);
    CHECK(codec->kind->varies ? e.size <= most : e.size == most);
    CHECK_OK(rpi_codec_check_encoding(codec, dtype, e.bytes, e.size, count));
    return e;
}

static void release(encoding *e) {
    free(e->bytes);
    free(e->residual);
}

typedef void (*codec_property)(const rp_codec *codec, rp_dtype dtype, rpi_rng *rng);

static void for_every_codec(codec_property property) {
    rp_codec codecs[CODEC_CASES_MAX];
    int count = codec_cases(codecs, CODEC_CASES_MAX);
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int i = 0; i < count; i++)
        for (int d = 0; d < CODEC_DTYPES; d++) {
            int failures = check_failures();
            if (rp_codec_supports(&codecs[i], codec_dtypes[d]))
                property(&codecs[i], codec_dtypes[d], &rng);
            if (check_failures() == failures) continue;
            char text[64];
            fprintf(stderr, "  ... in %s of %s\n", rp_codec_text(&codecs[i], text, sizeof text),
                    rp_dtype_name(codec_dtypes[d]));
            return;
        }
}

static size_t some_count(const rp_codec *codec, rpi_rng *rng) {
    return 1 + rpi_rng_below(rng, (uint32_t)(2 * rp_codec_granule(codec) + 200));
}

static int feeds_back(rp_dtype dtype) {
    return rp_dtype_is_float(dtype);
}

static float *some_residual(size_t count, codec_input input, rpi_rng *rng) {
    float *residual = codec_buffer(4 * count);
    codec_fill(residual, RP_F32, count, input, rng);
    return residual;
}

/* All instruction sets give the bytes, residuals, values and sums of the scalar kernels. */
static void compare_decoders(const rp_codec *codec, rpi_isa isa, rp_dtype dtype,
                             const encoding *e) {
    size_t element = rp_dtype_bytes(dtype);
    size_t sum_element = feeds_back(dtype) && dtype != RP_F64 ? 4 : element;
    void *y[2], *sum[2];
    for (int k = 0; k < 2; k++) {
        rpi_isa used = k ? isa : RPI_ISA_SCALAR;
        y[k] = codec_buffer(element * e->count);
        sum[k] = codec_buffer(sum_element * e->count);
        memset(sum[k], 0, sum_element * e->count);
        rp_encode_context context = context_at(e->first);
        codec->kind->decode(codec, used, dtype, e->bytes, e->count, &context, y[k]);
        codec->kind->decode_add(codec, used, dtype, e->bytes, e->count, &context, sum[k]);
    }
    CHECK_MSG(codec_same(y[0], y[1], element * e->count), "%s decodes otherwise",
              rpi_isa_name(isa));
    CHECK_MSG(codec_same(sum[0], sum[1], sum_element * e->count), "%s adds otherwise",
              rpi_isa_name(isa));
    for (int k = 0; k < 2; k++) free(y[k]), free(sum[k]);
}

/* An encoding by this instruction set beside that of the scalar kernels; form NULL: as always,
 * and decoded, too. */
static void compare_encodings(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                              const float *residual, const encoding *scalar, const char *form) {
    encoding e = encode_with(codec, isa, dtype, x, scalar->count, scalar->first, residual);
    const char *by = form ? form : "small calls";
    CHECK_MSG(e.size == scalar->size && codec_same(e.bytes, scalar->bytes, e.size),
              "%s encodes %zu otherwise (%s)", rpi_isa_name(isa), scalar->count, by);
    CHECK_MSG(!residual || codec_same(e.residual, scalar->residual, 4 * scalar->count),
              "%s leaves other residuals of %zu (%s)", rpi_isa_name(isa), scalar->count, by);
    if (!form) compare_decoders(codec, isa, dtype, &e);
    release(&e);
}

/* By every form of every kernel that has some; they are of encoding. */
static void compare_forms(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                          const float *residual, const encoding *scalar) {
    rpi_kernel_form *kernel;
    for (int k = 0; (kernel = rpi_codec_form_at(k)) != NULL; k++) {
        for (int form = 0; form < rpi_form_count(kernel); form++) {
            rpi_form_set(kernel, form);
            compare_encodings(codec, isa, dtype, x, residual, scalar, kernel->names[form]);
        }
        rpi_form_set(kernel, -1);
    }
}

static void compare_isas(const rp_codec *codec, rp_dtype dtype, codec_input input, int feedback,
                         rpi_rng *rng) {
    size_t count = some_count(codec, rng);
    void *x = codec_buffer(rp_dtype_bytes(dtype) * count);
    codec_fill(x, dtype, count, input, rng);
    float *residual = feedback ? some_residual(count, input, rng) : NULL;
    uint64_t first = rpi_rng_u32(rng) % 1000;
    encoding scalar = encode_with(codec, RPI_ISA_SCALAR, dtype, x, count, first, residual);
    int failures = check_failures();
    for (int isa = RPI_ISA_SCALAR + 1; isa <= (int)rpi_cpu_isa_max(); isa++) {
        compare_encodings(codec, (rpi_isa)isa, dtype, x, residual, &scalar, NULL);
        compare_forms(codec, (rpi_isa)isa, dtype, x, residual, &scalar);
    }
    if (check_failures() != failures) fprintf(stderr, "  ... of input %d\n", input);
    release(&scalar);
    free(residual);
    free(x);
}

static void isas_agree(const rp_codec *codec, rp_dtype dtype, rpi_rng *rng) {
    for (int input = 0; input < INPUT_COUNT; input++)
        for (int feedback = 0; feedback <= feeds_back(dtype); feedback++)
            compare_isas(codec, dtype, (codec_input)input, feedback, rng);
}

static void all_isas_are_bit_equal(void) {
    for_every_codec(isas_agree);
}

/* Any bytes decode, on every instruction set to the same values, and none reads or writes
 * beyond its buffers (which the address sanitizer sees). */
static void noise_decodes(const rp_codec *codec, rp_dtype dtype, rpi_rng *rng) {
    for (int round = 0; round < 4; round++) {
        encoding e = {.count = some_count(codec, rng)};
        e.size = rp_codec_encoded_bytes(codec, dtype, e.count);
        e.bytes = codec_buffer(e.size);
        for (size_t i = 0; i < e.size; i++) e.bytes[i] = (unsigned char)rpi_rng_u32(rng);
        bool sound = rpi_codec_check_encoding(codec, dtype, e.bytes, e.size, e.count) == RP_OK;
        CHECK(sound || codec->kind->varies);
        for (int isa = 0; sound && isa <= (int)rpi_cpu_isa_max(); isa++)
            compare_decoders(codec, (rpi_isa)isa, dtype, &e);
        release(&e);
    }
}

static void any_bytes_decode(void) {
    for_every_codec(noise_decodes);
}

/* Cut anywhere at a granule, encodings and residuals are those of the whole. */
static void cuts_concatenate(const rp_codec *codec, rp_dtype dtype, rpi_rng *rng) {
    size_t granule = rp_codec_granule(codec), element = rp_dtype_bytes(dtype);
    size_t cut = granule * (1 + rpi_rng_below(rng, granule == 1 ? 70 : 3));
    size_t count = cut + some_count(codec, rng);
    rpi_isa isa = rpi_cpu_isa();
    char *x = codec_buffer(element * count);
    codec_fill(x, dtype, count, INPUT_NORMAL, rng);
    float *residual = feeds_back(dtype) ? some_residual(count, INPUT_NORMAL, rng) : NULL;
    uint64_t first = granule * rpi_rng_below(rng, 50);

    encoding whole = encode_with(codec, isa, dtype, x, count, first, residual);
    encoding a = encode_with(codec, isa, dtype, x, cut, first, residual);
    encoding b = encode_with(codec, isa, dtype, x + element * cut, count - cut, first + cut,
                             residual ? residual + cut : NULL);
    CHECK_EQ(a.size + b.size, whole.size);
    CHECK(codec_same(whole.bytes, a.bytes, a.size));
    CHECK(codec_same(whole.bytes + a.size, b.bytes, b.size));
    CHECK(!residual || codec_same(whole.residual, a.residual, 4 * cut));
    CHECK(!residual || codec_same(whole.residual + cut, b.residual, 4 * (count - cut)));
    release(&whole), release(&a), release(&b);
    free(residual), free(x);
}

static void encodings_concatenate(void) {
    for_every_codec(cuts_concatenate);
}

/* Every count from 0 to two granules and 3 encodes, decodes and adds, at odd addresses too. */
static void counts_round_trip(const rp_codec *codec, rp_dtype dtype, rpi_rng *rng) {
    size_t granule = rp_codec_granule(codec), element = rp_dtype_bytes(dtype);
    if (granule > 100) return;
    for (size_t count = 0; count <= 2 * granule + 3; count++) {
        size_t bytes = rp_codec_encoded_bytes(codec, dtype, count);
        char *x = codec_buffer(element * count), *y = codec_buffer(element * count);
        char *wire = codec_buffer(bytes + 1);
        codec_fill(x, dtype, count, INPUT_NORMAL, rng);
        CHECK_OK(rp_codec_encode(codec, dtype, x, count, NULL, wire + 1, &bytes));
        CHECK_OK(rp_codec_decode(codec, dtype, wire + 1, bytes, count, NULL, y));
        if (rp_codec_is_exact(codec, dtype)) CHECK(codec_same(x, y, element * count));
        CHECK_EQ((unsigned char)wire[0], 0xa5);
        free(x), free(y), free(wire);
    }
}

static void every_count_round_trips(void) {
    for_every_codec(counts_round_trip);
}

/* decode_add is decode followed by an addition in f32 (in the type for exact codecs). */
static void addition_is_decoding_and_adding(const rp_codec *codec, rp_dtype dtype,
                                            rpi_rng *rng) {
    if (dtype != RP_F32) return;
    size_t count = some_count(codec, rng);
    float *x = some_residual(count, INPUT_NORMAL, rng);
    float *sum = some_residual(count, INPUT_NORMAL, rng), *y = codec_buffer(4 * count);
    encoding e = encode_with(codec, rpi_cpu_isa(), dtype, x, count, 0, NULL);
    rp_encode_context context = context_at(0);
    CHECK_OK(rp_codec_decode(codec, dtype, e.bytes, e.size, count, &context, y));
    float *apart = codec_buffer(4 * count);
    for (size_t i = 0; i < count; i++) y[i] = sum[i] + y[i];
    CHECK_OK(rpi_codec_decode_sum(codec, e.bytes, e.size, count, &context, sum, apart));
    CHECK(codec_same(apart, y, 4 * count));
    CHECK_OK(rp_codec_decode_add(codec, dtype, e.bytes, e.size, count, &context, sum));
    CHECK(codec_same(sum, y, 4 * count));
    release(&e);
    free(x), free(sum), free(y), free(apart);
}

static void decode_add_adds_what_decode_gives(void) {
    for_every_codec(addition_is_decoding_and_adding);
}

/* The residual is what the receiver does not get: y - decoded, in f32; 0 where damaged. */
static void residual_is_the_loss(const rp_codec *codec, rp_dtype dtype, rpi_rng *rng) {
    if (dtype != RP_F32) return;
    for (int input = 0; input < INPUT_COUNT; input++) {
        size_t count = some_count(codec, rng);
        float *x = some_residual(count, (codec_input)input, rng), *y = codec_buffer(4 * count);
        float *before = some_residual(count, (codec_input)input, rng);
        encoding e = encode_with(codec, rpi_cpu_isa(), dtype, x, count, 0, before);
        rp_encode_context context = context_at(0);
        CHECK_OK(rp_codec_decode(codec, dtype, e.bytes, e.size, count, &context, y));
        for (size_t i = 0; i < count; i++) {
            float fed = x[i] + before[i];
            float loss = isfinite(fed) && isfinite(y[i]) ? fed - y[i] : 0.0f;
            CHECK_MSG(e.residual[i] == loss, "residual is %g, the loss is %g (input %d)",
                      e.residual[i], loss, input);
        }
        release(&e);
        free(x), free(y), free(before);
    }
}

static void residuals_are_what_was_lost(void) {
    for_every_codec(residual_is_the_loss);
}

static void wrong_arguments_are_refused(void) {
    rp_codec q4;
    float x[8] = {0};
    int32_t whole[8] = {0};
    unsigned char wire[64];
    REQUIRE_OK(rp_codec_parse("q4", &q4));
    size_t bytes = rp_codec_encoded_bytes(&q4, RP_F32, 8);
    CHECK_EQ(bytes, 12);
    CHECK_FAILS(rp_codec_encode(&q4, RP_I32, whole, 8, NULL, wire, NULL), UNSUPPORTED, "i32");
    CHECK_FAILS(rp_codec_encode(&q4, RP_F64, x, 4, NULL, wire, NULL), UNSUPPORTED, "f64");
    CHECK_FAILS(rp_codec_encode(&q4, (rp_dtype)99, x, 4, NULL, wire, NULL), UNSUPPORTED,
                "unknown");
    CHECK_FAILS(rp_codec_encode(&q4, RP_F32, NULL, 4, NULL, wire, NULL), INVALID, "from NULL");
    CHECK_FAILS(rp_codec_encode(&q4, RP_F32, x, 4, NULL, NULL, NULL), INVALID, "to NULL");
    CHECK_OK(rp_codec_encode(&q4, RP_F32, NULL, 0, NULL, NULL, NULL));
    CHECK_OK(rp_codec_decode(&q4, RP_F32, NULL, 0, 0, NULL, NULL));
    for (size_t wrong = 0; wrong <= 20; wrong++) {
        if (wrong == bytes) continue;
        CHECK_FAILS(rp_codec_decode(&q4, RP_F32, wire, wrong, 8, NULL, x), CORRUPT,
                    "take 12 bytes");
        CHECK_FAILS(rp_codec_decode_add(&q4, RP_F32, wire, wrong, 8, NULL, x), CORRUPT,
                    "take 12");
    }
    CHECK_FAILS(rp_codec_decode(&q4, RP_F32, NULL, bytes, 8, NULL, x), INVALID, "from NULL");
    CHECK_FAILS(rp_codec_decode_add(&q4, RP_F32, wire, bytes, 8, NULL, NULL), INVALID,
                "to NULL");

    rp_codec exact = {0};
    float residual[8] = {0};
    rp_encode_context context = {.residual = residual};
    CHECK_FAILS(rp_codec_encode(&exact, RP_I32, whole, 8, &context, wire, NULL), INVALID,
                "floating data");
    CHECK_FAILS(rp_codec_encode(&exact, (rp_dtype)0, x, 8, NULL, wire, NULL), UNSUPPORTED,
                "unknown");

    rp_codec one_bit = {.kind = q4.kind, .bucket = 512, .bits = 1, .rounding = RP_STOCHASTIC};
    CHECK_FAILS(rp_codec_encode(&one_bit, RP_F32, x, 8, &context, wire, NULL), INVALID,
                "diverges");
    CHECK_OK(rp_codec_encode(&one_bit, RP_F32, x, 8, NULL, wire, NULL));

    rp_codec unsound[] = {q4, q4, q4, q4, q4};
    unsound[0].bucket = 0;
    unsound[1].bits = 0;
    unsound[2].bits = 9;
    unsound[3].rounding = 2;
    unsound[4].bucket = (1u << 24) + 1;
    for (size_t i = 0; i < sizeof unsound / sizeof unsound[0]; i++) {
        CHECK_FAILS(rp_codec_encode(&unsound[i], RP_F32, x, 8, NULL, wire, NULL), INVALID,
                    "is none");
        CHECK_EQ(rp_codec_supports(&unsound[i], RP_F32), 0);
        CHECK_EQ(rp_codec_encoded_bytes(&unsound[i], RP_F32, 8), 0);
        CHECK(rp_codec_granule(&unsound[i]) >= 1);
    }
}

CASES({"all_isas_are_bit_equal", all_isas_are_bit_equal},
      {"any_bytes_decode", any_bytes_decode}, {"encodings_concatenate", encodings_concatenate},
      {"every_count_round_trips", every_count_round_trips},
      {"decode_add_adds_what_decode_gives", decode_add_adds_what_decode_gives},
      {"residuals_are_what_was_lost", residuals_are_what_was_lost},
      {"wrong_arguments_are_refused", wrong_arguments_are_refused})
