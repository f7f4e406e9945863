/* The control connection among ranks that are threads: who decides, what is heard, what is
 * left.
 */
#include "bare_coordinator.h"
#include "net/control/control.h"
#include "net/trust/channel.h"

#include "base/clock.h"
#include "base/memory.h"
#include "harness/check.h"
#include "net/control/control_state.h"
#include "net/socket/stream.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WORLD = 4 };

typedef struct party {
    rp_store store;
    int rank, world;
    double timeout_s;
    uint64_t session;
    void (*act)(struct party *self);
    pthread_barrier_t *together;
    rpi_control *control; /* NULL once act() has closed it */
    rp_status status;
    rpi_failure heard;
} party;

static void *live(void *context) {
    party *self = context;
    rpi_control_options options = {.prefix = "world",
                                   .session = self->session,
                                   .timeout_s = self->timeout_s,
                                   .beat_s = 0.01};
    self->status =
        rpi_control_open(&self->store, self->rank, self->world, &options, &self->control);
    if (self->status != RP_OK)
        snprintf(self->heard.text, sizeof self->heard.text, "%s", rp_last_error()->message);
    else
        self->act(self);
    if (self->status == RP_OK) rpi_control_close(self->control);
    return NULL;
}

static bool wait_verdict(party *self) {
    return rpi_control_wait_failed(rpi_control_everybody(self->control), rpi_deadline_ns(20),
                                   &self->heard);
}

static void publish(party *self, int rank, rp_status status, const char *text) {
    rpi_failure failure = {.status = status, .rank = rank};
    snprintf(failure.text, sizeof failure.text, "%s", text);
    rpi_control_publish(rpi_control_everybody(self->control), &failure);
}

/* Everybody acts in a thread of its own; `count` of `world` come. */
static void gather(party *parties, int count, int world, void (*act)(party *)) {
    static pthread_barrier_t together;
    pthread_t threads[32];
    rp_store store = {0};
    REQUIRE_OK(rp_store_open_local(&store));
    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        party *p = &parties[i];
        p->store = store;
        p->rank = i;
        p->world = world;
        if (p->timeout_s == 0) p->timeout_s = 20;
        p->act = act;
        p->together = &together;
        pthread_create(&threads[i], NULL, live, p);
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    rp_store_close(&store);
}

static void do_nothing(party *self) {
    (void)self;
}

static void nothing_fails_and_nothing_is_left(void) {
    party warm_up[2] = {0}; /* a sanitizer's own thread comes with the first of ours */
    gather(warm_up, 2, 2, do_nothing);
    int descriptors = check_descriptors(), threads = check_threads();
    for (int world = 1; world <= 6; world++) {
        party parties[6] = {0};
        gather(parties, world, world, do_nothing);
        for (int i = 0; i < world; i++)
            CHECK_MSG(parties[i].status == RP_OK, "rank %d of %d: %s", i, world,
                      parties[i].heard.text);
    }
    CHECK_EQ(check_descriptors(), descriptors);
    CHECK_EQ(check_settled_threads(threads), threads);
}

static void leave_early(party *self) {
    /* Ranks come back to the barrier before any but rank 2 closes. */
    if (self->rank != 2) {
        rpi_control_beat beat;
        int64_t deadline_ns = rpi_deadline_ns(0.1);
        while (rpi_now_ns() < deadline_ns) rpi_sleep_until_ns(rpi_now_ns() + 10000000);
        rpi_control_beat_of(rpi_control_everybody(self->control), 1, &beat);
        CHECK(!rpi_control_failed(rpi_control_everybody(self->control), &self->heard));
    }
}

static void a_goodbye_is_no_death(void) {
    party parties[WORLD] = {0};
    gather(parties, WORLD, WORLD, leave_early);
}

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
    gather(parties, WORLD, WORLD, hear_beats);
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
    gather(parties, MANY, MANY, beat_for_a_while);
    for (int i = 0; i < MANY; i++)
        CHECK_MSG(parties[i].status == RP_OK, "%s", parties[i].heard.text);
}

static int publisher;

static void hear_one(party *self) {
    if (self->rank == publisher)
        publish(self, publisher, RP_IO, "rank X: the data file is bad");
    struct pollfd wait = {.fd = rpi_control_fd(self->control), .events = POLLIN};
    CHECK_EQ(poll(&wait, 1, 20000), 1);
    CHECK(rpi_control_failed(rpi_control_everybody(self->control), &self->heard));
}

static void one_publishes_all_hear(void) {
    for (publisher = 0; publisher < WORLD; publisher++) {
        party parties[WORLD] = {0};
        gather(parties, WORLD, WORLD, hear_one);
        for (int i = 0; i < WORLD; i++) {
            CHECK(strcmp(parties[i].heard.text, "rank X: the data file is bad") == 0);
            CHECK_EQ(parties[i].heard.status, RP_IO);
            CHECK_EQ(parties[i].heard.rank, publisher);
            CHECK_EQ(parties[i].heard.finder, publisher);
        }
    }
}

static void publish_and_leave(party *self) {
    if (self->rank == publisher)
        publish(self, publisher, RP_IO, "rank X: leaves at once");
    else
        CHECK(wait_verdict(self));
}

static void a_failure_outlives_its_finder(void) {
    for (publisher = 0; publisher < WORLD; publisher++) {
        party parties[WORLD] = {0};
        gather(parties, WORLD, WORLD, publish_and_leave);
        for (int i = 0; i < WORLD; i++)
            if (i != publisher)
                CHECK(strcmp(parties[i].heard.text, "rank X: leaves at once") == 0);
    }
}

static void all_publish(party *self) {
    char text[32];
    snprintf(text, sizeof text, "found by %d", self->rank);
    pthread_barrier_wait(self->together);
    publish(self, 2, RP_PEER, text);
    CHECK(wait_verdict(self));
}

static void many_publish_one_is_kept(void) {
    for (int beat_number = 0; beat_number < 10; beat_number++) {
        party parties[WORLD] = {0};
        gather(parties, WORLD, WORLD, all_publish);
        for (int i = 1; i < WORLD; i++) {
            CHECK(strcmp(parties[i].heard.text, parties[0].heard.text) == 0);
            CHECK_EQ(parties[i].heard.finder, parties[0].heard.finder);
        }
    }
}

static void texts_are_one_line(party *self) {
    char text[399];
    memset(text, 'x', sizeof text);
    memcpy(text, "two\nlines", 9);
    text[sizeof text - 1] = '\0';
    if (self->rank == 1) publish(self, -1, RP_CORRUPT, text);
    CHECK(wait_verdict(self));
    CHECK_EQ(strlen(self->heard.text), sizeof text - 1);
    CHECK_EQ(self->heard.rank, -1);
    CHECK(!strchr(self->heard.text, '\n'));
}

static void long_and_odd_texts(void) {
    party parties[2] = {0};
    gather(parties, 2, 2, texts_are_one_line);
}

static void missing_ranks_are_named(void) {
    party parties[WORLD] = {0};
    for (int i = 0; i < WORLD; i++) parties[i].timeout_s = i == 0 ? 0.3 : 20;
    gather(parties, 2, WORLD, do_nothing);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(parties[i].status, RP_TIMEOUT);
        CHECK_MSG(strstr(parties[i].heard.text, "rank 2, 3"), "%s", parties[i].heard.text);
    }
    party alone = {.rank = 1, .timeout_s = 0.05};
    rp_store store = {0};
    rpi_control *control = NULL;
    rpi_control_options options = {.prefix = "world", .timeout_s = alone.timeout_s};
    REQUIRE_OK(rp_store_open_local(&store));
    CHECK_FAILS(rpi_control_open(&store, 1, 2, &options, &control), TIMEOUT, "control");
    rp_store_close(&store);
}

static void strangers_are_not_let_in(void) {
    party parties[2] = {{.session = 1, .timeout_s = 0.5}, {.session = 2}};
    gather(parties, 2, 2, do_nothing);
    CHECK_EQ(parties[0].status, RP_TIMEOUT);
    CHECK_EQ(parties[1].status, RP_PEER);
    CHECK_MSG(strstr(parties[1].heard.text, "rank 0"), "%s", parties[1].heard.text);
}

static void *pester(void *context) {
    /* Finds the coordinator by its key, as a port scanner would find it by luck. */
    rp_store store = *(rp_store *)context;
    char address[64] = "";
    size_t bytes = 0;
    CHECK_OK(
        store.ops->get(store.context, "world/control", 20, address, sizeof address, &bytes));
    for (int i = 0; i < 40; i++) {
        int fd = -1;
        if (rpi_stream_dial(NULL, atoi(address), rpi_deadline_ns(0.2), &fd) != RP_OK) break;
        if (i % 2)
            (void)rpi_stream_write(fd, "GET / HTTP/1.0\r\n\r\n Host: none", 30,
                                   rpi_deadline_ns(1));
        if (i % 3)
            close(fd);
        else
            rpi_sleep_until_ns(rpi_now_ns() + 1000000), close(fd);
    }
    return NULL;
}

static void noise_at_the_listener(void) {
    party parties[2] = {0};
    pthread_t threads[2], stranger;
    rp_store store = {0};
    REQUIRE_OK(rp_store_open_local(&store));
    for (int i = 0; i < 2; i++)
        parties[i] =
            (party){.store = store, .rank = i, .world = 2, .timeout_s = 20, .act = do_nothing};
    pthread_create(&threads[0], NULL, live, &parties[0]);
    pthread_create(&stranger, NULL, pester, &store);
    rpi_sleep_until_ns(rpi_now_ns() + 30000000);
    pthread_create(&threads[1], NULL, live, &parties[1]);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    pthread_join(stranger, NULL);
    for (int i = 0; i < 2; i++)
        CHECK_MSG(parties[i].status == RP_OK, "%s", parties[i].heard.text);
    rp_store_close(&store);
}

/* A leaf in the control connection whose report of a failure carries any number as status. */
static void *accuse_oddly(void *context) {
    rp_store store = *(rp_store *)context;
    static const uint64_t statuses[] = {UINT64_C(1) << 63, UINT64_MAX, 0, 1 << 20};
    char address[64] = "";
    size_t bytes = 0;
    rpi_control_connection connection = {.fd = -1};
    CHECK_OK(
        store.ops->get(store.context, "world/control", 20, address, sizeof address, &bytes));
    CHECK_OK(rpi_stream_dial(NULL, atoi(address), rpi_deadline_ns(20), &connection.fd));
    rpi_control_record hello = {.kind = RPI_CONTROL_HELLO, .rank = 1, .number = 2};
    CHECK_OK(rpi_control_connection_send(&connection, &hello));
    static int turn;
    rpi_control_record odd = {
        .kind = RPI_CONTROL_FAILURE, .rank = 1, .number = 1, .a = statuses[turn++ % 4]};
    CHECK_OK(rpi_control_connection_send(&connection, &odd));
    rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 10);
    rpi_control_connection_close(&connection);
    return NULL;
}

static void hear_internal(party *self) {
    CHECK(wait_verdict(self));
    CHECK_EQ(self->heard.status, RP_INTERNAL);
}

static void odd_statuses_are_no_status(void) {
    for (int turn = 0; turn < 4; turn++) {
        rp_store store = {0};
        pthread_t coordinator, leaf;
        REQUIRE_OK(rp_store_open_local(&store));
        party self = {.store = store, .world = 2, .timeout_s = 20, .act = hear_internal};
        pthread_create(&coordinator, NULL, live, &self);
        pthread_create(&leaf, NULL, accuse_oddly, &store);
        pthread_join(coordinator, NULL);
        pthread_join(leaf, NULL);
        CHECK_MSG(self.status == RP_OK, "%s", self.heard.text);
        rp_store_close(&store);
    }
}

static void a_world_of_one(void) {
    rpi_control *control = NULL;
    rpi_failure failure = {.status = RP_IO, .text = "mine"}, heard = {0};
    REQUIRE_OK(rpi_control_open(NULL, 0, 1, &(rpi_control_options){.prefix = "w"}, &control));
    CHECK_EQ(rpi_control_fd(control), -1);
    CHECK(!rpi_control_failed(rpi_control_everybody(control), &heard));
    CHECK(!rpi_control_wait_failed(rpi_control_everybody(control), rpi_deadline_ns(0.01),
                                   &heard));
    rpi_control_note(rpi_control_everybody(control), 1);
    rpi_control_publish(rpi_control_everybody(control), &failure);
    CHECK(rpi_control_failed(rpi_control_everybody(control), &heard));
    CHECK(strcmp(heard.text, "mine") == 0);
    rpi_control_close(control);
    rpi_control_close(NULL);
}

static void memory_runs_out(void) {
    int descriptors = check_descriptors();
    rp_store store = {0};
    REQUIRE_OK(rp_store_open_local(&store));
    rpi_control_options options = {.prefix = "w", .timeout_s = 0};
    for (long n = 1; n < 12; n++) {
        rpi_control *control = NULL;
        rpi_memory_fail_after(n);
        rp_status status = rpi_control_open(&store, 0, 2, &options, &control);
        rpi_memory_fail_after(0);
        CHECK(status == RP_NOMEM || status == RP_TIMEOUT);
        CHECK(!control);
        CHECK_EQ(check_descriptors(), descriptors);
    }
    rp_store_close(&store);
}

/* ---- groups of ranks ---- */

/* Beats of all ranks from `first` on that came later than `since_ns`. */
static void hear_all_since(party *self, rpi_control_group *group, int first, int64_t since_ns) {
    for (int member = 0; member < self->world - first; member++) {
        rpi_control_beat beat = {0};
        int64_t deadline_ns = rpi_deadline_ns(20);
        do {
            rpi_control_beat_of(group, member, &beat);
            rpi_sleep_until_ns(rpi_now_ns() + 1000000);
        } while (beat.heard_ns <= since_ns && rpi_now_ns() < deadline_ns);
        CHECK_MSG(beat.heard_ns > since_ns, "rank %d has no beats of rank %d without rank %d",
                  self->rank, first + member, first - 1);
    }
}

/* The thread has been round once more: it has seen what this one did under the lock. */
static void let_thread_pass(party *self) {
    for (int i = 0; i < 2; i++)
        hear_all_since(self, rpi_control_everybody(self->control), 0, rpi_now_ns());
}

static rpi_control_group *open_group(party *self, uint64_t scope, int first, int second) {
    int ranks[] = {first, second};
    rpi_control_group *group = NULL;
    CHECK_OK(rpi_control_group_open(self->control, scope, ranks, 2, &group));
    return group;
}

/* {3, 1} fails, {1, 2} and all together do not, and may fail later. */
static void fail_by_group(party *self) {
    bool in_first = self->rank == 1 || self->rank == 3;
    rpi_control_group *first = in_first ? open_group(self, 7, 3, 1) : NULL;
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
        rpi_control_group *late = open_group(self, 7, 2, 1);
        CHECK(rpi_control_wait_failed(late, rpi_deadline_ns(20), &self->heard));
        rpi_control_group_close(late);
    }
    CHECK(!rpi_control_failed(rpi_control_everybody(self->control), &self->heard));
    rpi_control_group *second =
        self->rank == 1 || self->rank == 2 ? open_group(self, 8, 1, 2) : NULL;
    if (second) CHECK(!rpi_control_failed(second, &self->heard));
    pthread_barrier_wait(self->together);
    publish(self, self->rank, RP_CORRUPT, "everybody's");
    CHECK(wait_verdict(self));
    if (second) CHECK(!rpi_control_failed(second, &self->heard));
    rpi_control_group_close(first);
    rpi_control_group_close(second);
}

static void failures_are_by_group(void) {
    party parties[WORLD] = {0};
    gather(parties, WORLD, WORLD, fail_by_group);
}

static void beat_by_group(party *self) {
    rpi_control_group *group = open_group(self, 9, 2, 0);
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
    rpi_control_group *group = open_group(self, 100 + (uint64_t)self->rank, 1, 2);
    let_thread_pass(self);
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
    gather(parties, 3, 3, beat_by_renamed_group);
}

static void beats_are_by_group(void) {
    party parties[3] = {0};
    gather(parties, 3, 3, beat_by_group);
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
    rpi_control_group *with = open_group(self, 11, 3, self->rank);
    /* Of each rank another one: who is first to publish below fails nobody else's. */
    uint64_t own = 20 + (uint64_t)self->rank;
    rpi_control_group *without = open_group(self, own, (self->rank + 1) % 3, self->rank);
    pthread_barrier_wait(self->together);
    CHECK(wait_verdict(self));
    CHECK_EQ(self->heard.rank, 3);
    CHECK_EQ(self->heard.finder, -1);
    rpi_failure heard;
    CHECK(rpi_control_wait_failed(with, rpi_deadline_ns(20), &heard));
    CHECK_EQ(heard.rank, 0);
    CHECK_MSG(strstr(heard.text, "rank 0 is gone"), "%s", heard.text);
    CHECK(!rpi_control_failed(without, &heard));
    rpi_control_group *later = open_group(self, 13, self->rank, 3);
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
        pthread_create(&threads[i], NULL, i < 3 ? live : die, &parties[i]);
    }
    for (int i = 0; i < WORLD; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    rp_store_close(&store);
}

/* ---- without rank 0 ---- */

enum { HEIRS = 5, LEAVERS = 3 };

static rpi_control_group *open_from(party *self, uint64_t scope, int first) {
    int ranks[HEIRS];
    rpi_control_group *group = NULL;
    for (int i = first; i < self->world; i++) ranks[i - first] = i;
    CHECK_OK(rpi_control_group_open(self->control, scope, ranks, self->world - first, &group));
    return group;
}

/* The last of them publishes, and all that are left hear it. */
static void hear_last(party *self, rpi_control_group *group, int first) {
    rpi_failure heard,
        failure = {.status = RP_IO, .rank = 0, .text = "a failure of those left"};
    if (self->rank == self->world - 1) rpi_control_publish(group, &failure);
    CHECK(rpi_control_wait_failed(group, rpi_deadline_ns(20), &heard));
    CHECK_MSG(strcmp(heard.text, failure.text) == 0, "%s", heard.text);
    CHECK_EQ(heard.finder, self->world - 1 - first);
}

/* Ranks 0, 1 and 2 leave, one after the other. */
static void outlive_coordinators(party *self) {
    for (int gone = 0; gone < LEAVERS; gone++) {
        pthread_barrier_wait(self->together);
        if (self->rank == gone) {
            rpi_control_close(self->control);
            self->control = NULL;
        }
        pthread_barrier_wait(self->together);
        int64_t since_ns = rpi_now_ns();
        pthread_barrier_wait(self->together);
        if (self->rank <= gone) continue;
        rpi_control_group *group = open_from(self, 30 + (uint64_t)gone, gone + 1);
        hear_all_since(self, group, gone + 1, since_ns);
        hear_last(self, group, gone + 1);
        rpi_control_group_close(group);
        rpi_failure heard;
        CHECK(!rpi_control_failed(rpi_control_everybody(self->control), &heard));
    }
    pthread_barrier_wait(self->together);
}

static void others_beat_on_without_rank_0(void) {
    party parties[HEIRS] = {0};
    gather(parties, HEIRS, HEIRS, outlive_coordinators);
}

/* By descriptors of our own: the thread closes a connection as soon as it has ended. */
static void end_all_lines(party *self) {
    rpi_control *control = self->control;
    int fds[MANY], count = 0;
    let_thread_pass(
        self); /* it has let everybody in, and changes no connection before one ends */
    pthread_mutex_lock(&control->lock);
    for (int i = 0; i < control->connection_count && count < MANY; i++)
        if (control->connections[i].fd >= 0) fds[count++] = dup(control->connections[i].fd);
    pthread_mutex_unlock(&control->lock);
    CHECK_EQ(count, HEIRS - 1);
    let_thread_pass(self);
    for (int i = 0; i < count; i++) {
        shutdown(fds[i], SHUT_RDWR);
        close(fds[i]);
    }
}

/* Its connections end without a word, as when its process does. */
static void outlive_a_death(party *self) {
    pthread_barrier_wait(self->together);
    if (self->rank == 0) {
        end_all_lines(self);
        pthread_barrier_wait(self->together);
        return;
    }
    CHECK(wait_verdict(self));
    CHECK_EQ(self->heard.rank, 0);
    CHECK(strstr(self->heard.text, "rank 0 is gone") != NULL);
    rpi_control_group *group = open_from(self, 40, 1);
    hear_all_since(self, group, 1, rpi_now_ns());
    hear_last(self, group, 1);
    rpi_control_group_close(group);
    pthread_barrier_wait(self->together);
}

static void others_beat_on_when_rank_0_has_died(void) {
    party parties[HEIRS] = {0};
    gather(parties, HEIRS, HEIRS, outlive_a_death);
}

/* Of ranks 2 and 3, which take it for rank 1: what they call is taken, heard and hung up on, as
 * by one that leaves at that moment, whose listener closes with callers in its queue. */
static int unheard = -1;
static char unheard_at[RPI_CONTROL_ADDRESS_BYTES];

static void hang_up_on(int callers) {
    for (int i = 0; i < callers; i++) {
        struct pollfd wait = {.fd = unheard, .events = POLLIN};
        REQUIRE(poll(&wait, 1, 20000) == 1);
        int fd = rpi_stream_accept(unheard);
        CHECK(fd >= 0);
        close(fd); /* with a hello in it that nobody has read */
    }
    close(unheard);
}

static void outlive_one_that_hangs_up(party *self) {
    if (self->rank >= 2) {
        let_thread_pass(self);
        pthread_mutex_lock(&self->control->lock);
        snprintf(self->control->addresses[1], sizeof self->control->addresses[1], "%s",
                 unheard_at);
        pthread_mutex_unlock(&self->control->lock);
    }
    pthread_barrier_wait(self->together);
    if (self->rank == 1) {
        rpi_control_close(self->control);
        self->control = NULL;
    }
    pthread_barrier_wait(self->together);
    if (self->rank == 0) {
        rpi_control_close(self->control);
        self->control = NULL;
        hang_up_on(2);
    }
    pthread_barrier_wait(self->together);
    if (self->rank >= 2) {
        rpi_failure heard;
        rpi_control_group *group = open_from(self, 50, 2);
        hear_all_since(self, group, 2, rpi_now_ns());
        hear_last(self, group, 2); /* a rank that is suspected would be decided on before */
        rpi_control_group_close(group);
        CHECK(!rpi_control_failed(rpi_control_everybody(self->control), &heard));
    }
    pthread_barrier_wait(self->together);
}

static void who_hangs_up_before_its_welcome_is_not_dead(void) {
    party parties[WORLD] = {0};
    int port = 0;
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &unheard, &port));
    snprintf(unheard_at, sizeof unheard_at, "%d 127.0.0.1", port);
    gather(parties, WORLD, WORLD, outlive_one_that_hangs_up);
}

/* ---- a coordinator that hangs up before its welcome ---- */

typedef struct short_coordinator {
    int listener;
    bool says_a_word; /* before it hangs up */
    atomic_bool hung_up;
} short_coordinator;

/* Takes one caller, and nobody behind it. */
static void *coordinate_shortly(void *context) {
    short_coordinator *self = context;
    rpi_control_record word = {.kind = RPI_CONTROL_ADDRESS, .rank = 1, .text = "1 127.0.0.1"};
    struct pollfd wait = {.fd = self->listener, .events = POLLIN};
    CHECK(poll(&wait, 1, 20000) == 1);
    rpi_control_connection caller = {.fd = rpi_stream_accept(self->listener)};
    close(self->listener);
    word.text_bytes = (uint16_t)strlen(word.text);
    if (self->says_a_word) CHECK_OK(rpi_control_connection_send(&caller, &word));
    atomic_store(&self->hung_up, true);
    rpi_control_connection_close(&caller);
    return NULL;
}

static rp_status look_who_ended(void *context) {
    short_coordinator *self = context;
    if (!atomic_load(&self->hung_up)) return RP_OK;
    return RP_FAIL(PEER, "rank 3 was killed by signal 9 (Killed)");
}

static rp_status ask_nobody(void *context) {
    (void)context;
    return RP_OK;
}

static void who_ended_first_is_named(void) {
    static const struct {
        bool says_a_word, is_known;
        const char *named;
    } rows[] = {{true, true, "rank 3 was killed"},
                {false, true, "rank 3 was killed"},
                {true, false, "rank 0 ended"},
                {false, false, "rank 0 ended"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        short_coordinator coordinator = {.says_a_word = rows[i].says_a_word};
        rp_store store = {0};
        rpi_control *control = NULL;
        pthread_t thread;
        int port = 0;
        char address[64];
        REQUIRE_OK(rp_store_open_local(&store));
        REQUIRE_OK(rpi_stream_listen(NULL, 0, &coordinator.listener, &port));
        snprintf(address, sizeof address, "%d 127.0.0.1", port);
        REQUIRE_OK(
            store.ops->set(store.context, "world/control", address, strlen(address) + 1));
        REQUIRE(pthread_create(&thread, NULL, coordinate_shortly, &coordinator) == 0);
        rpi_control_options options = {
            .prefix = "world",
            .timeout_s = 20,
            .beat_s = 0.01,
            .look = {.ask = rows[i].is_known ? look_who_ended : ask_nobody,
                     .context = &coordinator}};
        CHECK_FAILS(rpi_control_open(&store, 2, WORLD, &options, &control), PEER,
                    rows[i].named);
        pthread_join(thread, NULL);
        rp_store_close(&store);
    }
}

static void successors_are_the_first_behind_rank_0(void) {
    for (int world = 1; world <= 2 * RPI_CONTROL_SUCCESSORS; world++)
        for (int rank = 0; rank < world; rank++) /* the last has nobody to decide for */
            CHECK_EQ(rpi_control_is_successor(rank, world),
                     rank >= 1 && rank <= RPI_CONTROL_SUCCESSORS && rank + 1 < world);
}

/* Of those that listen, and of nobody to himself. */
static void successors_hear_of_each_other(void) {
    static rpi_control control = {.world = HEIRS};
    static rpi_control_connection near = {.rank = 1}, far;
    static rpi_control_record record;
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    near.fd = fds[0];
    far.fd = fds[1];
    rpi_control_note_address(&control, 1, "4001 127.0.0.1");
    rpi_control_note_address(&control, 2, "4002 127.0.0.1");
    rpi_control_note_address(&control, HEIRS - 1, "4004 127.0.0.1"); /* is no successor */
    rpi_control_send_addresses(&control, &near);
    CHECK_OK(rpi_control_connection_flush(&near));
    CHECK_OK(rpi_control_connection_receive(&far, &record));
    CHECK_EQ(record.kind, RPI_CONTROL_ADDRESS);
    CHECK_EQ(record.rank, 2);
    CHECK(strcmp(record.text, "4002 127.0.0.1") == 0);
    CHECK_EQ(rpi_control_connection_receive(&far, &record), RP_PENDING);
    rpi_control_connection_close(&near);
    rpi_control_connection_close(&far);
}

/* The last in line is called, and why that fails is the last thing said. */
static void what_is_no_address_is_not_called(void) {
    static const char *const texts[][2] = {{"", "does not listen"},
                                           {"0 127.0.0.1", "is no address"},
                                           {"65536 127.0.0.1", "is no address"},
                                           {"4001", "is no address"},
                                           {"4001x127.0.0.1", "is no address"},
                                           {"1 127.0.0.1", "nobody answers there"},
                                           {"65535 127.0.0.1", "nobody answers there"}};
    enum { LAST = RPI_CONTROL_SUCCESSORS };
    static rpi_control control = {.rank = LAST + 1, .world = LAST + 2, .listener = -1};
    static rpi_control_connection up;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        control.coordinator = LAST - 1;
        control.role = RPI_CONTROL_SEEKS;
        control.connections = &up;
        control.connection_count = 1;
        up.fd = up.rank = -1;
        snprintf(control.addresses[LAST], sizeof control.addresses[LAST], "%s", texts[i][0]);
        rpi_control_elect(&control);
        CHECK_MSG(strstr(rp_last_error()->message, texts[i][1]), "'%s': %s", texts[i][0],
                  rp_last_error()->message);
        CHECK_EQ(control.elect_ns, RPI_NEVER_NS);
        CHECK_EQ(control.role, RPI_CONTROL_ALONE);
        CHECK_EQ(up.fd, -1);
    }
}

/* Where a process has closed its standard input a listener may be descriptor 0. */
static void any_listener_makes_a_coordinator(void) {
    for (int listener = -1; listener < 2; listener++) {
        static rpi_control control;
        static rpi_control_connection connection;
        control = (rpi_control){
            .rank = 1, .world = 3, .role = RPI_CONTROL_SEEKS, .listener = listener};
        connection.fd = connection.rank = -1;
        control.connections = &connection;
        control.connection_count = 1;
        rpi_control_elect(&control);
        CHECK_EQ(rpi_control_is_coordinator(&control), listener >= 0);
        CHECK_EQ(rpi_control_has_no_coordinator(&control), listener < 0);
        CHECK_EQ(control.role, listener < 0 ? RPI_CONTROL_ALONE : RPI_CONTROL_LEADS);
    }
}

/* ---- coordinators that are stopped ---- */

/* The thread of a control connection whose lock is held does nothing, as in a stopped process.
 */
static void stop(const party *self) {
    pthread_mutex_lock(&self->control->lock);
}

static void go_on(const party *self) {
    pthread_mutex_unlock(&self->control->lock);
}

static int stopped_coordinators;

/* Ranks from 0 on are stopped: the others find the first in line that is not, and those that go
 * on later find it, too. */
static void outlive_stopped_coordinators(party *self) {
    bool is_stopped = self->rank < stopped_coordinators;
    rpi_control_group *everybody = rpi_control_everybody(self->control);
    rpi_control_group *group = is_stopped ? NULL : open_from(self, 50, stopped_coordinators);
    let_thread_pass(self);
    pthread_barrier_wait(self->together);
    if (is_stopped) stop(self);
    int64_t since_ns = rpi_now_ns();
    pthread_barrier_wait(self->together);
    if (!is_stopped) {
        for (int i = 0; i < 2; i++) {
            hear_all_since(self, group, stopped_coordinators, since_ns + 2 * RPI_SECOND_NS);
            since_ns = rpi_now_ns();
        }
        hear_last(self, group, stopped_coordinators);
        for (int rank = 0; rank < stopped_coordinators;
             rank++) { /* nobody has forgotten that */
            rpi_control_beat beat;
            rpi_control_beat_of(everybody, rank, &beat);
            CHECK(beat.silent_ns >= RPI_SECOND_NS);
            CHECK_EQ(beat.by, stopped_coordinators);
        }
        rpi_failure heard;
        CHECK(!rpi_control_failed(everybody, &heard));
    }
    pthread_barrier_wait(self->together);
    if (is_stopped) go_on(self);
    hear_all_since(self, everybody, 0, rpi_now_ns());
    hear_last(self, everybody, 0);
    rpi_control_group_close(group);
    pthread_barrier_wait(self->together);
}

static void a_coordinator_that_is_stopped_is_succeeded(void) {
    for (stopped_coordinators = 1; stopped_coordinators <= 2; stopped_coordinators++) {
        party parties[HEIRS] = {0};
        gather(parties, HEIRS, HEIRS, outlive_stopped_coordinators);
        for (int i = 0; i < HEIRS; i++)
            CHECK_MSG(parties[i].status == RP_OK, "%s", parties[i].heard.text);
    }
}

/* Who has gone by its own report, for want of a coordinator, tells the next one. */
static void publish_without_a_coordinator(party *self) {
    rpi_control_group *pair = self->rank >= 2 ? open_group(self, 60, 2, 3) : NULL;
    rpi_failure failure = {.status = RP_IO, .rank = 1, .text = "found without a coordinator"};
    let_thread_pass(self);
    pthread_barrier_wait(self->together);
    if (self->rank == 0) stop(self);
    pthread_barrier_wait(self->together);
    if (self->rank == 2) rpi_control_publish(pair, &failure);
    if (pair) {
        CHECK(rpi_control_wait_failed(pair, rpi_deadline_ns(20), &self->heard));
        CHECK_MSG(strcmp(self->heard.text, failure.text) == 0, "%s", self->heard.text);
        CHECK_EQ(self->heard.rank, 1);
        CHECK_EQ(self->heard.status, RP_IO);
    }
    pthread_barrier_wait(self->together);
    if (self->rank == 0) go_on(self);
    rpi_control_group_close(pair);
    hear_all_since(self, rpi_control_everybody(self->control), 0, rpi_now_ns());
    pthread_barrier_wait(self->together);
}

static void a_verdict_of_its_own_is_told_to_the_next_coordinator(void) {
    party parties[WORLD] = {0};
    gather(parties, WORLD, WORLD, publish_without_a_coordinator);
}

/* Where nobody is in line behind it, it is waited for. */
static void outlive_the_only_coordinator(party *self) {
    rpi_control_group *everybody = rpi_control_everybody(self->control);
    rpi_control_beat beat = {0};
    let_thread_pass(self);
    pthread_barrier_wait(self->together);
    if (self->rank == 0) stop(self);
    pthread_barrier_wait(self->together);
    int64_t deadline_ns = rpi_deadline_ns(20);
    while (self->rank && beat.silent_ns < 2 * RPI_SECOND_NS && rpi_now_ns() < deadline_ns) {
        rpi_control_beat_of(everybody, 0, &beat);
        rpi_sleep_until_ns(rpi_now_ns() + 1000000);
    }
    CHECK(!self->rank || (beat.silent_ns >= 2 * RPI_SECOND_NS && beat.by == 1));
    pthread_barrier_wait(self->together);
    if (self->rank == 0) go_on(self);
    hear_all_since(self, everybody, 0, rpi_now_ns());
    hear_last(self, everybody, 0);
    pthread_barrier_wait(self->together);
}

static void the_only_coordinator_is_waited_for(void) {
    party parties[2] = {0};
    gather(parties, 2, 2, outlive_the_only_coordinator);
}

/* ---- what a beat costs ---- */

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

CASES({"the_first_failure_is_the_first", the_first_failure_is_the_first},
      {"a_coordinator_that_is_stopped_is_succeeded",
       a_coordinator_that_is_stopped_is_succeeded},
      {"a_verdict_of_its_own_is_told_to_the_next_coordinator",
       a_verdict_of_its_own_is_told_to_the_next_coordinator},
      {"the_only_coordinator_is_waited_for", the_only_coordinator_is_waited_for},
      {"beats_of_groups_are_short_and_go_to_members",
       beats_of_groups_are_short_and_go_to_members},
      {"runs_of_groups_are_broken_where_members_differ",
       runs_of_groups_are_broken_where_members_differ},
      {"others_beat_on_without_rank_0", others_beat_on_without_rank_0},
      {"others_beat_on_when_rank_0_has_died", others_beat_on_when_rank_0_has_died},
      {"who_ended_first_is_named", who_ended_first_is_named},
      {"who_hangs_up_before_its_welcome_is_not_dead",
       who_hangs_up_before_its_welcome_is_not_dead},
      {"successors_are_the_first_behind_rank_0", successors_are_the_first_behind_rank_0},
      {"successors_hear_of_each_other", successors_hear_of_each_other},
      {"what_is_no_address_is_not_called", what_is_no_address_is_not_called},
      {"any_listener_makes_a_coordinator", any_listener_makes_a_coordinator},
      {"nothing_fails_and_nothing_is_left", nothing_fails_and_nothing_is_left},
      {"a_goodbye_is_no_death", a_goodbye_is_no_death},
      {"beats_reach_everybody", beats_reach_everybody},
      {"beats_are_few_messages", beats_are_few_messages},
      {"one_publishes_all_hear", one_publishes_all_hear},
      {"a_failure_outlives_its_finder", a_failure_outlives_its_finder},
      {"many_publish_one_is_kept", many_publish_one_is_kept},
      {"long_and_odd_texts", long_and_odd_texts},
      {"missing_ranks_are_named", missing_ranks_are_named},
      {"strangers_are_not_let_in", strangers_are_not_let_in},
      {"noise_at_the_listener", noise_at_the_listener},
      {"odd_statuses_are_no_status", odd_statuses_are_no_status},
      {"failures_are_by_group", failures_are_by_group},
      {"beats_are_by_group", beats_are_by_group},
      {"a_group_is_heard_by_its_new_scope", a_group_is_heard_by_its_new_scope},
      {"a_death_fails_the_groups_that_have_it", a_death_fails_the_groups_that_have_it},
      {"a_world_of_one", a_world_of_one}, {"memory_runs_out", memory_runs_out})
