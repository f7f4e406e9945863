#include "engine/backends/cpu/kernels/kernel.h"

void rpi_kernel_parallel(const rpi_kernel_run *run, int64_t count, int64_t grain,
                         const rpi_kernel_body bodies[RPI_ISA_COUNT], const void *args) {
    rpi_kernel_body body = bodies[run->isa];
    int64_t grains = (count + grain - 1) / grain;
    int threads = run->threads < grains ? run->threads : (int)grains;
    if (threads <= 1) {
        if (count > 0) body(args, 0, count);
        return;
    }
    /* By iteration and not by thread number: OpenMP may give fewer threads than were asked for.
     */
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int part = 0; part < threads; part++) {
        int64_t begin = grains * part / threads * grain;
        int64_t end = grains * (part + 1) / threads * grain;
        body(args, begin, end < count ? end : count);
    }
}
