/* Heartbeats: what ranks say of themselves, by way of rank 0.
 *
 * Each rank sends rank 0 one message a beat, and rank 0 sends each rank one, with what it has
 * heard since its last: 2 (P - 1) messages for P ranks. Most ranks say the same most of the
 * time, that they compute or wait in one operation, and neighbours who do stand in one record.
 */
#include "net/control/control_state.h"

#include "base/clock.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Groups in which a rank may wait at once and all hear of it. */
enum { SCOPED_EACH = 64 };

/* ---- taking ---- */

/* The gap of a record whose ranks are the control connection's, as the group has it. */
static rpi_control_gap gap_in(const rpi_control_group *group, int from, uint64_t step) {
    int member =
        from >= 0 && from < group->control->world ? rpi_control_member(group, from) : -1;
    return (rpi_control_gap){.from = member, .step = step};
}

/* What ranks do in the group of all, and that they live: the last record of each beat. */
static void take_ranks(rpi_control *control, const rpi_control_record *record, int count) {
    rpi_control_group *everybody = &control->everybody;
    int64_t now_ns = rpi_now_ns();
    pthread_mutex_lock(&control->lock);
    for (int rank = record->rank; rank < record->rank + count; rank++) {
        control->heard_ns[rank] = now_ns;
        control->rounds[rank]++;
        everybody->beats[rank] =
            (rpi_group_beat){.sequence = record->a,
                             .gap = gap_in(everybody, record->number - 1, record->b),
                             .round = control->rounds[rank]};
        control->fresh[rank] = true;
    }
    pthread_mutex_unlock(&control->lock);
}

static void note_scoped(rpi_control *control, const rpi_scoped_beat *beat) {
    size_t most = SCOPED_EACH * (size_t)control->world;
    if (control->scoped_count == control->scoped_room) {
        size_t room = 2 * control->scoped_room + 16;
        if (control->scoped_count >= most ||
            rpi_grow_array(control->scoped_room, room, sizeof *control->scoped, "beats",
                           &control->scoped) != RP_OK)
            return; /* without it the rank computes, as far as others know */
        control->scoped_room = room;
    }
    control->scoped[control->scoped_count++] = *beat;
}

/* What it does in another group. */
static void take_scoped_beat(rpi_control *control, const rpi_control_record *record) {
    char *end = NULL;
    rpi_scoped_beat beat = {
        .scope = strtoull(record->text, &end, 16),
        .sequence = record->a,
        .gap = record->number > 0 ? record->b << 24 | (uint64_t)record->number : 0,
        .rank = record->rank};
    if (*end) return;
    pthread_mutex_lock(&control->lock);
    rpi_control_group *group = rpi_control_find_group(control, beat.scope);
    int member = group ? rpi_control_member(group, beat.rank) : -1;
    if (member >= 0)
        group->beats[member] =
            (rpi_group_beat){.sequence = record->a,
                             .gap = gap_in(group, record->number - 1, record->b),
                             .round = control->rounds[beat.rank] + 1};
    pthread_mutex_unlock(&control->lock);
    if (rpi_control_is_hub(control)) note_scoped(control, &beat);
}

void rpi_control_take_beat(rpi_control *control, const rpi_control_record *record) {
    if (record->rank < 0 || record->rank >= control->world || record->rank == control->rank)
        return; /* of oneself one knows more */
    if (record->text_bytes)
        take_scoped_beat(control, record);
    else
        take_ranks(control, record, 1);
}

void rpi_control_take_beats(rpi_control *control, const rpi_control_record *record) {
    char *end = NULL;
    rpi_control_record part = *record;
    unsigned long count = strtoul(record->text, &end, 16);
    if (*end || record->rank < 0 || record->rank >= control->world || count < 1 ||
        count > (unsigned long)(control->world - record->rank))
        return;
    int last = record->rank + (int)count;
    if (record->rank <= control->rank && control->rank < last) {
        take_ranks(control, record, control->rank - record->rank);
        part.rank = control->rank + 1;
    }
    take_ranks(control, &part, last - part.rank);
}

/* ---- sending ---- */

static rpi_control_record record_of_gap(int rank, uint64_t sequence, uint64_t gap) {
    return (rpi_control_record){.kind = RPI_CONTROL_BEAT,
                                .rank = rank,
                                .number = (int32_t)(gap & 0xffffff),
                                .a = sequence,
                                .b = gap >> 24};
}

static void queue_numbered(rpi_control_line *line, rpi_control_record *record, uint64_t text) {
    snprintf(record->text, sizeof record->text, "%" PRIx64, text);
    record->text_bytes = (uint16_t)strlen(record->text);
    (void)rpi_control_line_queue(line, record); /* the end of a line is heard by reading */
}

static void queue_scoped(rpi_control *control, rpi_control_line *line) {
    for (size_t i = 0; i < control->scoped_count; i++) {
        const rpi_scoped_beat *beat = &control->scoped[i];
        if (beat->rank == line->rank) continue;
        rpi_control_record record = record_of_gap(beat->rank, beat->sequence, beat->gap);
        queue_numbered(line, &record, beat->scope);
    }
}

static bool say_the_same(const rpi_group_beat *a, const rpi_group_beat *b) {
    return a->sequence == b->sequence && a->gap.from == b->gap.from &&
           a->gap.step == b->gap.step;
}

/* What has been heard since the last beat: ranks in a row that say the same are one run. */
static int find_runs(rpi_control *control) {
    const rpi_group_beat *beats = control->everybody.beats;
    int count = 0;
    pthread_mutex_lock(&control->lock);
    for (int rank = 0; rank < control->world; rank++) {
        rpi_beat_run *last = count ? &control->runs[count - 1] : NULL;
        if (!control->fresh[rank]) continue;
        if (last && last->rank + last->count == rank && say_the_same(&last->beat, &beats[rank]))
            last->count++;
        else
            control->runs[count++] =
                (rpi_beat_run){.rank = rank, .count = 1, .beat = beats[rank]};
    }
    pthread_mutex_unlock(&control->lock);
    return count;
}

static void queue_run(rpi_control_line *line, const rpi_beat_run *run) {
    rpi_control_record record = {.kind = RPI_CONTROL_BEAT,
                                 .rank = run->rank,
                                 .number = run->beat.gap.from + 1,
                                 .a = run->beat.sequence,
                                 .b = run->beat.gap.step};
    if (run->count == 1) {
        (void)rpi_control_line_queue(line, &record);
        return;
    }
    record.kind = RPI_CONTROL_BEATS;
    queue_numbered(line, &record, (uint64_t)run->count);
}

/* Where this rank waits, in groups other than that of all. */
static void note_own_groups(rpi_control *control) {
    pthread_mutex_lock(&control->lock);
    for (const rpi_control_group *group = control->groups; group; group = group->next) {
        rpi_scoped_beat beat = {.scope = group->scope,
                                .sequence = atomic_load(&group->sequence),
                                .gap = atomic_load(&group->gap),
                                .rank = control->rank};
        if (group->ranks && beat.sequence) note_scoped(control, &beat);
    }
    pthread_mutex_unlock(&control->lock);
}

void rpi_control_beat_once(rpi_control *control, bool tell) {
    rpi_control_record own =
        record_of_gap(control->rank, atomic_load(&control->everybody.sequence),
                      atomic_load(&control->everybody.gap));
    bool is_hub = rpi_control_is_hub(control);
    note_own_groups(control);
    take_ranks(control, &own, 1);
    int runs = tell && is_hub ? find_runs(control) : 0;
    for (int i = 0; i < control->line_count && tell; i++) {
        rpi_control_line *line = &control->lines[i];
        if (line->rank < 0 || line->fd < 0 || line->out_bytes) continue; /* a full line waits */
        if (!is_hub && !rpi_control_is_up(control, line)) continue;
        queue_scoped(control, line);
        if (!is_hub) (void)rpi_control_line_queue(line, &own);
        for (int run = 0; run < runs; run++) queue_run(line, &control->runs[run]);
        (void)rpi_control_line_flush(line);
    }
    memset(control->fresh, 0, (size_t)control->world * sizeof *control->fresh);
    control->scoped_count = 0;
}
