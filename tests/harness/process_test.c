/* What tests believe of other processes. */
#include "harness/check.h"
#include "harness/process.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ended by a parent on another core, as ranks are by their launcher. */
static _Atomic pid_t to_reap;
static atomic_bool is_over;

static void *reap_all(void *context) {
    (void)context;
    while (!is_over) {
        pid_t pid = to_reap;
        if (!pid) {
            sched_yield();
            continue;
        }
        waitpid(pid, NULL, 0);
        to_reap = 0;
    }
    return NULL;
}

static pid_t child_that_ends(void) {
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    return pid;
}

/* All states of an ending are seen: running, a zombie, dead, gone. */
static void what_has_ended_does_not_run_again(void) {
    pthread_t reaper;
    int back = 0;
    REQUIRE(pthread_create(&reaper, NULL, reap_all, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        pid_t pid = child_that_ends();
        process_look look;
        bool ended = false;
        while (process_look_at(pid, &look)) {
            if (process_look_runs(&look))
                back += ended;
            else if (!ended)
                to_reap = pid;
            ended |= !process_look_runs(&look);
        }
        if (!ended) to_reap = pid;
        while (to_reap) sched_yield();
    }
    is_over = true;
    pthread_join(reaper, NULL);
    CHECK_EQ(back, 0);
}

static void a_stopped_one_runs(void) {
    process_look look = {0};
    pid_t pid = fork();
    if (pid == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    REQUIRE(waitpid(pid, NULL, WUNTRACED) == pid);
    CHECK(process_runs(pid) && process_look_at(pid, &look));
    CHECK_EQ(look.state, 'T');
    CHECK_EQ(look.parent, getpid());
    CHECK_EQ(look.group, getpgrp());
    kill(pid, SIGKILL);
    REQUIRE(waitpid(pid, NULL, 0) == pid);
    CHECK(!process_runs(pid) && !process_look_at(pid, &look));
}

CASES({"what has ended does not run again", what_has_ended_does_not_run_again},
      {"a stopped one runs", a_stopped_one_runs})
