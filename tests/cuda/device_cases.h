/* Random encodings and decodings of every codec that has kernels for a device, by whatever runs
 * these kernels, beside those of the CPU: the bytes, the residuals and the values are to be
 * equal. */
#ifndef TESTS_CUDA_DEVICE_CASES_H
#define TESTS_CUDA_DEVICE_CASES_H

#include "cuda/device_codec.h"

/* So many bytes in front of an encoding, and behind it, have to stay as they are: a runner that
 * works on a copy copies them, too. */
enum { DEVICE_CASES_GUARD = 16 };

typedef struct device_runner {
    /* Pointers of the call are of the host; encoded has `bytes` bytes. Only encoded and the
     * residual are written. */
    void (*encode)(const rpi_device_call *call, size_t bytes);
    /* y: count elements of `type`, or floats of a sum that it adds to. */
    void (*decode)(const rpi_device_call *call, size_t bytes, int adds);
} device_runner;

/* So many cases of each codec. */
void device_cases_run(const device_runner *runner, int cases);

#endif
