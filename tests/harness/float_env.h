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
#if defined(__x86_64__)
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

static inline void float_env_reset(void) {
    fesetenv(FE_DFL_ENV);
}

#if defined(__x86_64__)
enum { FLOAT_ENV_FLUSH_BITS = 0x8040, FLOAT_ENV_FLAG_BITS = 0x3f };
#endif

static inline void float_env_set(int index) {
    const float_env *wanted = &float_envs[index];
    float_env_reset();
    if (wanted->kind == FLOAT_ENV_ROUNDS) fesetround(wanted->mode);
    if (wanted->kind == FLOAT_ENV_TRAPS) feenableexcept(FE_ALL_EXCEPT);
#if defined(__x86_64__)
    if (wanted->kind == FLOAT_ENV_FLUSHES) _mm_setcsr(_mm_getcsr() | FLOAT_ENV_FLUSH_BITS);
#endif
}

/* This very environment, and no exception noted that the caller has not raised. */
static inline bool float_env_is(int index) {
    const float_env *wanted = &float_envs[index];
    int mode = wanted->kind == FLOAT_ENV_ROUNDS ? wanted->mode : FE_TONEAREST;
    int traps = wanted->kind == FLOAT_ENV_TRAPS ? FE_ALL_EXCEPT : 0;
#if defined(__x86_64__)
    unsigned flushes = wanted->kind == FLOAT_ENV_FLUSHES ? FLOAT_ENV_FLUSH_BITS : 0;
    if ((_mm_getcsr() & (FLOAT_ENV_FLUSH_BITS | FLOAT_ENV_FLAG_BITS)) != flushes) return false;
#endif
    return fegetround() == mode && fegetexcept() == traps;
}

#endif
