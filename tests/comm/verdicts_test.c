/* Failures and what they reach: groups of what was aborted, callers that do not wait, sentences
 * that say who is meant. */
#include "comm/core/communicator.h"
#include "comm/thread_world.h"

#include "base/clock.h"
#include "net/control/control_state.h"

#include <string.h>

static rp_comm *group_of(rp_comm *parent, const char *name, const int *ranks, int count,
                         const rp_comm_options *more) {
    rp_comm_options options = more ? *more : (rp_comm_options)RP_COMM_OPTIONS();
    rp_comm *group = NULL;
    options.name = name;
    CHECK_OK(rp_comm_group(parent, ranks, count, &options, &group));
    return group;
}

static rp_status sum(rp_comm *comm) {
    float x = 1;
    rp_segment segment = {.data = &x, .count = 1, .dtype = RP_F32};
    return rp_all_reduce(comm, &segment, 1, NULL);
}

static void compute(double seconds) {
    rpi_sleep_until_ns(rpi_now_ns() + (int64_t)(seconds * 1e9));
}

/* Rank 1 aborts the world, or `outer` = {1, 2, 3}; `inner` = {2, 3} was made of that, `other`
 * of the world. */
typedef struct abortion {
    bool outer, is_late; /* `inner` is made after it */
    rp_status status;
} abortion;

static void abort_one(rp_comm *world, int rank, int count, void *context) {
    const abortion *a = context;
    const int three[] = {1, 2, 3}, two[] = {1, 2}, pair[] = {2, 3};
    rp_comm *outer = rank >= 1 ? group_of(world, "outer", three, 3, NULL) : NULL;
    rp_comm *inner = rank >= 2 ? group_of(outer, "inner", two, 2, NULL) : NULL;
    rp_comm *other = rank >= 2 ? group_of(world, "other", pair, 2, NULL) : NULL;
    bool reaches = a->status != RP_CANCELLED;
    (void)count;
    world_meet();
    if (rank == 1) rp_comm_abort(a->outer ? outer : world, a->status, "a bad file");
    if (rank == 1) world_meet();
    if (rank >= 2 && reaches) { /* rank 3 sends nothing: the wait ends by the abort */
        float x = 0;
        rp_request *request = NULL;
        CHECK_OK(rp_recv_start(inner, &x, 1, RP_F32, 3 - rank, 7, &request));
        CHECK_FAILS(rp_request_wait(&request), CORRUPT,
                    a->outer ? "outer: rank 0 (world 1) gave up: a bad file"
                             : "world: rank 1 gave up: a bad file");
    } else if (rank >= 2) {
        CHECK_OK(sum(inner));
    }
    if (rank != 1) world_meet();
    if (rank >= 2 && (a->outer || !reaches)) CHECK_OK(sum(other));
    if (rank >= 2 && !a->outer && reaches) CHECK_FAILS(sum(other), CORRUPT, "a bad file");
    if (a->outer) CHECK_OK(sum(world));
    world_meet();
    rp_comm_destroy(inner);
    rp_comm_destroy(outer);
    rp_comm_destroy(other);
}

static void an_abort_reaches_what_was_made_of_it(void) {
    static abortion rows[] = {{.outer = false, .status = RP_CORRUPT},
                              {.outer = true, .status = RP_CORRUPT},
                              {.outer = false, .status = RP_CANCELLED},
                              {.outer = true, .status = RP_CANCELLED}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        world_run(4, NULL, abort_one, &rows[i]);
}

/* ---- strict timeouts ---- */

typedef struct strictness {
    int parent, own, is_strict;
} strictness;

static void inherit(rp_comm *world, int rank, int count, void *context) {
    const strictness *s = context;
    const int both[] = {0, 1};
    (void)rank;
    (void)count;
    rp_comm *group = group_of(world, "g", both, 2,
                              &(rp_comm_options)RP_COMM_OPTIONS(.strict_timeout = s->own));
    rp_comm *of_group = group_of(group, "h", both, 2, NULL);
    CHECK_EQ(group->strict_timeout, s->is_strict);
    CHECK_EQ(of_group->strict_timeout, s->is_strict);
    rp_comm_destroy(of_group);
    rp_comm_destroy(group);
}

static void groups_are_as_strict_as_their_parents(void) {
    static strictness rows[] = {{0, 0, 0}, {1, 0, 1},  {-1, 0, 0}, {0, 1, 1},
                                {1, 1, 1}, {1, -1, 0}, {-1, 1, 1}, {0, -1, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        world_run(2,
                  &(rp_comm_options)RP_COMM_OPTIONS(.transport = "inproc",
                                                    .strict_timeout = rows[i].parent),
                  inherit, &rows[i]);
    rp_comm *comm = NULL;
    for (int odd = -2; odd <= 2; odd += 4)
        CHECK_FAILS(rp_comm_create(NULL, 0, 1,
                                   &(rp_comm_options)RP_COMM_OPTIONS(.strict_timeout = odd),
                                   &comm),
                    INVALID, "strict_timeout");
}

/* ---- what does not block ---- */

static atomic_int posted;

/* Rank 0, which judges, is as if it were stopped; a mismatch is found by a start. */
static void start_a_mismatch(rp_comm *world, int rank, int count, void *context) {
    const int pair[] = {1, 2};
    rp_comm *group = rank ? group_of(world, "pair", pair, 2, NULL) : NULL;
    float data[3] = {0};
    rp_segment segment = {.data = data, .count = (size_t)rank + 1, .dtype = RP_F32};
    rp_request *request = NULL;
    (void)count;
    (void)context;
    world_meet();
    if (rank == 0) pthread_mutex_lock(&world->context->control->lock);
    world_meet();
    if (rank == 2) CHECK_OK(rp_all_reduce_start(group, &segment, 1, NULL, &request));
    if (rank == 2) compute(0.05); /* its frame is there */
    world_meet();
    if (rank == 1) {
        int64_t start_ns = rpi_now_ns();
        CHECK_OK(rp_all_reduce_start(group, &segment, 1, NULL, &request));
        rp_status status = rp_request_test(request);
        bool is_soon = rpi_now_ns() - start_ns < RPI_SECOND_NS / 2;
        CHECK_MSG(!is_soon || status == RP_PENDING, "%s", rp_status_name(status));
        CHECK(rpi_comm_has_failed(group));
    }
    world_meet();
    if (rank == 0) pthread_mutex_unlock(&world->context->control->lock);
    if (request) CHECK_FAILS(rp_request_wait(&request), MISMATCH, "pair: ");
    world_meet();
    rp_comm_destroy(group);
}

static void a_start_waits_for_no_verdict(void) {
    atomic_store(&posted, 0);
    world_run(3, NULL, start_a_mismatch, NULL);
}

/* ---- who is meant ---- */

static void say_who(rp_comm *world, int rank, int count, void *context) {
    const int three[] = {3, 1, 2};
    rp_comm_options options = RP_COMM_OPTIONS(.timeout_s = 0.5, .strict_timeout = 1);
    rp_comm *group = rank ? group_of(world, "tp0", three, 3, &options) : NULL;
    (void)count;
    (void)context;
    world_meet();
    if (rank == 1 || rank == 2) {
        rp_status status = sum(group);
        const char *said = rp_last_error()->message;
        CHECK_EQ(status, RP_TIMEOUT);
        CHECK_MSG(strncmp(said, "tp0: ", 5) == 0, "%s", said);
        CHECK_MSG(strstr(said, "rank 0 (world 3) has not come"), "%s", said);
    }
    world_meet();
    rp_comm_destroy(group);
}

static void sentences_name_group_and_world(void) {
    world_run(4, NULL, say_who, NULL);
}

CASES({"an abort reaches what was made of it", an_abort_reaches_what_was_made_of_it},
      {"groups are as strict as their parents", groups_are_as_strict_as_their_parents},
      {"a start waits for no verdict", a_start_waits_for_no_verdict},
      {"sentences name group and world", sentences_name_group_and_world})
