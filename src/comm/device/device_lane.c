/* The two lanes of a GPU, one in each direction, and marks in them. All requests share them, so
 * no work is put in that would wait there. */
#include "comm/core/communicator.h"
#include "comm/device/device.h"

#include "base/memory.h"
#include "base/status.h"

/* ---- streams ---- */

static rp_status make_stream(const rpi_device *device, void **stream) {
    if (*stream) return RP_OK;
    return rpi_cuda_check(device->cuda, device->cuda->stream_make(stream), "a stream");
}

static rp_status open_lane(const rpi_device *device, rpi_lane *lane) {
    RP_TRY(make_stream(device, &lane->stream));
    RP_TRY(make_stream(device, &lane->bell));
    if (!lane->calls)
        RP_TRY(rpi_alloc_array(RPI_LIST_MOST, sizeof *lane->calls, "a list of calls",
                               &lane->calls));
    if (!lane->end) lane->end = &lane->first;
    return RP_OK;
}

rp_status rpi_transfer_open(rpi_transfer *transfer) {
    rpi_device *device = transfer->device;
    rpi_cuda_before before;
    if (transfer->is_open) return RP_OK;
    RP_TRY(rpi_device_enter(device, &before));
    rp_status status = RP_OK;
    for (int i = 0; i < RPI_LANES && status == RP_OK; i++)
        status = open_lane(device, &device->lanes[i]);
    if (status == RP_OK) rpi_pinned_fill(device, transfer->pool_bytes);
    rpi_device_leave(device, &before);
    transfer->is_open = status == RP_OK;
    return status;
}

void *rpi_lane_stream(const rpi_transfer *transfer, int lane) {
    return transfer->device->lanes[lane].stream;
}

/* ---- what it is given ---- */

static rp_status launch(const rpi_device *device, rpi_lane *lane) {
    const rpi_cuda_library *cuda = device->cuda;
    int count = lane->count, error = 0;
    bool adds = lane->operation == RPI_LANE_ADD;
    lane->count = 0;
    if (!count) return RP_OK;
    if (adds || lane->operation == RPI_LANE_DECODE)
        error = cuda->decode_all(lane->calls, count, adds, lane->stream);
    else
        error = cuda->encode_all(lane->calls, count, lane->stream);
    static const char *const names[] = {"copying", "encoding", "decoding", "adding"};
    return rpi_cuda_check(cuda, error, names[lane->operation]);
}

static bool overlap(const void *a, uint64_t bytes, const void *b, uint64_t more) {
    uintptr_t first = (uintptr_t)a, other = (uintptr_t)b;
    return first < other + more && other < first + bytes;
}

/* Copies of one launch run in any order: an encoding whose last piece is copied must be
 * complete before it is copied itself. */
static bool copies_what_comes(const rpi_device_call *before, const rpi_device_call *call) {
    return overlap(before->encoded, before->count, call->x, call->count) ||
           overlap(before->encoded, before->count, call->encoded, call->count) ||
           overlap(before->x, before->count, call->encoded, call->count);
}

/* It would read what another one of its launch writes, or write what another reads. */
static bool depends(const rpi_lane *lane, const rpi_device_call *call) {
    for (int i = 0; i < lane->count; i++) {
        if (lane->operation == RPI_LANE_ADD && lane->calls[i].y == call->y) return true;
        if (lane->operation == RPI_LANE_COPY && copies_what_comes(&lane->calls[i], call))
            return true;
    }
    return false;
}

rp_status rpi_lane_put(rpi_transfer *transfer, int index, rpi_lane_operation operation,
                       const rpi_device_call *call) {
    rpi_lane *lane = &transfer->device->lanes[index];
    if (lane->operation != operation || lane->count == RPI_LIST_MOST || depends(lane, call))
        RP_TRY(launch(transfer->device, lane));
    lane->operation = operation;
    lane->calls[lane->count++] = *call;
    return RP_OK;
}

rp_status rpi_lane_divide(rpi_transfer *transfer, int index, const rpi_device_call *call) {
    rpi_lane *lane = &transfer->device->lanes[index];
    const rpi_cuda_library *cuda = transfer->device->cuda;
    RP_TRY(launch(transfer->device, lane));
    return rpi_cuda_check(cuda, cuda->divide(call, lane->stream), "a mean");
}

/* Longer copies are left to a copy engine, one by one. */
enum { SHORT_BYTES = 64 * 1024 };

rp_status rpi_lane_copy(rpi_transfer *transfer, int index, void *to, const void *from,
                        size_t bytes) {
    rpi_lane *lane = &transfer->device->lanes[index];
    const rpi_cuda_library *cuda = transfer->device->cuda;
    if (bytes <= SHORT_BYTES) {
        rpi_device_call call = {
            .kind = RPI_DEVICE_COPY, .x = from, .encoded = to, .count = bytes};
        return rpi_lane_put(transfer, index, RPI_LANE_COPY, &call);
    }
    RP_TRY(launch(transfer->device, lane));
    return rpi_cuda_check(cuda, cuda->copy(to, from, bytes, lane->stream), "copying");
}

/* ---- marks ---- */

static rp_status take_mark(rpi_device *device, rpi_mark **out_mark) {
    rpi_mark *mark = device->marks;
    rpi_cuda_before before;
    if (mark) {
        device->marks = mark->next;
        *out_mark = mark;
        return RP_OK;
    }
    RP_TRY(rpi_alloc(sizeof *mark, "a mark", &mark));
    rp_status status = rpi_device_enter(device, &before);
    if (status == RP_OK) {
        status =
            rpi_cuda_check(device->cuda, device->cuda->mark_make(&mark->event), "an event");
        rpi_device_leave(device, &before);
    }
    if (status != RP_OK)
        rpi_free(mark);
    else
        *out_mark = mark;
    return status;
}

static void give_mark(rpi_device *device, rpi_mark *mark) {
    mark->next = device->marks;
    device->marks = mark;
}

rp_status rpi_lane_mark(rpi_transfer *transfer, int index, uint64_t *out_mark) {
    rpi_lane *lane = &transfer->device->lanes[index];
    lane->owes = true;
    *out_mark = transfer->marked[index] = lane->marked + 1;
    return RP_OK;
}

static rp_status record(rpi_device *device, rpi_lane *lane) {
    rpi_mark *mark = NULL;
    RP_TRY(take_mark(device, &mark));
    rp_status status = rpi_cuda_check(
        device->cuda, device->cuda->event_record(mark->event, lane->stream), "an event");
    if (status != RP_OK) {
        give_mark(device, mark);
        return status;
    }
    mark->next = NULL;
    mark->number = ++lane->marked;
    lane->owes = false;
    *lane->end = mark;
    lane->end = &mark->next;
    return RP_OK;
}

rp_status rpi_lanes_seal(rpi_device *device) {
    for (int i = 0; i < RPI_LANES; i++) {
        rpi_lane *lane = &device->lanes[i];
        RP_TRY(launch(device, lane));
        if (lane->owes) RP_TRY(record(device, lane));
    }
    return RP_OK;
}

static rp_status look_at(rpi_device *device, rpi_lane *lane) {
    while (lane->first) {
        rpi_mark *mark = lane->first;
        int done = 0;
        RP_TRY(rpi_cuda_check(device->cuda, device->cuda->event_done(mark->event, &done),
                              "what the GPU was given"));
        if (!done) break;
        lane->come = mark->number;
        lane->first = mark->next;
        if (!lane->first) lane->end = &lane->first;
        give_mark(device, mark);
    }
    return RP_OK;
}

bool rpi_lane_has_come(const rpi_transfer *transfer, int lane, uint64_t mark) {
    return transfer->device->lanes[lane].come >= mark;
}

rp_status rpi_lanes_look(rpi_device *device) {
    for (int i = 0; i < RPI_LANES; i++) RP_TRY(look_at(device, &device->lanes[i]));
    return RP_OK;
}

/* ---- the bell ---- */

static bool needs_arming(const rpi_lane *lane) {
    return lane->first && lane->rung < lane->first->number;
}

/* The next mark of the lane calls the progress owner. If that cannot be requested the GPU has
 * failed, and the progress owner's next look finds that. */
static bool arm_lane(const rpi_device *device, rpi_lane *lane) {
    const rpi_mark *mark = lane->first;
    if (!needs_arming(lane)) return true;
    const rpi_cuda_library *cuda = device->cuda;
    if (cuda->stream_wait_for(lane->bell, mark->event)) return false;
    atomic_fetch_add(&device->bell->holders, 1);
    if (cuda->stream_call(lane->bell, rpi_bell_ring, device->bell)) {
        atomic_fetch_sub(&device->bell->holders, 1);
        return false;
    }
    lane->rung = mark->number;
    return true;
}

bool rpi_lanes_arm(rpi_device *device) {
    rpi_cuda_before before;
    bool needs = false, armed = true;
    for (int i = 0; i < RPI_LANES; i++) needs |= needs_arming(&device->lanes[i]);
    if (!needs) return true;
    if (rpi_device_enter(device, &before) != RP_OK) return false;
    for (int i = 0; i < RPI_LANES; i++) armed &= arm_lane(device, &device->lanes[i]);
    rpi_device_leave(device, &before);
    return armed;
}
