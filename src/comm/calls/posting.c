#include "comm/calls/posting.h"
#include "comm/calls/contributions.h"
#include "comm/core/request.h"
#include "comm/protocol/operation_kinds.h"
#include "comm/run/progress_loop.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/sized_options.h"
#include "base/status.h"
#include "codec/codec.h"
#include "comm/device/device.h"
#include "comm/values/reductions.h"
#include "comm/values/values.h"

#include <limits.h>
#include <string.h>

/* Copies the caller's struct only if that differs from the struct of this library. The copy
 * lives until the thread's next call, and belongs to this call only. */
rp_status rpi_collective_options_read(const rp_collective_options **in_out_options) {
    static const rpi_sized sized = {.name = "rp_collective_options",
                                    .initializer = "RP_COLLECTIVE_OPTIONS",
                                    .least = RPI_SIZE_UP_TO(rp_collective_options, key),
                                    .known = sizeof(rp_collective_options)};
    static const rp_collective_options defaults = RP_COLLECTIVE_OPTIONS();
    static _Thread_local rp_collective_options own;
    const rp_collective_options *given = *in_out_options;
    *in_out_options = given ? given : &defaults;
    if (!given || given->size == sizeof *given) return RP_OK;
    *in_out_options = &own;
    return rpi_sized_read(&sized, given, &own);
}

static rp_status reserve_edges(const rp_comm *comm, rp_request *request) {
    size_t world = (size_t)comm->world;
    if (!request->edges)
        return rpi_alloc_array(world, sizeof *request->edges, "a request", &request->edges);
    memset(request->edges, 0, world * sizeof *request->edges);
    return RP_OK;
}

rp_status rpi_posting_begin(rp_comm *comm, size_t extents, rp_request **out_request) {
    RP_TRY(rpi_request_new(comm, out_request));
    rp_status status = rpi_partition_reserve(&(*out_request)->partition, extents);
    if (status == RP_OK) status = reserve_edges(comm, *out_request);
    if (status != RP_OK) rpi_request_free(*out_request);
    return status;
}

rpi_extent rpi_extent_of(const rp_segment *segment, const void *in, void *out) {
    return (rpi_extent){.in = in,
                        .out = out,
                        .count = segment->count,
                        .dtype = segment->dtype,
                        .codec = segment->codec,
                        .residual = segment->residual,
                        .tensor = segment->tensor,
                        .first = segment->first};
}

/* ---- checks ---- */

rp_status rpi_check_call(const rp_comm *comm, rpi_collective collective,
                         rp_request *const *request,
                         const rp_collective_options **in_out_options) {
    const char *name = rpi_collective_name(collective);
    if (!comm) return RP_FAIL(INVALID, "%s: comm is NULL", name);
    if (!request) return RP_FAIL(INVALID, "%s: there is nowhere to put the request", name);
    return rpi_collective_options_read(in_out_options);
}

rp_status rpi_check_list(rpi_collective collective, const void *segments, size_t count) {
    const char *name = rpi_collective_name(collective);
    if (count > INT_MAX) return RP_FAIL(INVALID, "%s: %zu segments are too many", name, count);
    if (segments || !count) return RP_OK;
    return RP_FAIL(INVALID, "%s: segments is NULL, and there are %zu", name, count);
}

rp_status rpi_check_buffer(rpi_collective collective, const void *data, size_t count,
                           const char *what) {
    if (count > RPI_ELEMENTS_MAX)
        return RP_FAIL(INVALID, "%s: %s has %zu elements, more than can be; is that negative?",
                       rpi_collective_name(collective), what, count);
    if (data || !count) return RP_OK;
    return RP_FAIL(INVALID, "%s: %s has %zu elements and no data",
                   rpi_collective_name(collective), what, count);
}

rp_status rpi_check_blocks(const rp_comm *comm, rpi_collective collective,
                           const rp_block *blocks, const char *what) {
    const char *name = rpi_collective_name(collective);
    if (!blocks)
        return RP_FAIL(INVALID, "%s: %s is NULL; a block for each of the %d ranks is needed",
                       name, what, comm->world);
    for (int rank = 0; rank < comm->world; rank++) {
        const rp_block *block = &blocks[rank];
        if (block->count <= RPI_ELEMENTS_MAX && (block->data || !block->count)) continue;
        char text[48];
        snprintf(text, sizeof text, "%s[%d]", what, rank);
        return rpi_check_buffer(collective, block->data, block->count, text);
    }
    return RP_OK;
}

static rp_status check_extent(const rpi_extent *extent, size_t index) {
    if (!rp_dtype_bytes(extent->dtype))
        return RP_FAIL(INVALID, "segment %zu: %d is no dtype", index, (int)extent->dtype);
    if (!rp_codec_supports(&extent->codec, extent->dtype)) {
        char text[64];
        return RP_FAIL(UNSUPPORTED, "segment %zu: codec %s does not take %s", index,
                       rp_codec_text(&extent->codec, text, sizeof text),
                       rp_dtype_name(extent->dtype));
    }
    size_t granule = rp_codec_granule(&extent->codec);
    if (extent->first % granule)
        return RP_FAIL(INVALID,
                       "segment %zu starts at element %llu, inside a codec granule of %zu",
                       index, (unsigned long long)extent->first, granule);
    if (extent->count > RPI_ELEMENTS_MAX)
        return RP_FAIL(INVALID,
                       "segment %zu has %zu elements, more than can be; is that negative?",
                       index, extent->count);
    if (extent->count && !extent->in && !extent->out)
        return RP_FAIL(INVALID, "segment %zu has %zu elements and no data", index,
                       extent->count);
    return extent->residual ? rpi_codec_check_feedback(&extent->codec, extent->dtype) : RP_OK;
}

static rp_status check_reduction(const rpi_extent *extent, rp_reduction reduce) {
    RP_TRY(rpi_reduction_check(reduce, extent->dtype, &extent->codec));
    if (extent->residual && !rpi_reduction_adds(reduce))
        return RP_FAIL(INVALID, "error feedback goes with sum, avg and premul-sum, not with %s",
                       rpi_reduction_name(reduce));
    return RP_OK;
}

/* Some algorithms are for exact codecs only: if one was named the error says so. */
static rp_status check_exactness(const rpi_posting *posting, bool lossy) {
    const rpi_algorithm *algorithm = NULL;
    const char *name = posting->options->algorithm;
    /* The only one of a kind takes all codecs. */
    if (!name || !lossy || !posting->kind->chooses) return RP_OK;
    RP_TRY(rpi_algorithm_find(posting->collective, name, &algorithm));
    if (!algorithm->exact) return RP_OK;
    return RP_FAIL(UNSUPPORTED,
                   "%s '%s' takes no lossy codec, since it encodes on every hop; 'sra' does",
                   rpi_collective_name(posting->collective), name);
}

/* ---- posting ---- */

rp_status rpi_find_memory(rp_request *request, const rp_collective_options *options) {
    switch (options->memory) {
    case RP_MEMORY_HOST: return RP_OK;
    case RP_MEMORY_CUDA: return rpi_transfer_begin(request, options->stream);
    }
    return RP_FAIL(INVALID, "options->memory is %d, which is no kind of memory",
                   (int)options->memory);
}

rp_status rp_memory_check(rp_memory memory) {
    const rpi_cuda_library *cuda = NULL;
    switch (memory) {
    case RP_MEMORY_HOST: return RP_OK;
    case RP_MEMORY_CUDA: return rpi_cuda_open(&cuda);
    }
    return RP_FAIL(INVALID, "%d is no kind of memory", (int)memory);
}

static void add_load(rpi_load *sum, const rpi_extent *extent) {
    size_t each = rp_dtype_bytes(extent->dtype);
    size_t granule = rp_codec_granule(&extent->codec);
    size_t granule_bytes = (granule < extent->count ? granule : extent->count) * each;
    sum->lossy |= !rp_codec_is_exact(&extent->codec, extent->dtype);
    sum->plain &= !sum->lossy && !extent->residual;
    sum->bytes += extent->count * each;
    if (granule_bytes > sum->granule_bytes) sum->granule_bytes = granule_bytes;
}

/* Whether the residual is added to the input before anything is encoded. It is not for means by
 * algorithms that encode the owner's values, because those keep the residual of the mean. Where
 * each part has an owner nothing encodes the owner's values. */
static bool flushes_residual(const rp_request *request, const rpi_posting *posting) {
    const rpi_compiled_schedule *compiled = request->compiled;
    if (posting->layout == RPI_SPLIT_RANKED) return true;
    return request->collective == RPI_ALL_REDUCE &&
           (request->reduce != RP_AVG || compiled->schedule.algorithm->exact ||
            compiled->inside);
}

static rp_status prepare(rp_request *request, const rpi_posting *posting) {
    rp_comm *comm = request->comm;
    const rp_collective_options *options = posting->options;
    rpi_load load = {.plain = posting->reduces};
    request->kind = posting->kind;
    request->collective = posting->collective;
    request->reduce = posting->reduces ? options->reduce : RP_SUM;
    request->seed = options->seed;
    request->step = options->step;
    request->key = options->key;
    for (size_t i = 0; i < request->partition.count; i++) {
        rpi_extent *extent = &request->partition.extents[i];
        RP_TRY(check_extent(extent, i));
        if (posting->reduces) RP_TRY(check_reduction(extent, request->reduce));
        if (!extent->in)
            extent->residual = NULL; /* a rank that contributes nothing has no
                                      * residual */
        add_load(&load, extent);
    }
    rpi_plan_request plan = {.world = comm->world,
                             .rank = comm->rank,
                             .root = posting->root,
                             .mean = request->reduce == RP_AVG,
                             .host_of = comm->host_of};
    RP_TRY(check_exactness(posting, load.lossy));
    RP_TRY(rpi_find_memory(request, options));
    load.device = request->device != NULL;
    RP_TRY(request->kind->compile(request, options->algorithm, &plan, &load));
    int parts = request->compiled->schedule.parts;
    size_t chunk_bytes = rpi_comm_chunk_bytes(comm, posting->layout, parts, load.lossy);
    request->partition.part_bytes = rpi_comm_part_bytes(comm);
    request->partition.inside = request->compiled->inside;
    RP_TRY(rpi_partition_make(&request->partition, posting->layout, parts, chunk_bytes,
                              RPI_FRAME_PAYLOAD - request->kind->ahead_bytes));
    return rpi_contribution_post(
        request, &(rpi_change){.scales = request->reduce == RP_PREMUL_SUM,
                               .flushes_residual = flushes_residual(request, posting),
                               .factor = options->factor});
}

rp_status rpi_posting_end(rp_request *request, const rpi_posting *posting,
                          rp_request **out_request) {
    RPI_FPENV_SCOPE;
    rp_comm *comm = request->comm;
    rpi_posting own = *posting;
    if (!own.kind) own.kind = &rpi_operation_collective;
    rp_status status = prepare(request, &own);
    if (status != RP_OK) {
        rpi_request_free(request);
        return status;
    }
    *out_request = request;
    rpi_progress_once(comm);
    return RP_OK;
}
