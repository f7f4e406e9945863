/* Reduce-scatter and all-gather: each element has one owner, which gets its sum or sends it to
 * all. The owners are given by blocks, one for each rank, or by a list of segments. */
#include "comm/calls/posting.h"

#include "base/status.h"

static rp_status post(rp_request *request, rpi_collective collective,
                      const rp_collective_options *options, rp_request **out_request) {
    return rpi_posting_end(request,
                           &(rpi_posting){.collective = collective,
                                          .layout = RPI_SPLIT_RANKED,
                                          .reduces = collective == RPI_REDUCE_SCATTER,
                                          .options = options},
                           out_request);
}

/* ---- blocks ---- */

/* Block `rank` of a vector with one block for each rank, all of one length; or of a list of
 * blocks. */
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

static rpi_extent extent_of(int rank, size_t count, rp_dtype dtype, const rp_codec *codec) {
    return (rpi_extent){.count = count,
                        .dtype = dtype,
                        .codec = codec ? *codec : (rp_codec){0},
                        .tensor = (uint32_t)rank,
                        .part = rank};
}

static rp_status reduce_scatter(rp_comm *comm, const blocks *inputs, void *output,
                                rp_dtype dtype, const rp_codec *codec,
                                const rp_collective_options *options,
                                rp_request **out_request) {
    rp_request *request = NULL;
    RP_TRY(rpi_posting_begin(comm, (size_t)comm->world, &request));
    for (int rank = 0; rank < comm->world; rank++) {
        rp_block input = block_at(inputs, rank, dtype);
        rpi_extent *extent = &request->partition.extents[rank];
        *extent = extent_of(rank, input.count, dtype, codec);
        extent->in = input.data;
        extent->out = rank == comm->rank ? output : NULL;
    }
    return post(request, RPI_REDUCE_SCATTER, options, out_request);
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
        rpi_extent *extent = &request->partition.extents[rank];
        *extent = extent_of(rank, output.count, dtype, codec);
        extent->in = rank == comm->rank ? input : NULL;
        extent->out = output.data;
    }
    return post(request, RPI_ALL_GATHER, options, out_request);
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

/* ---- segments ---- */

static rp_status check_segments(const rp_comm *comm, rpi_collective collective,
                                const rp_owned_segment *segments, size_t count) {
    RP_TRY(rpi_check_list(collective, segments, count));
    for (size_t i = 0; i < count; i++) {
        char what[32];
        snprintf(what, sizeof what, "segment %zu", i);
        RP_TRY(rpi_check_buffer(collective, segments[i].segment.data, segments[i].segment.count,
                                what));
        if (segments[i].owner < 0 || segments[i].owner >= comm->world)
            return RP_FAIL(INVALID, "%s: segment %zu belongs to rank %d; there are 0 to %d",
                           rpi_collective_name(collective), i, segments[i].owner,
                           comm->world - 1);
    }
    return RP_OK;
}

/* The owner's own memory: in place if it has none. */
static void *own_of(const rp_owned_segment *segment) {
    return segment->own ? segment->own : segment->segment.data;
}

/* The owner's contribution enters the sum unencoded. */
static rpi_extent scattered_run(const rp_owned_segment *segment, bool is_owner) {
    rpi_extent extent = rpi_extent_of(&segment->segment, segment->segment.data,
                                      is_owner ? own_of(segment) : NULL);
    extent.part = segment->owner;
    extent.unencoded = is_owner;
    return extent;
}

static rpi_extent gathered_run(const rp_owned_segment *segment, bool is_owner) {
    rpi_extent extent = rpi_extent_of(&segment->segment, is_owner ? own_of(segment) : NULL,
                                      segment->segment.data);
    extent.part = segment->owner;
    return extent;
}

typedef rpi_extent (*run_maker)(const rp_owned_segment *segment, bool is_owner);

static rp_status start_segments(rp_comm *comm, rpi_collective collective, run_maker make,
                                const rp_owned_segment *segments, size_t count,
                                const rp_collective_options *options,
                                rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, collective, out_request, &options));
    RP_TRY(check_segments(comm, collective, segments, count));
    rp_request *request = NULL;
    RP_TRY(rpi_posting_begin(comm, count, &request));
    for (size_t i = 0; i < count; i++)
        request->partition.extents[i] = make(&segments[i], segments[i].owner == comm->rank);
    return post(request, collective, options, out_request);
}

rp_status rp_reduce_scatter_segments_start(rp_comm *comm, const rp_owned_segment *segments,
                                           size_t count, const rp_collective_options *options,
                                           rp_request **out_request) {
    return start_segments(comm, RPI_REDUCE_SCATTER, scattered_run, segments, count, options,
                          out_request);
}

rp_status rp_all_gather_segments_start(rp_comm *comm, const rp_owned_segment *segments,
                                       size_t count, const rp_collective_options *options,
                                       rp_request **out_request) {
    return start_segments(comm, RPI_ALL_GATHER, gathered_run, segments, count, options,
                          out_request);
}
