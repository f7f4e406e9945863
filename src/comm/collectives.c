/* The public operations: check the arguments, describe the runs, find the schedule, post. */
#include "comm/communicator.h"

#include "base/memory.h"
#include "base/status.h"

static const rp_collective_options default_options = {0};

static rp_status check_run(const rpi_run *run, size_t index) {
    if (!rp_dtype_bytes(run->dtype))
        return RP_FAIL(INVALID, "segment %zu: %d is no dtype", index, (int)run->dtype);
    if (!rp_codec_supports(&run->codec, run->dtype)) {
        char text[64];
        return RP_FAIL(UNSUPPORTED, "segment %zu: codec %s does not take %s", index,
                       rp_codec_text(&run->codec, text, sizeof text),
                       rp_dtype_name(run->dtype));
    }
    size_t granule = rp_codec_granule(&run->codec);
    if (run->first % granule)
        return RP_FAIL(INVALID,
                       "segment %zu starts at element %llu, inside a codec granule of %zu",
                       index, (unsigned long long)run->first, granule);
    if (run->count && !run->in && !run->out)
        return RP_FAIL(INVALID, "segment %zu has %zu elements and no data", index, run->count);
    return RP_OK;
}

static bool is_lossy(const rpi_run *run) {
    return !rp_codec_is_exact(&run->codec, run->dtype);
}

static rp_status check_reduction(const rp_request *request) {
    for (size_t i = 0; i < request->cut.count; i++) {
        rp_dtype dtype = request->cut.runs[i].dtype;
        if (request->reduce == RP_AVG && !rp_dtype_is_float(dtype))
            return RP_FAIL(INVALID, "the mean of %s would be cut off: sum it, or use floats",
                           rp_dtype_name(dtype));
    }
    if (request->reduce != RP_SUM && request->reduce != RP_AVG)
        return RP_FAIL(INVALID, "%d is no reduction", (int)request->reduce);
    return RP_OK;
}

/* Everything after the runs are filled in; frees the request on failure. */
typedef struct posting {
    rpi_collective collective;
    rpi_split_layout layout;
    const char *algorithm;
    rpi_plan_request plan;
} posting;

static rp_status prepare(rp_request *request, const posting *p) {
    rp_comm *comm = request->comm;
    bool lossy = false;
    size_t bytes = 0;
    request->collective = p->collective;
    for (size_t i = 0; i < request->cut.count; i++) {
        const rpi_run *run = &request->cut.runs[i];
        RP_TRY(check_run(run, i));
        lossy |= is_lossy(run);
        bytes += run->count * rp_dtype_bytes(run->dtype);
    }
    RP_TRY(check_reduction(request));
    RP_TRY(rpi_comm_routine(comm, p->collective, p->algorithm, &p->plan, lossy, bytes,
                            &request->routine));
    RP_TRY(rpi_cut_make(&request->cut, p->layout, request->routine->schedule.parts,
                        comm->chunk_bytes, RPI_FRAME_PAYLOAD));
    request->sum_stride = request->routine->sums ? rpi_cut_sum_bytes(&request->cut) : 0;
    return rpi_request_post(request);
}

static rp_status post(rp_request *request, const posting *p, rp_request **out_request) {
    rp_comm *comm = request->comm;
    rp_status status = prepare(request, p);
    if (status != RP_OK) {
        rpi_request_free(request);
        return status;
    }
    *out_request = request;
    rpi_drive_once(comm);
    return RP_OK;
}

static rp_status new_request(rp_comm *comm, size_t runs, const rp_collective_options *options,
                             rp_request **out_request) {
    RP_TRY(rpi_request_new(comm, out_request));
    rp_request *request = *out_request;
    rp_status status = rpi_cut_reserve(&request->cut, runs);
    if (status != RP_OK) {
        rpi_request_free(request);
        return status;
    }
    request->reduce = options->reduce;
    request->seed = options->seed;
    request->step = options->step;
    return RP_OK;
}

static rpi_plan_request plan_of(const rp_comm *comm, int root) {
    return (rpi_plan_request){.world = comm->world,
                              .rank = comm->rank,
                              .root = root,
                              .host_of = comm->mesh ? comm->mesh->host_of : NULL};
}

rp_status rp_all_reduce_start(rp_comm *comm, const rp_segment *segments, size_t count,
                              const rp_collective_options *options, rp_request **out_request) {
    if (!options) options = &default_options;
    rp_request *request = NULL;
    RP_TRY(new_request(comm, count, options, &request));
    for (size_t i = 0; i < count; i++)
        request->cut.runs[i] = (rpi_run){.in = segments[i].data,
                                         .out = segments[i].data,
                                         .count = segments[i].count,
                                         .dtype = segments[i].dtype,
                                         .codec = segments[i].codec,
                                         .residual = segments[i].residual,
                                         .tensor = segments[i].tensor,
                                         .first = segments[i].first};
    return post(request,
                &(posting){.collective = RPI_ALL_REDUCE,
                           .layout = RPI_SPLIT_VECTOR,
                           .algorithm = options->algorithm,
                           .plan = plan_of(comm, 0)},
                out_request);
}

static void *offset(const void *base, size_t elements, rp_dtype dtype) {
    return base ? (unsigned char *)(uintptr_t)base + elements * rp_dtype_bytes(dtype) : NULL;
}

rp_status rp_reduce_scatter_start(rp_comm *comm, const void *input, void *output, size_t count,
                                  rp_dtype dtype, const rp_codec *codec,
                                  const rp_collective_options *options,
                                  rp_request **out_request) {
    if (!options) options = &default_options;
    if (count && (!input || !output))
        return RP_FAIL(INVALID, "reduce-scatter needs both buffers");
    rp_request *request = NULL;
    RP_TRY(new_request(comm, (size_t)comm->world, options, &request));
    for (int rank = 0; rank < comm->world; rank++)
        request->cut.runs[rank] = (rpi_run){.in = offset(input, (size_t)rank * count, dtype),
                                            .out = rank == comm->rank ? output : NULL,
                                            .count = count,
                                            .dtype = dtype,
                                            .codec = codec ? *codec : (rp_codec){0},
                                            .tensor = (uint32_t)rank};
    return post(request,
                &(posting){.collective = RPI_REDUCE_SCATTER,
                           .layout = RPI_SPLIT_RANKED,
                           .algorithm = options->algorithm,
                           .plan = plan_of(comm, 0)},
                out_request);
}

rp_status rp_all_gather_start(rp_comm *comm, const void *input, void *output, size_t count,
                              rp_dtype dtype, const rp_codec *codec,
                              const rp_collective_options *options, rp_request **out_request) {
    if (!options) options = &default_options;
    if (count && (!input || !output)) return RP_FAIL(INVALID, "all-gather needs both buffers");
    rp_collective_options gather = *options;
    gather.reduce = RP_SUM;
    rp_request *request = NULL;
    RP_TRY(new_request(comm, (size_t)comm->world, &gather, &request));
    for (int rank = 0; rank < comm->world; rank++)
        request->cut.runs[rank] = (rpi_run){.in = rank == comm->rank ? input : NULL,
                                            .out = offset(output, (size_t)rank * count, dtype),
                                            .count = count,
                                            .dtype = dtype,
                                            .codec = codec ? *codec : (rp_codec){0},
                                            .tensor = (uint32_t)rank};
    return post(request,
                &(posting){.collective = RPI_ALL_GATHER,
                           .layout = RPI_SPLIT_RANKED,
                           .algorithm = options->algorithm,
                           .plan = plan_of(comm, 0)},
                out_request);
}

rp_status rp_broadcast_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                             const rp_collective_options *options, rp_request **out_request) {
    if (!options) options = &default_options;
    rp_collective_options broadcast = *options;
    broadcast.reduce = RP_SUM;
    rp_request *request = NULL;
    RP_TRY(new_request(comm, 1, &broadcast, &request));
    request->cut.runs[0] = (rpi_run){.in = data, .out = data, .count = count, .dtype = dtype};
    return post(request,
                &(posting){.collective = RPI_BROADCAST,
                           .layout = RPI_SPLIT_VECTOR,
                           .algorithm = options->algorithm,
                           .plan = plan_of(comm, options->root)},
                out_request);
}

rp_status rp_barrier_start(rp_comm *comm, rp_request **out_request) {
    rp_request *request = NULL;
    RP_TRY(new_request(comm, 0, &default_options, &request));
    return post(request,
                &(posting){.collective = RPI_BARRIER,
                           .layout = RPI_SPLIT_VECTOR,
                           .plan = plan_of(comm, 0)},
                out_request);
}

/* Point to point runs a schedule of a world of two: 0 sends, 1 receives. */
static rp_status start_p2p(rp_comm *comm, const rpi_run *run, int peer, int side,
                           rp_request **out_request) {
    if (peer < 0 || peer >= comm->world || peer == comm->rank)
        return RP_FAIL(INVALID,
                       "rank %d cannot send to or receive from rank %d in a world of %d",
                       comm->rank, peer, comm->world);
    rp_request *request = NULL;
    RP_TRY(new_request(comm, 1, &default_options, &request));
    request->cut.runs[0] = *run;
    request->peer = peer;
    return post(request,
                &(posting){.collective = RPI_SENDRECV,
                           .layout = RPI_SPLIT_VECTOR,
                           .plan = {.world = 2, .rank = side}},
                out_request);
}

rp_status rp_send_start(rp_comm *comm, const void *data, size_t count, rp_dtype dtype, int peer,
                        rp_request **out_request) {
    return start_p2p(comm, &(rpi_run){.in = data, .count = count, .dtype = dtype}, peer, 0,
                     out_request);
}

rp_status rp_recv_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype, int peer,
                        rp_request **out_request) {
    return start_p2p(comm, &(rpi_run){.out = data, .count = count, .dtype = dtype}, peer, 1,
                     out_request);
}

/* ---- completion ---- */

rp_status rp_request_wait(rp_request **in_out_request) {
    rp_request *request = *in_out_request;
    if (!request) return RP_FAIL(INVALID, "there is no request to wait for");
    rpi_wait_for(request);
    rp_status status = request->status;
    if (status != RP_OK) status = rpi_fail(status, __FILE__, __LINE__, "%s", request->message);
    *in_out_request = NULL;
    rpi_request_free(request);
    return status;
}

rp_status rp_request_test(rp_request *request) {
    if (!atomic_load(&request->done)) rpi_drive_once(request->comm);
    if (!atomic_load(&request->done)) return RP_PENDING;
    if (request->status == RP_OK) return RP_OK;
    return rpi_fail(request->status, __FILE__, __LINE__, "%s", request->message);
}

static rp_status wait_posted(rp_status posted, rp_request *request) {
    RP_TRY(posted);
    return rp_request_wait(&request);
}

rp_status rp_all_reduce(rp_comm *comm, const rp_segment *segments, size_t count,
                        const rp_collective_options *options) {
    rp_request *request = NULL;
    rp_status posted = rp_all_reduce_start(comm, segments, count, options, &request);
    return wait_posted(posted, request);
}

rp_status rp_reduce_scatter(rp_comm *comm, const void *input, void *output, size_t count,
                            rp_dtype dtype, const rp_codec *codec,
                            const rp_collective_options *options) {
    rp_request *request = NULL;
    rp_status posted =
        rp_reduce_scatter_start(comm, input, output, count, dtype, codec, options, &request);
    return wait_posted(posted, request);
}

rp_status rp_all_gather(rp_comm *comm, const void *input, void *output, size_t count,
                        rp_dtype dtype, const rp_codec *codec,
                        const rp_collective_options *options) {
    rp_request *request = NULL;
    rp_status posted =
        rp_all_gather_start(comm, input, output, count, dtype, codec, options, &request);
    return wait_posted(posted, request);
}

rp_status rp_broadcast(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                       const rp_collective_options *options) {
    rp_request *request = NULL;
    rp_status posted = rp_broadcast_start(comm, data, count, dtype, options, &request);
    return wait_posted(posted, request);
}

rp_status rp_barrier(rp_comm *comm) {
    rp_request *request = NULL;
    rp_status posted = rp_barrier_start(comm, &request);
    return wait_posted(posted, request);
}

rp_status rp_send(rp_comm *comm, const void *data, size_t count, rp_dtype dtype, int peer) {
    rp_request *request = NULL;
    rp_status posted = rp_send_start(comm, data, count, dtype, peer, &request);
    return wait_posted(posted, request);
}

rp_status rp_recv(rp_comm *comm, void *data, size_t count, rp_dtype dtype, int peer) {
    rp_request *request = NULL;
    rp_status posted = rp_recv_start(comm, data, count, dtype, peer, &request);
    return wait_posted(posted, request);
}
