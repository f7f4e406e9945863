/* One operation in its turn: chunks start, ready instructions run, finished chunks are
 * returned; and which frames belong to it. */
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/protocol/clear_to_send.h"
#include "comm/protocol/pair_protocol.h"
#include "comm/run/chunk_steps.h"
#include "comm/run/executor.h"
#include "comm/run/in_place.h"
#include "comm/run/receive.h"

#include "base/status.h"

#include <stdio.h>

/* A failure of this rank itself. Errors of a GPU do not name its rank. */
static void fail_own(const rp_request *request, rp_status status) {
    rp_comm *comm = request->comm;
    char text[160], place[192] = "";
    if (request->device)
        snprintf(place, sizeof place, "rank %d, in %s: ", comm->rank,
                 rpi_request_name(request, text, sizeof text));
    rpi_comm_fail_text(comm, status, comm->rank, "%s%.300s", place, rp_last_error()->message);
}

static bool waits_for_frame(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    return instruction->kind == RPI_STEP_RECV &&
           !rpi_instruction_is_void(chunk->request, chunk->index, instruction);
}

/* Run ready instructions, in the order of the schedule. RECVs become ready here, too, but
 * frames finish them: queued ones here, others in receive.c. Returns the number of instructions
 * run. */
static int run_chunk(rpi_chunk *chunk, int most) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    int ran = 0;
    for (int word = 0; word < compiled->words; word++) {
        uint64_t tried = 0, untried;
        while (ran < most && (untried = chunk->ready[word] & ~tried) != 0) {
            int bit = __builtin_ctzll(untried), index = 64 * word + bit;
            tried |= UINT64_C(1) << bit;
            if (waits_for_frame(chunk, &compiled->instruction[index])) {
                ran += rpi_receive_unexpected(chunk, index);
                continue;
            }
            bool was_in_use = rpi_in_place_is_in_use(chunk, index);
            rp_status status = rpi_instruction_run(chunk, index);
            if (status == RP_PENDING) {
                ran += !was_in_use && rpi_in_place_is_in_use(chunk, index);
                continue;
            }
            if (status != RP_OK) {
                fail_own(chunk->request, status);
                return ran;
            }
            rpi_chunk_finish(chunk, index);
            ran++;
        }
    }
    if (!ran) rpi_receive_unblock(chunk);
    return ran;
}

/* The window slides with the earliest chunk in flight: ranks that are done with it wait for
 * those that are not, so that all have started the earliest unfinished one (docs/comm.md). */
static bool may_start(const rp_request *request) {
    if (request->next_chunk >= (uint32_t)request->partition.split.chunks) return false;
    if (request->device && !request->device->has_begun) return false;
    return !request->chunks ||
           request->next_chunk - request->chunks->index < request->comm->chunks_in_flight;
}

/* Its results are complete. A failure is reported. */
static bool is_finished(rpi_chunk *chunk) {
    if (chunk->left) return false;
    if (!chunk->device) return true;
    rp_status status = rpi_device_is_finished(chunk);
    if (status < 0) fail_own(chunk->request, status);
    return status == RP_OK;
}

static bool retire_chunks(rp_request *request) {
    bool moved = false;
    for (rpi_chunk **at = &request->chunks; *at;) {
        rpi_chunk *chunk = *at;
        if (!is_finished(chunk)) {
            at = &chunk->next;
            continue;
        }
        *at = chunk->next;
        request->chunks_done++;
        rpi_receive_check_empty(chunk);
        rpi_chunk_release(chunk);
        moved = true;
    }
    return moved;
}

/* What the GPU has done since. False: it has failed, which is reported. */
static bool look_at_device(rp_request *request) {
    rp_status status = rpi_transfer_look(request->device);
    if (status != RP_OK) fail_own(request, status);
    return status == RP_OK;
}

static bool advance_here(rp_request *request, int *budget) {
    rp_comm *comm = request->comm;
    bool moved = false;
    if (request->device && !look_at_device(request)) return true;
    while (may_start(request)) {
        rp_status status = rpi_chunk_start(request);
        if (status != RP_OK) {
            fail_own(request, status);
            return true;
        }
        moved = true;
    }
    for (rpi_chunk *chunk = request->chunks; chunk && *budget > 0; chunk = chunk->next) {
        int ran = run_chunk(chunk, *budget);
        *budget -= ran;
        moved |= ran > 0;
        if (rpi_comm_has_failed(comm)) return true;
    }
    return retire_chunks(request) || moved;
}

/* The GPU's work of the iteration is launched, also for an operation that has failed: its end
 * comes after that. */
static void seal(rp_request *request) {
    const rp_comm *comm = request->comm;
    rp_status status = rpi_lanes_seal(request->device->device);
    if (status != RP_OK && !rpi_comm_has_failed(comm)) fail_own(request, status);
    if (!rpi_comm_has_failed(comm)) rpi_device_note_enqueued(request);
}

/* During an iteration with a GPU that GPU is this thread's. */
static bool advance(rp_request *request, int *budget) {
    const rpi_device *device = request->device ? request->device->device : NULL;
    rpi_cuda_before before;
    if (!device) return advance_here(request, budget);
    rp_status status = rpi_device_enter(device, &before);
    if (status != RP_OK) {
        fail_own(request, status);
        return true;
    }
    bool moved = advance_here(request, budget);
    seal(request);
    rpi_device_leave(device, &before);
    return moved;
}

static bool is_alone(const rp_request *request) {
    return request->kind->is_alone && request->kind->is_alone(request);
}

/* Some thread will continue to make progress for another operation, except for sends and
 * receives whose other side may come much later. */
static bool others_move(const rpi_context *context, const rp_request *request) {
    for (const rp_comm *comm = context->active; comm; comm = comm->next_active)
        for (const rp_request *other = comm->queue; other; other = other->next)
            if (other != request && !is_alone(other)) return true;
    return false;
}

/* The last operation that moves also waits for its bytes to leave this process, because perhaps
 * no thread makes progress afterwards. */
bool rpi_request_is_over(const rp_request *request) {
    const rpi_context *context = request->comm->context;
    if (request->chunks_done < (uint32_t)request->partition.split.chunks) return false;
    if (!context->mesh || others_move(context, request)) return true;
    for (int i = 0; context->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = context->mesh->endpoints[i];
        if (endpoint->transport->flushed(endpoint) == RP_PENDING) return false;
    }
    return true;
}

/* Collectives have one number on all ranks, sends and receives one for each pair. */
static int rank_of_number(const rp_request *request) {
    return request->kind->by_pair ? request->peer : RPI_ALL_RANKS;
}

bool rpi_request_enter(rp_request *request) {
    rp_comm *comm = request->comm;
    const rpi_operation_kind *kind = request->kind;
    kind->see(request);
    rp_status status =
        rpi_index_put(&comm->by_number, request->sequence, rank_of_number(request), request);
    if (status == RP_OK)
        return rpi_receive_compare(request) && (!kind->check_over || kind->check_over(comm));
    rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
    return false;
}

void rpi_request_leave(const rp_request *request) {
    rpi_index_remove(&request->comm->by_number, request->sequence, rank_of_number(request));
}

/* Thousands of sends and receives may be posted long before their other sides. */
static bool only_frames_move(const rp_request *request) {
    const rpi_compiled_schedule *compiled = request->compiled;
    if (!request->chunks || may_start(request)) return false;
    for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        for (int i = 0; i < compiled->schedule.count; i++)
            if (chunk->ready[i / 64] >> (i % 64) & 1 &&
                (!waits_for_frame(chunk, &compiled->instruction[i]) ||
                 chunk->unexpected[compiled->instruction[i].peer].first))
                return false;
    return true;
}

/* A send with a number sends an RTS; a receive from any rank looks for its sender first.
 * False: it has none yet. */
static bool prepare(rp_request *request) {
    if (request->stage == RPI_REQUEST_UNBOUND) {
        if (!rpi_p2p_bind(request)) return false;
        rpi_request_go_to(request, RPI_REQUEST_QUEUED);
        return rpi_request_enter(request);
    }
    if (request->kind->send_rts) request->kind->send_rts(request);
    return true;
}

bool rpi_request_run(rp_request *request, int *budget) {
    bool waits = request->stage == RPI_REQUEST_PARKED ||
                 request->awaits_control == request->comm->control_frames;
    if ((waits && !request->device) || !prepare(request)) return false;
    bool moved = advance(request, budget);
    if (request->asking) rpi_cts_send(request, moved);
    if (!moved && request->has_rts && !request->device && only_frames_move(request))
        rpi_request_go_to(request, RPI_REQUEST_PARKED);
    return moved;
}
