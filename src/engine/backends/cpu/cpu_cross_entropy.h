#ifndef RPI_ENGINE_CPU_CROSS_ENTROPY_H
#define RPI_ENGINE_CPU_CROSS_ENTROPY_H

#include "engine/backend.h"
#include "engine/backends/cpu/kernels/kernel_cross_entropy.h"

/* What the kernel says of each row, in a workspace. */
size_t rpi_cpu_cross_entropy_bytes(int64_t rows);
void rpi_cpu_cross_entropy_place(rpi_kernel_cross_entropy *it, int64_t rows, void *workspace);

/* The outputs of softmax_cross_entropy from the totals, or the first bad label as an error. */
rp_status rpi_cpu_cross_entropy_report(const rpi_kernel_cross_entropy *it,
                                       const rpi_cross_entropy_totals *totals,
                                       const rpi_unit_value *labels, float scale,
                                       const rpi_kernel_io *io);

#endif
