/* Bits for each tensor: never worse than one codec for all, near the best there is, and much
 * shorter where tensors are of unequal scale. */
#include "redpoll/adaptive.h"

#include "codec_cases.h"

static rp_codec q4(void) {
    rp_codec codec = {0};
    CHECK_OK(rp_codec_parse("q4", &codec));
    return codec;
}

typedef struct total {
    double lost;
    size_t bytes;
} total;

static total total_of(const rp_bits_choice *tensors, size_t count, int all) {
    total t = {0};
    rp_codec codec = q4();
    for (size_t i = 0; i < count; i++) {
        codec.bits = all ? (uint8_t)all : tensors[i].bits;
        t.lost += tensors[i].lost[codec.bits];
        t.bytes += rp_codec_encoded_bytes(&codec, RP_F32, tensors[i].count);
    }
    return t;
}

/* Errors that fall about fourfold a bit, from a scale of the tensor's own. */
static void make_up(rp_bits_choice *tensor, rpi_rng *rng) {
    tensor->count = 1 + rpi_rng_below(rng, 100000);
    double lost = (double)tensor->count * exp(6 * (double)rpi_rng_normal(rng));
    for (int bits = 1; bits <= RP_BITS_MOST; bits++) {
        tensor->lost[bits] = lost;
        lost /= 2 + 4 * (double)rpi_rng_uniform(rng);
    }
}

static void never_more_error_nor_bytes(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 41);
    rp_bits_choice tensors[40];
    for (int round = 0; round < 300; round++) {
        size_t count = 1 + rpi_rng_below(&rng, 40);
        rp_codec like = q4();
        like.bits = (uint8_t)(1 + round % 8);
        for (size_t i = 0; i < count; i++) make_up(&tensors[i], &rng);
        CHECK_OK(rp_bits_choose(&like, 1, tensors, count));
        total chosen = total_of(tensors, count, 0), all = total_of(tensors, count, like.bits);
        CHECK_MSG(chosen.lost <= all.lost && chosen.bytes <= all.bytes,
                  "error %g of %g, %zu bytes of %zu", chosen.lost, all.lost, chosen.bytes,
                  all.bytes);
    }
}

/* All 8^4 choices for four tensors: no other saves more than a bit of the largest besides. */
static void nearly_the_best_there_is(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 42);
    rp_codec like = q4();
    for (int round = 0; round < 20; round++) {
        rp_bits_choice tensors[4], tried[4];
        size_t largest = 0;
        for (int i = 0; i < 4; i++) {
            make_up(&tensors[i], &rng);
            if (tensors[i].count > largest) largest = tensors[i].count;
        }
        CHECK_OK(rp_bits_choose(&like, 1, tensors, 4));
        total chosen = total_of(tensors, 4, 0), all = total_of(tensors, 4, 4);
        size_t best = all.bytes;
        memcpy(tried, tensors, sizeof tried);
        for (int code = 0; code < 4096; code++) {
            for (int i = 0; i < 4; i++) tried[i].bits = (uint8_t)(1 + (code >> 3 * i) % 8);
            total t = total_of(tried, 4, 0);
            if (t.lost <= all.lost && t.bytes < best) best = t.bytes;
        }
        CHECK_MSG(chosen.bytes <= best + largest / 8 + 8,
                  "%zu bytes, the best is %zu (%zu a bit)", chosen.bytes, best, largest / 8);
    }
}

/* Tensors as a network has them: many sizes, in each of them scales over two orders of
 * magnitude (log-normal, of deviation 1.2), elements with tails. */
enum { TENSORS = 62, LARGEST = 40000 };

static float values[TENSORS][LARGEST];

static void make_gradients(rp_bits_choice *tensors, rpi_rng *rng) {
    for (int t = 0; t < TENSORS; t++) {
        size_t count = (size_t)500 << (t * 7 / TENSORS);
        if (count > LARGEST) count = LARGEST;
        float p = ((float)(t * 23 % TENSORS) + 0.5f) / TENSORS; /* quantiles, well mixed */
        float scale = expf(1.2f * logf(p / (1 - p)) / 1.7f);
        for (size_t i = 0; i < count; i++) {
            float tail = expf(0.5f * rpi_rng_normal(rng));
            values[t][i] = scale * tail * rpi_rng_normal(rng);
        }
        tensors[t] = (rp_bits_choice){.count = count};
    }
}

static double lost_by(const rp_codec *codec, const float *x, size_t count) {
    float *y = codec_buffer(4 * count);
    uint8_t *wire = codec_buffer(rp_codec_encoded_bytes(codec, RP_F32, count));
    size_t bytes = 0;
    double lost = 0;
    CHECK_OK(rp_codec_encode(codec, RP_F32, x, count, NULL, wire, &bytes));
    CHECK_OK(rp_codec_decode(codec, RP_F32, wire, bytes, count, NULL, y));
    for (size_t i = 0; i < count; i++) lost += pow((double)x[i] - (double)y[i], 2);
    free(y), free(wire);
    return lost;
}

static void unequal_tensors_travel_shorter(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 43);
    for (int round = 0; round < 3; round++) {
        rp_bits_choice tensors[TENSORS];
        rp_codec like = q4(), codec = like;
        make_gradients(tensors, &rng);
        for (int t = 0; t < TENSORS; t++)
            REQUIRE_OK(
                rp_bits_measure(&like, values[t], NULL, tensors[t].count, tensors[t].lost));
        CHECK_OK(rp_bits_choose(&like, 1, tensors, TENSORS));
        double lost = 0, like_lost = 0;
        size_t bytes = 0, like_bytes = 0;
        for (int t = 0; t < TENSORS; t++) {
            codec.bits = tensors[t].bits;
            lost += lost_by(&codec, values[t], tensors[t].count);
            like_lost += lost_by(&like, values[t], tensors[t].count);
            bytes += rp_codec_encoded_bytes(&codec, RP_F32, tensors[t].count);
            like_bytes += rp_codec_encoded_bytes(&like, RP_F32, tensors[t].count);
        }
        CHECK_MSG(lost <= like_lost * 1.0000001, "error %g, with q4 %g", lost, like_lost);
        CHECK_MSG((double)bytes * 1.25 <= (double)like_bytes, "%zu bytes, with q4 %zu", bytes,
                  like_bytes);
    }
}

/* What is measured is the encoding's input: with the residual. */
static void the_residual_counts(void) {
    rp_codec like = q4();
    like.bucket = 64;
    float x[150], residual[150], fed[150];
    double with[RP_BITS_MOST + 1] = {0}, of[RP_BITS_MOST + 1] = {0};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 44);
    codec_fill(x, RP_F32, 150, INPUT_NORMAL, &rng);
    codec_fill(residual, RP_F32, 150, INPUT_NORMAL, &rng);
    for (int i = 0; i < 150; i++) fed[i] = x[i] + residual[i];
    REQUIRE_OK(rp_bits_measure(&like, x, residual, 150, with));
    REQUIRE_OK(rp_bits_measure(&like, fed, NULL, 150, of));
    for (int bits = 1; bits <= RP_BITS_MOST; bits++) {
        rp_codec codec = like;
        codec.bits = (uint8_t)bits;
        CHECK(with[bits] == of[bits]);
        CHECK_NEAR(with[bits], lost_by(&codec, fed, 150), 1e-9 * with[bits]);
    }
}

static void no_fewer_bits_than_allowed(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 46);
    rp_bits_choice tensors[20];
    int two = 0;
    for (int round = 0; round < 50; round++) {
        rp_codec like = q4();
        for (int i = 0; i < 20; i++) make_up(&tensors[i], &rng);
        CHECK_OK(rp_bits_choose(&like, 2, tensors, 20));
        for (int i = 0; i < 20; i++) {
            CHECK(tensors[i].bits >= 2);
            two += tensors[i].bits == 2;
        }
    }
    CHECK(two > 0);
}

static void a_damaged_tensor_decides_nothing(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 45);
    rp_bits_choice tensors[9], without[8];
    rp_codec like = q4();
    for (int i = 0; i < 8; i++) {
        make_up(&without[i], &rng);
        tensors[i] = without[i];
    }
    make_up(&tensors[8], &rng);
    tensors[8].lost[5] = NAN;
    CHECK_OK(rp_bits_choose(&like, 1, tensors, 9));
    CHECK_OK(rp_bits_choose(&like, 1, without, 8));
    for (int i = 0; i < 8; i++) CHECK_EQ(tensors[i].bits, without[i].bits);
    CHECK_EQ(tensors[8].bits, 4);
}

static void codecs_without_bits_are_refused(void) {
    double lost[RP_BITS_MOST + 1] = {0};
    float x[8] = {0};
    static const char *const texts[] = {"fp32", "bf16", "topk", "sign", "q1:bucket=2097088"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        rp_codec codec;
        REQUIRE_OK(rp_codec_parse(texts[i], &codec));
        CHECK_FAILS(rp_bits_measure(&codec, x, NULL, 8, lost), INVALID, "no bits to choose");
        CHECK_FAILS(rp_bits_choose(&codec, 1, NULL, 0), INVALID, "no bits to choose");
    }
    rp_codec like = q4();
    CHECK_FAILS(rp_bits_choose(&like, 0, NULL, 0), INVALID, "least is 0 bits; 1 to 8 are");
    CHECK_FAILS(rp_bits_choose(&like, 9, NULL, 0), INVALID, "least is 9 bits; 1 to 8 are");
}

CASES({"never_more_error_nor_bytes", never_more_error_nor_bytes},
      {"nearly_the_best_there_is", nearly_the_best_there_is},
      {"unequal_tensors_travel_shorter", unequal_tensors_travel_shorter},
      {"the_residual_counts", the_residual_counts},
      {"no_fewer_bits_than_allowed", no_fewer_bits_than_allowed},
      {"a_damaged_tensor_decides_nothing", a_damaged_tensor_decides_nothing},
      {"codecs_without_bits_are_refused", codecs_without_bits_are_refused})
