/* Whether this machine can use a GPU, and libredpoll_cuda.so where it can. */
#ifndef RPI_CUDA_CUDA_H
#define RPI_CUDA_CUDA_H

#include "cuda/cuda_library.h"
#include "redpoll/status.h"

/* The table of libredpoll_cuda.so, which is opened by the first call and stays open; looked for
 * beside this library or program, as REDPOLL_CUDA_LIBRARY says where that is set. Any thread;
 * may take as long as a driver takes to start. RP_UNSUPPORTED: there is none, or no driver, or
 * no GPU, or REDPOLL_CUDA=off; the message says which. The same answer to every call. */
rp_status rpi_cuda_open(const rpi_cuda_library **out);

/* RP_OK where `error`, which a function of the table has returned, is 0. what: "encoding". */
rp_status rpi_cuda_check(const rpi_cuda_library *cuda, int error, const char *what);

/* For people: what rpi_cuda_open() found. Returns text. */
const char *rpi_cuda_summary(char *text, size_t bytes);

#endif
