/* The public operations on vectors whose length all ranks know: they check the arguments and
 * say which rank owns which elements. */
#include "comm/calls/posting.h"

#include "base/status.h"

rp_status rp_all_reduce_start(rp_comm *comm, const rp_segment *segments, size_t count,
                              const rp_collective_options *options, rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, RPI_ALL_REDUCE, out_request, &options));
    RP_TRY(rpi_check_list(RPI_ALL_REDUCE, segments, count));
    rp_request *request = NULL;
    RP_TRY(rpi_posting_begin(comm, count, &request));
    for (size_t i = 0; i < count; i++)
        request->partition.extents[i] =
            rpi_extent_of(&segments[i], segments[i].data, segments[i].data);
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
    request->partition.extents[0] = (rpi_extent){
        .in = input, .out = is_root ? output : NULL, .count = count, .dtype = dtype};
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
    request->partition.extents[0] =
        (rpi_extent){.in = data, .out = data, .count = count, .dtype = dtype};
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
