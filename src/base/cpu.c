#include "base/cpu.h"

#include "base/cpu_quota.h"
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const isa_names[RPI_ISA_COUNT] = {
    [RPI_ISA_SCALAR] = "scalar",
#if defined(__x86_64__)
    [RPI_ISA_AVX2] = "avx2",
    [RPI_ISA_AVX512] = "avx512",
#elif defined(__aarch64__)
    [RPI_ISA_NEON] = "neon",
#endif
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static rpi_isa isa_max, isa_allowed;
static char features[256];

#if defined(__x86_64__)
/* The formatter never settles on this list. */
/* clang-format off */
#    define RPI_FEATURES(X) \
        X("sse4.2") X("avx2") X("fma") X("bmi2") X("avx512f") X("avx512bw") X("avx512dq") \
        X("avx512vl") X("avx512vbmi") X("avx512vnni") X("avx512bf16") X("vpclmulqdq")
/* clang-format on */

static void detect(void) {
    __builtin_cpu_init();
    size_t used = 0;
#    define RPI_NOTE(name)                                                                     \
        if (__builtin_cpu_supports(name))                                                      \
            used += (size_t)snprintf(features + used, sizeof features - used, "%s%s",          \
                                     used ? " " : "", name);
    RPI_FEATURES(RPI_NOTE)
#    undef RPI_NOTE
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2")) /* every processor with AVX2 has F16C */
        isa_max = RPI_ISA_AVX2;
    if (isa_max == RPI_ISA_AVX2 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi"))
        isa_max = RPI_ISA_AVX512;
}
#elif defined(__aarch64__)
#    include <sys/auxv.h>

/* The part of AArch64's features that kernels use, or may come to use. */
static void detect(void) {
    static const struct {
        unsigned long bit;
        const char *name;
    } known[] = {
        {HWCAP_ASIMD, "asimd"},     {HWCAP_CRC32, "crc32"},     {HWCAP_PMULL, "pmull"},
        {HWCAP_ASIMDHP, "asimdhp"}, {HWCAP_ASIMDDP, "asimddp"}, {HWCAP_SVE, "sve"},
    };
    unsigned long present = getauxval(AT_HWCAP);
    size_t used = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (present & known[i].bit)
            used += (size_t)snprintf(features + used, sizeof features - used, "%s%s",
                                     used ? " " : "", known[i].name);
    if (present & HWCAP_ASIMD) isa_max = RPI_ISA_NEON;
}
#else
static void detect(void) {
}
#endif

static void initialise(void) {
    detect();
    isa_allowed = isa_max;
    const char *wanted = getenv("REDPOLL_ISA");
    if (!wanted || !*wanted) return;
    for (int isa = 0; isa < RPI_ISA_COUNT; isa++)
        if (strcmp(wanted, isa_names[isa]) == 0 && isa <= (int)isa_max) {
            isa_allowed = (rpi_isa)isa;
            return;
        }
    rpi_log(RP_LOG_WARNING, "REDPOLL_ISA=%s is not one this processor runs; using %s", wanted,
            isa_names[isa_max]);
}

const char *rpi_isa_name(rpi_isa isa) {
    return isa_names[isa];
}

rpi_isa rpi_cpu_isa(void) {
    pthread_once(&once, initialise);
    return isa_allowed;
}

rpi_isa rpi_cpu_isa_max(void) {
    pthread_once(&once, initialise);
    return isa_max;
}

const char *rpi_cpu_features(void) {
    pthread_once(&once, initialise);
    return features;
}

/* Processors that it may run on; pid 0 is this process. The kernel refuses a set that is
 * smaller than its own. */
static int count_allowed(pid_t pid) {
    enum { LEAST = CPU_SETSIZE, MOST = 64 * CPU_SETSIZE };
    for (int processors = LEAST; processors <= MOST; processors *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)processors);
        size_t bytes = CPU_ALLOC_SIZE((size_t)processors);
        int allowed = 0;
        if (set && sched_getaffinity(pid, bytes, set) == 0) allowed = CPU_COUNT_S(bytes, set);
        bool too_small = set && !allowed && errno == EINVAL;
        CPU_FREE(set);
        if (!too_small) return allowed;
    }
    return 0;
}

static int limit(int processors, double quota) {
    double whole = ceil(quota);
    return whole < processors ? (int)whole : processors;
}

int rpi_cpu_count(void) {
    int processors = count_allowed(0);
    if (processors < 1) processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return limit(processors > 0 ? processors : 1, rpi_cpu_quota("", 0));
}

int rpi_cpu_count_of(int64_t pid) {
    int processors = pid > 0 && pid <= INT_MAX ? count_allowed((pid_t)pid) : 0;
    return processors > 0 ? limit(processors, rpi_cpu_quota("", pid)) : 0;
}

size_t rpi_cpu_cache_bytes(void) {
    static _Atomic long found;
    long bytes = found;
    if (bytes == 0) {
        bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
        if (bytes <= 0) bytes = 1 << 20;
        found = bytes;
    }
    return (size_t)bytes;
}
