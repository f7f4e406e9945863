/* Failures of groups of a control connection: whom they reach, and which is kept. */
#include "bare_coordinator.h"
#include "control_parties.h"
#include "net/control/control.h"

#include "base/clock.h"
#include "harness/check.h"
#include "net/control/control_state.h"
#include "net/socket/stream.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

/* {3, 1} fails, {1, 2} and all together do not, and may fail later. */
static void fail_by_group(party *self) {
    bool in_first = self->rank == 1 || self->rank == 3;
    rpi_control_group *first = in_first ? party_open_group(self, 7, 3, 1) : NULL;
    pthread_barrier_wait(self->together);
    if (self->rank == 3) {
        rpi_failure failure = {.status = RP_IO, .rank = 1, .text = "the first group's"};
        rpi_control_publish(first, &failure);
    }
    if (in_first) {
        CHECK(rpi_control_wait_failed(first, rpi_deadline_ns(20), &self->heard));
        CHECK_EQ(self->heard.rank, 1); /* places in the group: rank 1 of all is the second */
        CHECK_EQ(self->heard.finder, 0);
        CHECK(strcmp(self->heard.text, "the first group's") == 0);
    }
    /* Its decision came to all by way of rank 0: who opens the group later has it at once. */
    if (self->rank == 0) rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 20);
    pthread_barrier_wait(self->together);
    if (self->rank == 2) {
        rpi_control_group *late = party_open_group(self, 7, 2, 1);
        CHECK(rpi_control_wait_failed(late, rpi_deadline_ns(20), &self->heard));
        rpi_control_group_close(late);
    }
    CHECK(!rpi_control_failed(rpi_control_everybody(self->control), &self->heard));
    rpi_control_group *second =
        self->rank == 1 || self->rank == 2 ? party_open_group(self, 8, 1, 2) : NULL;
    if (second) CHECK(!rpi_control_failed(second, &self->heard));
    pthread_barrier_wait(self->together);
    party_publish(self, self->rank, RP_CORRUPT, "everybody's");
    CHECK(party_waits_for_failure(self));
    if (second) CHECK(!rpi_control_failed(second, &self->heard));
    rpi_control_group_close(first);
    rpi_control_group_close(second);
}

static void failures_are_by_group(void) {
    party parties[WORLD] = {0};
    parties_gather(parties, WORLD, WORLD, fail_by_group);
}

/* Rank 3 of 4, in place of a party: comes, and is gone when the others are in their groups. */
static void *die(void *context) {
    party *self = context;
    char address[64] = "";
    size_t bytes = 0;
    rpi_control_connection connection = {.fd = -1};
    CHECK_OK(self->store.ops->get(self->store.context, "world/control", 20, address,
                                  sizeof address, &bytes));
    CHECK_OK(rpi_stream_dial(NULL, atoi(address), rpi_deadline_ns(20), &connection.fd));
    rpi_control_record hello = {.kind = RPI_CONTROL_HELLO, .rank = 3, .number = 4};
    CHECK_OK(rpi_control_connection_send(&connection, &hello));
    pthread_barrier_wait(self->together);
    rpi_control_connection_close(&connection);
    return NULL;
}

static void survive(party *self) {
    rpi_control_group *with = party_open_group(self, 11, 3, self->rank);
    /* Of each rank another one: who is first to publish below fails nobody else's. */
    uint64_t own = 20 + (uint64_t)self->rank;
    rpi_control_group *without = party_open_group(self, own, (self->rank + 1) % 3, self->rank);
    pthread_barrier_wait(self->together);
    CHECK(party_waits_for_failure(self));
    CHECK_EQ(self->heard.rank, 3);
    CHECK_EQ(self->heard.finder, -1);
    rpi_failure heard;
    CHECK(rpi_control_wait_failed(with, rpi_deadline_ns(20), &heard));
    CHECK_EQ(heard.rank, 0);
    CHECK_MSG(strstr(heard.text, "rank 0 is gone"), "%s", heard.text);
    CHECK(!rpi_control_failed(without, &heard));
    rpi_control_group *later = party_open_group(self, 13, self->rank, 3);
    CHECK(rpi_control_failed(later, &heard));
    CHECK_EQ(heard.rank, 1);
    /* The arbiter goes on. */
    rpi_failure failure = {.status = RP_IO, .rank = 0, .text = "another failure"};
    rpi_control_publish(without, &failure);
    CHECK(rpi_control_wait_failed(without, rpi_deadline_ns(20), &heard));
    CHECK(strcmp(heard.text, "another failure") == 0);
    rpi_control_group_close(later);
    rpi_control_group_close(without);
    rpi_control_group_close(with);
}

static void a_death_fails_the_groups_that_have_it(void) {
    pthread_barrier_t together;
    pthread_t threads[WORLD];
    party parties[WORLD] = {0};
    rp_store store = {0};
    REQUIRE_OK(rp_store_open_local(&store));
    pthread_barrier_init(&together, NULL, WORLD);
    for (int i = 0; i < WORLD; i++) {
        parties[i] = (party){.store = store,
                             .rank = i,
                             .world = WORLD,
                             .timeout_s = 20,
                             .act = survive,
                             .together = &together};
        pthread_create(&threads[i], NULL, i < 3 ? party_lives : die, &parties[i]);
    }
    for (int i = 0; i < WORLD; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    rp_store_close(&store);
}

static void decide(rpi_control *control, uint64_t scope, const char *text) {
    rpi_failure failure = {.status = RP_IO, .rank = -1, .finder = 0, .scope = scope};
    snprintf(failure.text, sizeof failure.text, "%s", text);
    rpi_control_decide(control, &failure);
}

/* Of a group that is opened later, however many of others come before and between. */
static void the_first_failure_is_the_first(void) {
    const int self = 0;
    for (int before = 0; before < 2 * RPI_CONTROL_EARLY; before += 7)
        for (int between = 0; between < RPI_CONTROL_EARLY - 1; between += 5) {
            rpi_control *control = NULL;
            rpi_control_group *group = NULL;
            rpi_failure heard = {0};
            REQUIRE_OK(rpi_control_open(NULL, 0, 1, &(rpi_control_options){0}, &control));
            for (int i = 0; i < before; i++) decide(control, 100 + (uint64_t)i, "other");
            decide(control, 9, "first");
            for (int i = 0; i < between; i++) decide(control, 300 + (uint64_t)i, "other");
            decide(control, 9, "second");
            CHECK_OK(rpi_control_group_open(control, 9, &self, 1, &group));
            CHECK(rpi_control_failed(group, &heard));
            CHECK_MSG(strcmp(heard.text, "first") == 0, "%d before, %d between: %s", before,
                      between, heard.text);
            rpi_control_group_close(group);
            rpi_control_close(control);
        }
}

/* How long a rank has been silent, as this one (rank 2) sees it that has heard itself at 100.
 */
typedef struct silence {
    int served_by, of;
    int64_t heard_ns, served_ns, served_heard_ns, opened_ns, silent_ns;
    int by; /* who is said to have heard nothing */
} silence;

static const silence silences[] = {
    {0, 3, 40, 10, 90, 0, 50, 0},                      /* by rank 0's clock */
    {0, 0, 40, 10, 90, 0, 60, 2},                      /* rank 0 itself, by our own */
    {0, 3, 95, 10, 90, 0, 0, 0},                       /* it was heard later */
    {0, 3, 40, 10, 90, 70, 20, 0},                     /* nobody is silent before all began */
    {2, 3, 40, 10, 90, 0, 60, 2},                      /* this rank is the coordinator */
    {1, 3, 5, 30, 90, 0, 60, 1},                       /* a new coordinator knows of nothing */
    {1, 1, 5, 30, 90, 0, 70, 2},                       /* that was before, of itself neither */
    {1, 0, 5, 30, 90, 0, 85, 1},                       /* but who was before it is silent */
    {RPI_COORDINATOR_SOUGHT, 1, 40, 10, 90, 0, 60, 2}, /* it was lost as coordinator */
    {RPI_COORDINATOR_SOUGHT, 3, 40, 10, 90, 0, 0, 2},  /* and nobody tells of others */
};

static void silence_is_counted_by_whose_beats_tell_of_it(void) {
    for (size_t i = 0; i < sizeof silences / sizeof silences[0]; i++) {
        const silence *row = &silences[i];
        bare_coordinator *coordinator = bare_coordinator_make(WORLD);
        rpi_control *control = &coordinator->control;
        rpi_control_beat beat;
        control->rank = 2;
        control->lost_coordinator = 1;
        control->served_by = row->served_by;
        control->served_ns = row->served_ns;
        control->served_heard_ns = row->served_heard_ns;
        control->opened_ns = row->opened_ns;
        control->heard_ns[2] = 100;
        control->heard_ns[row->of] = row->heard_ns;
        rpi_control_beat_of(&control->everybody, row->of, &beat);
        CHECK_MSG(beat.silent_ns == row->silent_ns, "row %zu: %lld ns", i,
                  (long long)beat.silent_ns);
        CHECK_MSG(beat.by == row->by, "row %zu: by %d", i, beat.by);
        CHECK_EQ(beat.heard_ns, row->heard_ns);
        bare_coordinator_free(coordinator);
    }
}

CASES({"failures_are_by_group", failures_are_by_group},
      {"a_death_fails_the_groups_that_have_it", a_death_fails_the_groups_that_have_it},
      {"the_first_failure_is_the_first", the_first_failure_is_the_first},
      {"silence_is_counted_by_whose_beats_tell_of_it",
       silence_is_counted_by_whose_beats_tell_of_it})
