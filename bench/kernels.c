/* Time of each kernel of the cpu backend, beside memcpy and a GEMM of the same run.
 *
 *     kernels [--threads 2] [--rounds 15] [--only layer_norm] [--isa avx2] [--cpu]
 *
 * The kernels take turns, one call each a round; what is printed is the median.
 * bench/peers/kernels_torch.py times PyTorch's operators of the same shapes and names. */
#include "kernels.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/rng.h"
#include "base/status.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(RPI_WITH_ONEDNN)
#    include "engine/onednn/onednn_team.h"

#    include <oneapi/dnnl/dnnl.h>
#endif

typedef struct settings {
    int64_t threads, rounds;
    bool cpu;
    const char *only, *isa;
} settings;

static const rpi_option options[] = {
    {.name = "threads",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, threads),
     .fallback = "0",
     .min = 0,
     .max = 1024,
     .value = "N",
     .help = "0: one a core"},
    {.name = "rounds",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, rounds),
     .fallback = "15",
     .min = 1,
     .max = 1000,
     .value = "N",
     .help = "calls of each kernel that count"},
    {.name = "only",
     .type = RPI_OPTION_TEXT,
     .offset = offsetof(settings, only),
     .fallback = "",
     .value = "TEXT",
     .help = "kernels whose names hold this"},
    {.name = "isa",
     .type = RPI_OPTION_TEXT,
     .offset = offsetof(settings, isa),
     .fallback = "",
     .value = "NAME",
     .help = "avx2 or avx512; the best when not given"},
    {.name = "cpu",
     .type = RPI_OPTION_FLAG,
     .offset = offsetof(settings, cpu),
     .help =
         "count the processor's time and not the clock's: for one thread on a busy machine"},
    {.name = NULL},
};

void bench_add(bench_list *list, bench_kernel kernel) {
    if (list->count < BENCH_KERNELS) list->at[list->count++] = kernel;
}

static void *allocate(size_t bytes) {
    void *it = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (it) return it;
    fprintf(stderr, "no memory for %zu bytes\n", bytes);
    exit(1);
}

float *bench_floats(int64_t count) {
    enum { PERIOD = 65536 };
    static float numbers[PERIOD];
    if (numbers[0] == 0) {
        rpi_rng rng = rpi_rng_make(1, RPI_RNG_TEST, 1);
        for (int i = 0; i < PERIOD; i++) numbers[i] = rpi_rng_normal(&rng);
    }
    float *it = allocate((size_t)count * sizeof *it);
    for (int64_t i = 0; i < count; i++) it[i] = numbers[(i + i / PERIOD * 31) % PERIOD];
    return it;
}

void *bench_copy(const void *args, size_t bytes) {
    return memcpy(allocate(bytes), args, bytes);
}

/* ---- what the kernels are compared with ---- */

typedef struct copying {
    float *to, *from;
} copying;

enum { COPIED = 1 << 24, GEMM = 1536 };

static void copy_part(const void *args, int64_t begin, int64_t end) {
    const copying *it = args;
    memcpy(it->to + begin, it->from + begin, (size_t)(end - begin) * sizeof(float));
}

static void copy(const rpi_kernel_run *run, const void *args) {
    static const rpi_kernel_body bodies[] = {copy_part, copy_part, copy_part};
    rpi_kernel_parallel(run, COPIED, 4096, bodies, args);
}

#if defined(RPI_WITH_ONEDNN)
static void gemm(const rpi_kernel_run *run, const void *args) {
    float *const *m = args;
    (void)run;
    (void)dnnl_sgemm('N', 'N', GEMM, GEMM, GEMM, 1, m[0], GEMM, m[1], GEMM, 0, m[2], GEMM);
}
#endif

static void add_yardsticks(bench_list *list) {
    bench_add(list,
              (bench_kernel){"memcpy", copy,
                             BENCH_ARGS(copying, bench_floats(COPIED), bench_floats(COPIED)),
                             2.0 * COPIED * sizeof(float), 0});
#if defined(RPI_WITH_ONEDNN)
    float *m[3] = {bench_floats(GEMM * GEMM), bench_floats(GEMM * GEMM),
                   bench_floats(GEMM * GEMM)};
    bench_add(list, (bench_kernel){"oneDNN sgemm", gemm, bench_copy(m, sizeof m), 0,
                                   2.0 * GEMM * GEMM * GEMM});
#endif
}

/* ---- turns and medians ---- */

static bool counts_cpu;

static int64_t now_ns(void) {
    struct timespec now;
    (void)clock_gettime(counts_cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return now.tv_sec * RPI_SECOND_NS + now.tv_nsec;
}

static double seconds_of(const rpi_kernel_run *run, const bench_kernel *kernel) {
    int64_t start = now_ns();
    kernel->call(run, kernel->args);
    return rpi_seconds(now_ns() - start);
}

static void print(const bench_kernel *kernel, double seconds, double best, double copy_rate,
                  double gemm_rate) {
    printf("%-34s %9.3f ms, best %9.3f", kernel->name, 1e3 * seconds, 1e3 * best);
    if (kernel->bytes > 0)
        printf(" %8.1f GB/s %5.2f of memcpy", kernel->bytes / seconds * 1e-9,
               kernel->bytes / seconds / copy_rate);
    if (kernel->flops > 0)
        printf(" %8.1f GFLOP/s %5.2f of GEMM", kernel->flops / seconds * 1e-9,
               gemm_rate > 0 ? kernel->flops / seconds / gemm_rate : 0);
    printf("\n");
}

static void measure(const rpi_kernel_run *run, const bench_list *list, int64_t rounds,
                    double *times) {
    for (int64_t round = -2; round < rounds; round++)
        for (int i = 0; i < list->count; i++) {
            double seconds = seconds_of(run, &list->at[i]);
            if (round >= 0) times[i * rounds + round] = seconds;
        }
    double copy_rate = 1, gemm_rate = 0;
    for (int i = 0; i < list->count; i++) {
        double seconds = rpi_median(times + i * rounds, (int)rounds);
        if (i == 0) copy_rate = list->at[i].bytes / seconds;
        if (i == 1 && list->at[i].bytes <= 0) gemm_rate = list->at[i].flops / seconds;
        print(&list->at[i], seconds, times[i * rounds], copy_rate, gemm_rate);
    }
}

static void keep_named(bench_list *list, const char *only) {
    int kept = 0;
    for (int i = 0; i < list->count; i++) {
        bool yardstick = strcmp(list->at[i].name, "memcpy") == 0 ||
                         strcmp(list->at[i].name, "oneDNN sgemm") == 0;
        if (yardstick || strstr(list->at[i].name, only)) list->at[kept++] = list->at[i];
    }
    list->count = kept;
}

static int run_all(const settings *it) {
    rpi_kernel_run run = {.threads = (int)it->threads, .isa = rpi_cpu_isa()};
    if (run.threads == 0) run.threads = rpi_cpu_count();
    for (int isa = 0; isa < RPI_ISA_COUNT; isa++)
        if (strcmp(it->isa, rpi_isa_name((rpi_isa)isa)) == 0 && isa <= (int)run.isa)
            run.isa = (rpi_isa)isa;
    counts_cpu = it->cpu;
#if defined(RPI_WITH_ONEDNN)
    /* The team of oneDNN has as many threads as the kernels, so that none of its threads spins
     * beside them. */
    rpi_dnn_team_enter(run.threads);
#endif
    static bench_list list;
    add_yardsticks(&list);
    bench_activations(&list);
    bench_attention(&list);
    bench_norms(&list);
    bench_sgemm(&list);
    bench_matmul(&list);
    bench_winograd(&list);
    bench_cross_entropy(&list);
    bench_tokens(&list);
    bench_optimizers(&list);
    keep_named(&list, it->only);
    printf("%s, %d threads, medians of %d\n", rpi_isa_name(run.isa), run.threads,
           (int)it->rounds);
    measure(&run, &list, it->rounds,
            allocate(sizeof(double) * (size_t)(list.count * it->rounds)));
    return 0;
}

int main(int argc, char **argv) {
    settings it = {0};
    bool help = false;
    rp_status status = rpi_options_defaults(options, &it);
    if (status == RP_OK) status = rpi_options_parse(options, argc, argv, &it, NULL, &help);
    if (status == RP_OK && help) {
        rpi_options_help(options, stdout);
        return 0;
    }
    if (status == RP_OK) return run_all(&it);
    fprintf(stderr, "kernels: %s\n", rp_last_error()->message);
    return 2;
}
