#include "comm/core/compiled_schedule.h"

#include "base/memory.h"

/* The steps of one part's sum; -1: there is no such step. */
typedef struct sum {
    int first, second; /* its addend: one of the two is this rank's own values, one a frame */
    int weigh;         /* SUM -> SUM */
    int encode, close; /* SUM -> an encoded slot, and from there or from SUM into OUT */
} sum;

enum { MEMBERS = 5 };

static bool touches_sum(const rpi_step *step, int part) {
    if (step->part != part) return false;
    bool reads = step->kind != RPI_STEP_RECV && step->from == RPI_SLOT_SUM;
    return reads || (step->kind != RPI_STEP_SEND && step->into == RPI_SLOT_SUM);
}

/* From `after` on; -1: none. */
static int next_touch(const rpi_schedule *schedule, int after, int part) {
    for (int i = after + 1; i < schedule->count; i++)
        if (touches_sum(&schedule->steps[i], part)) return i;
    return -1;
}

static bool is_received(const rpi_schedule *schedule, int slot) {
    for (int i = 0; i < schedule->count; i++)
        if (schedule->steps[i].kind == RPI_STEP_RECV && schedule->steps[i].into == slot)
            return true;
    return false;
}

static bool begins_sum(const rpi_step *step) {
    return (step->kind == RPI_STEP_COPY || step->kind == RPI_STEP_DECODE) &&
           step->into == RPI_SLOT_SUM && step->from != RPI_SLOT_SUM &&
           !rpi_is_weight(step->weight);
}

/* One of the two is this rank's own, since two frames could wait for each other in their links.
 */
static bool goes_with(const rpi_schedule *schedule, const rpi_step *first,
                      const rpi_step *second) {
    if (second->kind != RPI_STEP_ADD || rpi_is_weight(second->weight)) return false;
    int encoded_slot = first->from == RPI_SLOT_IN ? second->from : first->from;
    int own = first->from == RPI_SLOT_IN ? first->from : second->from;
    return own == RPI_SLOT_IN && encoded_slot >= RPI_SLOT_ENCODED &&
           is_received(schedule, encoded_slot);
}

/* The only step that writes OUT of the part, when it reads `from`; -1: not so. */
static int closing_step(const rpi_schedule *schedule, int part, int from) {
    int found = -1;
    for (int i = 0; i < schedule->count; i++) {
        const rpi_step *step = &schedule->steps[i];
        bool writes = step->kind == RPI_STEP_DECODE || step->kind == RPI_STEP_COPY;
        if (!writes || step->part != part || step->into != RPI_SLOT_OUT) continue;
        if (found >= 0 || step->from != from) return -1;
        found = i;
    }
    return found;
}

/* The step after two additions, if a finished sum ends with it. */
static bool find_end(const rpi_schedule *schedule, sum *s) {
    int part = schedule->steps[s->first].part;
    int at = next_touch(schedule, s->second, part);
    if (at < 0) return false;
    const rpi_step *step = &schedule->steps[at];
    if (step->kind == RPI_STEP_COPY && step->into == RPI_SLOT_SUM) {
        s->weigh = at;
        at = next_touch(schedule, at, part);
        if (at < 0) return false;
        step = &schedule->steps[at];
    }
    if (next_touch(schedule, at, part) >= 0) return false;
    if (step->kind == RPI_STEP_ENCODE) s->encode = at;
    s->close = closing_step(schedule, part, s->encode < 0 ? RPI_SLOT_SUM : step->into);
    bool weighs_once =
        s->weigh < 0 || s->close < 0 || !rpi_is_weight(schedule->steps[s->close].weight);
    return s->close >= 0 && weighs_once && (s->encode >= 0 || s->close == at);
}

static bool is_member(const sum *s, int step) {
    return step == s->first || step == s->second || step == s->weigh || step == s->encode ||
           step == s->close;
}

/* No other step is after one of these and before another, so they can be one. */
static bool may_merge(const rpi_schedule *schedule, const sum *s, bool *behind) {
    int last = s->close > s->second ? s->close : s->second;
    for (int i = s->first; i <= last; i++) behind[i] = false;
    for (int i = s->first; i <= last; i++) {
        bool member = is_member(s, i);
        if (!member && !behind[i]) continue;
        for (int k = schedule->next_first[i]; k < schedule->next_first[i + 1]; k++) {
            int next = schedule->next[k];
            if (next > last) continue;
            if (!is_member(s, next))
                behind[next] = true;
            else if (!member)
                return false;
        }
    }
    return true;
}

/* The only reader left of an encoded slot; -1: there are more. */
static int only_send(const rpi_compiled_schedule *compiled, int encoded_slot) {
    if (compiled->encoded_slots[encoded_slot - RPI_SLOT_ENCODED].readers != 1) return -1;
    for (int i = 0; i < compiled->schedule.count; i++) {
        const rpi_step *step = &compiled->schedule.steps[i];
        if (step->kind == RPI_STEP_SEND && step->from == encoded_slot) return i;
    }
    return -1;
}

static void merge(rpi_compiled_schedule *compiled, const sum *s, int32_t *stands_for) {
    const rpi_step *steps = compiled->schedule.steps;
    const int members[MEMBERS] = {s->first, s->second, s->weigh, s->encode, s->close};
    rpi_instruction *instruction = &compiled->instruction[s->second];
    instruction->first = steps[s->first].from;
    if (instruction->first >= RPI_SLOT_ENCODED)
        instruction->level = compiled->instruction[s->first].level;
    if (s->close >= 0) instruction->into = RPI_SLOT_OUT;
    if (s->close >= 0) instruction->weight = steps[s->weigh < 0 ? s->close : s->weigh].weight;
    for (int i = 0; i < MEMBERS; i++) {
        if (members[i] < 0 || members[i] == s->second) continue;
        stands_for[members[i]] = s->second;
        compiled->instruction[members[i]].fused = true;
        compiled->instructions--;
    }
    if (s->encode < 0) return;
    rpi_encoded_plan *encoded_slot =
        &compiled->encoded_slots[steps[s->encode].into - RPI_SLOT_ENCODED];
    encoded_slot->source = RPI_SLOT_OUT;
    encoded_slot->stays = true;
    encoded_slot->readers--;
    instruction->send = only_send(compiled, steps[s->encode].into);
}

static void fold_from(rpi_compiled_schedule *compiled, int first, bool *behind,
                      int32_t *stands_for) {
    const rpi_schedule *schedule = &compiled->schedule;
    const rpi_step *step = &schedule->steps[first];
    int second = begins_sum(step) ? next_touch(schedule, first, step->part) : -1;
    if (second < 0 || !goes_with(schedule, step, &schedule->steps[second])) return;
    const sum two = {first, second, -1, -1, -1};
    sum whole = two;
    if (compiled->plain && find_end(schedule, &whole) && may_merge(schedule, &whole, behind))
        merge(compiled, &whole, stands_for);
    else if (may_merge(schedule, &two, behind))
        merge(compiled, &two, stands_for);
}

rp_status rpi_compiled_fold(rpi_compiled_schedule *compiled, int32_t *stands_for) {
    bool *behind = NULL;
    size_t count = (size_t)compiled->schedule.count;
    RP_TRY(rpi_alloc_array(count, sizeof *behind, "sums of two", &behind));
    for (int i = 0; i < compiled->schedule.count; i++)
        fold_from(compiled, i, behind, stands_for);
    rpi_free(behind);
    return RP_OK;
}
