/* What this processor can do, and which instruction set the kernels may use. */
#ifndef RPI_BASE_CPU_H
#define RPI_BASE_CPU_H

#include "redpoll/status.h"

#include <stddef.h>
#include <stdint.h>

/* Those of the architecture that is compiled for, in order: a kernel table falls back from the
 * highest allowed to RPI_ISA_SCALAR. */
typedef enum rpi_isa {
    RPI_ISA_SCALAR,
#if defined(__x86_64__)
    RPI_ISA_AVX2,
    RPI_ISA_AVX512,
#elif defined(__aarch64__)
    RPI_ISA_NEON,
#endif
    RPI_ISA_COUNT
} rpi_isa;

const char *rpi_isa_name(rpi_isa isa); /* "scalar", "avx2", "avx512"; "scalar", "neon" */
/* The best this processor runs, or less where REDPOLL_ISA asks for it. AVX2 means AVX2, FMA,
 * BMI2 and F16C; AVX-512 means F, BW, DQ, VL and VBMI besides. Cached after the first call. */
rpi_isa rpi_cpu_isa(void);
/* The best this processor runs, whatever REDPOLL_ISA says. */
rpi_isa rpi_cpu_isa_max(void);
/* "avx2 fma bmi2 avx512f ...", "asimd crc32 ..." for `redpoll info`; static. */
const char *rpi_cpu_features(void);
/* Threads that this process can keep busy, at least 1: the processors it may run on, or fewer
 * where its control groups allow it less time than that (cpu_quota.h), rounded up. */
int rpi_cpu_count(void);
/* The same of another process, as far as it can be seen; 0: it cannot. */
int rpi_cpu_count_of(int64_t pid);

/* Of the second cache of one core; a megabyte where the system does not say. */
size_t rpi_cpu_cache_bytes(void);

#endif
