/* Beats of a control connection: who hears them, by group, and how many messages and bytes
 * they cost.
 */
#include "bare_coordinator.h"
#include "control_parties.h"
#include "net/control/control.h"

#include "base/clock.h"
#include "harness/check.h"
#include "net/control/control_state.h"

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

static void hear_beats(party *self) {
    rpi_control_note(rpi_control_everybody(self->control), 100 + (uint64_t)self->rank);
    rpi_control_note_gap(rpi_control_everybody(self->control),
                         (rpi_control_gap){.from = (self->rank + 1) % self->world,
                                           .step = (UINT64_C(7) << 32) + (uint64_t)self->rank});
    for (int rank = 0; rank < self->world; rank++) {
        rpi_control_beat beat = {0};
        int64_t deadline_ns = rpi_deadline_ns(20);
        do {
            rpi_control_beat_of(rpi_control_everybody(self->control), rank, &beat);
            rpi_sleep_until_ns(rpi_now_ns() + 1000000);
        } while (beat.gap.from < 0 && rpi_now_ns() < deadline_ns);
        CHECK_EQ(beat.sequence, 100 + rank);
        CHECK_EQ(beat.gap.from, (rank + 1) % self->world);
        CHECK_EQ(beat.gap.step, (INT64_C(7) << 32) + rank);
        CHECK(beat.heard_ns > 0 && beat.heard_ns <= rpi_now_ns());
    }
    /* What was waited for in one operation is not in the next. */
    pthread_barrier_wait(self->together);
    rpi_control_note(rpi_control_everybody(self->control), 200);
    for (int rank = 0; rank < self->world; rank++) {
        rpi_control_beat beat = {0};
        int64_t deadline_ns = rpi_deadline_ns(20);
        do {
            rpi_control_beat_of(rpi_control_everybody(self->control), rank, &beat);
            rpi_sleep_until_ns(rpi_now_ns() + 1000000);
        } while (beat.sequence != 200 && rpi_now_ns() < deadline_ns);
        CHECK_EQ(beat.gap.from, -1);
    }
    pthread_barrier_wait(self->together);
}

static void beats_reach_everybody(void) {
    party parties[WORLD] = {0};
    parties_gather(parties, WORLD, WORLD, hear_beats);
}

static void descriptor_0_serves_like_any(void) {
    check_without_stdin(beats_reach_everybody);
}

enum { MANY = 32, BEATS = 20 };

typedef struct traffic {
    unsigned long long sends;
    uint32_t beats; /* of its own, so far */
} traffic;

static traffic traffic_of(rpi_control *control) {
    traffic sum = {0};
    for (int i = 0; i < control->connection_count; i++)
        sum.sends += atomic_load(&control->connections[i].sends);
    pthread_mutex_lock(&control->lock);
    sum.beats = control->beat_counts[control->rank];
    pthread_mutex_unlock(&control->lock);
    return sum;
}

/* All wait in one operation, as ranks do most of the time, but for one that lacks a frame. */
static void beat_for_a_while(party *self) {
    rpi_control_group *everybody = rpi_control_everybody(self->control);
    rpi_control_note(everybody, 7);
    if (self->rank == 3)
        rpi_control_note_gap(everybody, (rpi_control_gap){.from = 5, .step = 9});
    pthread_barrier_wait(self->together);
    traffic before = traffic_of(self->control), now;
    do {
        rpi_sleep_until_ns(rpi_now_ns() + 10000000);
        now = traffic_of(self->control);
    } while (now.beats < before.beats + BEATS);
    unsigned long long beats = now.beats - before.beats + 1,
                       connections = self->control->world - 1;
    if (self->rank) connections = 1;
    CHECK_MSG(now.sends - before.sends <= beats * connections,
              "rank %d: %llu sends in %llu beats", self->rank, now.sends - before.sends, beats);
    for (int rank = 0; rank < self->world; rank++) {
        rpi_control_beat beat = {0};
        while (!beat.sequence) {
            rpi_control_beat_of(everybody, rank, &beat);
            rpi_sleep_until_ns(rpi_now_ns() + 1000000);
        }
        CHECK_EQ(beat.sequence, 7);
    }
    pthread_barrier_wait(self->together);
}

/* Of each beat rank 0 sends one message to each rank, and each rank one to it. */
static void beats_are_few_messages(void) {
    party parties[MANY] = {0};
    parties_gather(parties, MANY, MANY, beat_for_a_while);
    for (int i = 0; i < MANY; i++)
        CHECK_MSG(parties[i].status == RP_OK, "%s", parties[i].heard.text);
}

static void beat_by_group(party *self) {
    rpi_control_group *group = party_open_group(self, 9, 2, 0);
    int place = self->rank == 2 ? 0 : 1;
    rpi_control_note(rpi_control_everybody(self->control), 5);
    if (self->rank != 1) {
        rpi_control_note(group, 50 + (uint64_t)self->rank);
        rpi_control_note_gap(group, (rpi_control_gap){.from = 1 - place, .step = 3});
        rpi_control_beat beat = {0};
        int64_t deadline_ns = rpi_deadline_ns(20);
        do {
            rpi_control_beat_of(group, 1 - place, &beat);
            rpi_sleep_until_ns(rpi_now_ns() + 1000000);
        } while (beat.gap.from < 0 && rpi_now_ns() < deadline_ns);
        CHECK_EQ(beat.sequence, self->rank == 2 ? 50 : 52);
        CHECK_EQ(beat.gap.from, place);
        CHECK_EQ(beat.gap.step, 3);
    }
    pthread_barrier_wait(self->together);
    /* Who waits no more in a group is not mentioned any more. */
    rpi_control_note(group, 0);
    if (self->rank != 1) {
        rpi_control_beat beat = {.sequence = 1};
        int64_t deadline_ns = rpi_deadline_ns(20);
        while (beat.sequence && rpi_now_ns() < deadline_ns) {
            rpi_control_beat_of(group, 1 - place, &beat);
            rpi_sleep_until_ns(rpi_now_ns() + 1000000);
        }
        CHECK_EQ(beat.sequence, 0);
        CHECK(beat.heard_ns > 0);
        do { /* rank 1 beats in its own time */
            rpi_control_beat_of(rpi_control_everybody(self->control), 1, &beat);
            rpi_sleep_until_ns(rpi_now_ns() + 1000000);
        } while (beat.sequence != 5 && rpi_now_ns() < deadline_ns);
        CHECK_EQ(beat.sequence, 5);
    }
    pthread_barrier_wait(self->together);
    rpi_control_group_close(group);
}

/* Until its members have agreed on a number each has a scope of its own. */
static void beat_by_renamed_group(party *self) {
    rpi_control_group *group = party_open_group(self, 100 + (uint64_t)self->rank, 1, 2);
    party_lets_thread_pass(self);
    pthread_barrier_wait(self->together);
    rpi_control_group_rename(group, 90);
    if (self->rank) {
        rpi_control_beat beat = {0};
        int64_t deadline_ns = rpi_deadline_ns(20);
        rpi_control_note(group, 7);
        while (beat.sequence != 7 && rpi_now_ns() < deadline_ns) {
            rpi_control_beat_of(group, 2 - self->rank, &beat);
            rpi_sleep_until_ns(rpi_now_ns() + 1000000);
        }
        CHECK_EQ(beat.sequence, 7);
    }
    pthread_barrier_wait(self->together);
    rpi_control_group_close(group);
}

static void a_group_is_heard_by_its_new_scope(void) {
    party parties[3] = {0};
    parties_gather(parties, 3, 3, beat_by_renamed_group);
}

static void beats_are_by_group(void) {
    party parties[3] = {0};
    parties_gather(parties, 3, 3, beat_by_group);
}

/* Records of the coordinator's beat to this rank, of any group and of that of all; their bytes.
 */
static size_t count_records(bare_coordinator *coordinator, int rank, int *scoped, int *others) {
    rpi_control_record record;
    size_t bytes = 0;
    *scoped = *others = 0;
    while (rpi_control_connection_receive(&coordinator->far[rank], &record) == RP_OK) {
        bytes += RPI_CONTROL_RECORD_BYTES + record.text_bytes;
        ++*(strchr(record.text, ' ') ? scoped : others);
    }
    return bytes;
}

/* A row: how many ranks there are, and how many of them, in equal steps from rank 1 on, are the
 * members of a group in which all wait. */
static const struct {
    int world, members;
} crowds[] = {{8, 7}, {16, 15}, {32, 31}, {32, 15}, {32, 8}, {32, 2}, {4, 3}, {3, 2}};
enum { CROWDS = sizeof crowds / sizeof crowds[0] };

static void beats_of_groups_are_short_and_go_to_members(void) {
    for (int row = 0; row < CROWDS; row++) {
        int world = crowds[row].world, members = crowds[row].members;
        int step = (world - 1) / members;
        bare_coordinator *coordinator = bare_coordinator_make(world);
        for (int i = 0; i < members; i++)
            rpi_scope_join(&coordinator->control, 0xabc, 1 + i * step, members, "tp");
        for (int rank = 1; rank < world; rank++) {
            int place = (rank - 1) / step;
            if ((rank - 1) % step == 0 && place < members)
                bare_coordinator_hear(coordinator, rank, "abc", 7, -1, 0);
            bare_coordinator_hear(coordinator, rank, "", 0, -1, 0);
        }
        rpi_control_beat_once(&coordinator->control, true);
        for (int rank = 1; rank < world; rank++) {
            int scoped = 0, others = 0;
            bool is_member = (rank - 1) % step == 0 && (rank - 1) / step < members;
            size_t bytes = count_records(coordinator, rank, &scoped, &others);
            CHECK_EQ(atomic_load(&coordinator->connections[rank].sends), 1);
            CHECK_EQ(scoped, is_member);
            CHECK_EQ(others, 1);
            CHECK_MSG(bytes <= 2 * RPI_CONTROL_RECORD_BYTES + 16, "%zu bytes of %d ranks",
                      bytes, world);
        }
        bare_coordinator_free(coordinator);
    }
}

/* Who says something else stands alone, and who has left is told nothing. */
static void runs_of_groups_are_broken_where_members_differ(void) {
    bare_coordinator *coordinator = bare_coordinator_make(8);
    int scoped = 0, others = 0;
    for (int rank = 1; rank < 8; rank++)
        rpi_scope_join(&coordinator->control, 0xabc, rank, 7, "tp");
    for (int rank = 1; rank < 8; rank++)
        bare_coordinator_hear(coordinator, rank, "abc", rank == 4 ? 8 : 7, -1, 0);
    rpi_control_beat_once(&coordinator->control, true);
    for (int rank = 1; rank < 8; rank++) {
        (void)count_records(coordinator, rank, &scoped, &others);
        CHECK_EQ(scoped, 3); /* 1 to 3, 4, 5 to 7 */
    }
    rpi_scope_leave(&coordinator->control, 0xabc, 5);
    for (int rank = 1; rank < 8; rank++)
        bare_coordinator_hear(coordinator, rank, "abc", 9, -1, 0);
    rpi_control_beat_once(&coordinator->control, true);
    for (int rank = 1; rank < 8; rank++) {
        (void)count_records(coordinator, rank, &scoped, &others);
        CHECK_EQ(scoped,
                 rank == 5 ? 0 : 6); /* the coordinator does not know all: they stand alone */
    }
    for (int rank = 1; rank < 8; rank++) rpi_scope_leave(&coordinator->control, 0xabc, rank);
    CHECK(!coordinator->control.scopes);
    bare_coordinator_free(coordinator);
}

CASES({"beats_reach_everybody", beats_reach_everybody},
      {"descriptor_0_serves_like_any", descriptor_0_serves_like_any},
      {"beats_are_few_messages", beats_are_few_messages},
      {"a_group_is_heard_by_its_new_scope", a_group_is_heard_by_its_new_scope},
      {"beats_are_by_group", beats_are_by_group},
      {"beats_of_groups_are_short_and_go_to_members",
       beats_of_groups_are_short_and_go_to_members},
      {"runs_of_groups_are_broken_where_members_differ",
       runs_of_groups_are_broken_where_members_differ})
