#include "comm/core/compiled_schedule.h"

#include "base/memory.h"

#include <string.h>

/* The step writes the values that `slot` of `part` names. */
static bool overwrites(const rpi_step *step, int slot, int part) {
    if (step->kind != RPI_STEP_DECODE && step->kind != RPI_STEP_ADD &&
        step->kind != RPI_STEP_COPY)
        return false;
    return step->part == part && (step->into == RPI_SLOT_SUM) == (slot == RPI_SLOT_SUM);
}

/* The values that an ENCODE reads do not change afterwards, except that the decoding of this
 * very encoding may overwrite them. */
static bool source_lasts(const rpi_schedule *schedule, int encode) {
    const rpi_step *e = &schedule->steps[encode];
    for (int i = encode + 1; i < schedule->count; i++) {
        const rpi_step *step = &schedule->steps[i];
        if (!overwrites(step, e->from, e->part)) continue;
        if (step->kind != RPI_STEP_DECODE || step->from != e->into) return false;
    }
    return true;
}

static void plan_encoded_slots(rpi_compiled_schedule *compiled) {
    const rpi_schedule *schedule = &compiled->schedule;
    for (int w = 0; w < schedule->encoded_slots; w++)
        compiled->encoded_slots[w].source = RPI_NO_SLOT;
    for (int i = 0; i < schedule->count; i++) {
        const rpi_step *step = &schedule->steps[i];
        if (step->from >= RPI_SLOT_ENCODED)
            compiled->encoded_slots[step->from - RPI_SLOT_ENCODED].readers++;
        if (step->into < RPI_SLOT_ENCODED) continue;
        rpi_encoded_plan *encoded_slot =
            &compiled->encoded_slots[step->into - RPI_SLOT_ENCODED];
        encoded_slot->level = step->level;
        compiled->inside |= step->level == RPI_LEVEL_HOST;
        if (step->kind != RPI_STEP_ENCODE) continue;
        encoded_slot->role = step->role;
        if (source_lasts(schedule, i)) encoded_slot->source = step->from;
    }
}

static bool touches_sum(const rpi_instruction *instruction) {
    return instruction->from == RPI_SLOT_SUM || instruction->into == RPI_SLOT_SUM;
}

/* Of the bytes that a step makes, reads or moves. */
static uint8_t level_of(const rpi_compiled_schedule *compiled, const rpi_step *step) {
    int slot = step->into >= RPI_SLOT_ENCODED ? step->into : step->from;
    return slot >= RPI_SLOT_ENCODED ? compiled->encoded_slots[slot - RPI_SLOT_ENCODED].level
                                    : 0;
}

static void make_instructions(rpi_compiled_schedule *compiled) {
    const rpi_schedule *schedule = &compiled->schedule;
    for (int i = 0; i < schedule->count; i++) {
        const rpi_step *step = &schedule->steps[i];
        compiled->instruction[i] = (rpi_instruction){.kind = step->kind,
                                                     .role = step->role,
                                                     .level = level_of(compiled, step),
                                                     .round = step->round,
                                                     .from = step->from,
                                                     .into = step->into,
                                                     .first = RPI_NO_SLOT,
                                                     .send = -1,
                                                     .part = step->part,
                                                     .peer = step->peer,
                                                     .weight = step->weight};
    }
    compiled->instructions = schedule->count;
}

static void number_sums(rpi_compiled_schedule *compiled) {
    for (int i = 0; i < compiled->schedule.count; i++) {
        const rpi_instruction *instruction = &compiled->instruction[i];
        if (!instruction->fused && touches_sum(instruction) &&
            compiled->sum_of_part[instruction->part] < 0)
            compiled->sum_of_part[instruction->part] = compiled->sums++;
    }
}

/* The SEND that can include an ENCODE: its slot's only reader, with nothing in between that
 * overwrites the encoded values or orders the two. -1: none. */
static int fusable_send(const rpi_compiled_schedule *compiled, int encode) {
    const rpi_schedule *schedule = &compiled->schedule;
    const rpi_step *e = &schedule->steps[encode];
    if (e->kind != RPI_STEP_ENCODE || compiled->instruction[encode].fused ||
        compiled->encoded_slots[e->into - RPI_SLOT_ENCODED].readers != 1)
        return -1;
    for (int i = encode + 1; i < schedule->count; i++) {
        const rpi_step *step = &schedule->steps[i];
        if (step->kind == RPI_STEP_SEND && step->from == e->into) return i;
        if (step->kind == RPI_STEP_FENCE || overwrites(step, e->from, e->part)) return -1;
    }
    return -1;
}

/* stands_for[i]: the instruction that replaces step i, or i itself. */
static void fuse_sends(rpi_compiled_schedule *compiled, int32_t *stands_for) {
    for (int i = 0; i < compiled->schedule.count; i++) {
        int send = fusable_send(compiled, i);
        if (send < 0) continue;
        stands_for[i] = send;
        rpi_instruction *encode = &compiled->instruction[i];
        compiled->instruction[send].encodes = true;
        compiled->instruction[send].role = encode->role;
        compiled->instruction[send].from = encode->from;
        encode->fused = true;
        compiled->instructions--;
    }
}

/* The schedule's order, with the edges of a fused ENCODE moved to its SEND. */
static void move_edges(rpi_compiled_schedule *compiled, const int32_t *stands_for) {
    const rpi_schedule *schedule = &compiled->schedule;
    for (int pass = 0; pass < 2; pass++) { /* count, then fill */
        int32_t first = 0;
        for (int i = 0; i < schedule->count; i++) {
            rpi_instruction *instruction = &compiled->instruction[i];
            if (pass) instruction->first_next = first;
            if (pass) first += instruction->nexts;
            if (pass) instruction->nexts = 0;
        }
        for (int i = 0; i < schedule->count; i++) {
            for (int k = schedule->next_first[i]; k < schedule->next_first[i + 1]; k++) {
                int32_t from = stands_for[i], to = stands_for[schedule->next[k]];
                if (from == to) continue;
                rpi_instruction *instruction = &compiled->instruction[from];
                if (pass)
                    compiled->next[instruction->first_next + instruction->nexts] = to;
                else
                    compiled->instruction[to].waits++;
                instruction->nexts++;
            }
        }
    }
}

static void list_recvs(rpi_compiled_schedule *compiled) {
    int32_t listed = 0;
    for (int peer = 0; peer < compiled->schedule.world; peer++) {
        compiled->first_recv[peer] = listed;
        for (int32_t i = 0; i < compiled->schedule.count; i++)
            if (compiled->instruction[i].kind == RPI_STEP_RECV &&
                compiled->instruction[i].peer == peer)
                compiled->recvs[listed++] = i;
    }
    compiled->first_recv[compiled->schedule.world] = listed;
}

static rp_status allocate(rpi_compiled_schedule *compiled) {
    const rpi_schedule *schedule = &compiled->schedule;
    size_t steps = (size_t)schedule->count, world = (size_t)schedule->world;
    size_t edges = (size_t)schedule->next_first[schedule->count];
    RP_TRY(rpi_alloc_array(steps, sizeof *compiled->instruction, "instructions",
                           &compiled->instruction));
    RP_TRY(rpi_alloc_array(edges, sizeof *compiled->next, "their order", &compiled->next));
    RP_TRY(rpi_alloc_array((size_t)schedule->encoded_slots, sizeof *compiled->encoded_slots,
                           "wire slots", &compiled->encoded_slots));
    RP_TRY(rpi_alloc_array(steps, sizeof *compiled->recvs, "receives", &compiled->recvs));
    RP_TRY(rpi_alloc_array(world + 1, sizeof *compiled->first_recv, "receives",
                           &compiled->first_recv));
    return rpi_alloc_array((size_t)schedule->parts, sizeof *compiled->sum_of_part,
                           "accumulators", &compiled->sum_of_part);
}

static rp_status compile(rpi_compiled_schedule *compiled) {
    const rpi_schedule *schedule = &compiled->schedule;
    RP_TRY(allocate(compiled));
    int32_t *stands_for = NULL;
    RP_TRY(rpi_alloc_array((size_t)schedule->count, sizeof *stands_for, "fused steps",
                           &stands_for));
    memset(compiled->sum_of_part, -1, (size_t)schedule->parts * sizeof *compiled->sum_of_part);
    compiled->words = (schedule->count + 63) / 64;
    plan_encoded_slots(compiled);
    make_instructions(compiled);
    for (int i = 0; i < schedule->count; i++) stands_for[i] = i;
    bool folds = compiled->plain || !compiled->device; /* encodings are added where they are */
    rp_status status = folds ? rpi_compiled_fold(compiled, stands_for) : RP_OK;
    if (status != RP_OK) {
        rpi_free(stands_for);
        return status;
    }
    if (!compiled->device) fuse_sends(compiled, stands_for);
    number_sums(compiled);
    move_edges(compiled, stands_for);
    list_recvs(compiled);
    rpi_free(stands_for);
    return RP_OK;
}

rp_status rpi_schedule_compile(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                               bool plain, bool device, rpi_compiled_schedule **out_compiled) {
    rpi_compiled_schedule *compiled = NULL;
    RP_TRY(rpi_alloc(sizeof *compiled, "a compiled schedule", &compiled));
    compiled->plain = plain;
    compiled->device = device;
    rp_status status = rpi_schedule_build(algorithm, request, &compiled->schedule);
    if (status == RP_OK) status = compile(compiled);
    if (status != RP_OK)
        rpi_compiled_destroy(compiled);
    else
        *out_compiled = compiled;
    return status;
}

void rpi_compiled_destroy(rpi_compiled_schedule *compiled) {
    if (!compiled) return;
    rpi_schedule_destroy(&compiled->schedule);
    rpi_free(compiled->instruction);
    rpi_free(compiled->next);
    rpi_free(compiled->encoded_slots);
    rpi_free(compiled->recvs);
    rpi_free(compiled->first_recv);
    rpi_free(compiled->sum_of_part);
    rpi_free(compiled);
}
