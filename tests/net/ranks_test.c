/* The harness of processes watches itself: every end a rank can come to is told apart. */
#include "harness/ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void meet(void) {
    rp_store store = {0};
    REQUIRE_OK(ranks_store(&store));
    int64_t arrived = 0;
    size_t bytes = 0;
    CHECK_OK(store.ops->add(store.context, "arrived", 1, &arrived));
    if (arrived == ranks_world()) CHECK_OK(store.ops->set(store.context, "all", "1", 1));
    CHECK_OK(store.ops->get(store.context, "all", 20, NULL, 0, &bytes));
    CHECK(strcmp(ranks_argument(), "hello") == 0);
    CHECK(strcmp(getenv("REDPOLL_TEST_EXTRA"), "more") == 0);
    rp_store_close(&store);
}

static void end_in_many_ways(void) {
    ranks_mark("here I am");
    switch (ranks_rank()) {
    case 0: CHECK(1 + 1 == 3); return;
    case 1: exit(7);
    case 2: RP_FAIL(IO, "the disk is full"); ranks_die();
    default: pause();
    }
}

/* Its orphan has ended, but not for the parent it gets: that one does not look. */
static void leave_one_that_ended(void) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit((int)read(ends[0], &byte, 1)); /* until the rank's end closes the pipe */
    }
}

static void every_rank_runs(void) {
    ranks *world = ranks_start(
        "meet", 4,
        &(ranks_options){.argument = "hello",
                         .environment = (const char *[]){"REDPOLL_TEST_EXTRA=more", NULL}});
    CHECK(ranks_finish(world, 30));
    ranks_check_passed(world);
    ranks_free(world);
}

static void every_end_is_told_apart(void) {
    ranks *world = ranks_start("end_in_many_ways", 5, NULL);
    CHECK(ranks_wait_for(world, 3, "here I am", 20));
    ranks_signal(world, 3, SIGKILL);
    CHECK(ranks_wait_for(world, 4, "here I am", 20));
    ranks_signal(world, 4, SIGSTOP);
    CHECK(ranks_finish(world, 20));
    ranks_check_exit(world, 0, 1, "1 + 1 == 3");
    ranks_check_exit(world, 1, 7, NULL);
    ranks_check_exit(world, 2, 1, "the disk is full");
    ranks_check_exit(world, 3, 128 + SIGKILL, NULL);
    ranks_check_exit(world, 4, 128 + SIGKILL, NULL); /* by ranks_finish */
    CHECK(ranks_survived_s(world, 3) >= 0);
    ranks_free(world);
}

static void an_orphan_that_ended_is_not_left_behind(void) {
    REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    ranks *world = ranks_start("leave_one_that_ended", 1, NULL);
    CHECK(ranks_finish(world, 20));
    ranks_check_passed(world);
    ranks_free(world);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    CHECK(waitpid(-1, NULL, 0) > 0); /* it was there all the while */
}

static const ranks_function functions[] = {{"meet", meet},
                                           {"end_in_many_ways", end_in_many_ways},
                                           {"leave_one_that_ended", leave_one_that_ended}};
static const check_case cases[] = {
    {"every_rank_runs", every_rank_runs},
    {"every_end_is_told_apart", every_end_is_told_apart},
    {"an_orphan_that_ended_is_not_left_behind", an_orphan_that_ended_is_not_left_behind}};
RANKS_MAIN(functions, cases)
