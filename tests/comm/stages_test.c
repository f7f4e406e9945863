/* The state machines of comm refuse what cannot be, in builds that check steps: each wrong step
 * ends a process of its own. Their right steps are those of all other tests. */
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/core/request.h"

#include "harness/check.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void go(rpi_request_stage from, rpi_request_stage to) {
    rp_request request = {.stage = from};
    rpi_request_go_to(&request, to);
}

static void post_twice(void) {
    go(RPI_REQUEST_POSTED, RPI_REQUEST_POSTED);
}

static void free_in_flight(void) {
    go(RPI_REQUEST_QUEUED, RPI_REQUEST_IDLE);
}

static void complete_twice(void) {
    go(RPI_REQUEST_DONE, RPI_REQUEST_DONE);
}

static void complete_unposted(void) {
    go(RPI_REQUEST_MADE, RPI_REQUEST_DONE);
}

static void park_unbound(void) {
    go(RPI_REQUEST_UNBOUND, RPI_REQUEST_PARKED);
}

static void make(rpi_comm_making from, rpi_comm_making to) {
    rp_comm comm = {.making = from};
    rpi_comm_go_to(&comm, to);
}

static void number_twice(void) {
    make(RPI_COMM_NUMBERED, RPI_COMM_NUMBERED);
}

static void meet_unnumbered(void) {
    make(RPI_COMM_UNNUMBERED, RPI_COMM_MET);
}

static void give_up_what_has_met(void) {
    make(RPI_COMM_MET, RPI_COMM_GIVEN_UP);
}

static void release_what_nobody_owns(void) {
    rpi_context context = {.owner = RPI_OWNER_NONE};
    pthread_cond_init(&context.changed, NULL);
    rpi_progress_release_locked(&context);
}

/* Add a row: what cannot be. */
static const struct {
    const char *name;
    void (*act)(void);
} wrong[] = {
    {"a request is posted twice", post_twice},
    {"a request in flight is freed", free_in_flight},
    {"a request completes twice", complete_twice},
    {"a request completes that was not posted", complete_unposted},
    {"a receive without a sender waits for its frames", park_unbound},
    {"a communicator is numbered twice", number_twice},
    {"all have opened what has no number", meet_unnumbered},
    {"the making of what has met is given up", give_up_what_has_met},
    {"progress is released that nobody owns", release_what_nobody_owns},
};

static int end_of(void (*act)(void)) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        if (!freopen("/dev/null", "w", stderr)) _exit(9);
        act();
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return status;
}

/* A release goes on as it always did. */
static void wrong_steps_are_refused_where_steps_are_checked(void) {
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int status = end_of(wrong[i].act);
#if defined(RPI_CHECKS_STATES)
        CHECK_MSG(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s", wrong[i].name);
#else
        CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", wrong[i].name);
#endif
    }
}

static void progress_has_one_owner(void) {
    rpi_context context = {.owner = RPI_OWNER_NONE};
    pthread_cond_init(&context.changed, NULL);
    CHECK(rpi_progress_take_locked(&context, RPI_OWNER_LOOK));
    CHECK(!rpi_progress_take_locked(&context, RPI_OWNER_LOOK));
    CHECK(!rpi_progress_take_locked(&context, RPI_OWNER_GUEST));
    CHECK_EQ(context.owner, RPI_OWNER_LOOK);
    rpi_progress_release_locked(&context);
    CHECK(rpi_progress_take_locked(&context, RPI_OWNER_THREAD));
    pthread_cond_destroy(&context.changed);
}

CASES({"wrong_steps_are_refused_where_steps_are_checked",
       wrong_steps_are_refused_where_steps_are_checked},
      {"progress_has_one_owner", progress_has_one_owner})
