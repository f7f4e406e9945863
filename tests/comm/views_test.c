/* Processes that go on through leaves, joins and deaths: each holds a count of steps that all
 * of them agree on, which a newcomer gets from rank 0. */
#include "harness/ranks.h"
#include "redpoll/comm.h"

#include "base/clock.h"
#include "net/trust/secret.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS_LEFT = 25 }; /* behind the last change */

/* Nobody is taken for dead who only waits for a busy machine; and who is dead, in the end. */
#define LONG_SILENCE_S 60
#define SILENCE_S      3

static char transport[8] = "tcp";
static double stuck_s = 60; /* of operations */
static bool has_groups;

typedef struct worker {
    rp_store store;
    rp_world *world;
    rp_comm *comm;
    rp_comm *group; /* of all members, over which steps go where groups are tried */
    const rp_view *view;
    double steps; /* the same on all members behind each step */
} worker;

/* The first view is closed with `most`. */
static void open_world(worker *w, int least, int most, double silence_s) {
    rp_world_options options = RP_WORLD_OPTIONS(.least = least, .most = most, .last_call_s = 60,
                                                .silence_s = silence_s);
    static char name[RP_MEMBER_NAME];
    snprintf(name, sizeof name, "p%d", ranks_rank());
    options.member = name;
    REQUIRE_OK(ranks_store(&w->store));
    REQUIRE_OK(rp_world_open(&w->store, &options, &w->world));
}

static void destroy_comms(worker *w) {
    rp_comm_destroy(w->group);
    rp_comm_destroy(w->comm);
    w->comm = w->group = NULL;
}

static void close_world(worker *w) {
    destroy_comms(w);
    rp_world_close(w->world);
    rp_store_close(&w->store);
}

static rp_status make_comms(worker *w) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = transport, .connect_timeout_s = 60, .timeout_s = stuck_s);
    rp_comm_options named = RP_COMM_OPTIONS(.name = "all");
    RP_TRY(rp_comm_create_in(w->world, &options, &w->comm));
    if (has_groups) RP_TRY(rp_comm_split(w->comm, 0, -w->view->rank, &named, &w->group));
    return rp_broadcast(w->comm, &w->steps, 1, RP_F64, NULL);
}

/* The next view with a communicator that all of its members have made: as many as it takes. */
static rp_status go_on(worker *w) {
    for (int tries = 0; tries < 20; tries++) {
        destroy_comms(w);
        RP_TRY(rp_world_next(w->world, 120, &w->view));
        if (make_comms(w) == RP_OK) return RP_OK;
        printf("again: %s\n", rp_last_error()->message);
    }
    return RP_INTERNAL;
}

/* One more step of all; *out_changes: somebody knows of a change. */
static rp_status step(worker *w, bool *out_changes) {
    double sums[2] = {w->steps, rp_world_changing(w->world)};
    rp_segment segment = {.data = sums, .count = 2, .dtype = RP_F64};
    RP_TRY(rp_all_reduce(has_groups ? w->group : w->comm, &segment, 1, NULL));
    CHECK_MSG(sums[0] == w->steps * rp_comm_world(w->comm), "steps %g of %d ranks sum to %g",
              w->steps, rp_comm_world(w->comm), sums[0]);
    *out_changes = sums[1] > 0;
    w->steps++;
    return RP_OK;
}

static void mark(const char *what, const worker *w) {
    char text[80];
    snprintf(text, sizeof text, "%s %d of %d", what, w->view->rank, w->view->count);
    ranks_mark(text);
}

/* ---- one dies, another takes its place ---- */

/* "tcp:": of four, one is killed once it has said so; the world has room for three, and the
 * fourth waits for that. */
static void train(void) {
    worker w = {0};
    bool changes = false;
    int views = 0;
    snprintf(transport, sizeof transport, "%.3s", ranks_argument());
    has_groups = strstr(ranks_argument(), ":groups") != NULL;
    open_world(&w, 3, 3, LONG_SILENCE_S);
    CHECK_OK(go_on(&w));
    mark("began", &w);
    for (int since = 0; since < STEPS_LEFT && !check_failures();) {
        rp_status status = step(&w, &changes);
        bool is_done = views > 0 || w.view->number > 1;
        if (status == RP_OK && is_done) since++;
        if (status == RP_OK && !is_done) rpi_sleep_until_ns(rpi_now_ns() + 5000000);
        if (status == RP_OK) continue;
        CHECK_MSG(status == RP_PEER, "%s", rp_last_error()->message);
        CHECK_OK(go_on(&w));
        views++;
        mark("went on", &w);
    }
    CHECK(w.view->count == 3 && rp_comm_world(w.comm) == 3);
    if (w.view->number == 2) {
        CHECK(w.view->left_count == 1 && w.view->came == 1 && w.steps >= STEPS_LEFT);
        CHECK(w.view->left[0].departure == RP_MEMBER_LOST);
    }
    (void)rp_barrier(w.comm);
    close_world(&w);
}

static int find_output(ranks *world, int processes, const char *text) {
    int64_t deadline_ns = rpi_deadline_ns(60);
    while (rpi_now_ns() < deadline_ns) {
        for (int i = 0; i < processes; i++)
            if (strstr(ranks_output(world, i), text)) return i;
        rpi_sleep_until_ns(rpi_now_ns() + 5000000);
    }
    CHECK_MSG(false, "nobody said '%s'", text);
    return 0;
}

static void replace(const char *argument, int dies) {
    char text[40];
    ranks *world = ranks_start("train", 4, &(ranks_options){.argument = argument});
    int doomed = 0;
    for (int rank = 0; rank < 3; rank++) { /* all have made their communicator */
        snprintf(text, sizeof text, "began %d of 3", rank);
        int process = find_output(world, 4, text);
        if (rank == dies) doomed = process;
    }
    ranks_signal(world, doomed, SIGKILL);
    CHECK(ranks_finish(world, 100));
    for (int i = 0; i < 4; i++)
        if (i != doomed) ranks_check_exit(world, i, 0, NULL);
    ranks_free(world);
}

static void a_member_dies_and_another_comes(void) {
    replace("shm:", 2);
    replace("tcp:", 1);
}

/* The ranks of the group are in the other order: the world is told whom it is. */
static void a_group_of_a_view_tells_of_a_death(void) {
    replace("shm:groups", 2);
    replace("tcp:groups", 0);
}

static void the_coordinator_dies_and_another_comes(void) {
    replace("shm:", 0);
    replace("tcp:", 0);
}

/* ---- one is stopped, and comes back ---- */

/* Until a view that somebody has come to behind the first, and some steps more. */
static void work_on(worker *w) {
    bool changes = false;
    for (int since = 0; since < STEPS_LEFT && !check_failures();) {
        rp_status status = step(w, &changes);
        if (status == RP_OK && !changes) {
            since += w->view->number > 1 && w->view->came > 0;
            rpi_sleep_until_ns(rpi_now_ns() + 5000000);
            continue;
        }
        status = go_on(w);
        if (status == RP_STATE) return;
        CHECK_MSG(status == RP_OK, "%s", rp_last_error()->message);
        mark("went on", w);
    }
}

static void be_away(void) {
    worker w = {0};
    stuck_s = 4;
    open_world(&w, 2, 3, SILENCE_S);
    CHECK_OK(go_on(&w));
    mark("began", &w);
    work_on(&w);
    if (w.comm == NULL) {
        CHECK_FAILS(rp_comm_create_in(w.world, NULL, &w.comm), STATE, "went on without");
        CHECK_FAILS(rp_world_next(w.world, 60, &w.view), STATE,
                    "went on to view 2 without this process, which was rank ");
        ranks_mark("left out");
        close_world(&w);
        w = (worker){.steps = -1};
        open_world(&w, 2, 3, SILENCE_S);
        CHECK_OK(go_on(&w));
        CHECK(w.view->members[w.view->rank].previous == -1 && w.view->rank == 2);
        CHECK(w.steps > 0);
        work_on(&w);
    }
    CHECK_EQ(w.view->count, 3);
    (void)rp_barrier(w.comm);
    close_world(&w);
}

static void who_was_away_is_told_and_comes_back(void) {
    ranks *world = ranks_start("be_away", 3, NULL);
    int away = find_output(world, 3, "began 0 of 3");
    for (int i = 0; i < 3; i++) CHECK(ranks_wait_for(world, i, "began", 60));
    ranks_signal(world, away, SIGSTOP);
    for (int i = 0; i < 3; i++)
        if (i != away) CHECK(ranks_wait_for(world, i, "went on", 90));
    ranks_signal(world, away, SIGCONT);
    CHECK(ranks_wait_for(world, away, "left out", 60));
    CHECK(ranks_finish(world, 100));
    ranks_check_passed(world);
    ranks_free(world);
}

/* ---- deaths that no communicator has seen ---- */

/* Of three the last, by its view, dies: "before" the next view is made; "after" it was closed
 * with this process in it; "both": the one that is the coordinator dies, too. */
static void vanish(void) {
    worker w = {0};
    const char *when = ranks_argument();
    bool both = strcmp(when, "both") == 0;
    open_world(&w, 1, both ? 4 : 3, SILENCE_S);
    CHECK_OK(go_on(&w));
    bool dies = w.view->rank == 2 || (both && w.view->rank == 0);
    CHECK_OK(rp_barrier(w.comm));
    destroy_comms(&w);
    if (dies && strcmp(when, "after") == 0) CHECK_OK(rp_world_next(w.world, 60, &w.view));
    if (dies) {
        ranks_mark("dies");
        raise(SIGKILL);
    }
    CHECK_OK(go_on(&w));
    CHECK(w.view->count == 2 && w.view->left_count >= 1);
    CHECK(w.view->left[0].departure == RP_MEMBER_SILENT);
    CHECK_EQ(w.view->number, strcmp(when, "after") == 0 ? 3 : 2);
    (void)rp_barrier(w.comm);
    ranks_mark("passed");
    close_world(&w);
}

static void run_vanish(const char *when, int count) {
    ranks *world = ranks_start("vanish", count, &(ranks_options){.argument = when});
    int passed = 0, died = 0;
    CHECK(ranks_finish(world, 100));
    for (int i = 0; i < count; i++) {
        bool dies = strstr(ranks_output(world, i), "dies") != NULL;
        died += dies;
        passed += strstr(ranks_output(world, i), "passed") != NULL;
        ranks_check_exit(world, i, dies ? 128 + SIGKILL : 0, NULL);
    }
    CHECK(passed == 2 && died == count - 2);
    ranks_free(world);
}

static void silent_deaths_are_found(void) {
    run_vanish("before", 3);
    run_vanish("both", 4);
}

static void who_dies_in_a_view_that_was_closed_costs_a_number(void) {
    run_vanish("after", 3);
}

/* ---- one leaves in peace ---- */

static void leave(void) {
    worker w = {0};
    bool changes = false;
    rp_world_options options = RP_WORLD_OPTIONS(.least = 2, .most = 3, .last_call_s = 60);
    REQUIRE_OK(rp_world_join(&options, 30, &w.world)); /* the launcher's store */
    CHECK_OK(go_on(&w));
    bool leaves = w.view->rank == 0;
    if (leaves) CHECK_OK(rp_world_leave(w.world));
    while (!changes && !check_failures()) CHECK_OK(step(&w, &changes));
    if (!leaves) {
        double steps = w.steps;
        CHECK_OK(go_on(&w));
        CHECK(w.steps == steps && w.view->number == 2 && w.view->count == 2);
        CHECK(w.view->left_count == 1 && w.view->left[0].departure == RP_MEMBER_LEFT);
        CHECK_OK(step(&w, &changes));
    }
    close_world(&w);
}

/* Rank 0 would serve the store, and nobody shall depend on it. */
static void join_rank_0(void) {
    rp_world *world = NULL;
    CHECK_FAILS(rp_world_join(NULL, 5, &world), UNSUPPORTED, "rank 0 would serve the store");
}

static void a_store_of_a_rank_is_refused(void) {
    ranks *world = ranks_start("join_rank_0", 2, &(ranks_options){.own_store = true});
    CHECK(ranks_finish(world, 60));
    ranks_check_passed(world);
    ranks_free(world);
}

static void who_leaves_disturbs_no_step(void) {
    static const char *const open[] = {"REDPOLL_CONNECT=need", NULL};
    static const char *const closed[] = {"REDPOLL_SECRET=0123456789abcdef0123456789abcdef",
                                         "REDPOLL_TLS=1", NULL};
    const char *const *environments[] = {NULL, open, closed};
    for (int i = 0; i < 2 + rpi_secret_is_supported(); i++) {
        if (environments[i] == closed)
            for (int j = 0; closed[j]; j++) putenv((char *)closed[j]);
        ranks *world =
            ranks_start("leave", 3, &(ranks_options){.environment = environments[i]});
        CHECK(ranks_finish(world, 100));
        ranks_check_passed(world);
        ranks_free(world);
    }
    unsetenv("REDPOLL_SECRET");
    unsetenv("REDPOLL_TLS");
}

static const ranks_function functions[] = {{"train", train},
                                           {"be_away", be_away},
                                           {"vanish", vanish},
                                           {"leave", leave},
                                           {"join_rank_0", join_rank_0}};
static const check_case cases[] = {
    {"a_member_dies_and_another_comes", a_member_dies_and_another_comes},
    {"a_group_of_a_view_tells_of_a_death", a_group_of_a_view_tells_of_a_death},
    {"the_coordinator_dies_and_another_comes", the_coordinator_dies_and_another_comes},
    {"who_was_away_is_told_and_comes_back", who_was_away_is_told_and_comes_back},
    {"silent_deaths_are_found", silent_deaths_are_found},
    {"who_dies_in_a_view_that_was_closed_costs_a_number",
     who_dies_in_a_view_that_was_closed_costs_a_number},
    {"a_store_of_a_rank_is_refused", a_store_of_a_rank_is_refused},
    {"who_leaves_disturbs_no_step", who_leaves_disturbs_no_step}};
RANKS_MAIN(functions, cases)
