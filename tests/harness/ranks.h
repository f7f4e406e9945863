/* Ranks as processes, for tests that need real memory, real sockets and real deaths.
 *
 * A rank is this very test program, started by exec (never by a bare fork: OpenMP would hang)
 * with the environment `redpoll run` would give it, and told which function to run:
 *
 *     static void add_up(void) {                        in a process of its own
 *         rp_store store;
 *         REQUIRE_OK(ranks_store(&store));              the test's store, by TCP
 *         ranks_mark("ready");
 *         CHECK(ranks_rank() < ranks_world());          a failed check: exit code 1
 *         rp_store_close(&store);
 *     }
 *     static void sums(void) {                          in the test's process
 *         ranks *world = ranks_start("add_up", 4, NULL);
 *         ranks_finish(world, 10);
 *         ranks_check_passed(world);
 *         ranks_free(world);
 *     }
 *     static const ranks_function functions[] = {{"add_up", add_up}};
 *     static const check_case cases[] = {{"sums", sums}};
 *     RANKS_MAIN(functions, cases)
 *
 * CMake: redpoll_test(comm/x_test USES comm TIER 2 LIBRARIES rp_ranks).
 * Ranks die with the test's process. One world at a time in each test thread. */
#ifndef HARNESS_RANKS_H
#define HARNESS_RANKS_H

#include "harness/check.h"
#include "redpoll/store.h"

#include <stdbool.h>

typedef struct ranks_function {
    const char *name;
    void (*run)(void);
} ranks_function;

typedef struct ranks ranks;

/* Zeros mean the defaults. */
typedef struct ranks_options {
    const char *argument;           /* for ranks_argument(); NULL: "" */
    const char *const *environment; /* "NAME=value" more, NULL-terminated; NULL: none */
    int missing;                    /* that many of the last ranks are not started */
    bool own_store; /* rank 0 is to serve the store itself, as rp_comm_join() does; there is no
                       REDPOLL_STORE and ranks_store() is not to be called */
} ranks_options;

/* ---- in the test's process ---- */

/* Serve a store and start `world` ranks of a function. Never NULL: failing to start fails the
 * case, and the calls below then do nothing. */
ranks *ranks_start(const char *function, int world, const ranks_options *options);
/* Wait until `rank` has printed a line that holds `text` (ranks_mark() prints one). False, and
 * the case fails, when the rank ends or timeout_s passes first. */
bool ranks_wait_for(ranks *world, int rank, const char *text, double timeout_s);
/* SIGKILL, SIGSTOP, SIGCONT, ... to one rank. Behind SIGSTOP all its threads have stopped. */
void ranks_signal(ranks *world, int rank, int signal);
/* Wait for every rank to end. Those alive at the deadline fail the case, except stopped ones
 * (by ranks_signal), and are killed; so are processes they have left behind, which fail it too.
 * True when everything ended by itself. Idempotent. */
bool ranks_finish(ranks *world, double timeout_s);
/* After ranks_finish: exit code, or 128 + the signal that killed it. */
int ranks_exit_code(const ranks *world, int rank);
/* What a rank has printed so far, both streams; valid until the next call on `world`. */
const char *ranks_output(ranks *world, int rank);
/* Seconds from the first SIGKILL or SIGSTOP sent to the end of `rank`. */
double ranks_survived_s(const ranks *world, int rank);
/* Every rank ended with 0; output of those that did not is shown. */
void ranks_check_passed(ranks *world);
/* `rank` ended with `code` and its output holds `text` (NULL: anything). */
void ranks_check_exit(ranks *world, int rank, int code, const char *text);
/* Kills what is left and stops the store. */
void ranks_free(ranks *world);

/* ---- in a rank's process ---- */

int ranks_rank(void);
int ranks_world(void);
const char *ranks_argument(void);
/* Connect to the test's store. */
rp_status ranks_store(rp_store *out_store);
/* Print a line at once, for ranks_wait_for(). */
void ranks_mark(const char *text);
/* From now on this signal cuts the process off: all its sockets are shut down, both ways. */
void ranks_cut_on(int signal);
/* Print the thread's last error and end with exit code 1, as a command would. */
_Noreturn void ranks_die(void);

int ranks_main(int argc, char **argv, const ranks_function *functions, int function_count,
               const check_case *cases, int case_count);

#define RANKS_MAIN(functions, cases)                                                           \
    int main(int argc, char **argv) {                                                          \
        return ranks_main(argc, argv, functions,                                               \
                          (int)(sizeof(functions) / sizeof((functions)[0])), cases,            \
                          (int)(sizeof(cases) / sizeof((cases)[0])));                          \
    }

#endif
