#include "comm/core/routine.h"

#include "base/memory.h"

#include <string.h>

/* The step writes the values that `slot` of `part` names. */
static bool overwrites(const rpi_step *step, int slot, int part) {
    if (step->kind != RPI_STEP_DECODE && step->kind != RPI_STEP_ADD &&
        step->kind != RPI_STEP_COPY)
        return false;
    return step->part == part && (step->into == RPI_SLOT_SUM) == (slot == RPI_SLOT_SUM);
}

/* The values an ENCODE reads stay as they are to the end, but for being overwritten with the
 * decoding of this very encoding. */
static bool source_lasts(const rpi_schedule *schedule, int encode) {
    const rpi_step *e = &schedule->steps[encode];
    for (int i = encode + 1; i < schedule->count; i++) {
        const rpi_step *step = &schedule->steps[i];
        if (!overwrites(step, e->from, e->part)) continue;
        if (step->kind != RPI_STEP_DECODE || step->from != e->into) return false;
    }
    return true;
}

static void plan_wires(rpi_routine *routine) {
    const rpi_schedule *schedule = &routine->schedule;
    for (int w = 0; w < schedule->wires; w++) routine->wires[w].source = RPI_NO_SLOT;
    for (int i = 0; i < schedule->count; i++) {
        const rpi_step *step = &schedule->steps[i];
        if (step->from >= RPI_SLOT_WIRE) routine->wires[step->from - RPI_SLOT_WIRE].readers++;
        if (step->into < RPI_SLOT_WIRE) continue;
        rpi_wire_plan *wire = &routine->wires[step->into - RPI_SLOT_WIRE];
        wire->level = step->level;
        routine->inside |= step->level == RPI_LEVEL_HOST;
        if (step->kind != RPI_STEP_ENCODE) continue;
        wire->role = step->role;
        if (source_lasts(schedule, i)) wire->source = step->from;
    }
}

static bool touches_sum(const rpi_action *action) {
    return action->from == RPI_SLOT_SUM || action->into == RPI_SLOT_SUM;
}

/* Of the bytes that a step makes, reads or moves. */
static uint8_t level_of(const rpi_routine *routine, const rpi_step *step) {
    int slot = step->into >= RPI_SLOT_WIRE ? step->into : step->from;
    return slot >= RPI_SLOT_WIRE ? routine->wires[slot - RPI_SLOT_WIRE].level : 0;
}

static void make_actions(rpi_routine *routine) {
    const rpi_schedule *schedule = &routine->schedule;
    for (int i = 0; i < schedule->count; i++) {
        const rpi_step *step = &schedule->steps[i];
        routine->action[i] = (rpi_action){.kind = step->kind,
                                          .role = step->role,
                                          .level = level_of(routine, step),
                                          .round = step->round,
                                          .from = step->from,
                                          .into = step->into,
                                          .first = RPI_NO_SLOT,
                                          .send = -1,
                                          .part = step->part,
                                          .peer = step->peer,
                                          .weight = step->weight};
    }
    routine->actions = schedule->count;
}

static void number_sums(rpi_routine *routine) {
    for (int i = 0; i < routine->schedule.count; i++) {
        const rpi_action *action = &routine->action[i];
        if (!action->fused && touches_sum(action) && routine->sum_of_part[action->part] < 0)
            routine->sum_of_part[action->part] = routine->sums++;
    }
}

/* The SEND that an ENCODE can be part of: its slot's only reader, with nothing in between that
 * overwrites what is encoded or that orders the two. -1: none. */
static int fusable_send(const rpi_routine *routine, int encode) {
    const rpi_schedule *schedule = &routine->schedule;
    const rpi_step *e = &schedule->steps[encode];
    if (e->kind != RPI_STEP_ENCODE || routine->action[encode].fused ||
        routine->wires[e->into - RPI_SLOT_WIRE].readers != 1)
        return -1;
    for (int i = encode + 1; i < schedule->count; i++) {
        const rpi_step *step = &schedule->steps[i];
        if (step->kind == RPI_STEP_SEND && step->from == e->into) return i;
        if (step->kind == RPI_STEP_FENCE || overwrites(step, e->from, e->part)) return -1;
    }
    return -1;
}

/* stands_for[i]: the action that took step i over, or i itself. */
static void fuse_sends(rpi_routine *routine, int32_t *stands_for) {
    for (int i = 0; i < routine->schedule.count; i++) {
        int send = fusable_send(routine, i);
        if (send < 0) continue;
        stands_for[i] = send;
        rpi_action *encode = &routine->action[i];
        routine->action[send].encodes = true;
        routine->action[send].role = encode->role;
        routine->action[send].from = encode->from;
        encode->fused = true;
        routine->actions--;
    }
}

/* The schedule's order, with the edges of a fused ENCODE moved to its SEND. */
static void move_edges(rpi_routine *routine, const int32_t *stands_for) {
    const rpi_schedule *schedule = &routine->schedule;
    for (int pass = 0; pass < 2; pass++) { /* count, then fill */
        int32_t first = 0;
        for (int i = 0; i < schedule->count; i++) {
            rpi_action *action = &routine->action[i];
            if (pass) action->first_next = first;
            if (pass) first += action->nexts;
            if (pass) action->nexts = 0;
        }
        for (int i = 0; i < schedule->count; i++) {
            for (int k = schedule->next_first[i]; k < schedule->next_first[i + 1]; k++) {
                int32_t from = stands_for[i], to = stands_for[schedule->next[k]];
                if (from == to) continue;
                rpi_action *action = &routine->action[from];
                if (pass)
                    routine->next[action->first_next + action->nexts] = to;
                else
                    routine->action[to].waits++;
                action->nexts++;
            }
        }
    }
}

static void list_recvs(rpi_routine *routine) {
    int32_t listed = 0;
    for (int peer = 0; peer < routine->schedule.world; peer++) {
        routine->first_recv[peer] = listed;
        for (int32_t i = 0; i < routine->schedule.count; i++)
            if (routine->action[i].kind == RPI_STEP_RECV && routine->action[i].peer == peer)
                routine->recvs[listed++] = i;
    }
    routine->first_recv[routine->schedule.world] = listed;
}

static rp_status allocate(rpi_routine *routine) {
    const rpi_schedule *schedule = &routine->schedule;
    size_t steps = (size_t)schedule->count, world = (size_t)schedule->world;
    size_t edges = (size_t)schedule->next_first[schedule->count];
    RP_TRY(rpi_alloc_array(steps, sizeof *routine->action, "actions", &routine->action));
    RP_TRY(rpi_alloc_array(edges, sizeof *routine->next, "their order", &routine->next));
    RP_TRY(rpi_alloc_array((size_t)schedule->wires, sizeof *routine->wires, "wire slots",
                           &routine->wires));
    RP_TRY(rpi_alloc_array(steps, sizeof *routine->recvs, "receives", &routine->recvs));
    RP_TRY(rpi_alloc_array(world + 1, sizeof *routine->first_recv, "receives",
                           &routine->first_recv));
    return rpi_alloc_array((size_t)schedule->parts, sizeof *routine->sum_of_part,
                           "accumulators", &routine->sum_of_part);
}

static rp_status compile(rpi_routine *routine) {
    const rpi_schedule *schedule = &routine->schedule;
    RP_TRY(allocate(routine));
    int32_t *stands_for = NULL;
    RP_TRY(rpi_alloc_array((size_t)schedule->count, sizeof *stands_for, "fused steps",
                           &stands_for));
    memset(routine->sum_of_part, -1, (size_t)schedule->parts * sizeof *routine->sum_of_part);
    routine->words = (schedule->count + 63) / 64;
    plan_wires(routine);
    make_actions(routine);
    for (int i = 0; i < schedule->count; i++) stands_for[i] = i;
    bool folds = routine->plain || !routine->device; /* encodings are added where they are */
    rp_status status = folds ? rpi_routine_fold(routine, stands_for) : RP_OK;
    if (status != RP_OK) {
        rpi_free(stands_for);
        return status;
    }
    if (!routine->device) fuse_sends(routine, stands_for);
    number_sums(routine);
    move_edges(routine, stands_for);
    list_recvs(routine);
    rpi_free(stands_for);
    return RP_OK;
}

rp_status rpi_routine_build(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                            bool plain, bool device, rpi_routine **out_routine) {
    rpi_routine *routine = NULL;
    RP_TRY(rpi_alloc(sizeof *routine, "a schedule's routine", &routine));
    routine->plain = plain;
    routine->device = device;
    rp_status status = rpi_schedule_build(algorithm, request, &routine->schedule);
    if (status == RP_OK) status = compile(routine);
    if (status != RP_OK)
        rpi_routine_destroy(routine);
    else
        *out_routine = routine;
    return status;
}

void rpi_routine_destroy(rpi_routine *routine) {
    if (!routine) return;
    rpi_schedule_destroy(&routine->schedule);
    rpi_free(routine->action);
    rpi_free(routine->next);
    rpi_free(routine->wires);
    rpi_free(routine->recvs);
    rpi_free(routine->first_recv);
    rpi_free(routine->sum_of_part);
    rpi_free(routine);
}
