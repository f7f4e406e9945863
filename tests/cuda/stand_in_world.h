/* For tests over the stand-in (stand_in.h), whose file REDPOLL_CUDA_LIBRARY names. */
#ifndef TESTS_CUDA_STAND_IN_WORLD_H
#define TESTS_CUDA_STAND_IN_WORLD_H

#include "cuda/cuda.h"
#include "cuda/stand_in.h"

/* The table, and what the stand-in is to do, as after its start: nothing fails. */
const rpi_cuda_library *stand_in_begin(stand_in **control);

/* On the device that this thread uses, with a copy of what the host has; `host` NULL: of
 * anything. */
void *stand_in_take(const void *host, size_t bytes);
void stand_in_get(const void *there, void *host, size_t bytes); /* copied back */
void stand_in_put(void *there, const void *host, size_t bytes);
void stand_in_give(void *there);

#endif
