/* The public operations on vectors whose length all ranks know: check the arguments and say
 * which elements are whose. */
#include "comm/calls/posting.h"

#include "base/status.h"

#include <limits.h>
#include <string.h>

rp_status rp_all_reduce_start(rp_comm *comm, const rp_segment *segments, size_t count,
                              const rp_collective_options *options, rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, RPI_ALL_REDUCE, out_request, &options));
    if (count > INT_MAX)
        return RP_FAIL(INVALID, "all-reduce: %zu segments are too many", count);
    if (count && !segments)
        return RP_FAIL(INVALID, "all-reduce: segments is NULL, and there are %zu", count);
    rp_request *request = NULL;
    RP_TRY(rpi_posting_begin(comm, count, &request));
    for (size_t i = 0; i < count; i++)
        request->cut.runs[i] = (rpi_run){.in = segments[i].data,
                                         .out = segments[i].data,
                                         .count = segments[i].count,
                                         .dtype = segments[i].dtype,
                                         .codec = segments[i].codec,
                                         .residual = segments[i].residual,
                                         .tensor = segments[i].tensor,
                                         .first = segments[i].first};
    return rpi_posting_end(request,
                           &(rpi_posting){.collective = RPI_ALL_REDUCE,
                                          .layout = RPI_SPLIT_VECTOR,
                                          .reduces = true,
                                          .options = options},
                           out_request);
}

rp_status rp_reduce_start(rp_comm *comm, const void *input, void *output, size_t count,
                          rp_dtype dtype, const rp_collective_options *options,
                          rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, RPI_REDUCE, out_request, &options));
    bool is_root = comm->rank == options->root;
    RP_TRY(rpi_check_buffer(RPI_REDUCE, input, count, "input"));
    if (is_root) RP_TRY(rpi_check_buffer(RPI_REDUCE, output, count, "output"));
    rp_request *request = NULL;
    RP_TRY(rpi_posting_begin(comm, 1, &request));
    request->cut.runs[0] =
        (rpi_run){.in = input, .out = is_root ? output : NULL, .count = count, .dtype = dtype};
    return rpi_posting_end(request,
                           &(rpi_posting){.collective = RPI_REDUCE,
                                          .layout = RPI_SPLIT_VECTOR,
                                          .reduces = true,
                                          .options = options,
                                          .root = options->root},
                           out_request);
}

rp_status rp_broadcast_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                             const rp_collective_options *options, rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, RPI_BROADCAST, out_request, &options));
    RP_TRY(rpi_check_buffer(RPI_BROADCAST, data, count, "data"));
    rp_request *request = NULL;
    RP_TRY(rpi_posting_begin(comm, 1, &request));
    request->cut.runs[0] = (rpi_run){.in = data, .out = data, .count = count, .dtype = dtype};
    return rpi_posting_end(request,
                           &(rpi_posting){.collective = RPI_BROADCAST,
                                          .layout = RPI_SPLIT_VECTOR,
                                          .options = options,
                                          .root = options->root},
                           out_request);
}

rp_status rp_barrier_start(rp_comm *comm, rp_request **out_request) {
    const rp_collective_options *options = NULL;
    RP_TRY(rpi_check_call(comm, RPI_BARRIER, out_request, &options));
    rp_request *request = NULL;
    RP_TRY(rpi_posting_begin(comm, 0, &request));
    return rpi_posting_end(request,
                           &(rpi_posting){.collective = RPI_BARRIER,
                                          .layout = RPI_SPLIT_VECTOR,
                                          .options = options},
                           out_request);
}

/* ---- a part a rank ---- */

/* Block `rank` of a vector of one block a rank, all of one length; or of a list of blocks. */
typedef struct blocks {
    const void *vector; /* NULL: the list is meant */
    size_t count;
    const rp_block *list;
} blocks;

static rp_block block_at(const blocks *b, int rank, rp_dtype dtype) {
    if (b->list) return b->list[rank];
    size_t offset = (size_t)rank * b->count * rp_dtype_bytes(dtype);
    /* Input is only read; blocks have one type for both. */
    unsigned char *data = (unsigned char *)(uintptr_t)b->vector;
    return (rp_block){.data = data ? data + offset : NULL, .count = b->count};
}

static rpi_run run_of(int rank, size_t count, rp_dtype dtype, const rp_codec *codec) {
    return (rpi_run){.count = count,
                     .dtype = dtype,
                     .codec = codec ? *codec : (rp_codec){0},
                     .tensor = (uint32_t)rank};
}

static rp_status reduce_scatter(rp_comm *comm, const blocks *inputs, void *output,
                                rp_dtype dtype, const rp_codec *codec,
                                const rp_collective_options *options,
                                rp_request **out_request) {
    rp_request *request = NULL;
    RP_TRY(rpi_posting_begin(comm, (size_t)comm->world, &request));
    for (int rank = 0; rank < comm->world; rank++) {
        rp_block input = block_at(inputs, rank, dtype);
        rpi_run *run = &request->cut.runs[rank];
        *run = run_of(rank, input.count, dtype, codec);
        run->in = input.data;
        run->out = rank == comm->rank ? output : NULL;
    }
    return rpi_posting_end(request,
                           &(rpi_posting){.collective = RPI_REDUCE_SCATTER,
                                          .layout = RPI_SPLIT_RANKED,
                                          .reduces = true,
                                          .options = options},
                           out_request);
}

rp_status rp_reduce_scatter_start(rp_comm *comm, const void *input, void *output, size_t count,
                                  rp_dtype dtype, const rp_codec *codec,
                                  const rp_collective_options *options,
                                  rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, RPI_REDUCE_SCATTER, out_request, &options));
    RP_TRY(rpi_check_buffer(RPI_REDUCE_SCATTER, input, count, "input"));
    RP_TRY(rpi_check_buffer(RPI_REDUCE_SCATTER, output, count, "output"));
    return reduce_scatter(comm, &(blocks){.vector = input, .count = count}, output, dtype,
                          codec, options, out_request);
}

rp_status rp_reduce_scatter_v_start(rp_comm *comm, const rp_block *inputs, void *output,
                                    rp_dtype dtype, const rp_codec *codec,
                                    const rp_collective_options *options,
                                    rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, RPI_REDUCE_SCATTER, out_request, &options));
    RP_TRY(rpi_check_blocks(comm, RPI_REDUCE_SCATTER, inputs, "inputs"));
    RP_TRY(rpi_check_buffer(RPI_REDUCE_SCATTER, output, inputs[comm->rank].count, "output"));
    return reduce_scatter(comm, &(blocks){.list = inputs}, output, dtype, codec, options,
                          out_request);
}

static rp_status all_gather(rp_comm *comm, const void *input, const blocks *outputs,
                            rp_dtype dtype, const rp_codec *codec,
                            const rp_collective_options *options, rp_request **out_request) {
    rp_request *request = NULL;
    RP_TRY(rpi_posting_begin(comm, (size_t)comm->world, &request));
    for (int rank = 0; rank < comm->world; rank++) {
        rp_block output = block_at(outputs, rank, dtype);
        rpi_run *run = &request->cut.runs[rank];
        *run = run_of(rank, output.count, dtype, codec);
        run->in = rank == comm->rank ? input : NULL;
        run->out = output.data;
    }
    return rpi_posting_end(request,
                           &(rpi_posting){.collective = RPI_ALL_GATHER,
                                          .layout = RPI_SPLIT_RANKED,
                                          .options = options},
                           out_request);
}

rp_status rp_all_gather_start(rp_comm *comm, const void *input, void *output, size_t count,
                              rp_dtype dtype, const rp_codec *codec,
                              const rp_collective_options *options, rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, RPI_ALL_GATHER, out_request, &options));
    RP_TRY(rpi_check_buffer(RPI_ALL_GATHER, input, count, "input"));
    RP_TRY(rpi_check_buffer(RPI_ALL_GATHER, output, count, "output"));
    return all_gather(comm, input, &(blocks){.vector = output, .count = count}, dtype, codec,
                      options, out_request);
}

rp_status rp_all_gather_v_start(rp_comm *comm, const void *input, const rp_block *outputs,
                                rp_dtype dtype, const rp_codec *codec,
                                const rp_collective_options *options,
                                rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, RPI_ALL_GATHER, out_request, &options));
    RP_TRY(rpi_check_blocks(comm, RPI_ALL_GATHER, outputs, "outputs"));
    RP_TRY(rpi_check_buffer(RPI_ALL_GATHER, input, outputs[comm->rank].count, "input"));
    return all_gather(comm, input, &(blocks){.list = outputs}, dtype, codec, options,
                      out_request);
}
