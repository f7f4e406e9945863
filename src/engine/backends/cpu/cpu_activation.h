#ifndef RPI_ENGINE_CPU_ACTIVATION_H
#define RPI_ENGINE_CPU_ACTIVATION_H

#include "engine/backends/cpu/kernels/kernel_activation.h"
#include "engine/graph.h"

/* What the kernels call an op of one element; RPI_ACTIVATION_NONE: it is none of theirs. */
rpi_activation rpi_cpu_activation_of(const rpi_node *node);

#endif
