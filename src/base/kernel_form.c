#include "base/kernel_form.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What `state` says: the environment was not asked, or says nothing; a form is KNOWN + its
 * index. */
enum { NOTHING, UNMEASURED, BEING_CHOSEN, KNOWN };

/* Each form is the first of a round, and the second, and so on: whoever begins one meets the
 * write-backs of the eviction. Between two stretches lies what prefetches reach: none is warmed
 * by its neighbour. */
enum {
    ROUNDS = 8,
    LINE = 64,
    GAP = 16 * 1024,
    STRETCH = RPI_FORM_BYTES + GAP,
    MEMORY = RPI_FORMS_MAX * STRETCH
};

/* ---- memory that is in no cache ---- */

#if defined(__x86_64__)
#    include <cpuid.h>
#    include <immintrin.h>

__attribute__((target("clflushopt"))) static void evict_unordered(char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i += LINE) _mm_clflushopt(at + i);
}

static void evict(char *at, size_t bytes) {
    unsigned a, b = 0, c, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_CLFLUSHOPT)
        evict_unordered(at, bytes);
    else
        for (size_t i = 0; i < bytes; i += LINE) _mm_clflush(at + i);
    _mm_mfence();
}
#elif defined(__aarch64__)
static void evict(char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i += LINE)
        __asm__ volatile("dc civac, %0" : : "r"(at + i) : "memory");
    __asm__ volatile("dsb sy" : : : "memory");
}
#else
static void evict(char *at, size_t bytes) {
    (void)at, (void)bytes;
}
#endif

static void fill(float *memory, size_t count) {
    for (size_t i = 0; i < count; i++)
        memory[i] = (float)(int32_t)((uint32_t)i * UINT32_C(2654435761));
}

/* ---- which form ---- */

int rpi_form_count(const rpi_kernel_form *kernel) {
    int count = 0;
    while (kernel->names[count]) count++;
    return count;
}

static double least_of(const double *seconds, int count) {
    double least = seconds[0];
    for (int form = 1; form < count; form++)
        if (seconds[form] < least) least = seconds[form];
    return least;
}

int rpi_form_quickest(const rpi_form_times *times, int count) {
    const double enough = least_of(times->memory, count) * (1 + RPI_FORM_GAIN);
    int quickest = -1;
    for (int form = 0; form < count; form++)
        if (times->memory[form] <= enough &&
            (quickest < 0 || times->cache[form] * (1 + RPI_FORM_GAIN) < times->cache[quickest]))
            quickest = form;
    return quickest;
}

static double seconds_of(const rpi_kernel_form *kernel, int form, float *memory, bool *is_one) {
    int64_t start = rpi_now_ns();
    if (!kernel->run(form, memory)) *is_one = true;
    return rpi_seconds(rpi_now_ns() - start);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of a round that nothing disturbed and that was not lucky. */
static double typical(double seconds[ROUNDS]) {
    qsort(seconds, ROUNDS, sizeof *seconds, by_value);
    return seconds[ROUNDS / 2];
}

static int measure(const rpi_kernel_form *kernel, char *memory) {
    const int count = rpi_form_count(kernel);
    double of_memory[RPI_FORMS_MAX][ROUNDS], of_cache[RPI_FORMS_MAX][ROUNDS];
    bool is_one = false;
    fill((float *)(void *)memory, MEMORY / sizeof(float));
    for (int round = 0; round < ROUNDS; round++) {
        evict(memory, MEMORY);
        for (int turn = 0; turn < count && !is_one; turn++) {
            int form = (turn + round) % count;
            float *at = (float *)(void *)(memory + turn * STRETCH);
            of_memory[form][round] = seconds_of(kernel, form, at, &is_one);
            of_cache[form][round] = seconds_of(kernel, form, at, &is_one);
        }
    }
    rpi_form_times times;
    for (int form = 0; form < count && !is_one; form++) {
        times.memory[form] = typical(of_memory[form]);
        times.cache[form] = typical(of_cache[form]);
    }
    return is_one ? 0 : rpi_form_quickest(&times, count);
}

/* Not of the library's allocator: a call that cannot fail must not begin to. */
static int measure_in_memory(const rpi_kernel_form *kernel) {
    void *memory =
        mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    int form = measure(kernel, memory);
    (void)munmap(memory, MEMORY);
    return form;
}

/* The form after "KERNEL=" in REDPOLL_FORMS, and how long it is; NULL: nothing about it. */
static const char *wanted_form(const char *kernel, size_t *out_length) {
    const char *at = getenv("REDPOLL_FORMS");
    for (size_t length; at && *at; at += length + (at[length] == ',')) {
        length = strcspn(at, ",");
        size_t name = strcspn(at, "=,");
        if (at[name] != '=' || name != strlen(kernel) || strncmp(at, kernel, name) != 0)
            continue;
        *out_length = length - name - 1;
        return at + name + 1;
    }
    return NULL;
}

static void warn(const rpi_kernel_form *kernel, const char *wanted, size_t length) {
    char forms[128];
    size_t used = 0;
    for (int i = 0; kernel->names[i] && used < sizeof forms; i++)
        used += (size_t)snprintf(forms + used, sizeof forms - used, "%s%s", i ? ", " : "",
                                 kernel->names[i]);
    rpi_log(RP_LOG_WARNING, "REDPOLL_FORMS: %s has no form '%.*s'; it has %s; measuring",
            kernel->kernel, (int)length, wanted, forms);
}

/* Below 0: REDPOLL_FORMS says nothing, or no form of this kernel. */
static int form_of_environment(const rpi_kernel_form *kernel) {
    size_t length = 0;
    const char *wanted = wanted_form(kernel->kernel, &length);
    if (!wanted) return -1;
    for (int i = 0; kernel->names[i]; i++)
        if (strlen(kernel->names[i]) == length && memcmp(kernel->names[i], wanted, length) == 0)
            return i;
    warn(kernel, wanted, length);
    return -1;
}

int rpi_form_for(rpi_kernel_form *kernel, size_t bytes) {
    int state = atomic_load_explicit(&kernel->state, memory_order_acquire);
    if (state >= KNOWN) return state - KNOWN;
    if (state == BEING_CHOSEN || (state == UNMEASURED && bytes < RPI_FORM_LEAST)) return 0;
    int seen = state;
    if (!atomic_compare_exchange_strong(&kernel->state, &seen, BEING_CHOSEN))
        return seen >= KNOWN ? seen - KNOWN : 0;
    int form = state == NOTHING ? form_of_environment(kernel) : -1;
    if (form < 0 && bytes >= RPI_FORM_LEAST) form = measure_in_memory(kernel);
    atomic_store_explicit(&kernel->state, form < 0 ? UNMEASURED : KNOWN + form,
                          memory_order_release);
    return form < 0 ? 0 : form;
}

void rpi_form_set(rpi_kernel_form *kernel, int form) {
    atomic_store(&kernel->state, form < 0 ? NOTHING : KNOWN + form);
}
