/* Matrix products of f32: by our own kernel, or oneDNN's sgemm where that is quicker. */
#ifndef RPI_ENGINE_ONEDNN_SGEMM_H
#define RPI_ENGINE_ONEDNN_SGEMM_H

#include "engine/backends/cpu/kernels/kernel_sgemm.h"

#include "redpoll/status.h"

/* What either needs; `it->workspace` has so many bytes, aligned to RPI_ALIGNMENT. */
size_t rpi_dnn_sgemm_workspace(const rpi_kernel_run *run);
/* Which of the two depends on the sizes and on the instruction set, not on the threads. */
rp_status rpi_dnn_sgemm(const rpi_kernel_run *run, const rpi_kernel_sgemm *it);

#endif
