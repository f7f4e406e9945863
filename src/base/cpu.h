/* What this processor can do, and which instruction set the kernels may use. */
#ifndef RPI_BASE_CPU_H
#define RPI_BASE_CPU_H

#include "redpoll/status.h"

/* Ordered: a kernel table falls back from the highest allowed to RPI_ISA_SCALAR. */
typedef enum rpi_isa { RPI_ISA_SCALAR, RPI_ISA_AVX2, RPI_ISA_AVX512, RPI_ISA_COUNT } rpi_isa;

const char *rpi_isa_name(rpi_isa isa); /* "scalar", "avx2", "avx512" */
/* The best this processor runs, or less where REDPOLL_ISA asks for it. AVX2 means AVX2, FMA,
 * BMI2 and F16C; AVX-512 means F, BW, DQ, VL and VBMI besides. Cached after the first call. */
rpi_isa rpi_cpu_isa(void);
/* The best this processor runs, whatever REDPOLL_ISA says. */
rpi_isa rpi_cpu_isa_max(void);
/* "avx2 fma bmi2 f16c avx512f ..." for `redpoll info`; static. */
const char *rpi_cpu_features(void);
int rpi_cpu_count(void); /* cores this process may run on */

#endif
