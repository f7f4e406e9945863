/* Worlds of processes: links over every transport, kills and stops, and what survivors say. */
#include "base/clock.h"
#include "harness/ranks.h"
#include "net/control/control.h"
#include "net/world/join.h"
#include "net/world/mesh.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORLD = 4, FRAME_BYTES = 4096 };

/* ---- in the ranks ---- */

static rpi_join *join;
static rpi_mesh *mesh;
static rpi_control *control;

static void come_together(const char *transport, double timeout_s) {
    rpi_world_info info;
    if (rpi_world_info_find_own(&info) != RP_OK || rpi_join_open(&info, 20, &join) != RP_OK)
        ranks_die();
    rpi_mesh_options options = {.prefix = "world",
                                .transport = transport,
                                .frame_bytes = FRAME_BYTES,
                                .timeout_s = timeout_s};
    if (rpi_mesh_connect(&join->store, info.rank, info.world, &options, &mesh) != RP_OK)
        ranks_die();
    rpi_control_options control_options = {
        .prefix = "world", .session = mesh->session, .timeout_s = timeout_s, .beat_s = 0.05};
    if (rpi_control_open(&join->store, info.rank, info.world, &control_options, &control) !=
        RP_OK)
        ranks_die();
}

static void part(void) {
    rpi_control_close(control);
    rpi_mesh_close(mesh);
    rpi_join_close(join);
}

/* Every rank meets every other, and nothing stays behind in any process. */
static void meet(void) {
    come_together(*ranks_argument() ? ranks_argument() : NULL, 20);
    for (int peer = 0; peer < mesh->world; peer++)
        CHECK((mesh->links[peer] != NULL) == (peer != mesh->rank));
    part();
}

/* Come together, wait for a failure, say what it is. */
static void wait_for_failure(void) {
    rpi_failure failure = {0};
    come_together(NULL, 20);
    rpi_control_note(rpi_control_everybody(control), 17);
    ranks_mark("ready");
    CHECK(
        rpi_control_wait_failed(rpi_control_everybody(control), rpi_deadline_ns(30), &failure));
    fprintf(stderr, "%s: %s\n", rp_status_name(failure.status), failure.text);
    part();
    exit(1);
}

static void sleep_until_ready(rpi_endpoint *endpoint) {
    int64_t wake_at_ns = RPI_NEVER_NS;
    struct pollfd wait = {.fd = -1, .events = POLLIN};
    endpoint->transport->progress(endpoint);
    if (!endpoint->transport->arm(endpoint, &wait.fd, &wake_at_ns)) poll(&wait, 1, 1000);
    endpoint->transport->disarm(endpoint);
}

/* As an executor would: whoever sees the death on its link tells, then hears the decision. */
static void tell_of_death(void) {
    rpi_failure failure = {0};
    come_together(NULL, 20);
    ranks_mark("ready");
    if (mesh->rank == 1 || mesh->rank == 3) {
        const void *frame;
        size_t bytes;
        rpi_link *link = mesh->links[2];
        const rpi_transport *transport = link->endpoint->transport;
        while (transport->peek(link, &frame, &bytes) == RP_PENDING)
            sleep_until_ready(link->endpoint);
        failure = (rpi_failure){.status = RP_PEER, .rank = 2};
        snprintf(failure.text, sizeof failure.text,
                 "rank 2 is gone: all-reduce 17, reduce-scatter, seen by rank %d", mesh->rank);
        rpi_control_publish(rpi_control_everybody(control), &failure);
    }
    CHECK(
        rpi_control_wait_failed(rpi_control_everybody(control), rpi_deadline_ns(30), &failure));
    fprintf(stderr, "verdict: %s\n", failure.text);
    part();
    exit(1);
}

/* Ranks watch the beats of rank 2, which the test stops and lets go on. */
static void watch_beats(void) {
    rpi_control_beat beat;
    rpi_failure failure;
    come_together(NULL, 20);
    ranks_mark("ready");
    if (mesh->rank == 2) {
        CHECK(rpi_control_wait_failed(rpi_control_everybody(control), rpi_deadline_ns(30),
                                      &failure));
    } else {
        int64_t deadline_ns = rpi_deadline_ns(20);
        do rpi_control_beat_of(rpi_control_everybody(control), 2, &beat);
        while (rpi_now_ns() - beat.heard_ns < RPI_SECOND_NS && rpi_now_ns() < deadline_ns &&
               usleep(10000) == 0);
        CHECK(rpi_now_ns() - beat.heard_ns >= RPI_SECOND_NS);
        CHECK(!rpi_control_failed(rpi_control_everybody(control), &failure));
        ranks_mark("rank 2 is silent");
        int64_t silent_ns = beat.heard_ns;
        do rpi_control_beat_of(rpi_control_everybody(control), 2, &beat);
        while (beat.heard_ns == silent_ns && rpi_now_ns() < deadline_ns && usleep(10000) == 0);
        CHECK(beat.heard_ns > silent_ns);
        ranks_mark("rank 2 beats again");
        failure = (rpi_failure){.status = RP_CANCELLED, .rank = -1, .text = "enough"};
        if (mesh->rank == 0) {
            int64_t done = 0;
            while (done < 2 && rpi_now_ns() < deadline_ns && usleep(10000) == 0)
                CHECK_OK(join->store.ops->add(join->store.context, "done", 0, &done));
            rpi_control_publish(rpi_control_everybody(control), &failure);
        } else {
            int64_t done = 0;
            CHECK_OK(join->store.ops->add(join->store.context, "done", 1, &done));
        }
    }
    part();
}

static void come_with_a_mistake(void) {
    int other = ranks_rank() == 2;
    if (strcmp(ranks_argument(), "world") == 0 && other) setenv("WORLD_SIZE", "5", 1);
    if (strcmp(ranks_argument(), "twice") == 0 && other) setenv("RANK", "1", 1);
    if (strcmp(ranks_argument(), "half") == 0) unsetenv("WORLD_SIZE");
    come_together(NULL, strcmp(ranks_argument(), "late") == 0 ? 0.5 : 20);
    part();
}

static void die_while_coming(void) {
    rp_store store = {0};
    if (ranks_rank() == 2) {
        /* The info of a rank that is gone by the time the others connect. */
        REQUIRE_OK(ranks_store(&store));
        raise(SIGKILL);
    }
    come_together(NULL, 1);
    part();
}

/* ---- in the test ---- */

static ranks *run(const char *function, const char *argument, int missing) {
    return ranks_start(function, WORLD,
                       &(ranks_options){.argument = argument, .missing = missing});
}

static void all_say(ranks *world, const char *text) {
    for (int rank = 0; rank < WORLD; rank++) ranks_check_exit(world, rank, 1, text);
}

static void every_transport_joins_processes(void) {
    static const char *const kinds[] = {"", "tcp", "shm"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        ranks *world = run("meet", kinds[i], 0);
        CHECK(ranks_finish(world, 40));
        ranks_check_passed(world);
        ranks_free(world);
    }
}

static void a_transport_that_does_not_reach(void) {
    ranks *world = run("meet", "inproc", 0);
    CHECK(ranks_finish(world, 40));
    all_say(world, "transport 'inproc' does not reach");
    ranks_free(world);
}

static void a_killed_rank_is_named_at_once(void) {
    for (int victim = 0; victim < WORLD; victim++) {
        char text[100];
        snprintf(text, sizeof text,
                 "PEER: rank %d is gone (connection closed by peer: its process ended)",
                 victim);
        ranks *world = run("wait_for_failure", NULL, 0);
        for (int rank = 0; rank < WORLD; rank++) ranks_wait_for(world, rank, "ready", 40);
        ranks_signal(world, victim, SIGKILL);
        CHECK(ranks_finish(world, 20));
        for (int rank = 0; rank < WORLD; rank++) {
            if (rank == victim) continue;
            ranks_check_exit(world, rank, 1, text);
            CHECK(ranks_survived_s(world, rank) < 5);
        }
        ranks_check_exit(world, victim, 128 + SIGKILL, NULL);
        ranks_free(world);
    }
}

static void the_better_account_is_heard(void) {
    ranks *world = run("tell_of_death", NULL, 0);
    for (int rank = 0; rank < WORLD; rank++) ranks_wait_for(world, rank, "ready", 40);
    ranks_signal(world, 2, SIGKILL);
    CHECK(ranks_finish(world, 20));
    const char *first = strstr(ranks_output(world, 0), "verdict: ");
    CHECK_MSG(first && strstr(first, "all-reduce 17, reduce-scatter, seen by rank"), "%s",
              ranks_output(world, 0));
    char verdict[200];
    snprintf(verdict, sizeof verdict, "%s", first ? first : "?");
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 2) ranks_check_exit(world, rank, 1, verdict);
    ranks_free(world);
}

static void a_stopped_rank_falls_silent(void) {
    ranks *world = run("watch_beats", NULL, 0);
    for (int rank = 0; rank < WORLD; rank++) ranks_wait_for(world, rank, "ready", 40);
    ranks_signal(world, 2, SIGSTOP);
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 2) ranks_wait_for(world, rank, "rank 2 is silent", 40);
    ranks_signal(world, 2, SIGCONT);
    CHECK(ranks_finish(world, 40));
    ranks_check_passed(world);
    ranks_free(world);
}

static void mistakes_are_named_by_all(void) {
    static const struct {
        const char *mistake, *text;
        int missing;
    } mistakes[] = {{"world", "disagree on the size of the world", 0},
                    {"twice", "two processes say that they are rank 1", 0},
                    {"half", "variable WORLD_SIZE is not set", 0},
                    {"late", "rank 3 did not arrive", 1}};
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        ranks *world = run("come_with_a_mistake", mistakes[i].mistake, mistakes[i].missing);
        CHECK(ranks_finish(world, 40));
        all_say(world, mistakes[i].text);
        ranks_free(world);
    }
}

static void a_rank_that_dies_on_its_way(void) {
    ranks *world = run("die_while_coming", NULL, 0);
    CHECK(ranks_finish(world, 40));
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 2) ranks_check_exit(world, rank, 1, "rank 2 did not arrive within 1 s");
    ranks_free(world);
}

static const ranks_function functions[] = {
    {"meet", meet},
    {"wait_for_failure", wait_for_failure},
    {"tell_of_death", tell_of_death},
    {"watch_beats", watch_beats},
    {"come_with_a_mistake", come_with_a_mistake},
    {"die_while_coming", die_while_coming},
};
static const check_case cases[] = {
    {"every_transport_joins_processes", every_transport_joins_processes},
    {"a_transport_that_does_not_reach", a_transport_that_does_not_reach},
    {"a_killed_rank_is_named_at_once", a_killed_rank_is_named_at_once},
    {"the_better_account_is_heard", the_better_account_is_heard},
    {"a_stopped_rank_falls_silent", a_stopped_rank_falls_silent},
    {"mistakes_are_named_by_all", mistakes_are_named_by_all},
    {"a_rank_that_dies_on_its_way", a_rank_that_dies_on_its_way},
};
RANKS_MAIN(functions, cases)
