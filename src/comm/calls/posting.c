#include "comm/calls/posting.h"
#include "comm/core/request.h"
#include "comm/protocol/round_protocol.h"
#include "comm/run/progress_loop.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/sized_options.h"
#include "base/status.h"
#include "codec/codec.h"
#include "comm/device/device.h"
#include "comm/values/reductions.h"
#include "comm/values/values.h"

#include <string.h>

/* A copy only where the caller knows another struct than this library does: it lives until the
 * thread's next call, and is of this call alone. */
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

rp_status rpi_posting_begin(rp_comm *comm, size_t runs, rp_request **out_request) {
    RP_TRY(rpi_request_new(comm, out_request));
    rp_status status = rpi_cut_reserve(&(*out_request)->cut, runs);
    if (status == RP_OK) status = reserve_edges(comm, *out_request);
    if (status != RP_OK) rpi_request_free(*out_request);
    return status;
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
    if (run->count > RPI_ELEMENTS_MAX)
        return RP_FAIL(INVALID,
                       "segment %zu has %zu elements, more than can be; is that negative?",
                       index, run->count);
    if (run->count && !run->in && !run->out)
        return RP_FAIL(INVALID, "segment %zu has %zu elements and no data", index, run->count);
    return RP_OK;
}

static rp_status check_reduction(const rpi_run *run, rp_reduction reduce) {
    RP_TRY(rpi_reduction_check(reduce, run->dtype, &run->codec));
    if (run->residual) RP_TRY(rpi_codec_check_feedback(&run->codec, run->dtype));
    if (run->residual && !rpi_reduction_adds(reduce))
        return RP_FAIL(INVALID, "error feedback goes with sum, avg and premul-sum, not with %s",
                       rpi_reduction_name(reduce));
    return RP_OK;
}

/* Some algorithms are for exact codecs only: one that was named says so. */
static rp_status check_exactness(const rpi_posting *posting, bool lossy) {
    const rpi_algorithm *algorithm = NULL;
    const char *name = posting->options->algorithm;
    /* Of neighbours there is one, which takes all codecs. */
    if (!name || !lossy || posting->collective == RPI_NEIGHBOUR_ALL_REDUCE) return RP_OK;
    RP_TRY(rpi_algorithm_find(posting->collective, name, &algorithm));
    if (!algorithm->exact) return RP_OK;
    return RP_FAIL(UNSUPPORTED,
                   "%s '%s' takes no lossy codec, since it encodes on every hop; 'sra' does",
                   rpi_collective_name(posting->collective), name);
}

/* ---- contributions that are not what the caller's memory holds ---- */

/* Scaled by RP_PREMUL_SUM; and with what error feedback held back of elements that are exact
 * now. That joins them here, where all algorithms take it from: some never encode, or take a
 * rank's own values as they are. */
typedef struct change {
    bool scales, pays_out;
    double factor;
} change;

/* Means of algorithms that encode keep their own way: an owner's is of the mean. */
static bool pays_out(const rp_request *request) {
    const rpi_routine *routine = request->routine;
    return request->collective == RPI_ALL_REDUCE &&
           (request->reduce != RP_AVG || routine->schedule.algorithm->exact || routine->inside);
}

static bool holds_back(const rpi_run *run) {
    return run->residual && run->count && rp_codec_is_exact(&run->codec, run->dtype);
}

static bool is_changed(const rpi_run *run, const change *c) {
    return run->in && run->count && (c->scales || (c->pays_out && holds_back(run)));
}

static bool changes_any(const rpi_cut *cut, const change *c) {
    for (size_t i = 0; i < cut->count; i++)
        if (is_changed(&cut->runs[i], c)) return true;
    return false;
}

static size_t staged_bytes(const rpi_run *run, const change *c) {
    if (!is_changed(run, c) || run->in == run->out) return 0;
    return rpi_align_up(run->count * rp_dtype_bytes(run->dtype));
}

static rp_status reserve_staged(rpi_cut *cut, const change *c) {
    size_t bytes = 0;
    for (size_t i = 0; i < cut->count; i++) bytes += staged_bytes(&cut->runs[i], c);
    return bytes ? rpi_alloc(bytes, "changed input", &cut->staged) : RP_OK;
}

/* Exact codecs encode an element as what it is. */
static void pay_out(rpi_run *run, void *into) {
    const rp_encode_context context = {.residual = run->residual};
    (void)rp_codec_encode(&run->codec, run->dtype, run->in, run->count, &context, into, NULL);
    run->residual = NULL;
}

/* Where it lies when that is the call's to overwrite, else in a copy. */
static void change_input(rpi_cut *cut, const change *c) {
    unsigned char *copy = cut->staged;
    for (size_t i = 0; i < cut->count; i++) {
        rpi_run *run = &cut->runs[i];
        if (!is_changed(run, c)) continue;
        void *into = run->in == run->out ? run->out : copy;
        copy += staged_bytes(run, c);
        if (c->scales) {
            rpi_values_scale(run->in, run->dtype, c->factor, run->count, into);
            run->in = into;
        }
        if (c->pays_out && holds_back(run)) pay_out(run, into);
        run->in = into;
    }
}

/* Once nothing can refuse the call any more, and before anybody reads. */
static rp_status post_changed(rp_request *request, const change *c) {
    RP_TRY(reserve_staged(&request->cut, c));
    RP_TRY(rpi_request_admit(request));
    change_input(&request->cut, c);
    rpi_request_enqueue(request);
    return RP_OK;
}

/* The same where they lie in memory of a GPU: their copies on the host are changed. */
static rp_status post_changed_there(rp_request *request, const change *c) {
    rpi_device_change *there = &request->device->change;
    rpi_cut *cut = &request->cut;
    there->scales = c->scales;
    there->factor = c->factor;
    if (c->pays_out)
        RP_TRY(rpi_alloc_array(cut->count, sizeof *there->paid, "residuals", &there->paid));
    for (size_t i = 0; there->paid && i < cut->count; i++) {
        rpi_run *run = &cut->runs[i];
        if (!run->in || !holds_back(run)) continue;
        there->paid[i] = run->residual;
        run->residual = NULL;
    }
    return rpi_request_post(request);
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

/* What the choice of an algorithm depends on. */
typedef struct load {
    rpi_load of_all;
    size_t granule_bytes; /* of the longest granule, as values */
} load;

static void add_load(load *sum, const rpi_run *run) {
    size_t each = rp_dtype_bytes(run->dtype);
    size_t granule = rp_codec_granule(&run->codec);
    size_t granule_bytes = (granule < run->count ? granule : run->count) * each;
    sum->of_all.lossy |= !rp_codec_is_exact(&run->codec, run->dtype);
    sum->of_all.plain &= !sum->of_all.lossy && !run->residual;
    sum->of_all.bytes += run->count * each;
    if (granule_bytes > sum->granule_bytes) sum->granule_bytes = granule_bytes;
}

/* What travels exactly inside a host must fit a frame so, too: granules that are too long for
 * that go between ranks as if each had a host to itself. */
static rp_status find_routine(rp_request *request, const rpi_posting *posting,
                              const rpi_plan_request *plan, const load *of) {
    rp_comm *comm = request->comm;
    const char *name = posting->options->algorithm;
    RP_TRY(rpi_comm_routine(comm, posting->collective, name, plan, &of->of_all,
                            &request->routine));
    if (name || !request->routine->inside || of->granule_bytes <= RPI_FRAME_PAYLOAD)
        return RP_OK;
    rpi_plan_request flat = *plan;
    const rpi_algorithm *algorithm = NULL;
    flat.host_of = NULL;
    RP_TRY(rpi_algorithm_choose(posting->collective, &flat, of->of_all.lossy, of->of_all.bytes,
                                &comm->fabric->links, &algorithm));
    return rpi_comm_routine(comm, posting->collective, algorithm->name, plan, &of->of_all,
                            &request->routine);
}

static rp_status prepare(rp_request *request, const rpi_posting *posting) {
    rp_comm *comm = request->comm;
    const rp_collective_options *options = posting->options;
    load all = {.of_all.plain = posting->reduces};
    request->collective = posting->collective;
    request->reduce = posting->reduces ? options->reduce : RP_SUM;
    request->seed = options->seed;
    request->step = options->step;
    request->key = options->key;
    for (size_t i = 0; i < request->cut.count; i++) {
        const rpi_run *run = &request->cut.runs[i];
        RP_TRY(check_run(run, i));
        if (posting->reduces) RP_TRY(check_reduction(run, request->reduce));
        add_load(&all, run);
    }
    rpi_plan_request plan = {.world = comm->world,
                             .rank = comm->rank,
                             .root = posting->root,
                             .mean = request->reduce == RP_AVG,
                             .host_of = comm->host_of};
    RP_TRY(check_exactness(posting, all.of_all.lossy));
    RP_TRY(rpi_find_memory(request, options));
    all.of_all.device = request->device != NULL;
    bool of_neighbors = posting->collective == RPI_NEIGHBOUR_ALL_REDUCE;
    if (of_neighbors)
        RP_TRY(rpi_round_routine(comm, &request->hood, request->device != NULL,
                                 &request->routine));
    else
        RP_TRY(find_routine(request, posting, &plan, &all));
    int parts = request->routine->schedule.parts;
    size_t chunk_bytes = rpi_comm_chunk_bytes(comm, posting->layout, parts, all.of_all.lossy);
    request->cut.inside = request->routine->inside;
    size_t limit_bytes = RPI_FRAME_PAYLOAD - (of_neighbors ? RPI_SHARE_BYTES : 0);
    RP_TRY(rpi_cut_make(&request->cut, posting->layout, parts, chunk_bytes, limit_bytes));
    change c = {.scales = request->reduce == RP_PREMUL_SUM,
                .pays_out = pays_out(request),
                .factor = options->factor};
    if (!changes_any(&request->cut, &c)) return rpi_request_post(request);
    return request->device ? post_changed_there(request, &c) : post_changed(request, &c);
}

rp_status rpi_posting_end(rp_request *request, const rpi_posting *posting,
                          rp_request **out_request) {
    RPI_FPENV_SCOPE;
    rp_comm *comm = request->comm;
    rp_status status = prepare(request, posting);
    if (status != RP_OK) {
        rpi_request_free(request);
        return status;
    }
    *out_request = request;
    rpi_drive_once(comm);
    return RP_OK;
}
