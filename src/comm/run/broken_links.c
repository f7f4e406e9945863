/* Does a broken link matter? Only to operations that need something from it. */
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"
#include "comm/core/request.h"
#include "comm/protocol/unexpected.h"
#include "comm/run/executor.h"
#include "comm/run/in_place.h"

/* A closed link is no failure for an operation that needs nothing from it, because a peer may
 * finish earlier. */
typedef struct need {
    bool sends;     /* something is still to be sent to the rank */
    int64_t frames; /* still to come from it; frames queued as unexpected have come */
    uint64_t bytes; /* payload bytes in these, except for chunks that have not started */
} need;

static void need_of_chunk(const rpi_chunk *chunk, int peer, need *n) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    for (int i = 0; i < compiled->schedule.count; i++) {
        const rpi_instruction *instruction = &compiled->instruction[i];
        bool finished = chunk->finished[i / 64] >> (i % 64) & 1;
        if (finished || instruction->peer != peer) continue;
        if (rpi_instruction_is_void(chunk->request, chunk->index, instruction)) continue;
        if (instruction->kind == RPI_STEP_SEND)
            n->sends |=
                !rpi_in_place_is_in_use(chunk, i) || !rpi_in_place_is_completed(chunk, i);
        if (instruction->kind != RPI_STEP_RECV) continue;
        n->frames++;
        n->bytes += rpi_instruction_bytes(chunk->request, chunk->index, instruction);
    }
}

/* How many of the chunks that have not started yet move this instruction's part. */
static int64_t later_chunks(const rp_request *request, const rpi_instruction *instruction) {
    int64_t chunks = request->partition.split.chunks;
    bool in_blocks = request->partition.split.layout == RPI_SPLIT_BLOCKS;
    if (in_blocks && instruction->from != RPI_SLOT_RTR && instruction->into != RPI_SLOT_RTR) {
        int64_t slices = rpi_split_pieces(&request->partition.split, instruction->part);
        chunks = slices > 1 ? slices : 1; /* the first always has its frames */
    }
    return chunks > request->next_chunk ? chunks - request->next_chunk : 0;
}

static void need_of_later_chunks(const rp_request *request, int peer, need *n) {
    const rpi_compiled_schedule *compiled = request->compiled;
    for (int i = 0; i < compiled->schedule.count; i++) {
        const rpi_instruction *instruction = &compiled->instruction[i];
        if (instruction->peer != peer) continue;
        int64_t later = later_chunks(request, instruction);
        if (instruction->kind == RPI_STEP_SEND && later) n->sends = true;
        if (instruction->kind == RPI_STEP_RECV) n->frames += later;
    }
}

/* Only for messages: it examines every chunk. */
static uint64_t bytes_of_later_chunks(const rp_request *request, int peer) {
    const rpi_compiled_schedule *compiled = request->compiled;
    uint64_t bytes = 0;
    for (int i = 0; i < compiled->schedule.count; i++) {
        const rpi_instruction *instruction = &compiled->instruction[i];
        if (instruction->peer != peer || instruction->kind != RPI_STEP_RECV) continue;
        for (int64_t c = 0; c < later_chunks(request, instruction); c++)
            bytes +=
                rpi_instruction_bytes(request, request->next_chunk + (uint32_t)c, instruction);
    }
    return bytes;
}

static bool is_alone(const rp_comm *comm) {
    for (int rank = 0; rank < comm->world; rank++)
        if (rank != comm->rank && !comm->peers[rank].broken) return false;
    return true;
}

static void have_come(const rpi_frame_buffer *buffer, need *n) {
    for (; buffer; buffer = buffer->next) {
        n->frames--;
        n->bytes -= buffer->bytes;
    }
}

/* peer -1: there is none. */
static void need_of_peer(const rp_request *request, int peer, need *n) {
    if (peer < 0) return;
    for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        need_of_chunk(chunk, peer, n);
    need_of_later_chunks(request, peer, n);
}

static need need_of(const rp_request *request, int rank) {
    need n = {0};
    if (!rpi_comm_is_numbered(request->comm) && rank == 0) n.frames++; /* it gives the number */
    if (request->stage == RPI_REQUEST_UNBOUND) {
        n.frames = is_alone(request->comm); /* one rank that may still send is enough */
        return n;
    }
    if (!rpi_request_concerns(request, rank)) return n;
    int peer = rpi_request_peer(request, rank);
    int into = request->kind->destination(request, rank);
    need_of_peer(request, peer, &n);
    if (into != peer) need_of_peer(request, into, &n);
    for (const rpi_chunk *chunk = request->chunks; peer >= 0 && chunk; chunk = chunk->next)
        have_come(chunk->unexpected[peer].first, &n);
    const rpi_unexpected *unexpected =
        rpi_unexpected_find(request->comm, rank, request->sequence);
    if (unexpected) have_come(unexpected->frames.first, &n);
    return n;
}

static void fail_broken(rp_comm *comm, const rp_request *request, int rank, uint64_t bytes) {
    const rpi_peer *peer = &comm->peers[rank];
    char text[160];
    rpi_comm_fail_text(
        comm, peer->broken, rank, "%s's link to %s failed in %s, %llu bytes short: %s",
        rpi_rank_name(comm, comm->rank).text, rpi_rank_name(comm, rank).text,
        rpi_request_text(request, text, sizeof text), (unsigned long long)bytes, peer->reason);
}

void rpi_comm_check_links(rp_comm *comm) {
    for (int rank = 0; comm->has_broken && rank < comm->world; rank++) {
        if (!comm->peers[rank].broken) continue;
        for (const rp_request *request = comm->queue; request; request = request->next) {
            need n = need_of(request, rank);
            if (!n.sends && n.frames <= 0) continue;
            n.bytes += bytes_of_later_chunks(request, rpi_request_peer(request, rank));
            fail_broken(comm, request, rank, n.bytes);
            return;
        }
    }
}
