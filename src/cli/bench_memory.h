/* Where the buffers of a bench are: on the host, or on a GPU, with copies on the host in which
 * inputs are made and results compared. */
#ifndef RPI_CLI_BENCH_MEMORY_H
#define RPI_CLI_BENCH_MEMORY_H

#include "cli/bench_collective.h"
#include "cuda/cuda.h"

enum { RPI_BENCH_BUFFERS = 3 };

typedef struct rpi_bench_buffer {
    unsigned char *host;
    void *there;
    size_t bytes;
} rpi_bench_buffer;

/* Zeros: buffers are on the host, and all functions below do nothing. */
typedef struct rpi_bench_memory {
    const rpi_cuda_library *cuda;
    rpi_bench_buffer buffers[RPI_BENCH_BUFFERS];
    int count;
    void *pinned; /* copies pass through it */
    rp_block *blocks;
} rpi_bench_memory;

/* For a rank of a world; each rank of a host takes the next GPU. RP_UNSUPPORTED: there is none.
 */
rp_status rpi_bench_memory_open(rpi_bench_memory *memory, int rank, int world);
void rpi_bench_memory_close(rpi_bench_memory *memory);
/* Gives a buffer of the host a twin on the GPU. */
rp_status rpi_bench_memory_add(rpi_bench_memory *memory, unsigned char *host, size_t bytes);
rp_status rpi_bench_memory_upload(rpi_bench_memory *memory); /* all of them */
rp_status rpi_bench_memory_download(rpi_bench_memory *memory);
/* The same call with the twins; lists of blocks are valid until the next such call. */
rpi_bench_call rpi_bench_memory_call(const rpi_bench_memory *memory,
                                     const rpi_bench_call *call);

#endif
