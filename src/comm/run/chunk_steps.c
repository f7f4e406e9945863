/* When a step of a chunk has finished, others become ready. */
#include "comm/run/chunk_steps.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"

static void set_bit(uint64_t *set, int bit) {
    set[bit / 64] |= UINT64_C(1) << bit % 64;
}

static void clear_bit(uint64_t *set, int bit) {
    set[bit / 64] &= ~(UINT64_C(1) << bit % 64);
}

/* The instructions that depend on one, SENDs or the others, wait for it no longer. */
static void go_on(rpi_chunk *chunk, int index, bool sends) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    const rpi_instruction *instruction = &compiled->instruction[index];
    for (int k = 0; k < instruction->nexts; k++) {
        int next = compiled->next[instruction->first_next + k];
        if ((compiled->instruction[next].kind == RPI_STEP_SEND) != sends) continue;
        if (--chunk->waits[next] == 0) set_bit(chunk->ready, next);
    }
}

/* A SEND writes nothing: one that follows another does so only for the order of their link. */
void rpi_chunk_let_sends_follow(rpi_chunk *chunk, int index) {
    go_on(chunk, index, true);
}

void rpi_chunk_finish(rpi_chunk *chunk, int index) {
    bool sends_followed = rpi_in_place_is_in_use(chunk, index);
    clear_bit(chunk->ready, index);
    clear_bit(chunk->in_use, index);
    set_bit(chunk->finished, index);
    chunk->left--;
    if (!sends_followed) go_on(chunk, index, true);
    go_on(chunk, index, false);
}
