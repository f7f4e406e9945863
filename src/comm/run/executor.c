/* The executor: one pass takes what has come, runs what may run and sends what there is room
 * for. Urgent operations go first (urgency.h), of these the older, and earlier chunks. */
#include "comm/run/executor.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_blocks.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/parts/parts.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/number_waiting.h"
#include "comm/protocol/numbering.h"
#include "comm/protocol/pair_protocol.h"
#include "comm/protocol/round_protocol.h"
#include "comm/protocol/window_table.h"
#include "comm/run/chunk_steps.h"
#include "comm/run/in_place.h"
#include "comm/run/receive.h"

#include "base/clock.h"
#include "base/memory.h"

#include <string.h>

/* Actions of a communicator that a pass runs before it looks at the links again; of others
 * while something is urgent. */
enum { PASS_ACTIONS = 8, BESIDE_URGENT_ACTIONS = 2 };

/* While several communicators have moved so lately, they count as moving together. */
#define COMPANY_NS (RPI_SECOND_NS / 10)

/* ---- chunks ---- */

static rp_status new_chunk(const rpi_routine *routine, rpi_chunk **out_chunk) {
    const rpi_schedule *schedule = &routine->schedule;
    size_t words = (size_t)routine->words * sizeof(uint64_t);
    size_t wires = rpi_align_up((size_t)schedule->wires * sizeof(rpi_wire));
    size_t received = rpi_align_up((size_t)schedule->world * sizeof(int32_t));
    size_t aside = rpi_align_up((size_t)schedule->world * sizeof(rpi_frames));
    size_t head = rpi_align_up(sizeof(rpi_chunk));
    unsigned char *memory = NULL;
    RP_TRY(rpi_alloc(head + wires + received + aside + 4 * words +
                         (size_t)schedule->count * (sizeof(uint32_t) + sizeof(uint16_t)),
                     "the state of a chunk", &memory));
    rpi_chunk *chunk = (rpi_chunk *)(void *)memory;
    chunk->wires = (rpi_wire *)(void *)(memory + head);
    chunk->received = (int32_t *)(void *)(memory + head + wires);
    chunk->aside = (rpi_frames *)(void *)(memory + head + wires + received);
    chunk->ready = (uint64_t *)(void *)(memory + head + wires + received + aside);
    chunk->finished = chunk->ready + routine->words;
    chunk->lent = chunk->finished + routine->words;
    chunk->writable = chunk->lent + routine->words;
    chunk->lent_as = (uint32_t *)(void *)(chunk->writable + routine->words);
    chunk->waits = (uint16_t *)(void *)(chunk->lent_as + schedule->count);
    *out_chunk = chunk;
    return RP_OK;
}

/* Bytes of an accumulator of the chunk that is next: of the longest. */
static size_t sum_stride(const rp_request *request) {
    const rpi_routine *routine = request->routine;
    size_t most = 0;
    for (int part = 0; routine->sums && part < routine->schedule.parts; part++) {
        if (routine->sum_of_part[part] < 0) continue;
        size_t bytes = rpi_cut_sum_bytes(&request->cut, request->next_chunk, part);
        if (bytes > most) most = bytes;
    }
    return most;
}

static rp_status give_back(rpi_chunk *chunk, rpi_routine *routine, rp_status status) {
    chunk->next = routine->idle;
    routine->idle = chunk;
    return status;
}

static rp_status take_chunk(rp_request *request, rpi_chunk **out_chunk) {
    rpi_routine *routine = request->routine;
    rpi_chunk *chunk = routine->idle;
    if (!chunk)
        RP_TRY(new_chunk(routine, &chunk));
    else
        routine->idle = chunk->next;
    *out_chunk = chunk;
    chunk->sum_stride = sum_stride(request);
    size_t sums = (size_t)routine->sums * chunk->sum_stride;
    if (sums > chunk->sums_room) {
        chunk->sums_room = 0;
        rp_status status = rpi_grow_array(0, sums, 1, "accumulators", &chunk->sums);
        if (status != RP_OK) return give_back(chunk, routine, status);
        chunk->sums_room = sums;
    }
    if (request->device && !chunk->of_device) {
        rp_status status = rpi_device_chunk_new(routine, &chunk->of_device);
        if (status != RP_OK) return give_back(chunk, routine, status);
    }
    return RP_OK;
}

static void reset_chunk(rpi_chunk *chunk, rp_request *request) {
    const rpi_routine *routine = request->routine;
    chunk->next = NULL;
    chunk->request = request;
    chunk->index = request->next_chunk++;
    chunk->left = routine->actions;
    chunk->device = request->device ? chunk->of_device : NULL;
    memset(chunk->ready, 0, (size_t)routine->words * sizeof *chunk->ready);
    memset(chunk->finished, 0, (size_t)routine->words * sizeof *chunk->finished);
    memset(chunk->writable, 0, (size_t)routine->words * sizeof *chunk->writable);
    memset(chunk->received, 0, (size_t)routine->schedule.world * sizeof *chunk->received);
    for (int w = 0; w < routine->schedule.wires; w++)
        chunk->wires[w] =
            (rpi_wire){.state = routine->wires[w].stays ? RPI_WIRE_VALUES : RPI_WIRE_EMPTY,
                       .readers = routine->wires[w].readers,
                       .share = 1};
    for (int i = 0; i < routine->schedule.count; i++) {
        chunk->waits[i] = routine->action[i].waits;
        if (!chunk->waits[i] && !routine->action[i].fused)
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
    rpi_receive_adopt(chunk);
    return chunk->device ? rpi_device_chunk_begin(chunk) : RP_OK;
}

void rpi_chunk_release(rpi_chunk *chunk) {
    rpi_routine *routine = chunk->request->routine;
    rpi_in_place_withdraw(chunk);
    for (int w = 0; w < routine->schedule.wires; w++) rpi_wire_empty(chunk, w);
    if (chunk->device) rpi_device_chunk_release(chunk);
    for (int peer = 0; peer < routine->schedule.world; peer++)
        rpi_frames_clear(chunk->request->comm->fabric, &chunk->aside[peer]);
    chunk->next = routine->idle;
    routine->idle = chunk;
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

static bool waits_for_frame(const rpi_chunk *chunk, const rpi_action *action) {
    return action->kind == RPI_STEP_RECV &&
           !rpi_action_is_void(chunk->request, chunk->index, action);
}

/* Run what is ready, in the order of the schedule. RECVs become ready here too, but frames
 * finish them: those that were set aside here, others in receive.c. Returns actions run. */
static int run_chunk(rpi_chunk *chunk, int most) {
    const rpi_routine *routine = chunk->request->routine;
    int ran = 0;
    for (int word = 0; word < routine->words; word++) {
        uint64_t tried = 0, untried;
        while (ran < most && (untried = chunk->ready[word] & ~tried) != 0) {
            int bit = __builtin_ctzll(untried), index = 64 * word + bit;
            tried |= UINT64_C(1) << bit;
            if (waits_for_frame(chunk, &routine->action[index])) {
                ran += rpi_receive_aside(chunk, index);
                continue;
            }
            bool was_lent = rpi_in_place_is_lent(chunk, index);
            rp_status status = rpi_action_run(chunk, index);
            if (status == RP_PENDING) {
                ran += !was_lent && rpi_in_place_is_lent(chunk, index);
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
    if (request->next_chunk >= (uint32_t)request->cut.split.chunks) return false;
    if (request->device && !request->device->has_begun) return false;
    return !request->chunks ||
           request->next_chunk - request->chunks->index < request->comm->window;
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
        if (atomic_load(&comm->failed)) return true;
    }
    moved |= retire_chunks(request);
    if (request->device && !atomic_load(&comm->failed)) rpi_device_note_enqueued(request);
    return moved;
}

/* All that a pass does with a GPU is done with this thread's being that one. */
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

/* Somebody will go on to drive for another operation, but for sends and receives whose other
 * side is not there perhaps much later. */
static bool others_move(const rpi_fabric *fabric, const rp_request *request) {
    for (const rp_comm *comm = fabric->active; comm; comm = comm->next_active)
        for (const rp_request *other = comm->queue; other; other = other->next)
            if (other != request && !rpi_p2p_is_alone(other)) return true;
    return false;
}

/* The last operation that moves also waits for its bytes to leave this process: nobody may be
 * driving afterwards. */
static bool complete(const rp_request *request) {
    const rpi_fabric *fabric = request->comm->fabric;
    if (request->chunks_done < (uint32_t)request->cut.split.chunks) return false;
    if (!fabric->mesh || others_move(fabric, request)) return true;
    for (int i = 0; fabric->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = fabric->mesh->endpoints[i];
        if (endpoint->transport->flushed(endpoint) == RP_PENDING) return false;
    }
    return true;
}

static void count_queued(rp_comm *comm, const rp_request *request, int change) {
    comm->queued[request->urgency] += change;
    comm->fabric->queued[request->urgency] += change;
}

static void remove_from_queue(rp_comm *comm, rp_request **at) {
    rp_request *request = *at;
    *at = request->next;
    if (!*at) comm->queue_end = at;
    count_queued(comm, request, -1);
}

/* Collectives have one number on all ranks, sends and receives one for each pair. */
static int rank_of_number(const rp_request *request) {
    return request->collective == RPI_SENDRECV ? request->peer : RPI_ALL_RANKS;
}

bool rpi_request_enter(rp_request *request) {
    rp_comm *comm = request->comm;
    bool is_round = rpi_is_round(request->sequence);
    if (is_round)
        comm->seen_round = request->sequence;
    else if (request->collective != RPI_SENDRECV)
        comm->seen_sequence = request->sequence;
    rp_status status =
        rpi_index_put(&comm->by_number, request->sequence, rank_of_number(request), request);
    if (status == RP_OK)
        return rpi_receive_compare(request) && (!is_round || rpi_rounds_check_passed(comm));
    rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
    return false;
}

/* Sends and receives may be posted by the thousand, long before their other sides. */
static bool only_frames_move(const rp_request *request) {
    const rpi_routine *routine = request->routine;
    if (!request->chunks || may_start(request)) return false;
    for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        for (int i = 0; i < routine->schedule.count; i++)
            if (chunk->ready[i / 64] >> (i % 64) & 1 &&
                (!waits_for_frame(chunk, &routine->action[i]) ||
                 chunk->aside[routine->action[i].peer].first))
                return false;
    return true;
}

/* Tell the receiver of a send, find the sender for a receive; true: it may advance. */
static bool prepare_pair(rp_request *request) {
    if (rpi_p2p_is_unbound(request)) return rpi_p2p_bind(request) && rpi_request_enter(request);
    if (rpi_p2p_is_send(request) && !request->announced)
        request->announced = rpi_p2p_announce(request);
    return true;
}

static bool run_p2p(rp_request *request, int *budget) {
    bool waits = request->awaits_frame || request->awaits_word == request->comm->words;
    if ((waits && !request->device) || !prepare_pair(request)) return false;
    if (advance(request, budget)) return true;
    bool told = request->announced || request->routine->schedule.rank != 0;
    request->awaits_frame = told && !request->device && only_frames_move(request);
    return false;
}

static bool run_collective(rp_request *request, int *budget) {
    bool moved = advance(request, budget);
    if (request->asking) rpi_flow_grant(request, moved);
    return moved;
}

/* What urgent operations have to send and to take shall not wait for long. */
static int pass_actions(const rpi_fabric *fabric, rpi_urgency urgency) {
    bool beside = urgency != RPI_URGENT && fabric->queued[RPI_URGENT] > 0;
    return beside ? BESIDE_URGENT_ACTIONS : PASS_ACTIONS;
}

static bool run_queue(rp_comm *comm, rpi_urgency urgency) {
    bool moved = false;
    int budget = pass_actions(comm->fabric, urgency), collectives = 0;
    for (rp_request **at = &comm->queue; *at;) {
        rp_request *request = *at;
        bool p2p = request->collective == RPI_SENDRECV;
        if (request->urgency != urgency) {
            at = &request->next;
            continue;
        }
        if (p2p)
            moved |= run_p2p(request, &budget);
        else if (collectives++ < RPI_ACTIVE_OPERATIONS)
            moved |= run_collective(request, &budget);
        if (atomic_load(&comm->failed)) return true;
        if (request->awaits_frame || !complete(request)) {
            at = &request->next;
            continue;
        }
        remove_from_queue(comm, at);
        rpi_index_remove(&comm->by_number, request->sequence, rank_of_number(request));
        comm->has_met = true; /* the first of a communicator that is made is a barrier */
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

static rp_comm *take_caller(rpi_fabric *fabric, rp_request **out_first) {
    pthread_mutex_lock(&fabric->lock);
    rp_comm *comm = fabric->callers;
    if (comm) {
        fabric->callers = comm->next_caller;
        *out_first = empty_inbox(comm);
    }
    if (!fabric->callers) atomic_store(&fabric->posted, false);
    pthread_mutex_unlock(&fabric->lock);
    return comm;
}

static bool take_posted(rpi_fabric *fabric) {
    bool moved = false;
    while (atomic_load(&fabric->posted)) {
        rp_request *first = NULL;
        rp_comm *comm = take_caller(fabric, &first);
        if (!comm) break;
        for (rp_request *request = first; request; request = request->next) {
            count_queued(comm, request, 1);
            if (!atomic_load(&comm->failed) && !rpi_p2p_is_unbound(request))
                (void)rpi_request_enter(request);
        }
        if (first) rpi_comm_progressed(comm, rpi_now_ns());
        rpi_fabric_activate(comm);
        moved = true;
    }
    return moved;
}

static void progress_endpoints(rpi_fabric *fabric) {
    if (!fabric->mesh) return;
    for (int i = 0; fabric->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = fabric->mesh->endpoints[i];
        /* Failures of single links come back from peek() and lend(). */
        (void)endpoint->transport->progress(endpoint);
    }
    for (int rank = 0; fabric->any_full && rank < fabric->world; rank++)
        fabric->ports[rank].full = fabric->ports[rank].bulk_full = false;
    fabric->any_full = false;
}

static bool receive_from(rpi_fabric *fabric, const rpi_rank_set *ranks) {
    bool moved = false;
    for (int rank = rpi_rank_set_next(ranks, 0); rank >= 0;
         rank = rpi_rank_set_next(ranks, rank + 1))
        moved |= rpi_receive(fabric, rank);
    return moved;
}

/* Of the links that may have news. */
static bool receive_news(rpi_fabric *fabric) {
    bool moved = receive_from(fabric, &fabric->polled);
    for (int i = 0; fabric->mesh && fabric->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = fabric->mesh->endpoints[i];
        const rpi_transport *transport = endpoint->transport;
        const rpi_rank_set *news = transport->news ? transport->news(endpoint) : NULL;
        if (news) moved |= receive_from(fabric, news);
    }
    return moved;
}

/* The GPU reads none of these: what comes behind them is others'. */
static void let_frames_go(rp_request *request) {
    for (rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next) {
        rpi_in_place_withdraw(chunk); /* some may be lent from there */
        for (int w = 0; w < request->routine->schedule.wires; w++)
            if (chunk->wires[w].state == RPI_WIRE_FRAME ||
                chunk->wires[w].state == RPI_WIRE_BLOCK)
                rpi_wire_empty(chunk, w);
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
    comm->credit_due = comm->passed_due = false;
}

static bool run_urgency(rpi_fabric *fabric, rpi_urgency urgency) {
    bool moved = false;
    for (rp_comm *comm = fabric->active; comm; comm = comm->next_active) {
        if (!comm->queued[urgency] || !comm->is_numbered || atomic_load(&comm->failed))
            continue;
        if (!run_queue(comm, urgency)) continue;
        rpi_comm_progressed(comm, rpi_now_ns());
        moved = true;
    }
    return moved;
}

static bool run_operations(rpi_fabric *fabric) {
    bool moved = false;
    for (rpi_urgency urgency = RPI_URGENT; urgency < RPI_URGENCIES; urgency++)
        if (fabric->queued[urgency]) moved |= run_urgency(fabric, urgency);
    return moved;
}

/* What else there is to do for one communicator. What moves for windows is no progress of the
 * operations that wait. */
static bool pass_over(rp_comm *comm) {
    bool served = false;
    if (comm->untold_count && !atomic_load(&comm->failed)) rpi_number_tell(comm);
    if (comm->credit_due && !atomic_load(&comm->failed)) rpi_flow_credit(comm);
    if (comm->passed_due && !atomic_load(&comm->failed)) rpi_rounds_tell_passed(comm);
    if (comm->windows) served = rpi_windows_serve(comm);
    if (!atomic_load(&comm->failed)) rpi_comm_check_links(comm);
    if (atomic_load(&comm->failed) && rpi_comm_is_judged(comm)) fail_queue(comm);
    return served;
}

static bool is_idle(const rp_comm *comm) {
    return !comm->queue && !comm->credit_due && !comm->passed_due && !comm->windows_due &&
           (!comm->untold_count || atomic_load(&comm->failed));
}

/* Is bulk to leave room for others? */
static void note_company(rpi_fabric *fabric) {
    const rp_comm *comm = fabric->active;
    while (comm && !comm->queue) comm = comm->next_active;
    const rp_comm *other = comm ? comm->next_active : NULL;
    while (other && !other->queue) other = other->next_active;
    if (!other && !fabric->company) return;
    int64_t now = rpi_now_ns();
    if (other) fabric->company_ns = now + COMPANY_NS;
    fabric->company = now < fabric->company_ns;
}

/* The first takes what room there is in a link: who has had some comes behind those who have
 * not. */
static void take_turns(rpi_fabric *fabric) {
    rp_comm *served = NULL, **served_end = &served, **at = &fabric->active;
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
    fabric->active_end = served ? served_end : at;
}

bool rpi_fabric_pass(rpi_fabric *fabric) {
    bool moved = take_posted(fabric);
    fabric->passes++;
    progress_endpoints(fabric);
    moved |= rpi_fabric_take_links(fabric);
    moved |= receive_news(fabric);
    if (fabric->unnumbered) moved |= rpi_fabric_number_waiting(fabric);
    fabric->judged = fabric->breaks;
    note_company(fabric);
    moved |= run_operations(fabric);
    for (rp_comm **at = &fabric->active; *at;) {
        rp_comm *comm = *at;
        moved |= pass_over(comm);
        if (!is_idle(comm)) {
            at = &comm->next_active;
            continue;
        }
        *at = comm->next_active;
        if (!*at) fabric->active_end = at;
        comm->is_active = false;
    }
    take_turns(fabric);
    if (moved) rpi_set_aside_overdue(fabric);
    return moved;
}
