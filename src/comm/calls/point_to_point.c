/* Sends and receives: the public operations. pair_protocol.c matches them. */
#include "comm/calls/posting.h"
#include "comm/core/request.h"
#include "comm/protocol/operation_kinds.h"
#include "comm/run/progress_loop.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"

static rp_status check_peer(const rp_comm *comm, int peer) {
    if (peer < 0 || peer >= comm->world || peer == comm->rank)
        return RP_FAIL(INVALID,
                       "rank %d cannot send to or receive from rank %d in a world of %d",
                       comm->rank, peer, comm->world);
    return RP_OK;
}

static rp_status check_call(const rp_comm *comm, rp_request *const *request, const char *what) {
    if (!comm) return RP_FAIL(INVALID, "%s: comm is NULL", what);
    if (!request) return RP_FAIL(INVALID, "%s: there is nowhere to put the request", what);
    return RP_OK;
}

static rp_status check_extent(const rpi_extent *extent, int tag) {
    if (tag < 0) return RP_FAIL(INVALID, "tag is %d; 0 to 2147483647 are allowed", tag);
    if (!rp_dtype_bytes(extent->dtype))
        return RP_FAIL(INVALID, "%d is no dtype", (int)extent->dtype);
    if (extent->count > RPI_ELEMENTS_MAX)
        return RP_FAIL(INVALID, "%zu elements are more than can be; is that negative?",
                       extent->count);
    if (extent->count && !extent->in && !extent->out)
        return RP_FAIL(INVALID, "%zu elements and no data", extent->count);
    return RP_OK;
}

static rp_status prepare(rp_request *request, const rpi_extent *extent, int side,
                         const rp_collective_options *options) {
    rp_comm *comm = request->comm;
    RP_TRY(rpi_partition_reserve(&request->partition, 1));
    request->partition.extents[0] = *extent;
    request->kind = &rpi_operation_pair;
    request->collective = RPI_SENDRECV;
    rpi_plan_request plan = {.world = 2, .rank = side};
    RP_TRY(rpi_find_memory(request, options));
    const rpi_load load = {.device = request->device != NULL,
                           .bytes = extent->count * rp_dtype_bytes(extent->dtype)};
    RP_TRY(request->kind->compile(request, NULL, &plan, &load));
    int parts = request->compiled->schedule.parts;
    size_t chunk_bytes = rpi_comm_chunk_bytes(comm, RPI_SPLIT_VECTOR, parts, false);
    request->partition.part_bytes = rpi_comm_part_bytes(comm);
    RP_TRY(rpi_partition_make(&request->partition, RPI_SPLIT_VECTOR, parts, chunk_bytes,
                              RPI_FRAME_PAYLOAD));
    return rpi_request_post(request);
}

static rp_status start(rp_comm *comm, const rpi_extent *extent, int peer, int tag, int side,
                       const rp_collective_options *options, rp_request **out_request) {
    RPI_FPENV_SCOPE;
    RP_TRY(check_extent(extent, tag));
    RP_TRY(rpi_collective_options_read(&options));
    rp_request *request = NULL;
    RP_TRY(rpi_request_new(comm, &request));
    request->peer = peer;
    request->tag = tag;
    rp_status status = prepare(request, extent, side, options);
    if (status != RP_OK) {
        rpi_request_free(request);
        return status;
    }
    *out_request = request;
    rpi_progress_once(comm);
    return RP_OK;
}

rp_status rp_send_with_start(rp_comm *comm, const void *data, size_t count, rp_dtype dtype,
                             int peer, int tag, const rp_collective_options *options,
                             rp_request **out_request) {
    RP_TRY(check_call(comm, out_request, "send"));
    RP_TRY(check_peer(comm, peer));
    return start(comm, &(rpi_extent){.in = data, .count = count, .dtype = dtype}, peer, tag,
                 RPI_PAIR_SENDER, options, out_request);
}

rp_status rp_recv_with_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype, int peer,
                             int tag, const rp_collective_options *options,
                             rp_request **out_request) {
    RP_TRY(check_call(comm, out_request, "receive"));
    RP_TRY(check_peer(comm, peer));
    return start(comm, &(rpi_extent){.out = data, .count = count, .dtype = dtype}, peer, tag,
                 RPI_PAIR_RECEIVER, options, out_request);
}

rp_status rp_recv_any_with_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                                 int tag, const rp_collective_options *options,
                                 rp_request **out_request) {
    RP_TRY(check_call(comm, out_request, "receive"));
    if (comm->world == 1) return RP_FAIL(INVALID, "in a world of one nobody sends");
    return start(comm, &(rpi_extent){.out = data, .count = count, .dtype = dtype}, RPI_ANYBODY,
                 tag, RPI_PAIR_RECEIVER, options, out_request);
}

rp_status rp_send_start(rp_comm *comm, const void *data, size_t count, rp_dtype dtype, int peer,
                        int tag, rp_request **out_request) {
    return rp_send_with_start(comm, data, count, dtype, peer, tag, NULL, out_request);
}

rp_status rp_recv_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype, int peer,
                        int tag, rp_request **out_request) {
    return rp_recv_with_start(comm, data, count, dtype, peer, tag, NULL, out_request);
}

rp_status rp_recv_any_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype, int tag,
                            rp_request **out_request) {
    return rp_recv_any_with_start(comm, data, count, dtype, tag, NULL, out_request);
}
