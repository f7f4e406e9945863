/* Requests: pooled, posted in order, completed once.
 *
 *      IDLE ----> MADE ----> POSTED ----> QUEUED <----> PARKED     has its number; frames that
 *       ^           |          |            ^  |           |       come are its own
 *       |   refused |          |            |  |           |
 *       |           |          '-------> UNBOUND           |       has none until it has found
 *       |           |                       |  |           |       its sender
 *       |           |                       v  v           v
 *       '-----------'<------ freed ------------------ DONE         its status is known
 *
 * MADE is its caller's, as is DONE; all between is [progress]. What has failed completes from
 * wherever it is. */
#include "comm/core/request.h"
#include "comm/core/communicator.h"
#include "comm/core/completions.h"
#include "comm/core/progress_owner.h"
#include "comm/core/traffic.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/states.h"
#include "base/status.h"
#include "net/memory/buffers.h"

#include <string.h>

static const rpi_states stages[] = {
    [RPI_REQUEST_IDLE] = RPI_STATE(RPI_REQUEST_MADE),
    [RPI_REQUEST_MADE] = RPI_STATE(RPI_REQUEST_POSTED) | RPI_STATE(RPI_REQUEST_IDLE),
    [RPI_REQUEST_POSTED] = RPI_STATE(RPI_REQUEST_UNBOUND) | RPI_STATE(RPI_REQUEST_QUEUED),
    [RPI_REQUEST_UNBOUND] = RPI_STATE(RPI_REQUEST_QUEUED) | RPI_STATE(RPI_REQUEST_DONE),
    [RPI_REQUEST_QUEUED] = RPI_STATE(RPI_REQUEST_PARKED) | RPI_STATE(RPI_REQUEST_DONE),
    [RPI_REQUEST_PARKED] = RPI_STATE(RPI_REQUEST_QUEUED) | RPI_STATE(RPI_REQUEST_DONE),
    [RPI_REQUEST_DONE] = RPI_STATE(RPI_REQUEST_IDLE),
};

void rpi_request_go_to(rp_request *request, rpi_request_stage stage) {
    RPI_ENTER(stages, request->stage, stage);
}

static rp_request *take_idle(rp_comm *comm) {
    pthread_mutex_lock(&comm->context->lock);
    rp_request *request = comm->idle_requests;
    if (request) comm->idle_requests = request->next;
    pthread_mutex_unlock(&comm->context->lock);
    return request;
}

static void enlist(rp_comm *comm, rp_request *request) {
    pthread_mutex_lock(&comm->context->lock);
    request->sibling = comm->requests;
    comm->requests = request;
    pthread_mutex_unlock(&comm->context->lock);
}

rp_status rpi_request_new(rp_comm *comm, rp_request **out_request) {
    rp_request *request = take_idle(comm);
    if (!request) {
        RP_TRY(rpi_alloc(sizeof *request, "a request", &request));
        enlist(comm, request);
    }
    *request = (rp_request){.stage = request->stage,
                            .comm = comm,
                            .sibling = request->sibling,
                            .partition = request->partition,
                            .neighborhood = request->neighborhood,
                            .edges = request->edges,
                            .transfer = request->transfer,
                            .peer = RPI_NO_PEER};
    rpi_request_go_to(request, RPI_REQUEST_MADE);
    *out_request = request;
    return RP_OK;
}

void rpi_request_free(rp_request *request) {
    rp_comm *comm = request->comm;
    rpi_request_go_to(request, RPI_REQUEST_IDLE);
    rpi_partition_clear(&request->partition);
    pthread_mutex_lock(&comm->context->lock);
    request->next = comm->idle_requests;
    comm->idle_requests = request;
    pthread_mutex_unlock(&comm->context->lock);
}

/* Under the lock. */
static rp_status admit(rp_request *request, rpi_failure *out_failure) {
    rp_comm *comm = request->comm;
    RP_TRY(request->kind->number(request));
    request->header.sequence = request->sequence;
    if (comm->failure.status != RP_OK) {
        *out_failure = comm->failure;
        return comm->failure.status;
    }
    comm->stats.operations++;
    request->moved = 0;
    request->moved_ns = rpi_now_ns();
    if (comm->in_flight++ == 0) comm->busy_since_ns = request->moved_ns;
    if (comm->context->in_flight++ == 0) comm->context->busy_since_ns = request->moved_ns;
    if (comm->group) rpi_control_note_posted(comm->group, comm->in_flight, true);
    return RP_OK;
}

/* Under the lock. */
static void enter_inboxes(rp_comm *comm) {
    if (!comm->has_inbox) {
        comm->has_inbox = true;
        comm->next_inbox = comm->context->inboxes;
        comm->context->inboxes = comm;
    }
    atomic_store(&comm->context->posted, true);
}

void rpi_comm_request_progress(rp_comm *comm) {
    pthread_mutex_lock(&comm->context->lock);
    enter_inboxes(comm);
    pthread_mutex_unlock(&comm->context->lock);
    rpi_progress_wake(comm->context);
}

/* Under the lock. */
static void put_into_inbox(rp_request *request) {
    rp_comm *comm = request->comm;
    rpi_request_go_to(request, RPI_REQUEST_POSTED);
    *comm->inbox_end = request;
    comm->inbox_end = &request->next;
    enter_inboxes(comm);
}

/* Buffers are not freed while an operation in flight uses them. */
static void use_buffers(const rp_request *request, int change) {
    const rpi_partition *partition = &request->partition;
    for (size_t i = 0; i < partition->count; i++) {
        const rpi_extent *extent = &partition->extents[i];
        size_t bytes = extent->count * rp_dtype_bytes(extent->dtype);
        if (extent->in) rpi_buffers_use(extent->in, bytes, change);
        if (extent->out) rpi_buffers_use(extent->out, bytes, change);
    }
}

static rp_status post(rp_request *request, bool enqueues) {
    rp_comm *comm = request->comm;
    rpi_failure failure = {.status = RP_OK};
    rpi_request_sign(request);
    request->urgency = rpi_urgency_of(request);
    if (enqueues) use_buffers(request, 1);
    pthread_mutex_lock(&comm->context->lock);
    rp_status status = admit(request, &failure);
    if (status == RP_OK && enqueues) put_into_inbox(request);
    pthread_mutex_unlock(&comm->context->lock);
    if (status != RP_OK && enqueues) use_buffers(request, -1);
    if (status == RP_OK && enqueues) rpi_progress_wake(comm->context);
    if (failure.status == RP_OK) return status;
    char text[sizeof failure.text];
    rpi_failure_text(&failure, request, text, sizeof text);
    return rpi_fail(failure.status, __FILE__, __LINE__, "%s", text);
}

rp_status rpi_request_admit(rp_request *request) {
    return post(request, false);
}

void rpi_request_enqueue(rp_request *request) {
    rp_comm *comm = request->comm;
    use_buffers(request, 1);
    pthread_mutex_lock(&comm->context->lock);
    put_into_inbox(request);
    pthread_mutex_unlock(&comm->context->lock);
    rpi_progress_wake(comm->context);
}

rp_status rpi_request_post(rp_request *request) {
    return post(request, true);
}

/* The waiter may free the request as soon as the lock is released. */
void rpi_request_complete(rp_request *request, rp_status status, const char *message) {
    rp_comm *comm = request->comm;
    use_buffers(request, -1);
    rpi_partition_clear(&request->partition); /* a kept request keeps no copy of its input */
    pthread_mutex_lock(&comm->context->lock);
    request->status = status;
    request->message[0] = '\0';
    if (*message) snprintf(request->message, sizeof request->message, "%s", message);
    comm->context->in_flight--;
    if (--comm->in_flight == 0)
        comm->stats.busy_s += rpi_seconds(rpi_now_ns() - comm->busy_since_ns);
    if (comm->group) rpi_control_note_posted(comm->group, comm->in_flight, false);
    comm->stats.encode_s = rpi_seconds(comm->encode_ns);
    comm->stats.decode_s = rpi_seconds(comm->decode_ns);
    rpi_request_go_to(request, RPI_REQUEST_DONE);
    atomic_store(&request->done, true);
    atomic_store(&request->enqueued, true);
    if (request->completions) rpi_completions_put(request->completions, request->token);
    pthread_cond_broadcast(&comm->context->changed);
    pthread_mutex_unlock(&comm->context->lock);
}

rp_status rpi_comm_compiled_schedule(rp_comm *comm, rpi_collective collective, const char *name,
                                     const rpi_plan_request *plan, const rpi_load *load,
                                     rpi_compiled_schedule **out_compiled) {
    const rpi_algorithm *algorithm = NULL;
    if (name)
        RP_TRY(rpi_algorithm_find(collective, name, &algorithm));
    else
        RP_TRY(rpi_choices_find(&comm->choices, collective, plan->world, load->lossy,
                                load->bytes, &algorithm));
    for (rpi_compiled_schedule *compiled = comm->compiled_schedules; compiled;
         compiled = compiled->sibling) {
        const rpi_schedule *schedule = &compiled->schedule;
        if (schedule->algorithm != algorithm || schedule->root != plan->root ||
            schedule->world != plan->world || schedule->rank != plan->rank ||
            schedule->mean != plan->mean || compiled->plain != load->plain ||
            compiled->device != load->device)
            continue;
        *out_compiled = compiled;
        return RP_OK;
    }
    rpi_compiled_schedule *compiled = NULL;
    RP_TRY(rpi_schedule_compile(algorithm, plan, load->plain, load->device, &compiled));
    compiled->sibling = comm->compiled_schedules;
    comm->compiled_schedules = compiled;
    *out_compiled = compiled;
    return RP_OK;
}

/* If bytes move at the speed of memory, the data that all ranks have in flight together is to
 * stay in the processor's caches: window * parts * parts * bytes of a part, 2 MiB. Frames of
 * lossy codecs are short enough with parts of the length for a network; with shorter ones their
 * headers would count. */
enum { CACHED_BYTES = 512 * 1024, PART_BYTES_MIN = 16 * 1024, PART_BYTES_MAX = 128 * 1024 };

size_t rpi_comm_part_bytes(const rp_comm *comm) {
    return comm->context->memory == RP_MEMORY_CUDA ? RPI_DEVICE_PART_BYTES : 0;
}

size_t rpi_comm_chunk_bytes(const rp_comm *comm, rpi_split_layout layout, int parts,
                            bool lossy) {
    bool by_device = rpi_comm_part_bytes(comm) && layout != RPI_SPLIT_BLOCKS;
    if (comm->chunk_bytes || !comm->one_host || by_device) return comm->chunk_bytes;
    if (lossy) return layout == RPI_SPLIT_BLOCKS ? 0 : (size_t)parts * RPI_PART_BYTES;
    size_t bytes = CACHED_BYTES / ((size_t)parts * (size_t)parts);
    if (bytes < PART_BYTES_MIN) bytes = PART_BYTES_MIN;
    if (bytes > PART_BYTES_MAX) bytes = PART_BYTES_MAX;
    return layout == RPI_SPLIT_BLOCKS ? bytes : (size_t)parts * bytes;
}
