/* Groups as the coordinator knows them: their members, and the last state of each. Beats of a
 * group are sent only to its members, and consecutive members with the same state share one
 * record. A rank tells the coordinator, and each that takes its place, which groups it has
 * opened. */
#include "net/control/control_state.h"

#include "base/clock.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- beats ---- */

bool rpi_beats_are_alike(const rpi_group_beat *a, const rpi_group_beat *b) {
    return a->sequence == b->sequence && a->gap.from == b->gap.from &&
           a->gap.step == b->gap.step && a->gap.overdue == b->gap.overdue &&
           a->blocked == b->blocked;
}

void rpi_beat_renew(rpi_group_beat *beat, const rpi_group_beat *said, uint32_t beat_counts) {
    bool goes_on = beat->since_ns && beat->beat_number >= beat_counts &&
                   beat->sequence == said->sequence && beat->gap.from == said->gap.from &&
                   beat->gap.step == said->gap.step;
    int64_t since_ns = goes_on ? beat->since_ns : rpi_now_ns();
    *beat = *said;
    beat->since_ns = since_ns;
}

/* ---- members ---- */

static rpi_scope **find(rpi_control *control, uint64_t scope) {
    rpi_scope **at = &control->scopes;
    while (*at && (*at)->scope != scope) at = &(*at)->next;
    return at;
}

/* The index of the rank, or where it would be inserted. */
static int place_of(const rpi_scope *scope, int rank) {
    int low = 0, high = scope->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (scope->members[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool has(const rpi_scope *scope, int place, int rank) {
    return place < scope->count && scope->members[place].rank == rank;
}

static rpi_scope *open_scope(rpi_control *control, uint64_t id, int size, const char *name) {
    rpi_scope *scope = NULL;
    if (rpi_alloc(sizeof *scope, "a group of ranks", &scope) != RP_OK) return NULL;
    scope->scope = id;
    scope->size = size;
    snprintf(scope->name, sizeof scope->name, "%.*s", RPI_SCOPE_NAME_BYTES - 1, name);
    scope->next = control->scopes;
    control->scopes = scope;
    return scope;
}

static bool has_room(rpi_scope *scope) {
    if (scope->count < scope->room) return true;
    int room = 2 * scope->room + 4;
    if (rpi_grow_array((size_t)scope->room, (size_t)room, sizeof *scope->members, "members",
                       &scope->members) != RP_OK)
        return false;
    scope->room = room;
    return true;
}

/* Without memory for it, others see the rank as one that computes. */
void rpi_scope_join(rpi_control *control, uint64_t id, int rank, int size, const char *name) {
    rpi_scope *scope = *find(control, id);
    if (!scope) scope = open_scope(control, id, size, name);
    if (!scope) return;
    int place = place_of(scope, rank);
    if (has(scope, place, rank) || !has_room(scope)) return;
    memmove(&scope->members[place + 1], &scope->members[place],
            (size_t)(scope->count - place) * sizeof *scope->members);
    scope->members[place] = (rpi_scope_member){.rank = rank, .beat = {.gap = {.from = -1}}};
    scope->count++;
}

static void leave(rpi_scope **at, int rank) {
    rpi_scope *scope = *at;
    int place = place_of(scope, rank);
    if (!has(scope, place, rank)) return;
    memmove(&scope->members[place], &scope->members[place + 1],
            (size_t)(scope->count - place - 1) * sizeof *scope->members);
    if (--scope->count > 0) return;
    *at = scope->next;
    rpi_free(scope->members);
    rpi_free(scope);
}

void rpi_scope_leave(rpi_control *control, uint64_t id, int rank) {
    rpi_scope **at = find(control, id);
    if (*at) leave(at, rank);
}

void rpi_scopes_remove_rank(rpi_control *control, int rank) {
    for (rpi_scope **at = &control->scopes; *at;) {
        rpi_scope *scope = *at;
        leave(at, rank);
        if (*at == scope) at = &scope->next;
    }
}

void rpi_scopes_free(rpi_control *control) {
    for (rpi_scope *scope = control->scopes, *next; scope; scope = next) {
        next = scope->next;
        rpi_free(scope->members);
        rpi_free(scope);
    }
    control->scopes = NULL;
}

void rpi_scope_receive(rpi_control *control, uint64_t id, int rank,
                       const rpi_group_beat *said) {
    rpi_scope *scope = *find(control, id);
    int place = scope ? place_of(scope, rank) : 0;
    if (!scope || !has(scope, place, rank)) return;
    scope->members[place].fresh = true;
    rpi_beat_renew(&scope->members[place].beat, said, said->beat_number - 1);
}

/* ---- passing on ---- */

/* The number of members after the first with the same state. Only if all members are known can
 * the receivers count them. */
static int run_from(const rpi_scope *scope, int first) {
    int next = first + 1;
    while (scope->count == scope->size && next < scope->count && scope->members[next].fresh &&
           rpi_beats_are_alike(&scope->members[first].beat, &scope->members[next].beat))
        next++;
    return next - first;
}

static rpi_control_record record_of(const rpi_scope *scope, int first, int count) {
    const rpi_scope_member *member = &scope->members[first];
    const rpi_control_gap *gap = &member->beat.gap;
    rpi_control_record record = {.kind = RPI_CONTROL_BEATS,
                                 .rank = member->rank,
                                 .number = gap->from + 1,
                                 .a = member->beat.sequence,
                                 .b = gap->step | (gap->overdue ? RPI_BEAT_OVERDUE : 0)};
    snprintf(record.text, sizeof record.text, "%x %" PRIx64, (unsigned)count, scope->scope);
    record.text_bytes = (uint16_t)strlen(record.text);
    return record;
}

static void queue_to_members(rpi_control *control, const rpi_scope *scope,
                             const rpi_control_record *record) {
    for (int i = 0; i < scope->count; i++) {
        int connection = control->connection_of[scope->members[i].rank];
        if (connection >= 0 && control->connections[connection].listens)
            (void)rpi_control_connection_queue(&control->connections[connection], record);
    }
}

static void queue_scope(rpi_control *control, rpi_scope *scope) {
    for (int first = 0, count; first < scope->count; first += count) {
        count = 1;
        if (!scope->members[first].fresh) continue;
        count = run_from(scope, first);
        rpi_control_record record = record_of(scope, first, count);
        queue_to_members(control, scope, &record);
    }
    for (int i = 0; i < scope->count; i++) scope->members[i].fresh = false;
}

void rpi_scopes_queue(rpi_control *control) {
    for (rpi_scope *scope = control->scopes; scope; scope = scope->next)
        queue_scope(control, scope);
}
