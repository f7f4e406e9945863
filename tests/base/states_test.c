#include "base/states.h"

#include "harness/check.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum door { CLOSED, OPEN, BROKEN } door;

static const rpi_states door_next[] = {
    [CLOSED] = RPI_STATE(OPEN),
    [OPEN] = RPI_STATE(CLOSED) | RPI_STATE(OPEN) | RPI_STATE(BROKEN),
    [BROKEN] = 0,
};

static void a_table_has_its_steps_and_no_others(void) {
    static const bool wanted[3][3] = {[CLOSED][OPEN] = true,
                                      [OPEN][CLOSED] = true,
                                      [OPEN][OPEN] = true,
                                      [OPEN][BROKEN] = true};
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++)
            CHECK_MSG(rpi_states_have(door_next, 3, from, to) == wanted[from][to], "%d to %d",
                      from, to);
}

static void what_is_no_state_has_no_step(void) {
    CHECK_EQ(RPI_STATES_COUNT(door_next), 3);
    CHECK(!rpi_states_have(door_next, 3, -1, OPEN));
    CHECK(!rpi_states_have(door_next, 3, 3, OPEN));
    CHECK(!rpi_states_have(door_next, 3, OPEN, -1));
    CHECK(!rpi_states_have(door_next, 3, OPEN, 32));
}

static void a_step_enters(void) {
    door state = CLOSED;
    RPI_ENTER(door_next, state, OPEN);
    CHECK_EQ(state, OPEN);
    RPI_ENTER(door_next, state, BROKEN);
    CHECK_EQ(state, BROKEN);
}

/* Steps that the table does not have, in a process of their own. Returns how it ended. */
static int enter_wrongly(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        volatile door state = CLOSED;
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        if (!freopen("/dev/null", "w", stderr)) _exit(9);
        RPI_ENTER(door_next, state, BROKEN);
        _exit(state == BROKEN ? 7 : 8);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return status;
}

/* A release never ends a process: what is wrong there goes on as it always did. */
static void a_wrong_step_is_refused_where_steps_are_checked(void) {
    int status = enter_wrongly();
#if defined(RPI_CHECKS_STATES)
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#else
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
#endif
}

CASES({"a_table_has_its_steps_and_no_others", a_table_has_its_steps_and_no_others},
      {"what_is_no_state_has_no_step", what_is_no_state_has_no_step},
      {"a_step_enters", a_step_enters},
      {"a_wrong_step_is_refused_where_steps_are_checked",
       a_wrong_step_is_refused_where_steps_are_checked})
