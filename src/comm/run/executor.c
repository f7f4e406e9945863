/* The executor: one iteration takes what has come, runs what may run and sends what there is
 * room for. Urgent operations go first (urgency.h), of these the older, and earlier chunks. */
#include "comm/run/executor.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/parts/parts.h"
#include "comm/protocol/clear_to_send.h"
#include "comm/protocol/exchange_protocol.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/number_waiting.h"
#include "comm/protocol/numbering.h"
#include "comm/protocol/pair_protocol.h"
#include "comm/protocol/window_table.h"
#include "comm/run/chunk_steps.h"
#include "comm/run/in_place.h"
#include "comm/run/receive.h"

#include "base/clock.h"
#include "base/memory.h"

#include <string.h>

/* Instructions of a communicator that an iteration runs before it looks at the links again; of
 * others while something is urgent. */
enum { ITERATION_INSTRUCTIONS = 8, BESIDE_URGENT_INSTRUCTIONS = 2 };

/* While several communicators have moved so lately, they count as moving together. */
#define COMPANY_NS (RPI_SECOND_NS / 10)

/* ---- chunks ---- */

static rp_status new_chunk(const rpi_compiled_schedule *compiled, rpi_chunk **out_chunk) {
    const rpi_schedule *schedule = &compiled->schedule;
    size_t words = (size_t)compiled->words * sizeof(uint64_t);
    size_t encoded_slots =
        rpi_align_up((size_t)schedule->encoded_slots * sizeof(rpi_encoded_slot));
    size_t received = rpi_align_up((size_t)schedule->world * sizeof(int32_t));
    size_t unexpected = rpi_align_up((size_t)schedule->world * sizeof(rpi_frame_list));
    size_t head = rpi_align_up(sizeof(rpi_chunk));
    unsigned char *memory = NULL;
    RP_TRY(rpi_alloc(head + encoded_slots + received + unexpected + 4 * words +
                         (size_t)schedule->count * (sizeof(uint32_t) + sizeof(uint16_t)),
                     "the state of a chunk", &memory));
    rpi_chunk *chunk = (rpi_chunk *)(void *)memory;
    chunk->encoded_slots = (rpi_encoded_slot *)(void *)(memory + head);
    chunk->received = (int32_t *)(void *)(memory + head + encoded_slots);
    chunk->unexpected = (rpi_frame_list *)(void *)(memory + head + encoded_slots + received);
    chunk->ready = (uint64_t *)(void *)(memory + head + encoded_slots + received + unexpected);
    chunk->finished = chunk->ready + compiled->words;
    chunk->in_use = chunk->finished + compiled->words;
    chunk->writable = chunk->in_use + compiled->words;
    chunk->frame_number = (uint32_t *)(void *)(chunk->writable + compiled->words);
    chunk->waits = (uint16_t *)(void *)(chunk->frame_number + schedule->count);
    *out_chunk = chunk;
    return RP_OK;
}

/* Bytes of an accumulator of the chunk that is next: of the longest. */
static size_t sum_stride(const rp_request *request) {
    const rpi_compiled_schedule *compiled = request->compiled;
    size_t most = 0;
    for (int part = 0; compiled->sums && part < compiled->schedule.parts; part++) {
        if (compiled->sum_of_part[part] < 0) continue;
        size_t bytes = rpi_partition_sum_bytes(&request->partition, request->next_chunk, part);
        if (bytes > most) most = bytes;
    }
    return most;
}

static rp_status give_back(rpi_chunk *chunk, rpi_compiled_schedule *compiled,
                           rp_status status) {
    chunk->next = compiled->idle;
    compiled->idle = chunk;
    return status;
}

static rp_status take_chunk(rp_request *request, rpi_chunk **out_chunk) {
    rpi_compiled_schedule *compiled = request->compiled;
    rpi_chunk *chunk = compiled->idle;
    if (!chunk)
        RP_TRY(new_chunk(compiled, &chunk));
    else
        compiled->idle = chunk->next;
    *out_chunk = chunk;
    chunk->sum_stride = sum_stride(request);
    size_t sums = (size_t)compiled->sums * chunk->sum_stride;
    if (sums > chunk->sums_room) {
        chunk->sums_room = 0;
        rp_status status = rpi_grow_array(0, sums, 1, "accumulators", &chunk->sums);
        if (status != RP_OK) return give_back(chunk, compiled, status);
        chunk->sums_room = sums;
    }
    if (request->device && !chunk->of_device) {
        rp_status status = rpi_device_chunk_new(compiled, &chunk->of_device);
        if (status != RP_OK) return give_back(chunk, compiled, status);
    }
    return RP_OK;
}

static void reset_chunk(rpi_chunk *chunk, rp_request *request) {
    const rpi_compiled_schedule *compiled = request->compiled;
    chunk->next = NULL;
    chunk->request = request;
    chunk->index = request->next_chunk++;
    chunk->left = compiled->instructions;
    chunk->device = request->device ? chunk->of_device : NULL;
    memset(chunk->ready, 0, (size_t)compiled->words * sizeof *chunk->ready);
    memset(chunk->finished, 0, (size_t)compiled->words * sizeof *chunk->finished);
    memset(chunk->writable, 0, (size_t)compiled->words * sizeof *chunk->writable);
    memset(chunk->received, 0, (size_t)compiled->schedule.world * sizeof *chunk->received);
    for (int w = 0; w < compiled->schedule.encoded_slots; w++)
        chunk->encoded_slots[w] = (rpi_encoded_slot){
            .state = compiled->encoded_slots[w].stays ? RPI_ENCODED_VALUES : RPI_ENCODED_EMPTY,
            .readers = compiled->encoded_slots[w].readers,
            .edge_weight = 1};
    for (int i = 0; i < compiled->schedule.count; i++) {
        chunk->waits[i] = compiled->instruction[i].waits;
        if (!chunk->waits[i] && !compiled->instruction[i].fused)
            chunk->ready[i / 64] |= UINT64_C(1) << i % 64;
    }
}

static rp_status start_chunk(rp_request *request) {
    rpi_chunk *chunk = NULL;
    RP_TRY(take_chunk(request, &chunk));
    reset_chunk(chunk, request);
    rpi_chunk **end = &request->chunks;
    while (*end) end = &(*end)->next;
    *end = chunk;
    rpi_receive_claim(chunk);
    return chunk->device ? rpi_device_chunk_begin(chunk) : RP_OK;
}

void rpi_chunk_release(rpi_chunk *chunk) {
    rpi_compiled_schedule *compiled = chunk->request->compiled;
    rpi_in_place_revoke(chunk);
    for (int w = 0; w < compiled->schedule.encoded_slots; w++) rpi_encoded_slot_empty(chunk, w);
    if (chunk->device) rpi_device_chunk_release(chunk);
    for (int peer = 0; peer < compiled->schedule.world; peer++)
        rpi_frames_clear(chunk->request->comm->context, &chunk->unexpected[peer]);
    chunk->next = compiled->idle;
    compiled->idle = chunk;
}

/* What this rank could not do. A GPU's errors do not say whose GPU it is. */
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

/* Run what is ready, in the order of the schedule. RECVs become ready here too, but frames
 * finish them: those that were queued as unexpected here, others in receive.c. Returns
 * instructions run. */
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
            bool was_lent = rpi_in_place_is_in_use(chunk, index);
            rp_status status = rpi_instruction_run(chunk, index);
            if (status == RP_PENDING) {
                ran += !was_lent && rpi_in_place_is_in_use(chunk, index);
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

/* ---- operations ---- */

/* The window slides with the earliest chunk in flight: ranks that are done with it wait for
 * those that are not, so that all have started the earliest unfinished one (docs/comm.md). */
static bool may_start(const rp_request *request) {
    if (request->next_chunk >= (uint32_t)request->partition.split.chunks) return false;
    if (request->device && !request->device->has_begun) return false;
    return !request->chunks ||
           request->next_chunk - request->chunks->index < request->comm->chunks_in_flight;
}

/* Its results are where they belong. A failure is made known. */
static bool is_back(rpi_chunk *chunk) {
    if (chunk->left) return false;
    if (!chunk->device) return true;
    rp_status status = rpi_device_is_back(chunk);
    if (status < 0) fail_own(chunk->request, status);
    return status == RP_OK;
}

static bool retire_chunks(rp_request *request) {
    bool moved = false;
    for (rpi_chunk **at = &request->chunks; *at;) {
        rpi_chunk *chunk = *at;
        if (!is_back(chunk)) {
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

/* What the GPU has done since. False: it has failed, which is made known. */
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
        rp_status status = start_chunk(request);
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
    moved |= retire_chunks(request);
    if (request->device && !rpi_comm_has_failed(comm)) rpi_device_note_enqueued(request);
    return moved;
}

/* All that an iteration does with a GPU is done with this thread's being that one. */
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
    rpi_device_leave(device, &before);
    return moved;
}

static bool is_alone(const rp_request *request) {
    return request->kind->is_alone && request->kind->is_alone(request);
}

/* Somebody will go on to make progress for another operation, but for sends and receives whose
 * other side is not there perhaps much later. */
static bool others_move(const rpi_context *context, const rp_request *request) {
    for (const rp_comm *comm = context->active; comm; comm = comm->next_active)
        for (const rp_request *other = comm->queue; other; other = other->next)
            if (other != request && !is_alone(other)) return true;
    return false;
}

/* The last operation that moves also waits for its bytes to leave this process: nobody may be
 * making progress afterwards. */
static bool complete(const rp_request *request) {
    const rpi_context *context = request->comm->context;
    if (request->chunks_done < (uint32_t)request->partition.split.chunks) return false;
    if (!context->mesh || others_move(context, request)) return true;
    for (int i = 0; context->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = context->mesh->endpoints[i];
        if (endpoint->transport->flushed(endpoint) == RP_PENDING) return false;
    }
    return true;
}

static void count_queued(rp_comm *comm, const rp_request *request, int change) {
    comm->queued[request->urgency] += change;
    comm->context->queued[request->urgency] += change;
}

static void remove_from_queue(rp_comm *comm, rp_request **at) {
    rp_request *request = *at;
    *at = request->next;
    if (!*at) comm->queue_end = at;
    count_queued(comm, request, -1);
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

/* Sends and receives may be posted by the thousand, long before their other sides. */
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

/* What has its number is announced; a receive from any rank looks for its sender first. False:
 * it has none yet. */
static bool prepare(rp_request *request) {
    if (request->stage == RPI_REQUEST_UNBOUND) {
        if (!rpi_p2p_bind(request)) return false;
        rpi_request_go_to(request, RPI_REQUEST_QUEUED);
        return rpi_request_enter(request);
    }
    if (request->kind->announce) request->kind->announce(request);
    return true;
}

static bool run_request(rp_request *request, int *budget) {
    bool waits = request->stage == RPI_REQUEST_PARKED ||
                 request->awaits_control == request->comm->control_frames;
    if ((waits && !request->device) || !prepare(request)) return false;
    bool moved = advance(request, budget);
    if (request->asking) rpi_cts_send(request, moved);
    if (!moved && request->has_rts && !request->device && only_frames_move(request))
        rpi_request_go_to(request, RPI_REQUEST_PARKED);
    return moved;
}

/* What urgent operations have to send and to take shall not wait for long. */
static int iteration_instructions(const rpi_context *context, rpi_urgency urgency) {
    bool beside = urgency != RPI_URGENT && context->queued[RPI_URGENT] > 0;
    return beside ? BESIDE_URGENT_INSTRUCTIONS : ITERATION_INSTRUCTIONS;
}

static bool run_queue(rp_comm *comm, rpi_urgency urgency) {
    bool moved = false;
    int budget = iteration_instructions(comm->context, urgency), turns = 0;
    for (rp_request **at = &comm->queue; *at;) {
        rp_request *request = *at;
        if (request->urgency != urgency) {
            at = &request->next;
            continue;
        }
        if (!request->kind->takes_turns || turns++ < RPI_ACTIVE_OPERATIONS)
            moved |= run_request(request, &budget);
        if (rpi_comm_has_failed(comm)) return true;
        if (request->stage == RPI_REQUEST_PARKED || !complete(request)) {
            at = &request->next;
            continue;
        }
        remove_from_queue(comm, at);
        rpi_index_remove(&comm->by_number, request->sequence, rank_of_number(request));
        /* The first of a communicator that is made is a barrier. */
        if (comm->making != RPI_COMM_MET) rpi_comm_go_to(comm, RPI_COMM_MET);
        rpi_request_complete(request, RP_OK, "");
        moved = true;
    }
    return moved;
}

/* Under the lock: what one communicator's callers have posted. */
static rp_request *empty_inbox(rp_comm *comm) {
    rp_request *first = comm->inbox;
    *comm->queue_end = first;
    if (first) comm->queue_end = comm->inbox_end;
    comm->inbox = NULL;
    comm->inbox_end = &comm->inbox;
    comm->is_caller = false;
    return first;
}

static rp_comm *take_caller(rpi_context *context, rp_request **out_first) {
    pthread_mutex_lock(&context->lock);
    rp_comm *comm = context->callers;
    if (comm) {
        context->callers = comm->next_caller;
        *out_first = empty_inbox(comm);
    }
    if (!context->callers) atomic_store(&context->posted, false);
    pthread_mutex_unlock(&context->lock);
    return comm;
}

static bool take_posted(rpi_context *context) {
    bool moved = false;
    while (atomic_load(&context->posted)) {
        rp_request *first = NULL;
        rp_comm *comm = take_caller(context, &first);
        if (!comm) break;
        for (rp_request *request = first; request; request = request->next) {
            count_queued(comm, request, 1);
            bool is_unbound = rpi_request_is_unbound(request);
            rpi_request_go_to(request, is_unbound ? RPI_REQUEST_UNBOUND : RPI_REQUEST_QUEUED);
            if (!rpi_comm_has_failed(comm) && !is_unbound) (void)rpi_request_enter(request);
        }
        if (first) rpi_comm_progressed(comm, rpi_now_ns());
        rpi_context_activate(comm);
        moved = true;
    }
    return moved;
}

static void progress_endpoints(rpi_context *context) {
    if (!context->mesh) return;
    for (int i = 0; context->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = context->mesh->endpoints[i];
        /* Failures of single links come back from peek() and reserve(). */
        (void)endpoint->transport->progress(endpoint);
    }
    for (int rank = 0; context->any_full && rank < context->world; rank++)
        context->connections[rank].full = context->connections[rank].bulk_full = false;
    context->any_full = false;
}

static bool receive_from(rpi_context *context, const rpi_rank_set *ranks) {
    bool moved = false;
    for (int rank = rpi_rank_set_next(ranks, 0); rank >= 0;
         rank = rpi_rank_set_next(ranks, rank + 1))
        moved |= rpi_receive(context, rank);
    return moved;
}

/* Of the links that may have news. */
static bool receive_news(rpi_context *context) {
    bool moved = receive_from(context, &context->polled);
    for (int i = 0; context->mesh && context->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = context->mesh->endpoints[i];
        const rpi_transport *transport = endpoint->transport;
        const rpi_rank_set *news = transport->news ? transport->news(endpoint) : NULL;
        if (news) moved |= receive_from(context, news);
    }
    return moved;
}

/* The GPU reads none of these: what comes behind them is others'. */
static void let_frames_go(rp_request *request) {
    for (rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next) {
        rpi_in_place_revoke(chunk); /* some may be read in place from there */
        for (int w = 0; w < request->compiled->schedule.encoded_slots; w++)
            if (chunk->encoded_slots[w].state == RPI_ENCODED_FRAME ||
                chunk->encoded_slots[w].state == RPI_ENCODED_BUFFER)
                rpi_encoded_slot_empty(chunk, w);
    }
}

/* Requests whose memory a GPU still works on stay in the queue. */
static void fail_queue(rp_comm *comm) {
    comm->ending = false;
    for (rp_request **at = &comm->queue, *request; (request = *at) != NULL;) {
        char text[sizeof comm->failure.text];
        if (rpi_device_ends(request)) {
            comm->ending = true;
            let_frames_go(request);
            at = &request->next;
            continue;
        }
        rpi_failure_text(&comm->failure, request, text, sizeof text);
        for (rpi_chunk *chunk = request->chunks, *after; chunk; chunk = after) {
            after = chunk->next;
            rpi_chunk_release(chunk);
        }
        request->chunks = NULL;
        remove_from_queue(comm, at);
        rpi_index_remove(&comm->by_number, request->sequence, rank_of_number(request));
        rpi_request_complete(request, comm->failure.status, text);
    }
    comm->credit_due = comm->rejects_due = false;
}

static bool run_urgency(rpi_context *context, rpi_urgency urgency) {
    bool moved = false;
    for (rp_comm *comm = context->active; comm; comm = comm->next_active) {
        if (!comm->queued[urgency] || !rpi_comm_is_numbered(comm) || rpi_comm_has_failed(comm))
            continue;
        if (!run_queue(comm, urgency)) continue;
        rpi_comm_progressed(comm, rpi_now_ns());
        moved = true;
    }
    return moved;
}

static bool run_operations(rpi_context *context) {
    bool moved = false;
    for (rpi_urgency urgency = RPI_URGENT; urgency < RPI_URGENCIES; urgency++)
        if (context->queued[urgency]) moved |= run_urgency(context, urgency);
    return moved;
}

/* What else there is to do for one communicator. What moves for windows is no progress of the
 * operations that wait. */
static bool iterate_over(rp_comm *comm) {
    bool served = false;
    if (comm->untold_count && !rpi_comm_has_failed(comm)) rpi_number_send(comm);
    if (comm->credit_due && !rpi_comm_has_failed(comm)) rpi_flow_send_credit(comm);
    if (comm->rejects_due && !rpi_comm_has_failed(comm)) rpi_exchanges_send_rejects(comm);
    if (comm->windows) served = rpi_windows_serve(comm);
    if (!rpi_comm_has_failed(comm)) rpi_comm_check_links(comm);
    if (rpi_comm_has_failed(comm) && rpi_comm_is_judged(comm)) fail_queue(comm);
    return served;
}

static bool is_idle(const rp_comm *comm) {
    return !comm->queue && !comm->credit_due && !comm->rejects_due && !comm->windows_due &&
           (!comm->untold_count || rpi_comm_has_failed(comm));
}

/* Is bulk to leave room for others? */
static void note_company(rpi_context *context) {
    const rp_comm *comm = context->active;
    while (comm && !comm->queue) comm = comm->next_active;
    const rp_comm *other = comm ? comm->next_active : NULL;
    while (other && !other->queue) other = other->next_active;
    if (!other && !context->company) return;
    int64_t now = rpi_now_ns();
    if (other) context->company_ns = now + COMPANY_NS;
    context->company = now < context->company_ns;
}

/* The first takes what room there is in a link: who has had some comes behind those who have
 * not. */
static void take_turns(rpi_context *context) {
    rp_comm *served = NULL, **served_end = &served, **at = &context->active;
    for (rp_comm *comm; (comm = *at) != NULL;) {
        if (!comm->was_served) {
            at = &comm->next_active;
            continue;
        }
        comm->was_served = false;
        *at = comm->next_active;
        *served_end = comm;
        served_end = &comm->next_active;
    }
    *served_end = NULL;
    *at = served;
    context->active_end = served ? served_end : at;
}

bool rpi_progress_iterate(rpi_context *context) {
    bool moved = take_posted(context);
    context->iterations++;
    progress_endpoints(context);
    moved |= rpi_context_connect_new_links(context);
    moved |= receive_news(context);
    if (context->unnumbered) moved |= rpi_context_number_waiting(context);
    context->judged = context->breaks;
    note_company(context);
    moved |= run_operations(context);
    for (rp_comm **at = &context->active; *at;) {
        rp_comm *comm = *at;
        moved |= iterate_over(comm);
        if (!is_idle(comm)) {
            at = &comm->next_active;
            continue;
        }
        *at = comm->next_active;
        if (!*at) context->active_end = at;
        comm->is_active = false;
    }
    take_turns(context);
    if (moved) rpi_unexpected_queue_overdue(context);
    return moved;
}
