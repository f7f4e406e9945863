/* Gather, scatter and all-to-all: only the two ranks that share a block know its length, and
 * each part of the schedule is one block (plan.h). */
#include "comm/calls/posting.h"

#include "base/status.h"

static rp_status begin(rp_comm *comm, int parts, rp_dtype dtype, rp_request **out_request) {
    RP_TRY(rpi_posting_begin(comm, (size_t)parts, out_request));
    for (int part = 0; part < parts; part++)
        (*out_request)->partition.extents[part] = (rpi_extent){.dtype = dtype};
    return RP_OK;
}

static rp_status end(rp_request *request, rpi_collective collective,
                     const rp_collective_options *options, rp_request **out_request) {
    return rpi_posting_end(
        request,
        &(rpi_posting){.collective = collective,
                       .layout = RPI_SPLIT_BLOCKS,
                       .options = options,
                       .root = rpi_collective_has_root(collective) ? options->root : 0},
        out_request);
}

static rp_status check_own_block(const rp_comm *comm, rpi_collective collective, size_t in,
                                 size_t out) {
    if (in == out) return RP_OK;
    return RP_FAIL(INVALID, "%s: rank %d has %zu elements for itself and room for %zu",
                   rpi_collective_name(collective), comm->rank, in, out);
}

rp_status rp_gather_start(rp_comm *comm, const void *input, size_t count,
                          const rp_block *outputs, rp_dtype dtype,
                          const rp_collective_options *options, rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, RPI_GATHER, out_request, &options));
    bool is_root = comm->rank == options->root;
    RP_TRY(rpi_check_buffer(RPI_GATHER, input, count, "input"));
    if (is_root) {
        RP_TRY(rpi_check_blocks(comm, RPI_GATHER, outputs, "outputs"));
        RP_TRY(check_own_block(comm, RPI_GATHER, count, outputs[comm->rank].count));
    }
    rp_request *request = NULL;
    RP_TRY(begin(comm, comm->world, dtype, &request));
    rpi_extent *extents = request->partition.extents;
    for (int rank = 0; is_root && rank < comm->world; rank++) {
        extents[rank].out = outputs[rank].data;
        extents[rank].count = outputs[rank].count;
    }
    extents[comm->rank].in = input;
    extents[comm->rank].count = count;
    return end(request, RPI_GATHER, options, out_request);
}

rp_status rp_scatter_start(rp_comm *comm, const rp_block *inputs, void *output, size_t count,
                           rp_dtype dtype, const rp_collective_options *options,
                           rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, RPI_SCATTER, out_request, &options));
    bool is_root = comm->rank == options->root;
    RP_TRY(rpi_check_buffer(RPI_SCATTER, output, count, "output"));
    if (is_root) {
        RP_TRY(rpi_check_blocks(comm, RPI_SCATTER, inputs, "inputs"));
        RP_TRY(check_own_block(comm, RPI_SCATTER, inputs[comm->rank].count, count));
    }
    rp_request *request = NULL;
    RP_TRY(begin(comm, comm->world, dtype, &request));
    rpi_extent *extents = request->partition.extents;
    for (int rank = 0; is_root && rank < comm->world; rank++) {
        extents[rank].in = inputs[rank].data;
        extents[rank].count = inputs[rank].count;
    }
    extents[comm->rank].out = output;
    extents[comm->rank].count = count;
    return end(request, RPI_SCATTER, options, out_request);
}

/* Parts are numbered by distance: plan.h. */
static void fill_all_to_all(const rp_comm *comm, const rp_block *inputs,
                            const rp_block *outputs, rpi_extent *extents) {
    int world = comm->world;
    for (int distance = 0; distance < world; distance++) {
        const rp_block *to = &inputs[(comm->rank + distance) % world];
        const rp_block *from = &outputs[(comm->rank - distance + world) % world];
        rpi_extent *in = &extents[distance], *out = distance ? &extents[world + distance] : in;
        in->in = to->data;
        in->count = to->count;
        out->out = from->data;
        out->count = from->count;
    }
}

rp_status rp_all_to_all_start(rp_comm *comm, const rp_block *inputs, const rp_block *outputs,
                              rp_dtype dtype, const rp_collective_options *options,
                              rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, RPI_ALL_TO_ALL, out_request, &options));
    RP_TRY(rpi_check_blocks(comm, RPI_ALL_TO_ALL, inputs, "inputs"));
    RP_TRY(rpi_check_blocks(comm, RPI_ALL_TO_ALL, outputs, "outputs"));
    RP_TRY(check_own_block(comm, RPI_ALL_TO_ALL, inputs[comm->rank].count,
                           outputs[comm->rank].count));
    rp_request *request = NULL;
    RP_TRY(begin(comm, 2 * comm->world, dtype, &request));
    fill_all_to_all(comm, inputs, outputs, request->partition.extents);
    return end(request, RPI_ALL_TO_ALL, options, out_request);
}
