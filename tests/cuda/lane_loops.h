/* Kernels for a GPU as loops of the CPU over their lanes. */
#ifndef TESTS_CUDA_LANE_LOOPS_H
#define TESTS_CUDA_LANE_LOOPS_H

#include "cuda/device_call.h"

/* lanes: threads that work on one bucket together, 32 or 256. Encodings whose bytes vary need
 * no scratch memory. Every pointer is of memory that this thread may touch. */
void lane_loops_encode(const rpi_device_call *call, int lanes);
/* adds: y are floats, to which the values are added. */
void lane_loops_decode(const rpi_device_call *call, int adds, int lanes);

void lane_loops_divide(const rpi_device_call *call);
/* Buckets, so far, that were encoded as quant_whole_lanes.h does it. */
long lane_loops_whole(void);

#endif
