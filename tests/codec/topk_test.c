/* topk against docs/codecs.md: its bytes, which elements it keeps, what it refuses to decode.
 */
#include "codec_cases.h"

static rp_codec topk(const char *text) {
    rp_codec codec = {0};
    CHECK_OK(rp_codec_parse(text, &codec));
    return codec;
}

/* Encodings worked out by hand from the document. */
static void known_bytes(void) {
    static const struct {
        const char *codec;
        size_t count;
        float x[8];
        size_t bytes;
        uint8_t wanted[24];
    } known[] = {
        /* elements 1 and 3, 3 bits each: 0b011001; bf16 of -3 and 5 */
        {"topk:k=2,bucket=8",
         8,
         {0, -3, 1, 5, 2, 0, 0, 1},
         7,
         {2, 0, 0x19, 0x40, 0xc0, 0xa0, 0x40}},
        /* of equal ones those that come first; f32 */
        {"topk:k=1,bucket=4,values=fp32", 4, {1, -2, 2, 2}, 7, {1, 0, 1, 0, 0, 0, 0xc0}},
        /* zeros are not sent */
        {"topk:k=3,bucket=8", 8, {0, 0, -0.0f, 7}, 5, {1, 0, 3, 0xe0, 0x40}},
        {"topk:k=3,bucket=8", 8, {0}, 2, {0, 0}},
        /* a short last bucket; indices as wide as in a full one */
        {"topk:k=1,bucket=4", 5, {1, 0, 0, 0, 2}, 10, {1, 0, 0, 0x80, 0x3f, 1, 0, 0, 0, 0x40}},
        /* an index of one element takes no bits */
        {"topk:k=1,bucket=1", 2, {1, 2}, 8, {1, 0, 0x80, 0x3f, 1, 0, 0, 0x40}},
        /* quantised: range 2 ... 5, unit 1; levels 0 and 3 */
        {"topk:k=2,bucket=4,values=q2",
         4,
         {2, 1, 0, 5},
         12,
         {2, 0, 0x0c, 0, 0, 0, 0x40, 0, 0, 0x80, 0x3f, 0x0c}},
        /* damage */
        {"topk:k=1,bucket=4", 5, {1, NAN, 0, 0, 2}, 7, {0xff, 0xff, 1, 0, 0, 0, 0x40}},
        {"topk:k=1,bucket=4", 4, {1, -INFINITY, 0, 0}, 2, {0xff, 0xff}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        rp_codec codec = topk(known[i].codec);
        uint8_t wire[64];
        size_t bytes = 0;
        REQUIRE_OK(
            rp_codec_encode(&codec, RP_F32, known[i].x, known[i].count, NULL, wire, &bytes));
        CHECK_MSG(bytes == known[i].bytes, "case %zu: %zu bytes", i, bytes);
        for (size_t k = 0; k < known[i].bytes; k++)
            CHECK_MSG(wire[k] == known[i].wanted[k], "case %zu: byte %zu is %02x, not %02x", i,
                      k, wire[k], known[i].wanted[k]);
    }
    rp_codec codec = topk("topk");
    CHECK_EQ(rp_codec_encoded_bytes(&codec, RP_F32, 4096), 2 + 48 + 64);
    CHECK_EQ(rp_codec_granule(&codec), 4096);
}

/* ---- the definition ---- */

static const float *sorted_by;

static int larger_first(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    float x = fabsf(sorted_by[i]), y = fabsf(sorted_by[k]);
    if (x != y) return x > y ? -1 : 1;
    return i < k ? -1 : 1;
}

/* By sorting: the k largest, others 0. */
static void keep_largest(const float *x, size_t count, uint32_t k, uint32_t bucket, float *y) {
    uint32_t order[RPI_BUCKET_BYTES_MAX / 16];
    memset(y, 0, 4 * count);
    for (size_t begin = 0; begin < count; begin += bucket) {
        size_t n = count - begin < bucket ? count - begin : bucket;
        for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
        sorted_by = x + begin;
        qsort(order, n, sizeof *order, larger_first);
        for (size_t i = 0; i < n && i < k; i++) y[begin + order[i]] = x[begin + order[i]];
    }
}

static void compare_with_sorting(const rp_codec *codec, const float *x, size_t count) {
    float *wanted = codec_buffer(4 * count), *y = codec_buffer(4 * count);
    size_t bytes = 0;
    uint8_t *wire = codec_buffer(rp_codec_encoded_bytes(codec, RP_F32, count));
    keep_largest(x, count, codec->option[0], codec->bucket, wanted);
    REQUIRE_OK(rp_codec_encode(codec, RP_F32, x, count, NULL, wire, &bytes));
    REQUIRE_OK(rp_codec_decode(codec, RP_F32, wire, bytes, count, NULL, y));
    double kept = 0, lost = 0;
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        wrong += y[i] != wanted[i];
        kept += (double)x[i] * (double)x[i];
        lost += pow((double)x[i] - (double)y[i], 2);
    }
    CHECK_MSG(wrong == 0, "k %u, bucket %u: %zu of %zu differ", codec->option[0], codec->bucket,
              wrong, count);
    /* The bound that error feedback rests on: no worse than a random choice. */
    double share = (double)codec->option[0] / (double)codec->bucket;
    CHECK(lost <= (1 - share) * kept * 1.000001 || count % codec->bucket);
    free(wanted), free(y), free(wire);
}

static void the_largest_are_kept(void) {
    static const uint32_t buckets[] = {1, 5, 64, 300, 1024, 4096, 8192};
    static const uint32_t ks[] = {1, 2, 7, 32, 100, 511, 1024};
    static const codec_input inputs[] = {INPUT_NORMAL, INPUT_CONSTANT, INPUT_ZEROS,
                                         INPUT_SUBNORMAL, INPUT_TINY_RANGE};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 21);
    float *x = codec_buffer(4 * 20000);
    for (size_t b = 0; b < sizeof buckets / sizeof buckets[0]; b++)
        for (size_t k = 0; k < sizeof ks / sizeof ks[0] && ks[k] <= buckets[b]; k++)
            for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
                rp_codec codec = topk("topk:values=fp32");
                codec.option[0] = ks[k];
                codec.bucket = buckets[b];
                size_t count = 1 + rpi_rng_below(&rng, 2 * buckets[b] + 20);
                if (i == 0) count = 2 * buckets[b];
                codec_fill(x, RP_F32, count, inputs[i], &rng);
                if (i == 0) /* a few levels only: many are equal */
                    for (size_t e = 0; e < count; e += 2) x[e] = roundf(x[e] * 2) / 2;
                compare_with_sorting(&codec, x, count);
            }
    free(x);
}

/* Few elements in a bucket are sent whole: the encoding is shorter than it could be. */
static void sparse_data_is_short_and_whole(void) {
    rp_codec codec = topk("topk:k=32,values=fp32");
    float *x = calloc(8192, sizeof *x), y[8192];
    for (int i = 0; i < 20; i++) x[37 * i] = (float)(i + 1);
    uint8_t wire[1000];
    size_t bytes = 0;
    CHECK(rp_codec_encoded_bytes(&codec, RP_F32, 8192) <= sizeof wire);
    REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, 8192, NULL, wire, &bytes));
    CHECK_EQ(bytes, 2 + 30 + 80 + 2);
    REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, bytes, 8192, NULL, y));
    CHECK(codec_same(x, y, sizeof y));
    free(x);
}

/* ---- bytes that no encoder makes ---- */

static void what_cannot_be_encoded_is_refused(void) {
    static const struct {
        size_t bytes;
        uint8_t wire[16];
        const char *words;
    } bad[] = {
        {0, {0}, "end before bucket 0"},
        {1, {1}, "end before bucket 0"},
        {2, {1, 0}, "end inside bucket 0"},
        {6, {2, 0, 0x19, 0x40, 0xc0, 0xa0}, "end inside bucket 0"},
        {7, {3, 0, 0x19, 0, 0, 0, 0}, "k is 2"},
        {8, {2, 0, 0x19, 0x40, 0xc0, 0xa0, 0x40, 0}, "take at most 7 bytes"},
        {3, {0, 0, 0}, "1 bytes are behind the last"},
        {7, {2, 0, 0x0b, 0, 0, 0, 0}, "keeps element 1 behind 3"},
        {7, {2, 0, 0x09, 0, 0, 0, 0}, "keeps element 1 behind 1"},
        {5, {1, 0, 0x07, 0, 0}, "keeps element 7"},
        {2, {0xfe, 0xff}, "k is 2"},
    };
    rp_codec codec = topk("topk:k=2,bucket=8");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        float y[7];
        uint8_t *wire = codec_buffer(bad[i].bytes);
        memcpy(wire, bad[i].wire, bad[i].bytes);
        CHECK_FAILS(rp_codec_decode(&codec, RP_F32, wire, bad[i].bytes, 7, NULL, y), CORRUPT,
                    bad[i].words);
        CHECK_FAILS(rp_codec_decode_add(&codec, RP_F32, wire, bad[i].bytes, 7, NULL, y),
                    CORRUPT, bad[i].words);
        free(wire);
    }
}

/* Sound encodings with bytes changed or cut off: refused, or decoded without touching anything
 * beside y (which the address sanitizer sees). */
static void damaged_encodings_do_no_harm(void) {
    static const char *const texts[] = {"topk:k=5,bucket=40", "topk:k=16,bucket=16,values=q3",
                                        "topk:k=3,bucket=1000,values=fp32"};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 22);
    int refused = 0, taken = 0;
    for (int round = 0; round < 6000; round++) {
        rp_codec codec = topk(texts[round % 3]);
        size_t count = 1 + rpi_rng_below(&rng, 3 * codec.bucket), bytes = 0;
        size_t most = rp_codec_encoded_bytes(&codec, RP_F32, count);
        float *x = codec_buffer(4 * count);
        uint8_t *wire = codec_buffer(most);
        codec_fill(x, RP_F32, count, round % 4 ? INPUT_NORMAL : INPUT_DAMAGED, &rng);
        REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, count, NULL, wire, &bytes));
        for (int change = 0; change < 1 + round % 3; change++)
            wire[rpi_rng_below(&rng, (uint32_t)bytes)] ^=
                (uint8_t)(1u << rpi_rng_below(&rng, 8));
        if (round % 5 == 0) bytes = rpi_rng_below(&rng, (uint32_t)bytes + 1);
        uint8_t *cut = codec_buffer(bytes);
        memcpy(cut, wire, bytes);
        rp_status status = rp_codec_decode(&codec, RP_F32, cut, bytes, count, NULL, x);
        CHECK(status == RP_OK || status == RP_CORRUPT);
        CHECK_EQ(rp_codec_decode_add(&codec, RP_F32, cut, bytes, count, NULL, x), status);
        status == RP_OK ? taken++ : refused++;
        free(x), free(wire), free(cut);
    }
    CHECK_MSG(refused > 100 && taken > 100, "%d refused, %d taken", refused, taken);
}

/* ---- error feedback ---- */

/* What is held back stays bounded, and nothing gets lost: sums in and out differ by it. */
static void error_feedback_tracks_the_sum(void) {
    enum { COUNT = 1024, STEPS = 400 };
    static float x[COUNT], y[COUNT], residual[COUNT];
    static double in[COUNT], out[COUNT];
    uint8_t wire[512];
    rp_codec codec = topk("topk:k=16,bucket=512");
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 23);
    double largest = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        rp_encode_context context = {.step = step, .residual = residual};
        size_t bytes = 0;
        codec_fill(x, RP_F32, COUNT, INPUT_NORMAL, &rng);
        REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, COUNT, &context, wire, &bytes));
        REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, bytes, COUNT, &context, y));
        double held = 0, given = 0;
        for (int i = 0; i < COUNT; i++) {
            in[i] += (double)x[i];
            out[i] += (double)y[i];
            held += (double)residual[i] * (double)residual[i];
            given += (double)x[i] * (double)x[i];
        }
        if (sqrt(held / given) > largest) largest = sqrt(held / given);
    }
    for (int i = 0; i < COUNT; i++) CHECK_NEAR(in[i] - out[i], (double)residual[i], 1e-3);
    /* 2 / delta, of which i.i.d. data needs little */
    CHECK_MSG(largest < 2 * 512.0 / 16, "the residual has grown to %g times a gradient",
              largest);
}

CASES({"known_bytes", known_bytes}, {"the_largest_are_kept", the_largest_are_kept},
      {"sparse_data_is_short_and_whole", sparse_data_is_short_and_whole},
      {"what_cannot_be_encoded_is_refused", what_cannot_be_encoded_is_refused},
      {"damaged_encodings_do_no_harm", damaged_encodings_do_no_harm},
      {"error_feedback_tracks_the_sum", error_feedback_tracks_the_sum})
