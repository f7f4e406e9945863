#include "kernel_fixture.h"

#include "engine/team/team.h"

#include <stdlib.h>

enum { BUFFERS = 4096 };

static void *buffers[BUFFERS];
static int buffer_count;

static void *buffer(size_t bytes) {
    if (buffer_count == BUFFERS) abort();
    void *it = calloc(1, bytes);
    if (!it) abort();
    return buffers[buffer_count++] = it;
}

void kernel_buffers_free(void) {
    while (buffer_count > 0) free(buffers[--buffer_count]);
}

float *kernel_floats(int64_t count) {
    return buffer((size_t)(count + KERNEL_GUARD) * sizeof(float));
}

float *kernel_normal(int64_t count, double deviation, uint64_t stream) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, stream);
    float *x = kernel_floats(count);
    for (int64_t i = 0; i < count; i++) x[i] = (float)deviation * rpi_rng_normal(&rng);
    return x;
}

uint16_t *kernel_bf16s(int64_t count, double deviation, uint64_t stream) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, stream);
    uint16_t *x = buffer((size_t)(count + KERNEL_GUARD) * sizeof(uint16_t));
    for (int64_t i = 0; i < count; i++)
        x[i] = rpi_f32_to_bf16((float)deviation * rpi_rng_normal(&rng));
    return x;
}

int64_t kernel_size(rpi_rng *rng, int64_t most) {
    int64_t size = 1 + rpi_rng_below(rng, (uint32_t)most);
    uint32_t kind = rpi_rng_below(rng, 4);
    if (kind == 0) size = 1 + size % 17;
    if (kind == 1) size = (size / 16) * 16 + (int64_t)rpi_rng_below(rng, 3) - 1;
    return size < 1 ? 1 : size > most ? most : size;
}

/* ---- comparison ---- */

static size_t bytes_of(const kernel_output *out) {
    size_t size = out->dtype == RP_BF16 ? sizeof(uint16_t) : sizeof(float);
    return (size_t)(out->count + KERNEL_GUARD) * size;
}

static double element(const kernel_output *out, const void *data, int64_t i) {
    return out->dtype == RP_BF16 ? rpi_bf16_to_f32(((const uint16_t *)data)[i])
                                 : ((const float *)data)[i];
}

static bool is_near(double got, double wanted, double relative, double absolute) {
    if (isnan(got) || isnan(wanted)) return isnan(got) && isnan(wanted);
    if (isinf(got) || isinf(wanted)) return got == wanted;
    return fabs(got - wanted) <= absolute + relative * fabs(wanted);
}

/* NaN equals NaN, whatever its bits. */
static bool is_same(double a, double b) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    return a == b && signbit(a) == signbit(b);
}

typedef struct kept {
    void *at[KERNEL_OUTPUTS];
} kept;

static kept keep(const kernel_case *it) {
    kept copy = {{0}};
    for (int i = 0; i < KERNEL_OUTPUTS && it->outputs[i].data; i++) {
        copy.at[i] = malloc(bytes_of(&it->outputs[i]));
        if (!copy.at[i]) abort();
        memcpy(copy.at[i], it->outputs[i].data, bytes_of(&it->outputs[i]));
    }
    return copy;
}

static void restore(const kernel_case *it, const kept *copy) {
    for (int i = 0; i < KERNEL_OUTPUTS && copy->at[i]; i++)
        memcpy(it->outputs[i].data, copy->at[i], bytes_of(&it->outputs[i]));
}

static void forget(kept *copy) {
    for (int i = 0; i < KERNEL_OUTPUTS; i++) free(copy->at[i]);
}

static void compare_to_definition(const kernel_case *it, const kept *wanted,
                                  const rpi_kernel_run *run) {
    for (int k = 0; k < KERNEL_OUTPUTS && it->outputs[k].data; k++) {
        const kernel_output *out = &it->outputs[k];
        for (int64_t i = 0; i < out->count + KERNEL_GUARD; i++) {
            double got = element(out, out->data, i), want = element(out, wanted->at[k], i);
            bool guard = i >= out->count;
            if (guard ? is_same(got, want) : is_near(got, want, out->relative, out->absolute))
                continue;
            check_failed(__FILE__, __LINE__, "%s, %s: %s[%lld of %lld] is %.9g, not %.9g",
                         it->name, rpi_isa_name(run->isa), out->name, (long long)i,
                         (long long)out->count, got, want);
            return;
        }
    }
}

static void compare_bits(const kernel_case *it, const kept *wanted, const char *what) {
    for (int k = 0; k < KERNEL_OUTPUTS && it->outputs[k].data; k++) {
        const kernel_output *out = &it->outputs[k];
        for (int64_t i = 0; i < out->count; i++) {
            double got = element(out, out->data, i), want = element(out, wanted->at[k], i);
            if (is_same(got, want)) continue;
            check_failed(__FILE__, __LINE__, "%s, %s: %s[%lld of %lld] is %.9g, not %.9g",
                         it->name, what, out->name, (long long)i, (long long)out->count, got,
                         want);
            return;
        }
    }
}

void kernel_check(const kernel_case *it) {
    rpi_kernel_run run = {.threads = 1, .isa = RPI_ISA_SCALAR};
    kept start = keep(it), vector = {{0}};
    it->call(&run, it->args);
    kept wanted = keep(it);
    for (int isa = RPI_ISA_SCALAR; isa <= (int)rpi_cpu_isa(); isa++) {
        run = (rpi_kernel_run){.threads = 1, .isa = (rpi_isa)isa};
        restore(it, &start);
        it->call(&run, it->args);
        compare_to_definition(it, &wanted, &run);
        kept one = keep(it);
        if (isa == RPI_ISA_AVX2) vector = keep(it);
        if (isa == RPI_ISA_AVX512) compare_bits(it, &vector, "avx512 beside avx2");
        run.threads = 3;
        restore(it, &start);
        it->call(&run, it->args);
        compare_bits(it, &one, "three threads beside one");
        rpi_team_assume_company(60); /* work is cut finer then */
        restore(it, &start);
        it->call(&run, it->args);
        compare_bits(it, &one, "three threads in company beside one");
        rpi_team_assume_company(0);
        forget(&one);
    }
    restore(it, &wanted);
    forget(&start);
    forget(&wanted);
    forget(&vector);
}

/* ---- gradients ---- */

static double loss(const kernel_gradient *it) {
    const rpi_kernel_run run = {.threads = 1, .isa = RPI_ISA_SCALAR};
    it->forward(&run, it->args);
    double sum = 0;
    for (int64_t i = 0; i < it->outputs; i++) sum += (double)it->weights[i] * it->y[i];
    return sum;
}

void kernel_check_gradient(const kernel_gradient *it) {
    enum { PROBES = 24 };
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 77);
    double largest = 1e-30;
    for (int64_t i = 0; i < it->count; i++) largest = fmax(largest, fabs((double)it->dx[i]));
    for (int probe = 0; probe < PROBES; probe++) {
        int64_t i = probe < it->count && it->count <= PROBES
                        ? probe
                        : (int64_t)rpi_rng_below(&rng, (uint32_t)it->count);
        float kept_x = it->x[i];
        float up = kept_x + (float)it->step, down = kept_x - (float)it->step;
        it->x[i] = up;
        double above = loss(it);
        it->x[i] = down;
        double below = loss(it);
        it->x[i] = kept_x;
        double slope = (above - below) / ((double)up - down);
        CHECK_MSG(fabs(slope - it->dx[i]) <= it->tolerance * largest,
                  "%s: dx[%lld of %lld] is %.7g, the difference quotient %.7g", it->name,
                  (long long)i, (long long)it->count, it->dx[i], slope);
    }
}
