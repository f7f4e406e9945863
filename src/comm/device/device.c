#include "comm/device/device.h"

#include "comm/core/communicator.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- the bell ---- */

void rpi_bell_leave(rpi_bell *bell) {
    if (atomic_fetch_sub(&bell->holders, 1) > 1) return;
    close(bell->fd);
    rpi_free(bell);
}

/* On a thread of the GPU's driver. */
void rpi_bell_ring(void *context) {
    rpi_bell *bell = context;
    rpi_event_set(bell->fd);
    rpi_bell_leave(bell);
}

static rp_status make_bell(const rpi_context *context, rpi_bell **out_bell) {
    rpi_bell *bell = NULL;
    int fd = fcntl(context->wake_fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return RP_FAIL_ERRNO(IO, "cannot make an event descriptor");
    rp_status status = rpi_alloc(sizeof *bell, "a bell", &bell);
    if (status != RP_OK) {
        close(fd);
        return status;
    }
    bell->fd = fd;
    atomic_init(&bell->holders, 1);
    *out_bell = bell;
    return RP_OK;
}

/* ---- GPUs of a context ---- */

/* Under the lock. */
rp_status rpi_device_find(rpi_context *context, const rpi_cuda_library *cuda, int number,
                          rpi_device **out_device) {
    rpi_device *device = context->devices;
    while (device && device->number != number) device = device->next;
    if (!device) {
        RP_TRY(rpi_alloc(sizeof *device, "a GPU", &device));
        rp_status status = make_bell(context, &device->bell);
        if (status != RP_OK) {
            rpi_free(device);
            return status;
        }
        device->context = context;
        device->cuda = cuda;
        device->number = number;
        device->next = context->devices;
        context->devices = device;
        atomic_store(&context->has_devices, true);
    }
    *out_device = device;
    return RP_OK;
}

void rpi_marks_free(const rpi_device *device, rpi_mark *mark) {
    for (rpi_mark *next; mark; mark = next) {
        next = mark->next;
        device->cuda->event_free(mark->event);
        rpi_free(mark);
    }
}

static void free_lanes(rpi_device *device) {
    for (int i = 0; i < RPI_LANES; i++) {
        rpi_lane *lane = &device->lanes[i];
        rpi_marks_free(device, lane->first);
        rpi_free(lane->calls);
        device->cuda->stream_free(lane->stream);
        device->cuda->stream_free(lane->bell);
        *lane = (rpi_lane){0};
    }
}

static void give_back(const rpi_device *device, int side, void *memory) {
    const rpi_cuda_library *cuda = device->cuda;
    if (memory) (void)(side == RPI_SIDE_HOST ? cuda->unpin(memory) : cuda->release(memory));
}

static void free_pool(rpi_device *device, int side) {
    rpi_pinned_pool *pool = &device->pools[side];
    for (int size = 0; size < RPI_PINNED_SIZES; size++)
        for (rpi_pinned *pinned = pool->unused[size], *after; pinned; pinned = after) {
            after = pinned->next;
            if (!pinned->of_pool) give_back(device, side, pinned->data);
            rpi_free(pinned);
        }
    give_back(device, side, pool->memory);
}

/* A GPU that cannot be used any more frees nothing. */
static void free_device(rpi_device *device) {
    rpi_cuda_before before;
    bool entered = rpi_device_enter(device, &before) == RP_OK;
    free_lanes(device);
    rpi_marks_free(device, device->marks);
    for (int side = 0; side < RPI_SIDES; side++) free_pool(device, side);
    if (entered) rpi_device_leave(device, &before);
    rpi_free(device);
}

static pthread_mutex_t lost_lock = PTHREAD_MUTEX_INITIALIZER;
static rpi_device *all_lost;

/* Freeing pinned memory waits for all work of the GPU, which may never end. */
static void keep_for_good(rpi_device *device) {
    device->context = NULL;
    device->bell = NULL;
    pthread_mutex_lock(&lost_lock);
    device->next = all_lost;
    all_lost = device;
    pthread_mutex_unlock(&lost_lock);
}

void rpi_devices_free(rpi_context *context) {
    for (rpi_device *device = context->devices, *next; device; device = next) {
        next = device->next;
        rpi_bell_leave(device->bell);
        if (device->is_lost)
            keep_for_good(device);
        else
            free_device(device);
    }
    context->devices = NULL;
}

/* ---- pinned memory ---- */

/* Powers of two from 4 KiB on. Kept until the context is closed: pinning and freeing may stop
 * the GPU, and the need of operations in flight is limited (docs/comm.md). */
enum { SMALLEST_BITS = 12 };

static int size_of(size_t bytes) {
    int size = 0;
    while (((size_t)1 << (SMALLEST_BITS + size)) < bytes) size++;
    return size;
}

static void fill_pool(rpi_device *device, int side, size_t bytes) {
    const rpi_cuda_library *cuda = device->cuda;
    rpi_pinned_pool *pool = &device->pools[side];
    if (pool->memory) return;
    if (side == RPI_SIDE_HOST ? cuda->pin(bytes, &pool->memory)
                              : cuda->allocate(bytes, &pool->memory))
        return;
    pool->bytes = bytes;
}

void rpi_pinned_fill(rpi_device *device, const size_t bytes[RPI_SIDES]) {
    for (int side = 0; side < RPI_SIDES; side++) fill_pool(device, side, bytes[side]);
}

/* From the pool, if it has room. */
static void *cut_from_pool(rpi_pinned_pool *pool, size_t bytes) {
    if (!pool->memory || pool->bytes - pool->used < bytes) return NULL;
    pool->used += bytes;
    return (unsigned char *)pool->memory + pool->used - bytes;
}

static rp_status take_alone(rpi_device *device, int side, size_t bytes, void **out) {
    rpi_cuda_before before;
    const rpi_cuda_library *cuda = device->cuda;
    RP_TRY(rpi_device_enter(device, &before));
    rp_status status = side == RPI_SIDE_HOST
                           ? rpi_cuda_pin(cuda, bytes, out)
                           : rpi_cuda_check(cuda, cuda->allocate(bytes, out), "accumulators");
    rpi_device_leave(device, &before);
    return status;
}

static rp_status make_pinned(rpi_device *device, int side, int size, rpi_pinned **out_pinned) {
    size_t bytes = (size_t)1 << (SMALLEST_BITS + size);
    rpi_pinned *pinned = NULL;
    RP_TRY(rpi_alloc(sizeof *pinned, "pinned memory", &pinned));
    void *data = cut_from_pool(&device->pools[side], bytes);
    pinned->size = size;
    pinned->side = side;
    pinned->of_pool = data != NULL;
    rp_status status = data ? RP_OK : take_alone(device, side, bytes, &data);
    if (status != RP_OK) {
        rpi_free(pinned);
        return status;
    }
    pinned->data = data;
    *out_pinned = pinned;
    return RP_OK;
}

static rp_status take(rpi_device *device, int side, size_t bytes, rpi_pinned **out_pinned) {
    int size = size_of(bytes);
    if (size >= RPI_PINNED_SIZES) return RP_FAIL(NOMEM, "%zu bytes cannot be pinned", bytes);
    rpi_pinned **unused = &device->pools[side].unused[size], *pinned = *unused;
    if (!pinned) return make_pinned(device, side, size, out_pinned);
    *unused = pinned->next;
    *out_pinned = pinned;
    return RP_OK;
}

rp_status rpi_pinned_take(rpi_device *device, size_t bytes, rpi_pinned **out_pinned) {
    return take(device, RPI_SIDE_HOST, bytes, out_pinned);
}

rp_status rpi_accumulator_take(rpi_device *device, size_t bytes, rpi_pinned **out_pinned) {
    return take(device, RPI_SIDE_GPU, bytes, out_pinned);
}

void rpi_pinned_give(rpi_device *device, rpi_pinned *pinned) {
    if (!pinned) return;
    rpi_pinned **unused = &device->pools[pinned->side].unused[pinned->size];
    pinned->next = *unused;
    *unused = pinned;
}
