/* Heartbeats: the states of ranks, passed on by rank 0.
 *
 * In each beat a rank sends rank 0 one message, and rank 0 sends each rank one with all that it
 * has received since the last: 2 (P - 1) messages for P ranks. Most ranks have the same state
 * most of the time (they compute, or wait in the same operation), and neighbours with the same
 * state share one record. States in a group are sent only to its members (control_scopes.c). */
#include "net/control/control_state.h"

#include "base/clock.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- taking ---- */

/* The content of a record, with ranks of the control connection. */
static rpi_group_beat beat_of(const rpi_control *control, const rpi_control_record *record) {
    bool exists = record->number > 0 && record->number <= control->world;
    return (rpi_group_beat){.sequence = record->a,
                            .gap = {.from = exists ? record->number - 1 : -1,
                                    .step = record->b & RPI_BEAT_STEP,
                                    .overdue = record->b & RPI_BEAT_OVERDUE},
                            .blocked = record->b & RPI_BEAT_BLOCKED};
}

/* The state of a rank in the group of all, which also says that it is alive: the last record of
 * each beat. */
static void take_ranks(rpi_control *control, const rpi_control_record *record, int count) {
    rpi_group_beat said = beat_of(control, record);
    int64_t now_ns = rpi_now_ns();
    pthread_mutex_lock(&control->lock);
    for (int rank = record->rank; rank < record->rank + count; rank++) {
        rpi_group_beat *beat = &control->everybody.beats[rank];
        rpi_beat_renew(beat, &said, control->beat_counts[rank]);
        control->heard_ns[rank] = now_ns;
        beat->beat_number = ++control->beat_counts[rank];
        control->fresh[rank] = true;
    }
    pthread_mutex_unlock(&control->lock);
}

/* Under the lock: the state of one member of a group that is open here. */
static void take_member(rpi_control_group *group, int place, const rpi_group_beat *said) {
    rpi_control *control = group->control;
    int rank = group->ranks[place];
    rpi_group_beat own = *said;
    own.gap.from = said->gap.from < 0 ? -1 : rpi_control_member(group, said->gap.from);
    own.beat_number = control->beat_counts[rank] + 1; /* the beat of all ranks follows */
    rpi_beat_renew(&group->beats[place], &own, control->beat_counts[rank]);
}

/* On the coordinator, from one of its connections: the state of the rank in another group. */
static void take_scoped(rpi_control *control, const rpi_control_record *record,
                        uint64_t scope) {
    rpi_group_beat said = beat_of(control, record);
    pthread_mutex_lock(&control->lock);
    rpi_control_group *group = rpi_control_find_group(control, scope);
    int place = group && group->ranks ? rpi_control_member(group, record->rank) : -1;
    if (place >= 0) take_member(group, place, &said);
    said.beat_number = control->beat_counts[record->rank] + 1;
    pthread_mutex_unlock(&control->lock);
    if (rpi_control_is_coordinator(control))
        rpi_scope_receive(control, scope, record->rank, &said);
}

/* From the coordinator: the states of consecutive members, in the order of ranks. */
static void take_scoped_run(rpi_control *control, const rpi_control_record *record, int count,
                            uint64_t scope) {
    rpi_group_beat said = beat_of(control, record);
    pthread_mutex_lock(&control->lock);
    rpi_control_group *group = rpi_control_find_group(control, scope);
    int members = group && group->ranks ? group->count : 0, first = 0;
    while (first < members && group->sorted[first].rank < record->rank) first++;
    for (int i = first; i < members && i < first + count; i++)
        if (group->sorted[i].rank != control->rank)
            take_member(group, group->sorted[i].place, &said);
    pthread_mutex_unlock(&control->lock);
}

void rpi_control_take_beat(rpi_control *control, const rpi_control_record *record) {
    char *end = NULL;
    if (record->rank < 0 || record->rank >= control->world || record->rank == control->rank)
        return; /* of oneself one knows more */
    if (!record->text_bytes) {
        take_ranks(control, record, 1);
        return;
    }
    uint64_t scope = strtoull(record->text, &end, 16);
    if (!*end) take_scoped(control, record, scope);
}

void rpi_control_take_beats(rpi_control *control, const rpi_control_record *record) {
    char *end = NULL;
    rpi_control_record part = *record;
    unsigned long count = strtoul(record->text, &end, 16);
    if (record->rank < 0 || record->rank >= control->world || count < 1 ||
        count > (unsigned long)(control->world - record->rank))
        return;
    if (*end == ' ') {
        uint64_t scope = strtoull(end + 1, &end, 16);
        if (!*end) take_scoped_run(control, record, (int)count, scope);
    }
    if (*end || strchr(record->text, ' ')) return;
    int last = record->rank + (int)count;
    if (record->rank <= control->rank && control->rank < last) {
        take_ranks(control, record, control->rank - record->rank);
        part.rank = control->rank + 1;
    }
    take_ranks(control, &part, last - part.rank);
}

/* ---- this rank's own ---- */

static rpi_control_record own_record(const rpi_control_group *group) {
    uint64_t gap = atomic_load(&group->gap);
    return (rpi_control_record){
        .kind = RPI_CONTROL_BEAT,
        .rank = group->control->rank,
        .number = (int32_t)(gap & 0xffffff),
        .a = atomic_load(&group->sequence),
        .b = gap >> 24 | (gap && atomic_load(&group->overdue) ? RPI_BEAT_OVERDUE : 0)};
}

enum { WAITERS = 64 };

/* Under the lock: the threads that wait, at most the first of them; returns how many. */
static int find_waiters(const rpi_control *control, uint64_t *waiters) {
    int count = 0;
    for (const rpi_control_group *group = control->groups; group && count < WAITERS;
         group = group->next) {
        uint64_t waiter = atomic_load(&group->waiter);
        if (waiter && atomic_load(&group->sequence)) waiters[count++] = waiter;
    }
    return count;
}

static bool is_among(uint64_t thread, const uint64_t *threads, int count) {
    for (int i = 0; i < count; i++)
        if (threads[i] == thread) return true;
    return false;
}

/* Under the lock: whether each thread that posts waits, and each operation lacks a frame. */
static bool is_blocked(const rpi_control *control) {
    uint64_t waiters[WAITERS];
    int count = find_waiters(control, waiters);
    bool any = false;
    for (const rpi_control_group *group = control->groups; group; group = group->next) {
        uint64_t poster = atomic_load(&group->poster);
        if (group->failed) continue;
        if (atomic_load(&group->in_flight) > 0 && !atomic_load(&group->gap)) return false;
        if (poster && !is_among(poster, waiters, count)) return false;
        any |= poster != 0;
    }
    return any;
}

static void put_number(rpi_control_record *record, const char *format, uint64_t number) {
    snprintf(record->text, sizeof record->text, format, number);
    record->text_bytes = (uint16_t)strlen(record->text);
}

/* Under the lock; connection NULL: this rank is the coordinator. */
static void send_groups_closed(rpi_control *control, rpi_control_connection *connection) {
    for (size_t i = 0; i < control->closed_count; i++) {
        rpi_control_record record = {.kind = RPI_CONTROL_LEAVE, .b = control->closed[i]};
        if (connection)
            (void)rpi_control_connection_queue(connection, &record);
        else
            rpi_scope_leave(control, record.b, control->rank);
    }
    control->closed_count = 0;
}

static void send_group_open(rpi_control_group *group, rpi_control_connection *connection) {
    rpi_control *control = group->control;
    rpi_control_record record = {.kind = RPI_CONTROL_JOIN,
                                 .rank = control->rank,
                                 .number = group->count,
                                 .b = group->scope};
    if (group->known_by == control->coordinator + 1) return;
    group->known_by = control->coordinator + 1;
    snprintf(record.text, sizeof record.text, "%s", group->name);
    record.text_bytes = (uint16_t)strlen(record.text);
    if (connection)
        (void)rpi_control_connection_queue(connection, &record);
    else
        rpi_scope_join(control, group->scope, control->rank, group->count, group->name);
}

static void send_group(rpi_control_group *group, rpi_control_connection *connection) {
    rpi_control *control = group->control;
    rpi_control_record record = own_record(group);
    if (!record.a && !record.number) return; /* it computes, as far as this group knows */
    if (connection) {
        put_number(&record, "%" PRIx64, group->scope);
        (void)rpi_control_connection_queue(connection, &record);
        return;
    }
    rpi_group_beat said = beat_of(control, &record);
    said.beat_number = control->beat_counts[control->rank] + 1;
    rpi_scope_receive(control, group->scope, control->rank, &said);
}

/* Send to the coordinator, or take in if this rank is it: groups that were opened and closed,
 * and where this rank waits. */
static void send_groups(rpi_control *control, rpi_control_connection *connection) {
    pthread_mutex_lock(&control->lock);
    send_groups_closed(control, connection);
    for (rpi_control_group *group = control->groups; group; group = group->next) {
        if (!group->ranks) continue;
        send_group_open(group, connection);
        send_group(group, connection);
    }
    pthread_mutex_unlock(&control->lock);
}

/* ---- sending ---- */

/* Pass on what was received since the last beat: consecutive ranks with the same state are one
 * run. */
static int find_runs(rpi_control *control) {
    const rpi_group_beat *beats = control->everybody.beats;
    int count = 0;
    pthread_mutex_lock(&control->lock);
    for (int rank = 0; rank < control->world; rank++) {
        rpi_beat_run *last = count ? &control->runs[count - 1] : NULL;
        if (!control->fresh[rank]) continue;
        if (last && last->rank + last->count == rank &&
            rpi_beats_are_alike(&last->beat, &beats[rank]))
            last->count++;
        else
            control->runs[count++] =
                (rpi_beat_run){.rank = rank, .count = 1, .beat = beats[rank]};
    }
    pthread_mutex_unlock(&control->lock);
    return count;
}

static void queue_run(rpi_control_connection *connection, const rpi_beat_run *run) {
    const rpi_group_beat *beat = &run->beat;
    rpi_control_record record = {.kind = RPI_CONTROL_BEAT,
                                 .rank = run->rank,
                                 .number = beat->gap.from + 1,
                                 .a = beat->sequence,
                                 .b = beat->gap.step |
                                      (beat->gap.overdue ? RPI_BEAT_OVERDUE : 0) |
                                      (beat->blocked ? RPI_BEAT_BLOCKED : 0)};
    if (run->count > 1) {
        record.kind = RPI_CONTROL_BEATS;
        put_number(&record, "%" PRIx64, (uint64_t)run->count);
    }
    (void)rpi_control_connection_queue(
        connection, &record); /* the end of a connection is found by reading */
}

/* The connections to which this beat is sent: a full one is left out. */
static void choose_connections(rpi_control *control, bool tell) {
    for (int i = 0; i < control->connection_count; i++) {
        rpi_control_connection *connection = &control->connections[i];
        bool is_mine =
            rpi_control_is_coordinator(control) || rpi_control_is_up(control, connection);
        connection->listens = tell && is_mine && connection->rank >= 0 && connection->fd >= 0 &&
                              !connection->out_bytes;
    }
}

static void send_as_coordinator(rpi_control *control) {
    int runs = find_runs(control);
    rpi_scopes_queue(control);
    for (int i = 0; i < control->connection_count; i++) {
        rpi_control_connection *connection = &control->connections[i];
        for (int run = 0; connection->listens && run < runs; run++)
            queue_run(connection, &control->runs[run]);
        if (connection->listens) (void)rpi_control_connection_flush(connection);
    }
}

static rpi_control_record say_own(rpi_control *control) {
    rpi_control_record own = own_record(&control->everybody);
    pthread_mutex_lock(&control->lock);
    if (is_blocked(control)) own.b |= RPI_BEAT_BLOCKED;
    pthread_mutex_unlock(&control->lock);
    return own;
}

void rpi_control_beat_once(rpi_control *control, bool tell) {
    rpi_control_record own = say_own(control);
    rpi_control_connection *up = &control->connections[0];
    bool is_coordinator = rpi_control_is_coordinator(control);
    choose_connections(control, tell);
    if (is_coordinator) send_groups(control, NULL);
    if (!is_coordinator && up->listens) send_groups(control, up);
    take_ranks(control, &own, 1);
    if (is_coordinator && tell) send_as_coordinator(control);
    if (!is_coordinator && up->listens) (void)rpi_control_connection_send(up, &own);
    memset(control->fresh, 0, (size_t)control->world * sizeof *control->fresh);
}
