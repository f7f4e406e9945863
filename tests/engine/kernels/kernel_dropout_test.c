#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_dropout.h"

#include <string.h>

static void call(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_dropout_apply(run, (const rpi_kernel_dropout *)args);
}

static rpi_kernel_rows flat(bool bf16, int64_t count, uint64_t stream) {
    if (bf16) return rpi_kernel_bf16(kernel_bf16s(count, 1, stream), count);
    return rpi_kernel_f32(kernel_normal(count, 1, stream), count);
}

static void kernels_match(void) {
    static const double probabilities[] = {0.1, 0.5, 0, 1, 0.003, 0.999};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < 30; i++) {
        int64_t count = kernel_size(&rng, 9000);
        bool bf16 = i % 3 == 2;
        rpi_kernel_dropout it = {
            .mask.probability = probabilities[i % 6],
            .mask.seed = (uint64_t)rpi_rng_u32(&rng) << 32 | rpi_rng_u32(&rng),
            .mask.step = rpi_rng_u32(&rng),
            .mask.tensor = rpi_rng_u32(&rng),
            .first = ((int64_t)rpi_rng_u32(&rng) * 128 << (i % 20)) + i / 2 % 3 * 67,
            .count = count,
            .x = flat(bf16, count, 1),
            .y = flat(bf16, count, 2)};
        if (i % 2) it.residual = flat(bf16, count, 3);
        kernel_check(
            &(kernel_case){"dropout", call, &it, {{"y", it.y.data, count, it.y.dtype, 0, 0}}});
        kernel_buffers_free();
    }
}

/* Numbers computed by another implementation of the documented formula. */
static void known_answers(void) {
    static const struct {
        int64_t element;
        uint32_t number;
    } known[] = {{0LL, 0xca07},           {1LL, 0x3917},           {15LL, 0xaf83},
                 {16LL, 0x9567},          {17LL, 0x01ab},          {127LL, 0x7fa1},
                 {128LL, 0x43dd},         {200LL, 0xce3c},         {1000LL, 0x6d43},
                 {68719476736LL, 0x8e9a}, {68719476741LL, 0x8af5}, {68719476836LL, 0xd1e0}};
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++)
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            for (uint32_t above = 0; above < 2; above++) {
                float x[1024], y[1024];
                for (int k = 0; k < 1024; k++) x[k] = 1;
                int64_t first = known[i].element / 1024 * 1024;
                rpi_kernel_dropout it = {.mask.probability =
                                             (known[i].number + above) / 65536.0,
                                         .mask.seed = 0x0123456789abcdef,
                                         .mask.step = 7,
                                         .mask.tensor = 42,
                                         .first = first,
                                         .count = 1024,
                                         .x = rpi_kernel_f32(x, 1024),
                                         .y = rpi_kernel_f32(y, 1024)};
                rpi_kernel_dropout_apply(&(rpi_kernel_run){1, (rpi_isa)isa}, &it);
                CHECK_MSG((y[known[i].element - first] == 0) == above, "element %lld, %s",
                          (long long)known[i].element, rpi_isa_name((rpi_isa)isa));
            }
}

/* What is kept keeps the mean; other steps, tensors and seeds are other masks. */
static void statistics(void) {
    enum { COUNT = 1 << 18 };
    rpi_kernel_run run = {2, rpi_cpu_isa()};
    float *x = kernel_floats(COUNT), *y = kernel_floats(COUNT), *z = kernel_floats(COUNT);
    for (int i = 0; i < COUNT; i++) x[i] = 1;
    for (int what = 0; what < 3; what++) {
        rpi_kernel_dropout it = {.mask.probability = 0.1,
                                 .mask.seed = check_seed(),
                                 .mask.step = 1,
                                 .mask.tensor = 1,
                                 .count = COUNT,
                                 .x = rpi_kernel_f32(x, COUNT),
                                 .y = rpi_kernel_f32(y, COUNT)};
        rpi_kernel_dropout_apply(&run, &it);
        it.y.data = z;
        if (what == 0) it.mask.seed++;
        if (what == 1) it.mask.step++;
        if (what == 2) it.mask.tensor++;
        rpi_kernel_dropout_apply(&run, &it);
        double sum = 0;
        int64_t both = 0, dropped = 0;
        for (int i = 0; i < COUNT; i++) {
            sum += y[i];
            dropped += y[i] == 0;
            both += y[i] == 0 && z[i] == 0;
        }
        CHECK_NEAR(sum / COUNT, 1, 0.005);               /* 7 deviations */
        CHECK_NEAR((double)dropped / COUNT, 0.1, 0.005); /* 8 */
        CHECK_NEAR((double)both / COUNT, 0.01, 0.002);   /* 10 */
    }
    kernel_buffers_free();
}

/* A cut anywhere, and within a group of 128, gives the mask of the whole, on every instruction
 * set. */
static void cuts_anywhere(void) {
    enum { COUNT = 1000 };
    static const int cuts[] = {1, 15, 16, 17, 100, 127, 128, 129, 384, 500, 901, 999};
    float *x = kernel_normal(COUNT, 1, 1), *whole = kernel_floats(COUNT);
    float *parts = kernel_floats(COUNT);
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++)
        for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
            rpi_kernel_run run = {1, (rpi_isa)isa};
            rpi_kernel_dropout it = {.mask.probability = 0.5,
                                     .mask.seed = 3,
                                     .count = COUNT,
                                     .x = rpi_kernel_f32(x, COUNT),
                                     .y = rpi_kernel_f32(whole, COUNT)};
            rpi_kernel_dropout_apply(&run, &it);
            memset(parts, 0xff, COUNT * sizeof *parts);
            for (int first = 0; first < COUNT; first += cuts[i]) {
                it.first = first;
                it.count = COUNT - first < cuts[i] ? COUNT - first : cuts[i];
                it.x.data = x + first;
                it.y.data = parts + first;
                rpi_kernel_dropout_apply(&run, &it);
            }
            CHECK_MSG(memcmp(whole, parts, COUNT * sizeof *parts) == 0, "cuts of %d, %s",
                      cuts[i], rpi_isa_name((rpi_isa)isa));
        }
    kernel_buffers_free();
}

/* A cut at a multiple of 128 gives the mask of the whole; NaN is not hidden. */
static void pieces_and_nan(void) {
    enum { COUNT = 1000, CUT = 384 };
    rpi_kernel_run run = {1, rpi_cpu_isa()};
    float *x = kernel_normal(COUNT, 1, 1), *whole = kernel_floats(COUNT);
    float *pieces = kernel_floats(COUNT);
    x[500] = NAN;
    rpi_kernel_dropout it = {.mask.probability = 0.5,
                             .mask.seed = 3,
                             .count = COUNT,
                             .x = rpi_kernel_f32(x, COUNT),
                             .y = rpi_kernel_f32(whole, COUNT)};
    rpi_kernel_dropout_apply(&run, &it);
    it.y.data = pieces;
    it.count = CUT;
    rpi_kernel_dropout_apply(&run, &it);
    it.first = CUT;
    it.count = COUNT - CUT;
    it.x.data = x + CUT;
    it.y.data = pieces + CUT;
    rpi_kernel_dropout_apply(&run, &it);
    for (int i = 0; i < COUNT; i++)
        CHECK(i == 500 ? isnan(whole[i]) && isnan(pieces[i]) : whole[i] == pieces[i]);
    kernel_buffers_free();
}

CASES({"kernels_match", kernels_match}, {"known_answers", known_answers},
      {"statistics", statistics}, {"cuts_anywhere", cuts_anywhere},
      {"pieces_and_nan", pieces_and_nan})
