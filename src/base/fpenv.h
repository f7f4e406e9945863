/* The floating-point environment of a thread, as the library needs it.
 *
 * Results are promised to the bit and equal on all ranks. So they may not depend on what a
 * program has told its processor: to flush subnormals (torch.set_flush_denormal(True),
 * -ffast-math), to round in another direction, to trap. Every public function that computes
 * begins with RPI_FPENV_SCOPE; whose end gives the caller's environment back, the record of
 * raised exceptions included; every thread of the library's own with rpi_fpenv_default(), since
 * threads inherit. Scopes nest, and cost a comparison where nothing is to be changed. */
#ifndef RPI_BASE_FPENV_H
#define RPI_BASE_FPENV_H

/* The compiler knows nothing of the processor's modes: it must not carry values across. */
#define RPI_FPENV_BARRIER() __asm__ volatile("" ::: "memory")

#if defined(__x86_64__)

#    include <xmmintrin.h>

typedef unsigned rpi_fpenv; /* MXCSR: the library computes with SSE and its successors alone */

/* To nearest, subnormals kept, nothing traps. The low six bits record raised exceptions. */
enum { RPI_FPENV_DEFAULT = 0x1f80, RPI_FPENV_RAISED = 0x3f };

static inline rpi_fpenv rpi_fpenv_enter(void) {
    unsigned saved = _mm_getcsr();
    if ((saved & ~(unsigned)RPI_FPENV_RAISED) != RPI_FPENV_DEFAULT)
        _mm_setcsr(RPI_FPENV_DEFAULT | (saved & RPI_FPENV_RAISED));
    RPI_FPENV_BARRIER();
    return saved;
}

static inline void rpi_fpenv_leave(const rpi_fpenv *saved) {
    RPI_FPENV_BARRIER();
    if (_mm_getcsr() != *saved) _mm_setcsr(*saved);
}

static inline void rpi_fpenv_default(void) {
    _mm_setcsr(RPI_FPENV_DEFAULT);
}

#elif defined(__aarch64__)

#    include <stdint.h>

/* FPCR: how to compute; FPSR: raised exceptions. The default FPCR is 0. FE_DFL_ENV is not
 * enough: glibc leaves FPCR.DN, which makes every NaN the same one, as it is. */
typedef struct rpi_fpenv {
    uint64_t control, raised;
} rpi_fpenv;

static inline void rpi_fpenv_set_control(uint64_t control) {
    __asm__ volatile("msr fpcr, %0" ::"r"(control) : "memory");
}

static inline rpi_fpenv rpi_fpenv_enter(void) {
    rpi_fpenv saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved.control)::"memory");
    __asm__ volatile("mrs %0, fpsr" : "=r"(saved.raised)::"memory");
    if (saved.control) rpi_fpenv_set_control(0);
    RPI_FPENV_BARRIER();
    return saved;
}

static inline void rpi_fpenv_leave(const rpi_fpenv *saved) {
    RPI_FPENV_BARRIER();
    __asm__ volatile("msr fpsr, %0" ::"r"(saved->raised) : "memory");
    if (saved->control) rpi_fpenv_set_control(saved->control);
}

static inline void rpi_fpenv_default(void) {
    rpi_fpenv_set_control(0);
}

#else

#    include <fenv.h>

typedef fenv_t rpi_fpenv;

/* None of these fails where the default environment exists. */
static inline rpi_fpenv rpi_fpenv_enter(void) {
    fenv_t saved;
    (void)fegetenv(&saved);
    (void)fesetenv(FE_DFL_ENV);
    RPI_FPENV_BARRIER();
    return saved;
}

static inline void rpi_fpenv_leave(const rpi_fpenv *saved) {
    RPI_FPENV_BARRIER();
    (void)fesetenv(saved);
}

static inline void rpi_fpenv_default(void) {
    (void)fesetenv(FE_DFL_ENV);
}

#endif

/* From here to the end of the block, by whatever way it is left. */
#define RPI_FPENV_SCOPE                                                                        \
    __attribute__((cleanup(rpi_fpenv_leave), unused)) const rpi_fpenv rpi_fpenv_saved =        \
        rpi_fpenv_enter()

#endif
