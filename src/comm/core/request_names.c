/* Names and texts of requests for messages, ranks of peers, and the bytes of a step. */
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"

#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

size_t rpi_instruction_bytes(const rp_request *request, uint32_t chunk,
                             const rpi_instruction *instruction) {
    int slot = instruction->kind == RPI_STEP_RECV ? instruction->into : instruction->from;
    if (slot == RPI_SLOT_RTR) return 0;
    return request->kind->ahead_bytes + rpi_partition_part_bytes(&request->partition, chunk,
                                                                 instruction->part,
                                                                 instruction->level);
}

bool rpi_instruction_is_void(const rp_request *request, uint32_t chunk,
                             const rpi_instruction *instruction) {
    bool sends = instruction->kind == RPI_STEP_SEND && instruction->from != RPI_SLOT_RTR;
    bool receives = instruction->kind == RPI_STEP_RECV && instruction->into != RPI_SLOT_RTR;
    return (sends || receives) &&
           rpi_partition_is_past(&request->partition, chunk, instruction->part);
}

rpi_rank_text rpi_rank_name(const rp_comm *comm, int rank) {
    rpi_rank_text name;
    bool is_made = comm->is_made && rank >= 0 && rank < comm->world;
    if (is_made)
        snprintf(name.text, sizeof name.text, "rank %d (world %d)", rank, comm->members[rank]);
    else
        snprintf(name.text, sizeof name.text, "rank %d", rank);
    return name;
}

/* Rounds of an all-reduce are its two halves, with any algorithm. */
static const char *phase_name(const rp_request *request, int round) {
    if (request->collective != RPI_ALL_REDUCE) return "";
    return 2 * round < request->compiled->schedule.rounds ? " (scatter)" : " (gather)";
}

static int first_unfinished_round(const rpi_chunk *chunk) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    for (int i = 0; i < compiled->schedule.count; i++)
        if (!compiled->instruction[i].fused && !(chunk->finished[i / 64] >> (i % 64) & 1))
            return compiled->instruction[i].round;
    return compiled->schedule.rounds;
}

const char *rpi_request_name(const rp_request *request, char *text, size_t bytes) {
    request->kind->name(request, text, bytes);
    return text;
}

const char *rpi_request_text(const rp_request *request, char *text, size_t bytes) {
    size_t length = strlen(rpi_request_name(request, text, bytes));
    if (!request->chunks) return text;
    int round = first_unfinished_round(request->chunks);
    snprintf(text + length, bytes - length, ", round %d of %d%s, chunk %u of %d", round + 1,
             request->compiled->schedule.rounds, phase_name(request, round),
             request->chunks->index + 1, request->partition.split.chunks);
    return text;
}

const char *rpi_failure_text(const rpi_failure *failure, const rp_request *request, char *text,
                             size_t bytes) {
    char operation[160];
    if (failure->finder >= 0)
        snprintf(text, bytes, "%s", failure->text);
    else
        snprintf(text, bytes, "%.200s, in %s", failure->text,
                 rpi_request_text(request, operation, sizeof operation));
    return text;
}
