/* Ranks die in the middle of gossip; those that are left make a communicator of their own, and
 * go on to average what they have: the mean of the survivors, which nothing moves. */
#include "harness/ranks.h"
#include "redpoll/gossip.h"

#include <math.h>
#include <signal.h>
#include <string.h>

enum { WORLD = 5, COUNT = 300, MOST = 60 };

static double mean_of(rp_comm *comm, double own) {
    rp_segment segment = {.data = &own, .count = 1, .dtype = RP_F64};
    rp_collective_options average = RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG);
    CHECK_OK(rp_all_reduce(comm, &segment, 1, &average));
    return own;
}

/* Until a step fails; which. x is then as before it: the gradient is nothing. */
static int gossip_on(rp_comm *comm, double *x, int steps) {
    static double gradient[COUNT];
    rp_gossip *gossip = NULL;
    rp_request *request = NULL;
    rp_gossip_setup setup = RP_GOSSIP_SETUP(.dtype = RP_F64, .count = COUNT, .x = x,
                                            .gradient = gradient, .topology = "ring");
    CHECK_OK(rp_gossip_create(comm, &setup, &gossip));
    int step = 0;
    for (; step < steps; step++) {
        rp_status status = rp_gossip_post(gossip, step, 0, &request);
        if (status == RP_OK) status = rp_request_wait(&request);
        if (status != RP_OK) break;
        CHECK_OK(rp_gossip_apply(gossip, 0));
    }
    rp_gossip_destroy(gossip);
    return step;
}

static bool is_doomed(int rank) {
    return strchr(ranks_argument() + strlen("shm:"), '0' + rank) != NULL;
}

/* "tcp:24": ranks 2 and 4 are killed. */
static void average(void) {
    char transport[8] = "";
    rp_store store = {0};
    rp_comm *comm = NULL, *left = NULL;
    int rank = ranks_rank(), places[WORLD], deaths = 0;
    static double x[COUNT];
    snprintf(transport, sizeof transport, "%.3s", ranks_argument());
    rp_comm_options options = RP_COMM_OPTIONS(.transport = transport, .connect_timeout_s = 30);
    REQUIRE_OK(ranks_store(&store));
    REQUIRE_OK(rp_comm_create(&store, rank, WORLD, &options, &comm));
    CHECK_FAILS(rp_comm_survivors(comm, NULL, places, &left), STATE, "has lost no rank");
    for (int i = 0; i < COUNT; i++) x[i] = rank * (i + 1);
    CHECK(gossip_on(comm, x, 3) == 3);
    ranks_mark("ready");
    int failed = gossip_on(comm, x, 1 << 30);
    CHECK(failed >= 0 && rp_last_error()->status == RP_PEER);
    REQUIRE_OK(rp_comm_survivors(comm, NULL, places, &left));
    for (int r = 0; r < WORLD; r++) deaths += is_doomed(r);
    CHECK(rp_comm_world(left) == WORLD - deaths && places[rp_comm_rank(left)] == rank);
    for (int i = 0; i < rp_comm_world(left); i++) CHECK(!is_doomed(places[i]));
    double before = mean_of(left, x[0]);
    CHECK(gossip_on(left, x, MOST) == MOST);
    CHECK_NEAR(mean_of(left, x[0]), before, 1e-12);
    CHECK_NEAR(x[0], before, 1e-9);
    CHECK_NEAR(x[COUNT - 1], COUNT * before, 1e-6);
    rp_comm_destroy(comm);
    CHECK_NEAR(mean_of(left, x[0]), before, 1e-9);
    rp_comm_destroy(left);
    rp_store_close(&store);
}

/* Rank 0, through which ranks hear of deaths, and then another: 1 is no neighbour of 3 in the
 * ring of those that are left, and hears of it from the others. */
static void in_turn(void) {
    rp_store store = {0};
    rp_comm *comm = NULL, *left = NULL, *last = NULL;
    int rank = ranks_rank(), places[WORLD];
    static double x[COUNT];
    rp_comm_options options = RP_COMM_OPTIONS(.transport = ranks_argument(),
                                              .connect_timeout_s = 30, .timeout_s = 20);
    REQUIRE_OK(ranks_store(&store));
    REQUIRE_OK(rp_comm_create(&store, rank, WORLD, &options, &comm));
    for (int i = 0; i < COUNT; i++) x[i] = rank;
    CHECK(gossip_on(comm, x, 3) == 3);
    ranks_mark("ready");
    (void)gossip_on(comm, x, 1 << 30);
    REQUIRE_OK(rp_comm_survivors(comm, NULL, places, &left));
    CHECK(rp_comm_world(left) == WORLD - 1 && places[0] == 1);
    CHECK(gossip_on(left, x, 3) == 3);
    ranks_mark("again");
    CHECK(gossip_on(left, x, 1 << 30) >= 0 && rp_last_error()->status == RP_PEER);
    REQUIRE_OK(rp_comm_survivors(left, NULL, places, &last));
    CHECK(rp_comm_world(last) == WORLD - 2 && places[2] == 3);
    double mean = mean_of(last, x[0]);
    CHECK(gossip_on(last, x, MOST) == MOST);
    CHECK_NEAR(x[0], mean, 1e-9);
    rp_comm_destroy(last);
    rp_comm_destroy(left);
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

static void run_in_turn(const char *transport) {
    ranks *world = ranks_start("in_turn", WORLD, &(ranks_options){.argument = transport});
    for (int rank = 0; rank < WORLD; rank++) CHECK(ranks_wait_for(world, rank, "ready", 30));
    ranks_signal(world, 0, SIGKILL);
    for (int rank = 1; rank < WORLD; rank++) CHECK(ranks_wait_for(world, rank, "again", 30));
    ranks_signal(world, 3, SIGKILL);
    CHECK(ranks_finish(world, 90));
    for (int rank = 1; rank < WORLD; rank++)
        if (rank != 3) ranks_check_exit(world, rank, 0, NULL);
    ranks_free(world);
}

static void run(const char *argument) {
    ranks *world = ranks_start("average", WORLD, &(ranks_options){.argument = argument});
    for (int rank = 0; rank < WORLD; rank++) CHECK(ranks_wait_for(world, rank, "ready", 30));
    const char *doomed = argument + strlen("shm:");
    for (const char *rank = doomed; *rank; rank++) ranks_signal(world, *rank - '0', SIGKILL);
    CHECK(ranks_finish(world, 90));
    for (int rank = 0; rank < WORLD; rank++)
        if (!strchr(doomed, '0' + rank)) ranks_check_exit(world, rank, 0, NULL);
    ranks_free(world);
}

static void those_left_keep_their_mean(void) {
    run("shm:2");
    run("tcp:2");
}

static void of_several_deaths_each_is_found(void) {
    run("shm:24");
    run("tcp:134");
}

static void rank_0_may_be_among_them(void) {
    run("shm:0");
    run("tcp:0");
}

static void rank_0_and_others_may_die_at_once(void) {
    run("shm:03");
    run("tcp:024");
}

static void without_rank_0_deaths_are_made_known_too(void) {
    run_in_turn("shm");
    run_in_turn("tcp");
}

static const ranks_function functions[] = {{"average", average}, {"in_turn", in_turn}};
static const check_case cases[] = {
    {"those left keep their mean", those_left_keep_their_mean},
    {"of several deaths each is found", of_several_deaths_each_is_found},
    {"rank 0 may be among them", rank_0_may_be_among_them},
    {"rank 0 and others may die at once", rank_0_and_others_may_die_at_once},
    {"without rank 0 deaths are made known, too", without_rank_0_deaths_are_made_known_too}};
RANKS_MAIN(functions, cases)
