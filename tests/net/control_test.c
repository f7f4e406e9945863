/* The control connection among ranks that are threads: who is let in, what is published and
 * heard, and what is left.
 */
#include "control_parties.h"
#include "net/control/control.h"

#include "base/clock.h"
#include "base/memory.h"
#include "harness/check.h"
#include "net/control/control_state.h"
#include "net/socket/stream.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static void nothing_fails_and_nothing_is_left(void) {
    party warm_up[2] = {0}; /* a sanitizer's own thread comes with the first of ours */
    parties_gather(warm_up, 2, 2, party_does_nothing);
    int descriptors = check_descriptors(), threads = check_threads();
    for (int world = 1; world <= 6; world++) {
        party parties[6] = {0};
        parties_gather(parties, world, world, party_does_nothing);
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
    parties_gather(parties, WORLD, WORLD, leave_early);
}

static int publisher;

static void hear_one(party *self) {
    if (self->rank == publisher)
        party_publish(self, publisher, RP_IO, "rank X: the data file is bad");
    struct pollfd wait = {.fd = rpi_control_fd(self->control), .events = POLLIN};
    CHECK_EQ(poll(&wait, 1, 20000), 1);
    CHECK(rpi_control_failed(rpi_control_everybody(self->control), &self->heard));
}

static void one_publishes_all_hear(void) {
    for (publisher = 0; publisher < WORLD; publisher++) {
        party parties[WORLD] = {0};
        parties_gather(parties, WORLD, WORLD, hear_one);
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
        party_publish(self, publisher, RP_IO, "rank X: leaves at once");
    else
        CHECK(party_waits_for_failure(self));
}

static void a_failure_outlives_its_finder(void) {
    for (publisher = 0; publisher < WORLD; publisher++) {
        party parties[WORLD] = {0};
        parties_gather(parties, WORLD, WORLD, publish_and_leave);
        for (int i = 0; i < WORLD; i++)
            if (i != publisher)
                CHECK(strcmp(parties[i].heard.text, "rank X: leaves at once") == 0);
    }
}

static void all_publish(party *self) {
    char text[32];
    snprintf(text, sizeof text, "found by %d", self->rank);
    pthread_barrier_wait(self->together);
    party_publish(self, 2, RP_PEER, text);
    CHECK(party_waits_for_failure(self));
}

static void many_publish_one_is_kept(void) {
    for (int beat_number = 0; beat_number < 10; beat_number++) {
        party parties[WORLD] = {0};
        parties_gather(parties, WORLD, WORLD, all_publish);
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
    if (self->rank == 1) party_publish(self, -1, RP_CORRUPT, text);
    CHECK(party_waits_for_failure(self));
    CHECK_EQ(strlen(self->heard.text), sizeof text - 1);
    CHECK_EQ(self->heard.rank, -1);
    CHECK(!strchr(self->heard.text, '\n'));
}

static void long_and_odd_texts(void) {
    party parties[2] = {0};
    parties_gather(parties, 2, 2, texts_are_one_line);
}

static void missing_ranks_are_named(void) {
    party parties[WORLD] = {0};
    for (int i = 0; i < WORLD; i++) parties[i].timeout_s = i == 0 ? 0.3 : 20;
    parties_gather(parties, 2, WORLD, party_does_nothing);
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
    parties_gather(parties, 2, 2, party_does_nothing);
    CHECK_EQ(parties[0].status, RP_TIMEOUT);
    CHECK_EQ(parties[1].status, RP_PEER);
    CHECK_MSG(strstr(parties[1].heard.text, "rank 0"), "%s", parties[1].heard.text);
}

/* context: the coordinator's port. */
static void *pester(void *context) {
    int port = *(int *)context;
    for (int i = 0; i < 40; i++) {
        int fd = -1;
        if (rpi_stream_dial(NULL, port, rpi_deadline_ns(0.2), &fd) != RP_OK) break;
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
    char address[64] = "";
    size_t bytes = 0;
    REQUIRE_OK(rp_store_open_local(&store));
    for (int i = 0; i < 2; i++)
        parties[i] = (party){
            .store = store, .rank = i, .world = 2, .timeout_s = 20, .act = party_does_nothing};
    pthread_create(&threads[0], NULL, party_lives, &parties[0]);
    /* By its key, while rank 0 waits for rank 1, as a port scanner would find it by luck. */
    REQUIRE_OK(
        store.ops->get(store.context, "world/control", 20, address, sizeof address, &bytes));
    int port = atoi(address);
    pthread_create(&stranger, NULL, pester, &port);
    rpi_sleep_until_ns(rpi_now_ns() + 30000000);
    pthread_create(&threads[1], NULL, party_lives, &parties[1]);
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
    CHECK(party_waits_for_failure(self));
    CHECK_EQ(self->heard.status, RP_INTERNAL);
}

static void odd_statuses_are_no_status(void) {
    for (int turn = 0; turn < 4; turn++) {
        rp_store store = {0};
        pthread_t coordinator, leaf;
        REQUIRE_OK(rp_store_open_local(&store));
        party self = {.store = store, .world = 2, .timeout_s = 20, .act = hear_internal};
        pthread_create(&coordinator, NULL, party_lives, &self);
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

CASES({"nothing_fails_and_nothing_is_left", nothing_fails_and_nothing_is_left},
      {"a_goodbye_is_no_death", a_goodbye_is_no_death},
      {"one_publishes_all_hear", one_publishes_all_hear},
      {"a_failure_outlives_its_finder", a_failure_outlives_its_finder},
      {"many_publish_one_is_kept", many_publish_one_is_kept},
      {"long_and_odd_texts", long_and_odd_texts},
      {"missing_ranks_are_named", missing_ranks_are_named},
      {"strangers_are_not_let_in", strangers_are_not_let_in},
      {"noise_at_the_listener", noise_at_the_listener},
      {"odd_statuses_are_no_status", odd_statuses_are_no_status},
      {"a_world_of_one", a_world_of_one}, {"memory_runs_out", memory_runs_out},
      {"who_ended_first_is_named", who_ended_first_is_named})
