/* Whether this machine can use a GPU, and libredpoll_cuda.so where it can. */
#ifndef RPI_CUDA_CUDA_H
#define RPI_CUDA_CUDA_H

#include "cuda/cuda_library.h"
#include "redpoll/status.h"

/* The table of libredpoll_cuda.so, which is opened by the first call and stays open; looked for
 * beside this library or program, as REDPOLL_CUDA_LIBRARY says where that is set. Any thread;
 * may take as long as a driver takes to start. RP_UNSUPPORTED: there is none, or no driver, or
 * no GPU that
 * there are kernels for, or REDPOLL_CUDA=off; the message says which. The same answer to every
 * call. */
rp_status rpi_cuda_open(const rpi_cuda_library **out);

/* The GPU of this number has kernels, which are loaded by the first call of the process: before
 * anything is put into its streams. Any thread, whatever it has chosen. RP_UNSUPPORTED: there
 * are none for it; the message says its capability. */
rp_status rpi_cuda_prepare(const rpi_cuda_library *cuda, int device);

/* RP_OK where `error`, which a function of the table has returned, is 0. what: "encoding". */
rp_status rpi_cuda_check(const rpi_cuda_library *cuda, int error, const char *what);

/* Memory of the host that the GPU of this thread reaches. RP_NOMEM: the host has none left. */
rp_status rpi_cuda_pin(const rpi_cuda_library *cuda, size_t bytes, void **out);

/* For people: what rpi_cuda_open() found. Returns text. */
const char *rpi_cuda_summary(char *text, size_t bytes);

#endif
