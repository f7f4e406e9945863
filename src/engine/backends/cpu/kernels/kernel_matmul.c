#include "engine/backends/cpu/kernels/kernel_matmul.h"

#include "engine/backends/cpu/kernels/kernel_activation.h"
#include "engine/backends/cpu/kernels/kernel_cut.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- what there is ---- */

#if defined(__x86_64__)
#    include <cpuid.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static rpi_matmul_form best;

/* CPUID 7.0: AVX512-BF16 is in 7.1 EAX bit 5; AMX-BF16 and AMX-TILE are EDX bits 22 and 24. */
static rpi_matmul_form form_of_processor(void) {
    unsigned a = 0, b = 0, c = 0, d = 0, rest = 0;
    const unsigned amx = 1u << 22 | 1u << 24;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return RPI_MATMUL_SCALAR;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &rest) || !(a >> 5 & 1u)) return RPI_MATMUL_SCALAR;
    return (d & amx) == amx ? RPI_MATMUL_AMX : RPI_MATMUL_AVX512;
}

/* Linux gives the state of the tiles (feature 18) to those who ask. */
static bool may_use_tiles(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static void ask(void) {
    if (rpi_cpu_isa() != RPI_ISA_AVX512) return;
    best = form_of_processor();
    if (best == RPI_MATMUL_AMX && !may_use_tiles()) best = RPI_MATMUL_AVX512;
}

rpi_matmul_form rpi_kernel_matmul_form(void) {
    pthread_once(&once, ask);
    return best;
}
#else
rpi_matmul_form rpi_kernel_matmul_form(void) {
    return RPI_MATMUL_SCALAR;
}
#endif

/* ---- the definition ---- */

static float element(const rpi_kernel_rows *m, const rpi_matmul_pixels *pixels, int64_t row,
                     int64_t col) {
    const void *data = rpi_matmul_row(m, pixels, row);
    const int64_t at =
        col / RPI_MATMUL_BLOCK * rpi_matmul_block_step(pixels) + col % RPI_MATMUL_BLOCK;
    if (!data) return 0;
    return m->dtype == RP_BF16 ? rpi_bf16_to_f32(((const uint16_t *)data)[at])
                               : ((const float *)data)[at];
}

static double rounded(float value) {
    return (double)rpi_bf16_to_f32(rpi_f32_to_bf16(value));
}

static double product_at(const rpi_kernel_matmul *it, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t k = 0; k < it->k; k++) {
        float a = it->a_transposed ? element(&it->a, it->a_pixels, k, i)
                                   : element(&it->a, it->a_pixels, i, k);
        float b = it->b_transposed ? element(&it->b, it->b_pixels, j, k)
                                   : element(&it->b, it->b_pixels, k, j);
        sum += rounded(a) * rounded(b);
    }
    return sum;
}

/* An element of c. */
static void *place_of(const rpi_kernel_matmul *it, int64_t i, int64_t j) {
    const int64_t at =
        j / RPI_MATMUL_BLOCK * rpi_matmul_block_step(it->c_pixels) + j % RPI_MATMUL_BLOCK;
    const int64_t size = it->c.dtype == RP_BF16 ? 2 : 4;
    return (char *)rpi_matmul_row(&it->c, it->c_pixels, i) + at * size;
}

static void define(const rpi_kernel_matmul *it) {
    for (int64_t place = 0; place == 0 || place < it->window * it->window; place++) {
        rpi_matmul_pixels moved;
        const rpi_kernel_matmul at = rpi_matmul_at(it, place, &moved);
        for (int64_t i = 0; i < it->m; i++)
            for (int64_t j = 0; j < it->n; j++) {
                float *c = place_of(it, i, j);
                if (it->c.dtype == RP_BF16)
                    *(uint16_t *)(void *)c = rpi_f32_to_bf16((float)product_at(&at, i, j));
                else
                    *c = (float)((at.accumulate ? (double)*c : 0) + product_at(&at, i, j) +
                                 (it->bias ? (double)it->bias[j] : 0));
            }
    }
}

size_t rpi_kernel_matmul_workspace(const rpi_kernel_run *run) {
    return (size_t)run->threads * RPI_MATMUL_PACKED * sizeof(uint16_t);
}

#if defined(__x86_64__)
/* ---- AVX512-BF16: parts for threads ---- */

typedef struct cut_work {
    const rpi_kernel_matmul *it;
    rpi_kernel_cut cut;
} cut_work;

static void run_cut(const void *args, int64_t begin, int64_t end) {
    const cut_work *work = args;
    for (int64_t i = begin; i < end; i++) {
        const rpi_partition_part area = rpi_partition_part_of(&work->cut, i);
        const rpi_matmul_part part = {.first = area.first,
                                      .end = area.end,
                                      .left = area.left,
                                      .right = area.right,
                                      .packed = (uint16_t *)work->it->workspace +
                                                i * RPI_MATMUL_PACKED};
        rpi_matmul_part_avx512(work->it, &part);
    }
}

static void run_avx512(const rpi_kernel_run *run, const rpi_kernel_matmul *it) {
    static const rpi_kernel_body bodies[RPI_ISA_COUNT] = {run_cut, run_cut, run_cut};
    static const rpi_partition_rule rule = {.row_grain = RPI_MATMUL_ROW_GRAIN,
                                            .col_grain = RPI_MATMUL_COL_GRAIN,
                                            .packing = 96,
                                            .most_rows = RPI_MATMUL_MOST_ROWS};
    const cut_work work = {it, rpi_partition_of(&rule, it->m, it->n, run->threads)};
    rpi_kernel_parallel(run, work.cut.down * work.cut.across, 1, bodies, &work);
}

static bool is_plain(const rpi_kernel_matmul *it) {
    return !it->a_pixels && !it->b_pixels && !it->c_pixels && it->window <= 1 &&
           it->c.dtype == RP_F32;
}

/* ---- AMX: each thread its rows, or its columns where c is wider than high ---- */

typedef struct shared_work {
    const rpi_kernel_matmul *it;
    bool by_columns;
    int64_t grains, parts;
} shared_work;

static int64_t part_begin(const shared_work *work, int64_t part, int64_t count) {
    const int64_t begin = work->grains * part / work->parts * RPI_MATMUL_GRAIN;
    return begin < count ? begin : count;
}

static void run_parts(const void *args, int64_t begin, int64_t end) {
    const shared_work *work = args;
    const rpi_kernel_matmul *it = work->it;
    for (int64_t i = begin; i < end; i++) {
        const int64_t count = work->by_columns ? it->n : it->m;
        const int64_t first = part_begin(work, i, count), last = part_begin(work, i + 1, count);
        rpi_matmul_part part = {.first = 0, .end = it->m, .left = first, .right = last};
        if (!work->by_columns)
            part = (rpi_matmul_part){.first = first, .end = last, .left = 0, .right = it->n};
        part.packed = (uint16_t *)it->workspace + i * RPI_MATMUL_PACKED;
        rpi_matmul_part_amx(it, &part);
    }
}

static void run_threads(const rpi_kernel_run *run, const rpi_kernel_matmul *it) {
    static const rpi_kernel_body bodies[RPI_ISA_COUNT] = {run_parts, run_parts, run_parts};
    shared_work work = {.it = it, .by_columns = it->n > it->m};
    int64_t count = work.by_columns ? it->n : it->m;
    work.grains = (count + RPI_MATMUL_GRAIN - 1) / RPI_MATMUL_GRAIN;
    work.parts = run->threads < work.grains ? run->threads : work.grains;
    rpi_kernel_parallel(run, work.parts, 1, bodies, &work);
}

/* ---- where a's pixels lie apart: the gradient of a strided convolution's input ---- */

/* Only every divisor-th place of c's grid in each direction meets a pixel of a. */
static bool lies_apart(const rpi_kernel_matmul *it) {
    const rpi_matmul_pixels *a = it->a_pixels, *c = it->c_pixels;
    return a && c && a->divisor > 1 && a->stride == 1 && c->stride == 1 && c->divisor == 1 &&
           c->up == 0 && c->left == 0 && a->rows == c->rows && a->cols == c->cols;
}

static void clear_rows(const rpi_kernel_matmul *it) {
    const int64_t size = it->c.dtype == RP_BF16 ? 2 : 4;
    const int64_t step = rpi_matmul_block_step(it->c_pixels) * size;
    for (int64_t i = 0; i < it->m; i++) {
        char *row = (char *)rpi_matmul_row(&it->c, it->c_pixels, i);
        for (int64_t j = 0; j < it->n; j += RPI_MATMUL_BLOCK)
            memset(row + j / RPI_MATMUL_BLOCK * step, 0, (size_t)(RPI_MATMUL_BLOCK * size));
    }
}

/* The places of c's grid that `c` has: of the window's places only those count that meet
 * pixels of a, and a row of a is one of memory. */
static void run_phase(const rpi_kernel_run *run, const rpi_kernel_matmul *it,
                      const rpi_matmul_pixels *c, int64_t images) {
    const int64_t places = it->window ? it->window * it->window : 1;
    rpi_kernel_matmul phase = *it;
    phase.m = images * c->rows * c->cols;
    phase.c_pixels = c;
    phase.window = 0;
    for (int64_t place = 0; place < places; place++) {
        rpi_matmul_pixels moved;
        const rpi_kernel_matmul at = rpi_matmul_at(it, place, &moved);
        rpi_matmul_pixels a = *at.a_pixels;
        a.up += c->up;
        a.left += c->left;
        if (a.up % a.divisor || a.left % a.divisor) continue;
        a.up /= a.divisor;
        a.left /= a.divisor;
        a.divisor = 1;
        a.rows = c->rows;
        a.cols = c->cols;
        phase.a_pixels = &a;
        phase.b = at.b;
        run_threads(run, &phase);
        phase.accumulate = true;
    }
    if (!phase.accumulate) clear_rows(&phase);
}

static void run_phases(const rpi_kernel_run *run, const rpi_kernel_matmul *it) {
    const rpi_matmul_pixels *all = it->c_pixels;
    const int64_t apart = it->a_pixels->divisor, images = it->m / (all->rows * all->cols);
    for (int64_t up = 0; up < apart && up < all->rows; up++)
        for (int64_t left = 0; left < apart && left < all->cols; left++) {
            rpi_matmul_pixels c = *all;
            c.rows = (all->rows - up + apart - 1) / apart;
            c.cols = (all->cols - left + apart - 1) / apart;
            c.stride = apart;
            c.up = up;
            c.left = left;
            run_phase(run, it, &c, images);
        }
}
#endif

void rpi_kernel_matmul_run(const rpi_kernel_run *run, const rpi_kernel_matmul *args) {
    rpi_kernel_matmul_run_by(run, args, RPI_MATMUL_AMX);
}

#if defined(__x86_64__)
static void run_amx(const rpi_kernel_run *run, const rpi_kernel_matmul *it) {
    if (lies_apart(it))
        run_phases(run, it);
    else
        run_threads(run, it);
    if (it->bias)
        rpi_kernel_add_bias(
            run, &(rpi_kernel_add){
                     .rows = it->m, .cols = it->n, .a = it->c, .bias = it->bias, .y = it->c});
}

static rpi_matmul_form form_for(const rpi_kernel_run *run, const rpi_kernel_matmul *it,
                                rpi_matmul_form most) {
    const rpi_matmul_form best_here = rpi_kernel_matmul_form();
    const rpi_matmul_form form = most < best_here ? most : best_here;
    if (run->isa != RPI_ISA_AVX512 || it->k == 0) return RPI_MATMUL_SCALAR;
    return form == RPI_MATMUL_AVX512 && !is_plain(it) ? RPI_MATMUL_SCALAR : form;
}
#endif

void rpi_kernel_matmul_run_by(const rpi_kernel_run *run, const rpi_kernel_matmul *args,
                              rpi_matmul_form most) {
    if (args->m == 0 || args->n == 0) return;
#if defined(__x86_64__)
    switch (form_for(run, args, most)) {
    case RPI_MATMUL_AMX: run_amx(run, args); return;
    case RPI_MATMUL_AVX512: run_avx512(run, args); return;
    default: break;
    }
#else
    (void)run;
    (void)most;
#endif
    define(args);
}
