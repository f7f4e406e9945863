/* Floating-point environments in which a caller of the library may be, for tests that it
 * computes the same in each and leaves the caller's as it was.
 *
 *     for (int i = 0; i < float_env_count(); i++) {
 *         float_env_set(i);
 *         ... calls, and no arithmetic of the test's own ...
 *         CHECK(float_env_is(i));
 *         float_env_reset();
 *     } */
#ifndef HARNESS_FLOAT_ENV_H
#define HARNESS_FLOAT_ENV_H

#include <fenv.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#    include <xmmintrin.h>
#endif

typedef enum float_env_kind {
    FLOAT_ENV_FLUSHES,
    FLOAT_ENV_ROUNDS,
    FLOAT_ENV_TRAPS
} float_env_kind;

typedef struct float_env {
    const char *name;
    float_env_kind kind;
    int mode; /* of fesetround() */
} float_env;

static const float_env float_envs[] = {
#if defined(__x86_64__) || defined(__aarch64__)
    {"subnormals flushed to zero", FLOAT_ENV_FLUSHES, 0},
#endif
    {"rounding upward", FLOAT_ENV_ROUNDS, FE_UPWARD},
    {"rounding downward", FLOAT_ENV_ROUNDS, FE_DOWNWARD},
    {"rounding toward zero", FLOAT_ENV_ROUNDS, FE_TOWARDZERO},
    {"every exception traps", FLOAT_ENV_TRAPS, 0},
};

static inline int float_env_count(void) {
    return (int)(sizeof float_envs / sizeof float_envs[0]);
}

#if defined(__x86_64__)
enum { FLOAT_ENV_FLUSH_BITS = 0x8040, FLOAT_ENV_FLAG_BITS = 0x3f };

static inline void float_env_flush(void) {
    _mm_setcsr(_mm_getcsr() | FLOAT_ENV_FLUSH_BITS);
}

static inline unsigned float_env_flushes(void) {
    return _mm_getcsr() & FLOAT_ENV_FLUSH_BITS;
}

static inline unsigned float_env_flags(void) {
    return _mm_getcsr() & FLOAT_ENV_FLAG_BITS;
}
#elif defined(__aarch64__)
/* FPCR.FZ and FPCR.DN: subnormals to zero, and every NaN the same one. */
enum { FLOAT_ENV_FLUSH_BITS = 3 << 24, FLOAT_ENV_FLAG_BITS = 0x9f };

static inline uint64_t float_env_control(void) {
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control)::"memory");
    return control;
}

static inline void float_env_set_control(uint64_t control) {
    __asm__ volatile("msr fpcr, %0" ::"r"(control) : "memory");
}

static inline void float_env_flush(void) {
    float_env_set_control(float_env_control() | FLOAT_ENV_FLUSH_BITS);
}

static inline unsigned float_env_flushes(void) {
    return (unsigned)float_env_control() & FLOAT_ENV_FLUSH_BITS;
}

static inline unsigned float_env_flags(void) {
    uint64_t flags;
    __asm__ volatile("mrs %0, fpsr" : "=r"(flags)::"memory");
    return (unsigned)flags & FLOAT_ENV_FLAG_BITS;
}
#else
enum { FLOAT_ENV_FLUSH_BITS = 0 };

static inline void float_env_flush(void) {
}

static inline unsigned float_env_flushes(void) {
    return 0;
}

static inline unsigned float_env_flags(void) {
    return 0;
}
#endif

static inline void float_env_reset(void) {
    fesetenv(FE_DFL_ENV);
#if defined(__aarch64__)
    float_env_set_control(0); /* glibc leaves FPCR.DN as it is */
#endif
}

/* What a processor can trap; many of AArch64 can not. */
static inline int float_env_traps(void) {
    return feenableexcept(FE_ALL_EXCEPT) == -1 ? 0 : FE_ALL_EXCEPT;
}

static inline void float_env_set(int index) {
    const float_env *wanted = &float_envs[index];
    float_env_reset();
    if (wanted->kind == FLOAT_ENV_ROUNDS) fesetround(wanted->mode);
    if (wanted->kind == FLOAT_ENV_TRAPS) (void)float_env_traps();
    if (wanted->kind == FLOAT_ENV_FLUSHES) float_env_flush();
}

/* This very environment, and no exception noted that the caller has not raised. */
static inline bool float_env_is(int index) {
    const float_env *wanted = &float_envs[index];
    int mode = wanted->kind == FLOAT_ENV_ROUNDS ? wanted->mode : FE_TONEAREST;
    int traps = fegetexcept(), noted = (int)float_env_flags();
    unsigned flushes = wanted->kind == FLOAT_ENV_FLUSHES ? FLOAT_ENV_FLUSH_BITS : 0;
    if (float_env_flushes() != flushes || noted || fegetround() != mode) return false;
    return wanted->kind == FLOAT_ENV_TRAPS ? traps == float_env_traps() : !traps;
}

#endif
