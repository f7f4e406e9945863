/* The executor: one pass takes what has come, runs what may run and sends what there is room
 * for. Older operations and earlier chunks go first. */
#include "comm/communicator.h"

#include "base/clock.h"
#include "base/memory.h"

#include <string.h>

/* Actions a pass runs before it looks at the links again. */
enum { PASS_ACTIONS = 8 };

/* ---- blocks and wire slots ---- */

static const size_t block_bytes[RPI_BLOCK_SIZES] = {0, 16 * 1024, RPI_FRAME_PAYLOAD};

rp_status rpi_block_take(rp_comm *comm, size_t bytes, rpi_block **out_block) {
    int size = 0;
    while (size + 1 < RPI_BLOCK_SIZES && block_bytes[size] < bytes) size++;
    rpi_block *block = comm->blocks[size];
    if (block)
        comm->blocks[size] = block->next;
    else
        RP_TRY(rpi_alloc(sizeof *block + block_bytes[size], "a frame", &block));
    block->next = NULL;
    block->size = size;
    block->bytes = bytes;
    *out_block = block;
    return RP_OK;
}

void rpi_block_give(rp_comm *comm, rpi_block *block) {
    block->next = comm->blocks[block->size];
    comm->blocks[block->size] = block;
}

static void empty_wire(rp_comm *comm, rpi_wire *wire) {
    if (wire->state == RPI_WIRE_FRAME) rpi_peer_release(&comm->peers[wire->peer]);
    if (wire->state == RPI_WIRE_BLOCK) rpi_block_give(comm, wire->block);
    wire->state = RPI_WIRE_EMPTY;
}

void rpi_wire_read(rpi_chunk *chunk, int slot) {
    rpi_wire *wire = &chunk->wires[slot];
    if (wire->readers) wire->readers--;
    if (!wire->readers) empty_wire(chunk->request->comm, wire);
}

/* ---- chunks ---- */

static rp_status new_chunk(const rpi_routine *routine, rpi_chunk **out_chunk) {
    const rpi_schedule *schedule = &routine->schedule;
    size_t words = (size_t)routine->words * sizeof(uint64_t);
    size_t wires = rpi_align_up((size_t)schedule->wires * sizeof(rpi_wire));
    size_t received = rpi_align_up((size_t)schedule->world * sizeof(int32_t));
    size_t head = rpi_align_up(sizeof(rpi_chunk));
    unsigned char *memory = NULL;
    RP_TRY(rpi_alloc(head + wires + received + 2 * words +
                         (size_t)schedule->count * sizeof(uint16_t),
                     "the state of a chunk", &memory));
    rpi_chunk *chunk = (rpi_chunk *)(void *)memory;
    chunk->wires = (rpi_wire *)(void *)(memory + head);
    chunk->received = (int32_t *)(void *)(memory + head + wires);
    chunk->ready = (uint64_t *)(void *)(memory + head + wires + received);
    chunk->finished = chunk->ready + routine->words;
    chunk->waits = (uint16_t *)(void *)(chunk->finished + routine->words);
    *out_chunk = chunk;
    return RP_OK;
}

static rp_status take_chunk(rp_request *request, rpi_chunk **out_chunk) {
    rpi_routine *routine = request->routine;
    rpi_chunk *chunk = routine->idle;
    if (!chunk)
        RP_TRY(new_chunk(routine, &chunk));
    else
        routine->idle = chunk->next;
    *out_chunk = chunk;
    size_t sums = (size_t)routine->sums * request->sum_stride;
    if (sums > chunk->sums_room) {
        chunk->sums_room = 0;
        rp_status status = rpi_grow_array(0, sums, 1, "accumulators", &chunk->sums);
        if (status != RP_OK) {
            chunk->next = routine->idle;
            routine->idle = chunk;
            return status;
        }
        chunk->sums_room = sums;
    }
    return RP_OK;
}

static void set_bit(uint64_t *set, int bit) {
    set[bit / 64] |= UINT64_C(1) << bit % 64;
}

static void reset_chunk(rpi_chunk *chunk, rp_request *request) {
    const rpi_routine *routine = request->routine;
    chunk->next = NULL;
    chunk->request = request;
    chunk->index = request->next_chunk++;
    chunk->left = routine->actions;
    memset(chunk->ready, 0, (size_t)routine->words * sizeof *chunk->ready);
    memset(chunk->finished, 0, (size_t)routine->words * sizeof *chunk->finished);
    memset(chunk->received, 0, (size_t)routine->schedule.world * sizeof *chunk->received);
    for (int w = 0; w < routine->schedule.wires; w++)
        chunk->wires[w] = (rpi_wire){.readers = routine->wires[w].readers};
    for (int i = 0; i < routine->schedule.count; i++) {
        chunk->waits[i] = routine->action[i].waits;
        if (!chunk->waits[i] && !routine->action[i].fused) set_bit(chunk->ready, i);
    }
}

static rp_status start_chunk(rp_request *request) {
    rpi_chunk *chunk = NULL;
    RP_TRY(take_chunk(request, &chunk));
    reset_chunk(chunk, request);
    rpi_chunk **end = &request->chunks;
    while (*end) end = &(*end)->next;
    *end = chunk;
    return RP_OK;
}

void rpi_chunk_release(rpi_chunk *chunk) {
    rpi_routine *routine = chunk->request->routine;
    for (int w = 0; w < routine->schedule.wires; w++)
        empty_wire(chunk->request->comm, &chunk->wires[w]);
    chunk->next = routine->idle;
    routine->idle = chunk;
}

void rpi_chunk_finish(rpi_chunk *chunk, int index) {
    const rpi_routine *routine = chunk->request->routine;
    const rpi_action *action = &routine->action[index];
    chunk->ready[index / 64] &= ~(UINT64_C(1) << index % 64);
    set_bit(chunk->finished, index);
    chunk->left--;
    for (int k = 0; k < action->nexts; k++) {
        int next = routine->next[action->first_next + k];
        if (--chunk->waits[next] == 0) set_bit(chunk->ready, next);
    }
}

static bool waits_for_frame(const rpi_chunk *chunk, const rpi_action *action) {
    return action->kind == RPI_STEP_RECV &&
           !rpi_action_is_void(chunk->request, chunk->index, action);
}

/* Run what is ready, in the order of the schedule. RECVs become ready here too, but frames
 * finish them. Returns actions run. */
static int run_chunk(rpi_chunk *chunk, int most) {
    rp_comm *comm = chunk->request->comm;
    const rpi_routine *routine = chunk->request->routine;
    int ran = 0;
    for (int word = 0; word < routine->words; word++) {
        uint64_t tried = 0, untried;
        while (ran < most && (untried = chunk->ready[word] & ~tried) != 0) {
            int bit = __builtin_ctzll(untried), index = 64 * word + bit;
            tried |= UINT64_C(1) << bit;
            if (waits_for_frame(chunk, &routine->action[index])) continue;
            rp_status status = rpi_action_run(chunk, index);
            if (status == RP_PENDING) continue;
            if (status != RP_OK) {
                rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
                return ran;
            }
            rpi_chunk_finish(chunk, index);
            ran++;
        }
    }
    return ran;
}

/* ---- operations ---- */

/* The window slides with the earliest chunk in flight, so that a frame of that chunk never
 * waits behind frames that its receiver has no place for. */
static bool may_start(const rp_request *request) {
    if (request->next_chunk >= (uint32_t)request->cut.split.chunks) return false;
    return !request->chunks ||
           request->next_chunk - request->chunks->index < request->comm->window;
}

static bool retire_chunks(rp_request *request) {
    bool moved = false;
    for (rpi_chunk **at = &request->chunks; *at;) {
        rpi_chunk *chunk = *at;
        if (chunk->left) {
            at = &chunk->next;
            continue;
        }
        *at = chunk->next;
        request->chunks_done++;
        rpi_chunk_release(chunk);
        moved = true;
    }
    return moved;
}

static bool advance(rp_request *request, int *budget) {
    rp_comm *comm = request->comm;
    bool moved = false;
    while (may_start(request)) {
        rp_status status = start_chunk(request);
        if (status != RP_OK) {
            rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
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
    return retire_chunks(request) || moved;
}

/* Somebody will go on to drive for another operation, but for sends and receives whose other
 * side is not there perhaps much later. */
static bool others_move(const rp_comm *comm, const rp_request *request) {
    for (const rp_request *other = comm->queue; other; other = other->next)
        if (other != request && !rpi_p2p_is_alone(other)) return true;
    return false;
}

/* The last operation that moves also waits for its bytes to leave this process: nobody may be
 * driving afterwards. */
static bool complete(const rp_request *request) {
    const rp_comm *comm = request->comm;
    if (request->chunks_done < (uint32_t)request->cut.split.chunks) return false;
    if (!comm->mesh || others_move(comm, request)) return true;
    for (int i = 0; comm->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = comm->mesh->endpoints[i];
        if (endpoint->transport->flushed(endpoint) == RP_PENDING) return false;
    }
    return true;
}

static void remove_from_queue(rp_comm *comm, rp_request **at) {
    rp_request *request = *at;
    *at = request->next;
    if (!*at) comm->queue_end = at;
}

static bool run_queue(rp_comm *comm) {
    bool moved = false;
    int budget = PASS_ACTIONS, collectives = 0;
    for (rp_request **at = &comm->queue; *at;) {
        rp_request *request = *at;
        bool p2p = request->collective == RPI_SENDRECV;
        if (p2p ? rpi_p2p_prepare(request) : collectives < RPI_ACTIVE_OPERATIONS)
            moved |= advance(request, &budget);
        collectives += !p2p;
        if (atomic_load(&comm->failed)) return true;
        if (!complete(request)) {
            at = &request->next;
            continue;
        }
        remove_from_queue(comm, at);
        rpi_request_complete(request, RP_OK, "");
        moved = true;
    }
    return moved;
}

static void note_posted(rp_comm *comm, const rp_request *request) {
    if (request->collective != RPI_SENDRECV) comm->seen_sequence = request->sequence;
}

static bool take_posted(rp_comm *comm) {
    if (!atomic_load(&comm->posted)) return false;
    pthread_mutex_lock(&comm->lock);
    rp_request *first = comm->inbox;
    *comm->queue_end = first;
    if (first) comm->queue_end = comm->inbox_end;
    comm->inbox = NULL;
    comm->inbox_end = &comm->inbox;
    atomic_store(&comm->posted, false);
    pthread_mutex_unlock(&comm->lock);
    for (rp_request *request = first; request; request = request->next)
        note_posted(comm, request);
    return first != NULL;
}

static void progress_endpoints(rp_comm *comm) {
    if (!comm->mesh) return;
    for (int i = 0; comm->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = comm->mesh->endpoints[i];
        /* Failures of single links come back from peek() and lend(). */
        (void)endpoint->transport->progress(endpoint);
    }
    for (int rank = 0; rank < comm->world; rank++) comm->peers[rank].full = false;
}

static bool receive_all(rp_comm *comm) {
    bool moved = false;
    for (int rank = 0; rank < comm->world && !atomic_load(&comm->failed); rank++)
        if (comm->peers[rank].link) moved |= rpi_receive(comm, rank);
    return moved;
}

static void fail_queue(rp_comm *comm) {
    for (rp_request *request = comm->queue, *next; request; request = next) {
        next = request->next;
        char text[sizeof comm->failure.text];
        rpi_failure_text(&comm->failure, request, text, sizeof text);
        for (rpi_chunk *chunk = request->chunks, *after; chunk; chunk = after) {
            after = chunk->next;
            rpi_chunk_release(chunk);
        }
        request->chunks = NULL;
        rpi_request_complete(request, comm->failure.status, text);
    }
    comm->queue = NULL;
    comm->queue_end = &comm->queue;
}

bool rpi_comm_pass(rp_comm *comm) {
    bool moved = take_posted(comm);
    if (!atomic_load(&comm->failed)) {
        progress_endpoints(comm);
        moved |= receive_all(comm);
        if (!atomic_load(&comm->failed)) moved |= run_queue(comm);
        if (!atomic_load(&comm->failed)) rpi_comm_check_links(comm);
    }
    if (atomic_load(&comm->failed)) fail_queue(comm);
    if (moved) comm->progress_ns = rpi_now_ns();
    return moved;
}
