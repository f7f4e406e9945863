#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_pool.h"

#include <string.h>

enum { SHAPES = 96, GUARD_BYTE = 0xa5 };

/* What a test draws, and what a kernel made of it. */
typedef struct pooling {
    rpi_kernel_max_pool it;
    int64_t read, made; /* elements of all planes */
} pooling;

static rpi_kernel_rows matrix(rp_dtype dtype, int64_t rows, int64_t cols, uint64_t stream) {
    return dtype == RP_BF16 ? rpi_kernel_bf16(kernel_bf16s(rows * cols, 1, stream), cols)
                            : rpi_kernel_f32(kernel_normal(rows * cols, 1, stream), cols);
}

static uint8_t *bytes(int64_t count) {
    uint8_t *it = (uint8_t *)kernel_floats(count);
    memset(it, GUARD_BYTE, (size_t)(count + KERNEL_GUARD));
    return it;
}

static int64_t size_after(const rpi_kernel_max_pool *it, int64_t size) {
    return (size + 2 * it->padding - it->side) / it->stride + 1;
}

static pooling pooling_of(rpi_kernel_max_pool it, rp_dtype from, rp_dtype to) {
    it.out_height = size_after(&it, it.height);
    it.out_width = size_after(&it, it.width);
    const int64_t in = it.height * it.width * it.block;
    const int64_t out = it.out_height * it.out_width * it.block;
    it.x = matrix(from, it.planes, in, 1);
    it.y = matrix(to, it.planes, out, 2);
    it.where = bytes(it.planes * out);
    return (pooling){it, it.planes * in, it.planes * out};
}

static pooling draw(rpi_rng *rng, int index) {
    static const int64_t blocks[] = {16, 16, 8, 1, 4};
    rpi_kernel_max_pool it = {.planes = 1 + rpi_rng_below(rng, 4),
                              .block = blocks[rpi_rng_below(rng, 5)],
                              .side = 1 + (int)rpi_rng_below(rng, 5),
                              .stride = 1 + (int)rpi_rng_below(rng, 4)};
    if (index % 8 == 0) it.side = RPI_MAX_POOL_SIDE;
    it.padding = (int)rpi_rng_below(rng, (uint32_t)it.side / 2 + 1);
    it.height = it.side - it.padding + (int64_t)rpi_rng_below(rng, 12);
    it.width = it.side - it.padding + (int64_t)rpi_rng_below(rng, 20);
    return pooling_of(it, index % 3 ? RP_BF16 : RP_F32, index % 3 == 2 ? RP_BF16 : RP_F32);
}

/* Bits of an element as those of a float; bf16 is the upper half. */
static uint32_t bits_at(rpi_kernel_rows m, int64_t i) {
    return m.dtype == RP_BF16 ? (uint32_t)((const uint16_t *)m.data)[i] << 16
                              : ((const uint32_t *)m.data)[i];
}

static void set_bits(rpi_kernel_rows m, int64_t i, uint32_t bits) {
    if (m.dtype == RP_BF16)
        ((uint16_t *)m.data)[i] = (uint16_t)(bits >> 16);
    else
        ((uint32_t *)m.data)[i] = bits;
}

/* Equal ones among them, zeros of both signs, infinities, and NaN that differ in their bits and
 * of which one signals. */
static void make_unusual(rpi_rng *rng, const pooling *p) {
    static const uint32_t few[] = {0x7fc10000, 0xffc20000, 0x7f810000, 0x7f800000, 0xff800000,
                                   0,          0x80000000, 0x3f800000, 0xbf800000};
    enum { FEW = sizeof few / sizeof few[0] };
    const uint32_t first = rpi_rng_below(rng, 4) * 2; /* NaN and infinity in some only */
    for (int64_t i = 0; i < p->read; i++)
        if (rpi_rng_below(rng, 2))
            set_bits(p->it.x, i, few[first + rpi_rng_below(rng, FEW - first)]);
}

static bool is_first_largest(const pooling *p, int64_t plane, int64_t i, int64_t j, int64_t c) {
    const rpi_kernel_max_pool *it = &p->it;
    int64_t best = -1, tap = -1, out = (i * it->out_width + j) * it->block + c;
    for (int64_t t = 0; t < (int64_t)it->side * it->side; t++) {
        const int64_t row = i * it->stride - it->padding + t / it->side;
        const int64_t column = j * it->stride - it->padding + t % it->side;
        if (row < 0 || column < 0 || row >= it->height || column >= it->width) continue;
        const int64_t here = (row * it->width + column) * it->block + c;
        const double value = rpi_kernel_get(it->x, plane, here);
        const double most = best < 0 ? 0 : rpi_kernel_get(it->x, plane, best);
        if (best >= 0 && (isnan(most) || value <= most)) continue;
        best = here;
        tap = t;
    }
    out += plane * it->y.stride;
    return bits_at(it->y, out) == bits_at(it->x, plane * it->x.stride + best) &&
           it->where[out] == tap;
}

static void check_windows(const pooling *p, const char *isa) {
    const rpi_kernel_max_pool *it = &p->it;
    int64_t wrong = 0;
    for (int64_t n = 0; n < it->planes; n++)
        for (int64_t i = 0; i < it->out_height; i++)
            for (int64_t j = 0; j < it->out_width; j++)
                for (int64_t c = 0; c < it->block; c++)
                    wrong += !is_first_largest(p, n, i, j, c);
    CHECK_MSG(wrong == 0,
              "%s: %lld of %lld are wrong: block %lld, side %d, stride %d, "
              "padding %d, %lld x %lld, dtypes %d and %d",
              isa, (long long)wrong, (long long)p->made, (long long)it->block, it->side,
              it->stride, it->padding, (long long)it->height, (long long)it->width,
              (int)it->x.dtype, (int)it->y.dtype);
    for (int i = 0; i < KERNEL_GUARD; i++)
        CHECK_MSG(it->where[p->made + i] == GUARD_BYTE, "%s: a tap behind the last", isa);
}

/* From what no window has, so that nothing of the run before is taken for a result. */
static void spoil(const pooling *p) {
    for (int64_t i = 0; i < p->made; i++) set_bits(p->it.y, i, 0x42420000);
    memset(p->it.where, GUARD_BYTE, (size_t)p->made);
}

static void check_on_all(const pooling *p) {
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++)
        for (int threads = 1; threads <= 3; threads += 2) {
            const rpi_kernel_run run = {threads, (rpi_isa)isa};
            spoil(p);
            rpi_kernel_max_pool_forward(&run, &p->it);
            check_windows(p, rpi_isa_name(run.isa));
        }
}

static void call(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_max_pool_forward(run, args);
}

static void kernels_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < SHAPES; i++) {
        pooling p = draw(&rng, i);
        check_on_all(&p);
        make_unusual(&rng, &p);
        check_on_all(&p);
        kernel_check(&(kernel_case){
            "max pool", call, &p.it, {{"y", p.it.y.data, p.made, p.it.y.dtype, 0, 0}}});
        p.it.where = NULL; /* evaluation */
        kernel_check(&(kernel_case){
            "max pool", call, &p.it, {{"y", p.it.y.data, p.made, p.it.y.dtype, 0, 0}}});
        kernel_buffers_free();
    }
}

/* One window of 3 x 3 in every lane: which tap it is. */
static void the_unusual(const rpi_kernel_run *run, int64_t block, const float taps[9],
                        int wanted) {
    const rpi_kernel_max_pool shape = {
        .planes = 1, .block = block, .height = 3, .width = 3, .side = 3, .stride = 1};
    const pooling p = pooling_of(shape, RP_F32, RP_F32);
    for (int64_t i = 0; i < p.read; i++) ((float *)p.it.x.data)[i] = taps[i / block];
    rpi_kernel_max_pool_forward(run, &p.it);
    for (int64_t c = 0; c < block; c++)
        CHECK_MSG(p.it.where[c] == wanted &&
                      bits_at(p.it.y, c) == bits_at(p.it.x, wanted * block),
                  "%s: tap %d, not %d", rpi_isa_name(run->isa), p.it.where[c], wanted);
    kernel_buffers_free();
}

static void the_unusual_on_all(void) {
    static const struct {
        float taps[9];
        int wanted;
    } rows[] = {
        {{1, 2, 3, 3, 2, 1, 3, 0, 3}, 2},
        {{-0.0f, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
        {{-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY,
          -INFINITY, -INFINITY},
         0},
        {{-INFINITY, -INFINITY, -5, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY,
          -INFINITY},
         2},
        {{1, INFINITY, 2, INFINITY, 3, 4, NAN, INFINITY, NAN}, 6},
        {{NAN, INFINITY, NAN, 9, 9, 9, 9, 9, INFINITY}, 0},
        {{-INFINITY, 1, 1, 1, NAN, 2, 3, 4, 5}, 4},
        {{0, 0, 0, 0, 0, 0, 0, 0, -NAN}, 8},
    };
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            for (int64_t block = 1; block <= 16; block *= 2) {
                const rpi_kernel_run run = {1, (rpi_isa)isa};
                the_unusual(&run, block, rows[i].taps, rows[i].wanted);
            }
}

static void nothing(void) {
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++) {
        const rpi_kernel_run run = {2, (rpi_isa)isa};
        const rpi_kernel_max_pool it = {.block = 16, .side = 2, .stride = 2};
        rpi_kernel_max_pool_forward(&run, &it);
    }
}

CASES({"kernels_match", kernels_match}, {"the_unusual_on_all", the_unusual_on_all},
      {"nothing", nothing})
