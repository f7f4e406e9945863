/* A level of bits for each tensor: never worse than one codec for all, near the best there is,
 * and much shorter where parts of a model are of unequal scale. */
#include "redpoll/adaptive.h"

#include "codec_cases.h"

static rp_codec q4(void) {
    rp_codec codec = {0};
    CHECK_OK(rp_codec_parse("q4", &codec));
    return codec;
}

static double lost_at(const rp_level_choice *tensor, int level) {
    return tensor->measured[level];
}

static double bytes_at(const rp_level_choice *tensor, int level) {
    return tensor->measured[RP_LEVELS + level];
}

typedef struct total {
    double lost, bytes;
} total;

/* level: of all tensors; -1: what was chosen for each. */
static total total_of(const rp_level_choice *tensors, size_t count, int level) {
    total t = {0};
    for (size_t i = 0; i < count; i++) {
        int of = level < 0 ? tensors[i].level : level;
        t.lost += lost_at(&tensors[i], of);
        t.bytes += bytes_at(&tensors[i], of);
    }
    return t;
}

/* Errors that fall about fourfold a bit, from a scale of the tensor's own. */
static void make_up(rp_level_choice *tensor, rpi_rng *rng) {
    double count = 1 + rpi_rng_below(rng, 100000),
           lost = count * exp(6 * (double)rpi_rng_normal(rng));
    for (int level = 1; level < RP_LEVELS; level++) {
        tensor->measured[level] = lost;
        tensor->measured[RP_LEVELS + level] = floor(count * (level + 3) / 32);
        lost /= 1.2 + 0.4 * (double)rpi_rng_uniform(rng);
    }
    tensor->measured[0] = 1.3 * lost_at(tensor, 15);
    tensor->measured[RP_LEVELS] = floor(count / 2 + count / 64);
}

static void never_more_error_nor_bytes(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 41);
    rp_level_choice tensors[40];
    rp_codec like = q4();
    for (int round = 0; round < 300; round++) {
        size_t count = 1 + rpi_rng_below(&rng, 40);
        for (size_t i = 0; i < count; i++) make_up(&tensors[i], &rng);
        CHECK_OK(rp_levels_choose(&like, tensors, count));
        total chosen = total_of(tensors, count, -1), all = total_of(tensors, count, 0);
        CHECK_MSG(chosen.lost <= all.lost && chosen.bytes <= all.bytes,
                  "error %g of %g, %g bytes of %g", chosen.lost, all.lost, chosen.bytes,
                  all.bytes);
    }
}

/* All choices for three tensors: no other saves more than a level of the largest besides. */
static void nearly_the_best_there_is(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 42);
    rp_codec like = q4();
    for (int round = 0; round < 20; round++) {
        rp_level_choice tensors[3], tried[3];
        double largest = 0;
        for (int i = 0; i < 3; i++) {
            make_up(&tensors[i], &rng);
            if (bytes_at(&tensors[i], 32) > largest) largest = bytes_at(&tensors[i], 32);
        }
        CHECK_OK(rp_levels_choose(&like, tensors, 3));
        total chosen = total_of(tensors, 3, -1), all = total_of(tensors, 3, 0), best = all;
        memcpy(tried, tensors, sizeof tried);
        for (int code = 0; code < RP_LEVELS * RP_LEVELS * RP_LEVELS; code++) {
            tried[0].level = code % RP_LEVELS;
            tried[1].level = code / RP_LEVELS % RP_LEVELS;
            tried[2].level = code / RP_LEVELS / RP_LEVELS;
            total t = total_of(tried, 3, -1);
            if (t.lost <= all.lost && t.bytes < best.bytes) best = t;
        }
        CHECK_MSG(chosen.bytes <= best.bytes + largest / 8 + 8, "%g bytes, the best is %g",
                  chosen.bytes, best.bytes);
    }
}

/* ---- what is measured is what travels ---- */

enum { TENSORS = 62, LARGEST = 40000 };

static float values[TENSORS][LARGEST];
static size_t counts[TENSORS];

/* As a network has them: many sizes, in each of them scales over two orders of magnitude
 * (log-normal, of deviation `spread`), rows that differ by `spread` within, elements with
 * tails. */
static void make_gradients(float spread, float tails, rpi_rng *rng) {
    for (int t = 0; t < TENSORS; t++) {
        size_t count = (size_t)500 << (t * 7 / TENSORS);
        counts[t] = count < LARGEST ? count : LARGEST;
        float p = ((float)(t * 23 % TENSORS) + 0.5f) / TENSORS; /* quantiles, well mixed */
        float scale = expf(spread * logf(p / (1 - p)) / 1.7f), row = 1;
        for (size_t i = 0; i < counts[t]; i++) {
            if (i % 576 == 0) row = expf(spread / 2 * rpi_rng_normal(rng));
            float tail = expf(tails * rpi_rng_normal(rng));
            values[t][i] = scale * row * tail * rpi_rng_normal(rng);
        }
    }
}

static total travel(const rp_codec *codec, const float *x, size_t count) {
    float *y = codec_buffer(4 * count);
    uint8_t *wire = codec_buffer(rp_codec_encoded_bytes(codec, RP_F32, count));
    size_t bytes = 0;
    total t = {0};
    CHECK_OK(rp_codec_encode(codec, RP_F32, x, count, NULL, wire, &bytes));
    CHECK_OK(rp_codec_decode(codec, RP_F32, wire, bytes, count, NULL, y));
    for (size_t i = 0; i < count; i++) t.lost += pow((double)x[i] - (double)y[i], 2);
    t.bytes = (double)bytes;
    free(y), free(wire);
    return t;
}

static void gradients_travel_shorter(const rp_codec *like, double wanted) {
    static rp_level_choice tensors[TENSORS];
    memset(tensors, 0, sizeof tensors);
    for (int t = 0; t < TENSORS; t++)
        REQUIRE_OK(rp_levels_measure(like, values[t], NULL, counts[t], tensors[t].measured));
    CHECK_OK(rp_levels_choose(like, tensors, TENSORS));
    total chosen = {0}, all = {0};
    for (int t = 0; t < TENSORS; t++) {
        rp_codec codec;
        REQUIRE_OK(rp_level_codec(like, tensors[t].level, &codec));
        total one = travel(&codec, values[t], counts[t]);
        total same = travel(like, values[t], counts[t]);
        CHECK_EQ(one.bytes, bytes_at(&tensors[t], tensors[t].level));
        chosen.lost += one.lost, chosen.bytes += one.bytes;
        all.lost += same.lost, all.bytes += same.bytes;
    }
    bool to_nearest = like->rounding == RP_NEAREST; /* or else each encoding draws anew */
    CHECK_MSG(chosen.lost <= all.lost * (to_nearest ? 1.0000001 : 1.1), "error %g of %g",
              chosen.lost, all.lost);
    CHECK_MSG(chosen.bytes * wanted <= all.bytes, "%g bytes, of %d bits %g", chosen.bytes,
              like->bits, all.bytes);
}

static void every_kind_of_gradient_travels_shorter(void) {
    static const struct {
        float spread, tails;
        double wanted;
    } kinds[] = {{0, 0, 1}, {0, 0.5f, 1.02}, {0.6f, 0.5f, 1.25}, {1.2f, 0.5f, 1.6}};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 43);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        rp_codec like = q4();
        make_gradients(kinds[k].spread, kinds[k].tails, &rng);
        gradients_travel_shorter(&like, kinds[k].wanted);
    }
    for (int bits = 2; bits <= 8; bits += 3)
        for (int rounding = 0; rounding < 2; rounding++) {
            rp_codec like = q4();
            like.bits = (uint8_t)bits;
            like.rounding = (uint8_t)rounding;
            gradients_travel_shorter(&like, rounding ? 1 : 1.1);
        }
}

/* What is measured is the encoding's input: with the residual. */
static void the_residual_counts(void) {
    rp_codec like = q4();
    like.bucket = 64;
    float x[700], residual[700], fed[700];
    double with[RP_MEASURED] = {0}, of[RP_MEASURED] = {0};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 44);
    codec_fill(x, RP_F32, 700, INPUT_NORMAL, &rng);
    codec_fill(residual, RP_F32, 700, INPUT_NORMAL, &rng);
    for (int i = 0; i < 700; i++) fed[i] = x[i] + residual[i];
    REQUIRE_OK(rp_levels_measure(&like, x, residual, 700, with));
    REQUIRE_OK(rp_levels_measure(&like, fed, NULL, 700, of));
    for (int level = 0; level < RP_LEVELS; level++) {
        rp_codec codec;
        REQUIRE_OK(rp_level_codec(&like, level, &codec));
        total t = travel(&codec, fed, 700);
        CHECK(with[level] == of[level] && with[RP_LEVELS + level] == of[RP_LEVELS + level]);
        CHECK_NEAR(with[level], t.lost, 1e-6 * t.lost);
        CHECK_EQ(with[RP_LEVELS + level], t.bytes);
    }
}

static void a_damaged_tensor_decides_nothing(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 45);
    rp_level_choice tensors[9], without[8];
    rp_codec like = q4();
    for (int i = 0; i < 8; i++) {
        make_up(&without[i], &rng);
        tensors[i] = without[i];
    }
    float damaged[300] = {0, 1, NAN};
    memset(&tensors[8], 0, sizeof tensors[8]);
    REQUIRE_OK(rp_levels_measure(&like, damaged, NULL, 300, tensors[8].measured));
    CHECK_OK(rp_levels_choose(&like, tensors, 9));
    CHECK_OK(rp_levels_choose(&like, without, 8));
    for (int i = 0; i < 8; i++) CHECK_EQ(tensors[i].level, without[i].level);
    CHECK_EQ(tensors[8].level, 0);
}

/* Levels rise in error's order for each rounding; one bit is not for stochastic rounding. */
static void levels_are_codecs(void) {
    rp_codec like = q4(), codec;
    REQUIRE_OK(rp_level_codec(&like, 0, &codec));
    CHECK(codec.kind == like.kind && codec.bits == 4 && codec.bucket == like.bucket);
    for (int rounding = 0; rounding < 2; rounding++) {
        like.rounding = (uint8_t)rounding;
        int lowest = rounding ? 5 : 1;
        for (int level = 1; level < RP_LEVELS; level++) {
            rp_status status = rp_level_codec(&like, level, &codec);
            CHECK_EQ(status, level < lowest ? RP_INVALID : RP_OK);
            if (level < lowest) continue;
            CHECK(codec_is_sound(&codec) && codec.rounding == rounding);
            CHECK_EQ(4 * codec.bits + (int)codec.option[0], level + 3);
        }
    }
    CHECK_FAILS(rp_level_codec(&like, 33, &codec), INVALID, "0 and 5 to 32 are allowed");
    CHECK_FAILS(rp_level_codec(&like, -1, &codec), INVALID, "level is -1");
}

static void codecs_without_bits_are_refused(void) {
    double measured[RP_MEASURED] = {0};
    float x[8] = {0};
    static const char *const texts[] = {"fp32", "bf16", "topk", "sign", "v4"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        rp_codec codec;
        REQUIRE_OK(rp_codec_parse(texts[i], &codec));
        CHECK_FAILS(rp_levels_measure(&codec, x, NULL, 8, measured), INVALID,
                    "no bits to choose");
        CHECK_FAILS(rp_levels_choose(&codec, NULL, 0), INVALID, "no bits to choose");
    }
}

CASES({"never_more_error_nor_bytes", never_more_error_nor_bytes},
      {"nearly_the_best_there_is", nearly_the_best_there_is},
      {"every_kind_of_gradient_travels_shorter", every_kind_of_gradient_travels_shorter},
      {"the_residual_counts", the_residual_counts},
      {"a_damaged_tensor_decides_nothing", a_damaged_tensor_decides_nothing},
      {"levels_are_codecs", levels_are_codecs},
      {"codecs_without_bits_are_refused", codecs_without_bits_are_refused})
