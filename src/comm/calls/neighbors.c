/* An exchange with neighbours: the public operation. exchange_protocol.c has the control frames
 * between ranks. */
#include "comm/calls/posting.h"
#include "comm/core/request.h"
#include "comm/protocol/operation_kinds.h"

#include "base/status.h"

#include <string.h>

static rp_status check_arguments(const rp_segment *segments, size_t count, void *const *outputs,
                                 const rp_collective_options *options, uint64_t round) {
    const char *name = rpi_collective_name(RPI_NEIGHBOUR_ALL_REDUCE);
    RP_TRY(rpi_check_list(RPI_NEIGHBOUR_ALL_REDUCE, segments, count));
    if (options->reduce != RP_SUM)
        return RP_FAIL(INVALID, "%s adds by its weights; reduce is %d, and RP_SUM is allowed",
                       name, (int)options->reduce);
    if (round >= RPI_EXCHANGE_SEQUENCE)
        return RP_FAIL(INVALID, "%s: round is %llu; is that negative?", name,
                       (unsigned long long)round);
    if (options->algorithm && strcmp(options->algorithm, "direct") != 0)
        return RP_FAIL(NOT_FOUND, "%s has no algorithm '%s'; 'direct' is its only one", name,
                       options->algorithm);
    for (size_t i = 0; i < count; i++) {
        bool complex = segments[i].dtype == RP_C64 || segments[i].dtype == RP_C128;
        if (!rp_dtype_is_float(segments[i].dtype) && !complex)
            return RP_FAIL(INVALID,
                           "%s: segment %zu is of %s; weights go with floats and complex "
                           "numbers",
                           name, i, rp_dtype_name(segments[i].dtype));
        if (outputs && segments[i].count && !outputs[i])
            return RP_FAIL(INVALID, "%s: output %zu has %zu elements and no data", name, i,
                           segments[i].count);
    }
    return RP_OK;
}

/* An extent without data has an output: posting looks for either. */
static rp_status check_data(const rp_segment *segments, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char what[32];
        snprintf(what, sizeof what, "segment %zu", i);
        RP_TRY(rpi_check_buffer(RPI_NEIGHBOUR_ALL_REDUCE, segments[i].data, segments[i].count,
                                what));
    }
    return RP_OK;
}

rp_status rp_neighbor_all_reduce_start(rp_comm *comm, const rp_segment *segments,
                                       void *const *outputs, size_t count,
                                       const rp_neighbors *neighbors,
                                       const rp_collective_options *options,
                                       rp_request **out_request) {
    RP_TRY(rpi_check_call(comm, RPI_NEIGHBOUR_ALL_REDUCE, out_request, &options));
    RP_TRY(
        check_arguments(segments, count, outputs, options, neighbors ? neighbors->round : 0));
    RP_TRY(check_data(segments, count));
    rp_request *request = NULL;
    RP_TRY(rpi_posting_begin(comm, count, &request));
    rp_status status =
        rpi_neighborhood_make(&request->neighborhood, comm->rank, comm->world, neighbors);
    if (status != RP_OK) {
        rpi_request_free(request);
        return status;
    }
    request->sequence = neighbors->round;
    for (size_t i = 0; i < count; i++)
        request->partition.extents[i] = rpi_extent_of(&segments[i], segments[i].data,
                                                      outputs ? outputs[i] : segments[i].data);
    return rpi_posting_end(request,
                           &(rpi_posting){.kind = &rpi_operation_exchange,
                                          .collective = RPI_NEIGHBOUR_ALL_REDUCE,
                                          .layout = RPI_SPLIT_VECTOR,
                                          .reduces = true,
                                          .options = options},
                           out_request);
}
