#include "engine/backends/cpu/kernels/kernel_dropout.h"

/* FNV-1a. */
uint32_t rpi_dropout_tensor(const char *name) {
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

/* Units are groups of 128 elements of the whole tensor. */
void rpi_dropout_scalar(const void *args, int64_t begin, int64_t end) {
    rpi_dropout_apply_groups(args, begin, end);
}

void rpi_kernel_dropout_apply(const rpi_kernel_run *run, const rpi_kernel_dropout *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(dropout);
    int64_t last = it->first % RPI_DROPOUT_GROUP + it->count;
    int64_t groups = (last + RPI_DROPOUT_GROUP - 1) / RPI_DROPOUT_GROUP;
    rpi_kernel_parallel(run, groups, 16, bodies, it);
}
