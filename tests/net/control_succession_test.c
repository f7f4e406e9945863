/* Who coordinates a control connection without rank 0: it left, died, was stopped, or hangs up.
 */
#include "control_parties.h"
#include "net/control/control.h"

#include "base/clock.h"
#include "harness/check.h"
#include "net/control/control_state.h"
#include "net/socket/stream.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

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
        party_hears_all_since(self, group, gone + 1, since_ns);
        hear_last(self, group, gone + 1);
        rpi_control_group_close(group);
        rpi_failure heard;
        CHECK(!rpi_control_failed(rpi_control_everybody(self->control), &heard));
    }
    pthread_barrier_wait(self->together);
}

static void others_beat_on_without_rank_0(void) {
    party parties[HEIRS] = {0};
    parties_gather(parties, HEIRS, HEIRS, outlive_coordinators);
}

/* By descriptors of our own: the thread closes a connection as soon as it has ended. */
static void end_all_lines(party *self) {
    rpi_control *control = self->control;
    int fds[PARTIES_MOST], count = 0;
    /* It has let everybody in then, and changes no connection before one ends. */
    party_lets_thread_pass(self);
    pthread_mutex_lock(&control->lock);
    for (int i = 0; i < control->connection_count && count < PARTIES_MOST; i++)
        if (control->connections[i].fd >= 0) fds[count++] = dup(control->connections[i].fd);
    pthread_mutex_unlock(&control->lock);
    CHECK_EQ(count, HEIRS - 1);
    party_lets_thread_pass(self);
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
    CHECK(party_waits_for_failure(self));
    CHECK_EQ(self->heard.rank, 0);
    CHECK(strstr(self->heard.text, "rank 0 is gone") != NULL);
    rpi_control_group *group = open_from(self, 40, 1);
    party_hears_all_since(self, group, 1, rpi_now_ns());
    hear_last(self, group, 1);
    rpi_control_group_close(group);
    pthread_barrier_wait(self->together);
}

static void others_beat_on_when_rank_0_has_died(void) {
    party parties[HEIRS] = {0};
    parties_gather(parties, HEIRS, HEIRS, outlive_a_death);
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
        party_lets_thread_pass(self);
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
        party_hears_all_since(self, group, 2, rpi_now_ns());
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
    parties_gather(parties, WORLD, WORLD, outlive_one_that_hangs_up);
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
                                           {"1 localhost", "cannot find host 'localhost'"},
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

/* Names are resolved before the work begins: whoever calls a successor sends the heartbeats of
 * its process, and must not wait for a name server. */
static void successors_publish_numbers(void) {
    static const char *const hosts[] = {"localhost", "127.0.0.1,localhost"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        static rpi_control control;
        control = (rpi_control){.rank = 1, .world = 3, .listener = -1};
        rpi_control_listen(&control, hosts[i]);
        const char *at = control.addresses[1];
        CHECK_MSG(*at && !at[strspn(at, "0123456789abcdef .:,")], "'%s'", at);
        CHECK_MSG(strstr(at, "127.0.0.1"), "'%s'", at);
        close(control.listener);
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
    party_lets_thread_pass(self);
    pthread_barrier_wait(self->together);
    if (is_stopped) stop(self);
    int64_t since_ns = rpi_now_ns();
    pthread_barrier_wait(self->together);
    if (!is_stopped) {
        for (int i = 0; i < 2; i++) {
            party_hears_all_since(self, group, stopped_coordinators,
                                  since_ns + 2 * RPI_SECOND_NS);
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
    party_hears_all_since(self, everybody, 0, rpi_now_ns());
    hear_last(self, everybody, 0);
    rpi_control_group_close(group);
    pthread_barrier_wait(self->together);
}

static void a_coordinator_that_is_stopped_is_succeeded(void) {
    for (stopped_coordinators = 1; stopped_coordinators <= 2; stopped_coordinators++) {
        party parties[HEIRS] = {0};
        parties_gather(parties, HEIRS, HEIRS, outlive_stopped_coordinators);
        for (int i = 0; i < HEIRS; i++)
            CHECK_MSG(parties[i].status == RP_OK, "%s", parties[i].heard.text);
    }
}

/* Who has gone by its own report, for want of a coordinator, tells the next one. */
static void publish_without_a_coordinator(party *self) {
    rpi_control_group *pair = self->rank >= 2 ? party_open_group(self, 60, 2, 3) : NULL;
    rpi_failure failure = {.status = RP_IO, .rank = 1, .text = "found without a coordinator"};
    party_lets_thread_pass(self);
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
    party_hears_all_since(self, rpi_control_everybody(self->control), 0, rpi_now_ns());
    pthread_barrier_wait(self->together);
}

static void a_verdict_of_its_own_is_told_to_the_next_coordinator(void) {
    party parties[WORLD] = {0};
    parties_gather(parties, WORLD, WORLD, publish_without_a_coordinator);
}

/* Where nobody is in line behind it, it is waited for. */
static void outlive_the_only_coordinator(party *self) {
    rpi_control_group *everybody = rpi_control_everybody(self->control);
    rpi_control_beat beat = {0};
    party_lets_thread_pass(self);
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
    party_hears_all_since(self, everybody, 0, rpi_now_ns());
    hear_last(self, everybody, 0);
    pthread_barrier_wait(self->together);
}

static void the_only_coordinator_is_waited_for(void) {
    party parties[2] = {0};
    parties_gather(parties, 2, 2, outlive_the_only_coordinator);
}

CASES({"others_beat_on_without_rank_0", others_beat_on_without_rank_0},
      {"others_beat_on_when_rank_0_has_died", others_beat_on_when_rank_0_has_died},
      {"who_hangs_up_before_its_welcome_is_not_dead",
       who_hangs_up_before_its_welcome_is_not_dead},
      {"successors_are_the_first_behind_rank_0", successors_are_the_first_behind_rank_0},
      {"successors_hear_of_each_other", successors_hear_of_each_other},
      {"what_is_no_address_is_not_called", what_is_no_address_is_not_called},
      {"successors_publish_numbers", successors_publish_numbers},
      {"any_listener_makes_a_coordinator", any_listener_makes_a_coordinator},
      {"a_coordinator_that_is_stopped_is_succeeded",
       a_coordinator_that_is_stopped_is_succeeded},
      {"a_verdict_of_its_own_is_told_to_the_next_coordinator",
       a_verdict_of_its_own_is_told_to_the_next_coordinator},
      {"the_only_coordinator_is_waited_for", the_only_coordinator_is_waited_for})
