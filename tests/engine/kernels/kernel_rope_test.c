#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_rope.h"

static void call(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_rope_apply(run, (const rpi_kernel_rope *)args);
}

static rpi_kernel_heads heads(bool bf16, int64_t length, int64_t token, int64_t head,
                              int64_t count, uint64_t stream) {
    void *data =
        bf16 ? (void *)kernel_bf16s(count, 1, stream) : (void *)kernel_normal(count, 1, stream);
    return (rpi_kernel_heads){data, length * token, token, head, bf16 ? RP_BF16 : RP_F32};
}

enum { POSITIONS = 64 };

static rpi_kernel_rope draw(rpi_rng *rng, int index, int64_t *count) {
    int64_t d = kernel_size(rng, 150), n = 1 + (int64_t)rpi_rng_below(rng, 3);
    rpi_kernel_rope it = {.batch = 1 + (int64_t)rpi_rng_below(rng, 2),
                          .length = kernel_size(rng, 40),
                          .heads = n,
                          .head_size = d,
                          .rotary = index % 2 ? d / 2 * 2 : d / 4 * 2,
                          .offset = rpi_rng_below(rng, 20),
                          .inverse = index % 3 == 1,
                          .pairs = index % 7 == 2};
    int64_t token = n * d + 5;
    *count = it.batch * it.length * token;
    it.x = heads(index % 4 == 3, it.length, token, d, *count, 1);
    it.y = heads(index % 4 == 3, it.length, token, d, *count, 2);
    float *cosines = kernel_floats(POSITIONS * d), *sines = kernel_floats(POSITIONS * d);
    rpi_kernel_rope_tables(10000, NULL, 0, POSITIONS, it.rotary, cosines, sines);
    it.cosines = cosines, it.sines = sines;
    return it;
}

static void kernels_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < 24; i++) {
        int64_t count;
        int32_t positions[2 * 40];
        rpi_kernel_rope it = draw(&rng, i, &count);
        for (int64_t t = 0; t < it.batch * it.length; t++)
            positions[t] = (int32_t)rpi_rng_below(&rng, POSITIONS);
        if (i % 5 == 4) it.positions = positions;
        bool bf16 = it.y.dtype == RP_BF16;
        kernel_check(&(kernel_case){
            "rope",
            call,
            &it,
            {{"y", it.y.data, count, it.y.dtype, bf16 ? 0x1p-7 : 1e-6, bf16 ? 1e-3 : 1e-6}}});
        kernel_buffers_free();
    }
}

/* The inverse gives x back, and also in place. As rotations are orthogonal it is the gradient.
 */
static void inverse_turns_back(void) {
    enum { LENGTH = 20, SIZE = 34, COUNT = LENGTH * SIZE };
    rpi_kernel_run run = {.threads = 2, .isa = rpi_cpu_isa()};
    float *x = kernel_normal(COUNT, 1, 1), *y = kernel_normal(COUNT, 1, 1);
    float *cosines = kernel_floats(LENGTH * SIZE), *sines = kernel_floats(LENGTH * SIZE);
    rpi_kernel_rope_tables(500, NULL, 0, LENGTH, SIZE, cosines, sines);
    rpi_kernel_heads all = {y, COUNT, SIZE, SIZE, RP_F32};
    rpi_kernel_rope it = {1,    LENGTH, 1,     SIZE, SIZE, cosines, sines,
                          NULL, 0,      false, all,  all,  false};
    rpi_kernel_rope_apply(&run, &it);
    CHECK(fabsf(y[COUNT - 1] - x[COUNT - 1]) > 1e-6f);
    it.inverse = true;
    rpi_kernel_rope_apply(&run, &it);
    for (int i = 0; i < COUNT; i++) CHECK_NEAR(y[i], x[i], 2e-6);
    kernel_buffers_free();
}

/* Pairs are halves under another order. */
static void pairs_are_halves_in_order(void) {
    float halves[6] = {1, 2, 3, 4, 5, 6}, pairs[6] = {1, 4, 2, 5, 3, 6};
    float cosines[6], sines[6];
    rpi_kernel_run run = {1, rpi_cpu_isa()};
    rpi_kernel_rope_tables(50, NULL, 0, 2, 6, cosines, sines);
    rpi_kernel_heads a = {halves, 6, 6, 6, RP_F32}, b = {pairs, 6, 6, 6, RP_F32};
    rpi_kernel_rope it = {1, 1, 1, 6, 6, cosines, sines, NULL, 1, false, a, a, false};
    rpi_kernel_rope_apply(&run, &it);
    it.x = it.y = b;
    it.pairs = true;
    rpi_kernel_rope_apply(&run, &it);
    for (int c = 0; c < 6; c++) CHECK_NEAR(pairs[c], halves[c % 2 * 3 + c / 2], 1e-6);
}

/* By hand: position 1, the first pair turns by one radian, the last by theta^(-2 / 4). */
static void known_answer(void) {
    float x[4] = {1, 2, 3, 4}, y[4], cosines[4], sines[4];
    rpi_kernel_rope_tables(100, NULL, 0, 2, 4, cosines, sines);
    rpi_kernel_heads in = {x, 4, 4, 4, RP_F32}, out = {y, 4, 4, 4, RP_F32};
    rpi_kernel_rope it = {1, 1, 1, 4, 4, cosines, sines, NULL, 1, false, in, out, false};
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++) {
        rpi_kernel_rope_apply(&(rpi_kernel_run){1, (rpi_isa)isa}, &it);
        CHECK_NEAR(y[0], cos(1) - 3 * sin(1), 1e-6);
        CHECK_NEAR(y[2], 3 * cos(1) + sin(1), 1e-6);
        CHECK_NEAR(y[1], 2 * cos(0.1) - 4 * sin(0.1), 1e-6);
        CHECK_NEAR(y[3], 4 * cos(0.1) + 2 * sin(0.1), 1e-6);
    }
}

/* By hand, of base 100 and two pairs: the first turns by one radian a token, a circle in 6.28
 * tokens, the second by 0.1, a circle in 62.8. */
static void angle_after(const rpi_rope_stretch *stretch, double first, double second) {
    float cosines[4], sines[4];
    rpi_kernel_rope_tables(100, stretch, 1, 2, 4, cosines, sines);
    CHECK_NEAR(sines[0], sin(first), 1e-6);
    CHECK_NEAR(cosines[1], cos(second), 1e-6);
    CHECK_NEAR(sines[2], sin(2 * first), 1e-6);
    CHECK_NEAR(sines[3], sin(2 * second), 1e-6);
}

static void angles_are_stretched(void) {
    angle_after(NULL, 1, 0.1);
    angle_after(&(rpi_rope_stretch){0}, 1, 0.1);
    angle_after(&(rpi_rope_stretch){.factor = 4}, 0.25, 0.025);
    /* In 31.4 tokens the first turns five circles, more than high, the second half of one. */
    rpi_rope_stretch s = {.factor = 4, .low = 1, .high = 4, .original = 31};
    angle_after(&s, 1, 0.025);
    /* In 157 tokens the second turns 2.5 circles: half way between low and high. */
    s.original = 157;
    double share = (157 * 0.1 / (2 * acos(-1)) - 1) / 3;
    angle_after(&s, 1, 0.1 * share + 0.025 * (1 - share));
}

/* ---- beside transformers ---- */

enum { YARN_ANGLES = 64, YARN_CASES = 40 };

/* A line of rope_yarn.golden. */
typedef struct yarn_case {
    double base, scale, angles[YARN_ANGLES];
    rpi_rope_stretch stretch;
    int rotary;
} yarn_case;

/* false: the file ends, or is none. */
static bool read_case(FILE *stream, yarn_case *y) {
    int is_exact;
    long long original;
    rpi_rope_stretch *s = &y->stretch;
    *y = (yarn_case){.stretch = {.yarn = true}};
    if (fscanf(stream, "%lf %d %lf %lld %lf %lf %d %lf %lf", &y->base, &y->rotary, &s->factor,
               &original, &s->low, &s->high, &is_exact, &s->attention, &y->scale) != 9)
        return false;
    s->original = original, s->is_exact = is_exact;
    for (int c = 0; c < y->rotary / 2 && c < YARN_ANGLES; c++)
        if (fscanf(stream, "%lf", &y->angles[c]) != 1) return false;
    return true;
}

/* An angle and the scale are in the cosine and the sine of one token. Theirs are in single
 * precision: a sum of shares of the angle as it is and as it is stretched. */
static void yarn_is_that_of_transformers(void) {
    FILE *stream = fopen(ROPE_GOLDEN, "r");
    float cosines[YARN_ANGLES], sines[YARN_ANGLES];
    yarn_case y;
    int cases = 0;
    REQUIRE(stream);
    for (; read_case(stream, &y); cases++) {
        rpi_kernel_rope_tables(y.base, &y.stretch, 1, 1, y.rotary, cosines, sines);
        for (int c = 0; c < y.rotary / 2; c++) {
            double cosine = (double)cosines[c], sine = (double)sines[c];
            double angle = atan2(sine, cosine), scale = hypot(sine, cosine);
            double plain = pow(y.base, -2.0 * c / y.rotary);
            CHECK_MSG(fabs(angle - y.angles[c]) <= 1e-6 * y.angles[c] + 1e-7 * plain,
                      "case %d: angle %d is %.9g, not %.9g", cases, c, angle, y.angles[c]);
            CHECK_MSG(fabs(scale - y.scale) <= 1e-6 * y.scale, "case %d: %.9g, not %.9g", cases,
                      scale, y.scale);
        }
    }
    fclose(stream);
    CHECK_EQ(cases, YARN_CASES);
}

CASES({"kernels_match", kernels_match}, {"inverse_turns_back", inverse_turns_back},
      {"pairs_are_halves_in_order", pairs_are_halves_in_order}, {"known_answer", known_answer},
      {"angles_are_stretched", angles_are_stretched},
      {"yarn_is_that_of_transformers", yarn_is_that_of_transformers})
