/* The GPU's part of a request: where it begins, and where it ends. */
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/core/request.h"
#include "comm/device/device.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* ---- its beginning, and marks ---- */

/* The caller's stream has reached the point of the call. */
static rp_status look_at_begun(rpi_transfer *transfer) {
    const rpi_cuda_library *cuda = transfer->device->cuda;
    int done = 0;
    if (transfer->has_begun) return RP_OK;
    RP_TRY(rpi_cuda_check(cuda, cuda->event_done(transfer->begun, &done),
                          "what stands before an operation in its stream"));
    transfer->has_begun = done;
    return RP_OK;
}

rp_status rpi_transfer_look(rpi_transfer *transfer) {
    RP_TRY(look_at_begun(transfer));
    return rpi_lanes_look(transfer->device);
}

bool rpi_transfer_is_busy(const rpi_transfer *transfer) {
    bool busy = !transfer->has_begun;
    for (int i = 0; i < RPI_LANES; i++)
        busy |= !rpi_lane_has_come(transfer, i, transfer->marked[i]);
    return busy;
}

/* Its beginning calls the progress owner. False: the GPU has failed, and the progress owner's
 * next look finds that. */
static bool ring_at_begun(rpi_transfer *transfer) {
    rpi_device *device = transfer->device;
    const rpi_cuda_library *cuda = device->cuda;
    if (!transfer->bell && cuda->waiter_make(&transfer->bell)) return false;
    if (cuda->stream_wait_for(transfer->bell, transfer->begun)) return false;
    atomic_fetch_add(&device->bell->holders, 1);
    if (cuda->stream_call(transfer->bell, rpi_bell_ring, device->bell)) {
        atomic_fetch_sub(&device->bell->holders, 1);
        return false;
    }
    transfer->is_rung = true;
    return true;
}

static bool arm_request(const rp_request *request) {
    rpi_transfer *transfer = request->device;
    rpi_cuda_before before;
    if (!transfer || transfer->has_begun || transfer->is_rung) return true;
    if (rpi_device_enter(transfer->device, &before) != RP_OK) return false;
    bool armed = ring_at_begun(transfer);
    rpi_device_leave(transfer->device, &before);
    return armed;
}

void rpi_devices_arm(rpi_context *context) {
    bool armed = true;
    if (!atomic_load(&context->has_devices)) return;
    pthread_mutex_lock(&context->lock);
    rpi_device *devices = context->devices; /* later ones are in front, and have nothing yet */
    pthread_mutex_unlock(&context->lock);
    for (rpi_device *device = devices; device; device = device->next)
        armed &= rpi_lanes_arm(device);
    for (const rp_comm *comm = context->active; comm; comm = comm->next_active)
        for (const rp_request *request = comm->queue; request; request = request->next)
            armed &= arm_request(request);
    if (!armed) rpi_progress_wake(context);
}

/* ---- posting ---- */

static rp_status check_place(const rpi_cuda_library *cuda, const void *memory, size_t index,
                             const char *what, int *device) {
    int at = RPI_CUDA_HOST;
    if (!memory) return RP_OK;
    RP_TRY(rpi_cuda_check(cuda, cuda->device_of(memory, &at), "looking for memory"));
    if (at == RPI_CUDA_HOST)
        return RP_FAIL(INVALID,
                       "%s of segment %zu lies in memory of the host, and options->memory says "
                       "of a GPU",
                       what, index);
    if (at == RPI_CUDA_FOREIGN)
        return RP_FAIL(
            INVALID,
            "%s of segment %zu lies in a CUDA context of its own; allocate it in the "
            "GPU's primary one (cuDevicePrimaryCtxRetain), as CUDA's runtime does",
            what, index);
    if (*device == RPI_CUDA_HOST) *device = at;
    if (*device == at) return RP_OK;
    return RP_FAIL(INVALID, "%s of segment %zu lies on GPU %d, others on GPU %d", what, index,
                   at, *device);
}

/* *out_device: RPI_CUDA_HOST if there are no elements. */
static rp_status find_place(const rpi_cuda_library *cuda, const rpi_partition *partition,
                            int *out_device) {
    *out_device = RPI_CUDA_HOST;
    for (size_t i = 0; i < partition->count; i++) {
        const rpi_extent *extent = &partition->extents[i];
        if (!extent->count) continue;
        RP_TRY(check_place(cuda, extent->in, i, "the input", out_device));
        RP_TRY(check_place(cuda, extent->out, i, "the output", out_device));
        RP_TRY(check_place(cuda, extent->residual, i, "the residual", out_device));
    }
    return RP_OK;
}

/* What it has of the device, which another may take the place of. */
static void leave_device(rpi_transfer *transfer) {
    rpi_device *device = transfer->device;
    rpi_cuda_before before;
    if (!device) return;
    bool entered = rpi_device_enter(device, &before) == RP_OK;
    device->cuda->stream_free(transfer->bell);
    device->cuda->event_free(transfer->begun);
    device->cuda->event_free(transfer->tail);
    if (entered) rpi_device_leave(device, &before);
    *transfer = (rpi_transfer){0};
}

static pthread_mutex_t lost_lock = PTHREAD_MUTEX_INITIALIZER;
static rpi_transfer *all_lost;

static void keep_for_good(rpi_transfer *transfer) {
    pthread_mutex_lock(&lost_lock);
    transfer->next_lost = all_lost;
    all_lost = transfer;
    pthread_mutex_unlock(&lost_lock);
}

void rpi_transfer_free(rpi_transfer *transfer) {
    if (!transfer) return;
    if (transfer->is_lost) {
        keep_for_good(transfer);
        return;
    }
    rpi_free(transfer->change.paid);
    transfer->change.paid = NULL;
    leave_device(transfer);
    rpi_free(transfer);
}

/* A graph does the work of a captured stream later, without the host. */
static rp_status refuse_captured(const rpi_cuda_library *cuda, void *stream) {
    int captured = 0;
    RP_TRY(rpi_cuda_check(cuda, cuda->is_captured(stream, &captured),
                          "options->stream, which has to be one of the GPU of the elements"));
    if (!captured) return RP_OK;
    return RP_FAIL(
        UNSUPPORTED,
        "a CUDA graph is being captured: what it holds is replayed by the GPU alone, "
        "and an operation needs the host; call it outside of the graph");
}

static rp_status record_begin(rpi_transfer *transfer, void *stream) {
    const rpi_cuda_library *cuda = transfer->device->cuda;
    RP_TRY(refuse_captured(cuda, stream));
    if (!transfer->begun)
        RP_TRY(rpi_cuda_check(cuda, cuda->mark_make(&transfer->begun), "an event"));
    if (!transfer->tail)
        RP_TRY(rpi_cuda_check(cuda, cuda->mark_make(&transfer->tail), "an event"));
    return rpi_cuda_check(cuda, cuda->event_record(transfer->begun, stream),
                          "options->stream, which has to be one of the GPU of the elements");
}

static rp_status use_device(rpi_transfer *transfer, rpi_device *device, void *stream) {
    rpi_cuda_before before;
    if (transfer->device && transfer->device != device) leave_device(transfer);
    transfer->device = device;
    RP_TRY(rpi_device_enter(device, &before));
    rp_status status = record_begin(transfer, stream);
    rpi_device_leave(device, &before);
    return status;
}

/* Memory for the most parts of operations that are in flight at once. Of the parts of a chunk
 * this rank sums one. If parts have the length that suits a GPU, the sum of one has nearly
 * eight times as many bytes as its encoding by q4. */
static void choose_pools(const rp_comm *comm, size_t bytes[RPI_SIDES]) {
    size_t part = comm->chunk_bytes && comm->chunk_bytes < RPI_PART_BYTES ? comm->chunk_bytes
                                                                          : RPI_PART_BYTES;
    bytes[RPI_SIDE_HOST] = 8 * RPI_CHUNKS_IN_FLIGHT * part;
    bytes[RPI_SIDE_GPU] = bytes[RPI_SIDE_HOST] * (rpi_comm_part_bytes(comm) ? 4 : 1) / 2;
}

rp_status rpi_transfer_begin(rp_request *request, void *stream) {
    rpi_context *context = request->comm->context;
    const rpi_cuda_library *cuda = NULL;
    rpi_device *device = NULL;
    int number = RPI_CUDA_HOST;
    RP_TRY(rpi_cuda_open(&cuda));
    RP_TRY(find_place(cuda, &request->partition, &number));
    if (number == RPI_CUDA_HOST) return RP_OK; /* no elements: nothing is different */
    RP_TRY(rpi_cuda_prepare(cuda, number));
    if (request->transfer && request->transfer->is_lost) {
        rpi_transfer_free(request->transfer);
        request->transfer = NULL;
    }
    if (!request->transfer)
        RP_TRY(rpi_alloc(sizeof *request->transfer, "a transfer", &request->transfer));
    rpi_transfer *transfer = request->transfer;
    pthread_mutex_lock(&context->lock);
    rp_status status = rpi_device_find(context, cuda, number, &device);
    pthread_mutex_unlock(&context->lock);
    RP_TRY(status);
    rpi_free(transfer->change.paid);
    transfer->change = (rpi_device_change){0};
    transfer->is_open = transfer->has_tail = false;
    transfer->has_begun = transfer->is_rung = false;
    choose_pools(request->comm, transfer->pool_bytes);
    memset(transfer->marked, 0, sizeof transfer->marked);
    transfer->end_ns = 0;
    RP_TRY(use_device(transfer, device, stream));
    request->device = transfer;
    return RP_OK;
}

/* ---- the end ---- */

static bool is_enqueued(const rp_request *request) {
    if (request->next_chunk < (uint32_t)request->partition.split.chunks) return false;
    for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        if (chunk->left || !chunk->device->closing) return false;
    return true;
}

void rpi_device_note_enqueued(rp_request *request) {
    rpi_transfer *transfer = request->device;
    rpi_context *context = request->comm->context;
    if (atomic_load(&request->enqueued) || !is_enqueued(request)) return;
    const rpi_cuda_library *cuda = transfer->device->cuda;
    /* If it fails, the next look at the GPU finds that. */
    if (transfer->is_open)
        transfer->has_tail =
            cuda->event_record(transfer->tail, rpi_lane_stream(transfer, RPI_LANE_INTO)) == 0;
    pthread_mutex_lock(&context->lock);
    atomic_store(&request->enqueued, true);
    pthread_cond_broadcast(&context->changed);
    pthread_mutex_unlock(&context->lock);
}

rp_status rpi_transfer_follow(const rpi_transfer *transfer, void *stream) {
    const rpi_cuda_library *cuda = transfer->device->cuda;
    rpi_cuda_before before;
    if (!transfer->has_tail && !transfer->is_open) return RP_OK; /* it was given nothing */
    if (!transfer->has_tail) return RP_FAIL(IO, "the GPU took no mark behind the results");
    RP_TRY(rpi_device_enter(transfer->device, &before)); /* whose default stream NULL is */
    rp_status status = rpi_cuda_check(cuda, cuda->stream_wait_for(stream, transfer->tail),
                                      "making a stream wait for the results");
    rpi_device_leave(transfer->device, &before);
    return status;
}

/* After all work, also work that was not marked when something failed. */
static rp_status mark_ends(rpi_transfer *transfer) {
    uint64_t mark;
    if (!transfer->is_open) return RP_OK; /* it was given nothing */
    for (int i = 0; i < RPI_LANES; i++) RP_TRY(rpi_lane_mark(transfer, i, &mark));
    return rpi_lanes_seal(transfer->device);
}

/* A GPU that takes no mark has crashed and does nothing more; without memory for a mark, its
 * state is unknown. */
static bool is_at_it_here(rpi_transfer *transfer) {
    rp_status marked = RP_OK;
    if (!transfer->end_ns) {
        transfer->end_ns = rpi_deadline_ns(RPI_DEVICE_END_S);
        marked = mark_ends(transfer);
    }
    if (marked == RP_NOMEM) transfer->end_ns = 1;
    if (rpi_transfer_look(transfer) != RP_OK) return false;
    return marked == RP_NOMEM || (marked == RP_OK && rpi_transfer_is_busy(transfer));
}

static bool is_at_it(rpi_transfer *transfer) {
    rpi_cuda_before before;
    if (rpi_device_enter(transfer->device, &before) != RP_OK) return false;
    bool is = is_at_it_here(transfer);
    rpi_device_leave(transfer->device, &before);
    return is;
}

bool rpi_device_ends(rp_request *request) {
    rpi_transfer *transfer = request->device;
    if (!transfer || transfer->is_lost) return false;
    if (!is_at_it(transfer)) return false;
    if (rpi_now_ns() < transfer->end_ns) return true;
    rpi_log(RP_LOG_WARNING, "rank %d: the GPU has not come to %s in %d s%s",
            request->comm->rank,
            transfer->is_open ? "what a failed operation gave it" : "a failed operation",
            RPI_DEVICE_END_S,
            transfer->is_open ? "; it may still write to that operation's memory" : "");
    transfer->is_lost = transfer->device->is_lost = true;
    return false;
}
