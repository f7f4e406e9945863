/* Is a list of steps a schedule at all? What the check (plan_check.h), the price (cost.h) and
 * the executor may rely on without looking again. */
#include "base/c_locale.h"
#include "base/memory.h"
#include "plan/schedule.h"

#include <stdarg.h>

rp_status rpi_schedule_fail(const rpi_schedule *schedule, int step, const char *format, ...) {
    char text[256], place[64] = "";
    va_list arguments;
    va_start(arguments, format);
    rpi_vprint(text, sizeof text, format, arguments);
    va_end(arguments);
    if (step >= 0 && step < schedule->count)
        snprintf(place, sizeof place, ", step %d (%s part %d)", step,
                 rpi_step_name(schedule->steps[step].kind), schedule->steps[step].part);
    const rpi_algorithm *algorithm = schedule->algorithm;
    return RP_FAIL(INTERNAL, "%s by '%s', world %d, root %d, rank %d%s: %s",
                   rpi_collective_name(algorithm->collective), algorithm->name, schedule->world,
                   schedule->root, schedule->rank, place, text);
}

enum {
    NONE = 0,
    IN = 1 << RPI_SLOT_IN,
    OUT = 1 << RPI_SLOT_OUT,
    SUM = 1 << RPI_SLOT_SUM,
    TOKEN = 1 << RPI_SLOT_RTR,
    WIRE = 1 << RPI_SLOT_ENCODED
};

static const struct {
    int from, into; /* slots allowed; NONE: the field is unused */
} takes[RPI_STEP_KINDS] = {
    [RPI_STEP_ENCODE] = {IN | SUM, WIRE},   [RPI_STEP_SEND] = {TOKEN | WIRE, NONE},
    [RPI_STEP_RECV] = {NONE, TOKEN | WIRE}, [RPI_STEP_DECODE] = {WIRE, OUT | SUM},
    [RPI_STEP_ADD] = {IN | WIRE, SUM},      [RPI_STEP_COPY] = {IN | SUM, OUT | SUM},
    [RPI_STEP_FENCE] = {NONE, NONE},
};

static bool slot_fits(int allowed, int slot) {
    if (allowed == NONE) return slot == 0;
    return allowed >> (slot < RPI_SLOT_ENCODED ? slot : RPI_SLOT_ENCODED) & 1;
}

static rp_status check_fields(const rpi_schedule *schedule, int i) {
    const rpi_step *step = &schedule->steps[i];
    if (step->kind >= RPI_STEP_KINDS)
        return rpi_schedule_fail(schedule, i, "unknown kind of step %d", step->kind);
    int last_slot = RPI_SLOT_ENCODED + schedule->encoded_slots - 1;
    if (!slot_fits(takes[step->kind].from, step->from) || step->from > last_slot)
        return rpi_schedule_fail(schedule, i, "cannot read slot %d", step->from);
    if (!slot_fits(takes[step->kind].into, step->into) || step->into > last_slot)
        return rpi_schedule_fail(schedule, i, "cannot write slot %d", step->into);
    bool weighed = rpi_is_weight(step->weight);
    if (weighed && step->kind != RPI_STEP_COPY && step->kind != RPI_STEP_ADD)
        return rpi_schedule_fail(schedule, i, "cannot have the weight %d/%d",
                                 step->weight.times, step->weight.over);
    bool of_call = weighed && step->weight.over == 0;
    if (step->weight.over < 0 || (weighed && step->weight.times == 0) ||
        (of_call && step->weight.times < 0))
        return rpi_schedule_fail(schedule, i, "the weight %d/%d is none", step->weight.times,
                                 step->weight.over);
    if (step->kind == RPI_STEP_COPY && step->from == step->into && !weighed)
        return rpi_schedule_fail(schedule, i, "copies slot %d to itself", step->from);
    if (step->part < 0 || step->part >= schedule->parts)
        return rpi_schedule_fail(schedule, i, "there are %d parts", schedule->parts);
    if (step->role > (step->kind == RPI_STEP_ENCODE ? RPI_ROLE_OWNER : 0))
        return rpi_schedule_fail(schedule, i, "no such role %d", step->role);
    bool has_level = step->into >= RPI_SLOT_ENCODED; /* of an ENCODE or a RECV */
    if (step->level > (has_level ? RPI_LEVEL_HOST : 0))
        return rpi_schedule_fail(schedule, i, "no such level %d", step->level);
    bool remote = step->kind == RPI_STEP_SEND || step->kind == RPI_STEP_RECV;
    bool peer = step->peer >= 0 && step->peer < schedule->world && step->peer != schedule->rank;
    if (remote ? !peer : step->peer != -1)
        return rpi_schedule_fail(schedule, i, "no such peer %d", step->peer);
    return RP_OK;
}

/* part_of[k]: the part that encoded slot k holds so far, plus one. */
static rp_status check_encoded_slots(const rpi_schedule *schedule, int i, int *part_of) {
    const rpi_step *step = &schedule->steps[i];
    if (step->from >= RPI_SLOT_ENCODED &&
        part_of[step->from - RPI_SLOT_ENCODED] != step->part + 1)
        return rpi_schedule_fail(schedule, i, "wire slot %d does not hold this part",
                                 step->from - RPI_SLOT_ENCODED);
    if (step->into < RPI_SLOT_ENCODED) return RP_OK;
    if (part_of[step->into - RPI_SLOT_ENCODED])
        return rpi_schedule_fail(schedule, i, "wire slot %d is written twice",
                                 step->into - RPI_SLOT_ENCODED);
    part_of[step->into - RPI_SLOT_ENCODED] = step->part + 1;
    return RP_OK;
}

rp_status rpi_schedule_check_shape(const rpi_schedule *schedule) {
    if (schedule->parts < 1) return rpi_schedule_fail(schedule, -1, "has no parts");
    int *part_of = NULL;
    RP_TRY(rpi_alloc_array((size_t)schedule->encoded_slots, sizeof *part_of, "wire slots",
                           &part_of));
    rp_status status = RP_OK;
    for (int i = 0; i < schedule->count && status == RP_OK; i++) {
        status = check_fields(schedule, i);
        if (status == RP_OK) status = check_encoded_slots(schedule, i, part_of);
    }
    rpi_free(part_of);
    return status;
}
