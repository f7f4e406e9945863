/* Whether the L1 cache is narrow, which the processor is asked once. */
#include "engine/backends/cpu/kernels/kernel_sgemm.h"

#include <stdatomic.h>
#include <unistd.h>

enum { L1_UNKNOWN, L1_NARROW, L1_WIDE };
static _Atomic int l1 = L1_UNKNOWN;

static int l1_of_processor(void) {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    enum { NARROW = 32 * 1024 };
    const long bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    return bytes > 0 && bytes <= NARROW ? L1_NARROW : L1_WIDE;
#else
    return L1_WIDE;
#endif
}

bool rpi_sgemm_l1_is_narrow(void) {
    int known = atomic_load_explicit(&l1, memory_order_relaxed);
    if (known == L1_UNKNOWN) {
        known = l1_of_processor();
        atomic_store_explicit(&l1, known, memory_order_relaxed);
    }
    return known == L1_NARROW;
}

void rpi_sgemm_set_l1(bool narrow) {
    atomic_store_explicit(&l1, narrow ? L1_NARROW : L1_WIDE, memory_order_relaxed);
}
