/* Runs cases of device_cases.h by a table of kernels: on a GPU, or on its stand-in. */
#ifndef TESTS_CUDA_DEVICE_RUNNER_H
#define TESTS_CUDA_DEVICE_RUNNER_H

#include "cuda/cuda.h"
#include "cuda/device_cases.h"

/* Until the next call. What a kernel writes beside an encoding is copied back as well. */
const device_runner *device_runner_by(const rpi_cuda_library *cuda);
void device_runner_end(void); /* memory that it has is given back */

#endif
