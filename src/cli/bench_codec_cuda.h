/* `redpoll bench codec --device cuda`: a codec on a GPU, beside the card's own copies. */
#ifndef RPI_CLI_BENCH_CODEC_CUDA_H
#define RPI_CLI_BENCH_CODEC_CUDA_H

#include "redpoll/codec.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct rpi_bench_codec_cuda {
    rp_codec codec;
    rp_dtype dtype;
    int64_t count, iters, warmup, seed;
    bool error_feedback, json;
} rpi_bench_codec_cuda;

/* Measures and prints. RP_UNSUPPORTED: no GPU, or no kernels for this codec. */
rp_status rpi_bench_codec_on_cuda(const rpi_bench_codec_cuda *settings);

#endif
