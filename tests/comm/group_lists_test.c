/* Many communicators made of another at once: all or none, by one list. */
#include "redpoll/comm.h"

#include "comm/thread_world.h"

#include <stdbool.h>

enum { WORLD = 6 };

static const rp_comm_options over_tcp =
    RP_COMM_OPTIONS(.transport = "tcp", .connect_timeout_s = 60);
static const rp_comm_options over_shm =
    RP_COMM_OPTIONS(.transport = "shm", .connect_timeout_s = 60);
static const rp_comm_options with_thread = RP_COMM_OPTIONS(.progress_thread = 1);
static const rp_comm_options *const worlds[] = {NULL, &over_shm, &over_tcp, &with_thread};
enum { WORLDS = sizeof worlds / sizeof worlds[0] };

/* ---- a list a stranger adds to: disjoint, overlapping, of one, of all, upside down ---- */

static const rp_comm_options tp0 = RP_COMM_OPTIONS(.name = "tp0"),
                             twin = RP_COMM_OPTIONS(.name = "twin");
static const int low[] = {0, 1, 2}, high[] = {3, 4, 5}, even[] = {0, 2, 4}, odd[] = {5, 3, 1};
static const int all[] = {0, 1, 2, 3, 4, 5}, back[] = {5, 4, 3, 2, 1, 0}, lone[] = {4};
static const rp_group list[] = {
    {low, 3, &tp0},  {high, 3, NULL}, {even, 3, NULL}, {odd, 3, NULL},  {all, 6, NULL},
    {back, 6, NULL}, {lone, 1, NULL}, {low, 3, &twin}, {low, 3, &twin}, /* of the same name, and
                                                                           another one */
};
enum { LIST = sizeof list / sizeof list[0] };

static int place_in(const rp_group *group, int rank) {
    for (int i = 0; i < group->count; i++)
        if (group->ranks[i] == rank) return i;
    return -1;
}

static void sum(rp_comm *comm, float value) {
    float x = value;
    rp_segment segment = {.data = &x, .count = 1, .dtype = RP_F32};
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    CHECK_EQ(x, value * (float)rp_comm_world(comm));
}

static void make_list(rp_comm *comm, int rank, int world, void *context) {
    rp_comm *made[LIST];
    rp_request *requests[LIST];
    float x[LIST];
    (void)context;
    for (int round = 0; round < 3; round++) {
        CHECK_OK(rp_comm_groups(comm, list, LIST, made));
        for (int k = 0; k < LIST; k++) {
            int i = round % 2 ? LIST - 1 - k : k, place = place_in(&list[i], rank);
            CHECK((made[i] == NULL) == (place < 0));
            if (!made[i]) continue;
            CHECK_EQ(rp_comm_rank(made[i]), place);
            CHECK_EQ(rp_comm_world(made[i]), list[i].count);
            x[i] = (float)i;
            rp_segment segment = {.data = &x[i], .count = 1, .dtype = RP_F32};
            CHECK_OK(rp_all_reduce_start(made[i], &segment, 1, NULL, &requests[i]));
        }
        for (int k = 0; k < LIST; k++) {
            int i = (k + rank) % LIST;
            if (!made[i]) continue;
            CHECK_OK(rp_request_wait(&requests[i]));
            CHECK_EQ(x[i], (float)(i * list[i].count));
        }
        sum(comm, 1);
        for (int k = 0; k < LIST; k++) rp_comm_destroy(made[(k * 2 + rank) % LIST]);
        sum(comm, (float)world);
    }
}

static void a_list_is_made_at_once(void) {
    for (int w = 0; w < WORLDS; w++) world_run(WORLD, worlds[w], make_list, NULL);
}

/* Beside those that are made one by one, which have numbers of their own. */
static void make_both(rp_comm *comm, int rank, int world, void *context) {
    rp_comm *made[LIST], *single[2] = {NULL};
    const int pair[] = {rank / 2 * 2, rank / 2 * 2 + 1};
    (void)world, (void)context;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rp_comm_group(comm, pair, 2, &(rp_comm_options)RP_COMM_OPTIONS(.name = "pair"),
                               &single[i]));
        if (i == 0) CHECK_OK(rp_comm_groups(comm, list, LIST, made));
    }
    for (int i = 0; i < LIST; i++)
        if (made[i]) sum(made[i], (float)i);
    for (int i = 0; i < 2; i++) sum(single[i], 7);
    for (int i = 0; i < LIST; i++) rp_comm_destroy(made[i]);
    for (int i = 0; i < 2; i++) rp_comm_destroy(single[i]);
    sum(comm, 2);
}

static void beside_those_made_one_by_one(void) {
    for (int w = 0; w < WORLDS; w++) world_run(WORLD, worlds[w], make_both, NULL);
}

/* ---- all or none ---- */

typedef struct refusal {
    const char *what;  /* that one rank passes */
    rp_status status;  /* that all ranks return */
    const char *words; /* that the messages have */
} refusal;

static const refusal refusals[] = {
    {"option", RP_INVALID, "chunks_in_flight is 5000"},
    {"rank", RP_INVALID, "group 1 of the list: rank 6 is not in"},
    {"twice", RP_INVALID, "named twice"},
    {"shorter", RP_MISMATCH, "another list of groups"},
    {"order", RP_MISMATCH, "another list of groups"},
    {"name", RP_MISMATCH, "another list of groups"},
    {"nothing", RP_INVALID, "there is no list"},
};

typedef struct refused {
    const refusal *of;
    int rank;
} refused;

static rp_status make_strange(rp_comm *comm, const char *what, rp_comm **made) {
    const int strange[] = {0, 6}, twice[] = {2, 2};
    const rp_comm_options many = RP_COMM_OPTIONS(.chunks_in_flight = 5000),
                          other = RP_COMM_OPTIONS(.name = "another");
    rp_group own[LIST];
    size_t count = LIST;
    for (int i = 0; i < LIST; i++) own[i] = list[i];
    if (strcmp(what, "option") == 0) own[1].options = &many;
    if (strcmp(what, "rank") == 0) own[1] = (rp_group){strange, 2, NULL};
    if (strcmp(what, "twice") == 0) own[1] = (rp_group){twice, 2, NULL};
    if (strcmp(what, "shorter") == 0) count--;
    if (strcmp(what, "name") == 0) own[0].options = &other;
    if (strcmp(what, "order") == 0) {
        own[0] = list[1];
        own[1] = list[0];
    }
    return rp_comm_groups(comm, strcmp(what, "nothing") ? own : NULL, count, made);
}

static void refuse(rp_comm *comm, int rank, int world, void *context) {
    const refused *r = context;
    rp_comm *made[LIST] = {NULL};
    (void)world;
    rp_status status = rank == r->rank ? make_strange(comm, r->of->what, made)
                                       : rp_comm_groups(comm, list, LIST, made);
    const char *message = rp_last_error()->message;
    CHECK_MSG(status == r->of->status && strstr(message, r->of->words),
              "%s by rank %d: %s (%s)", r->of->what, r->rank, rp_status_name(status), message);
    for (int i = 0; i < LIST; i++) CHECK(!made[i]);
    sum(comm, 1); /* the parent lives on, and the list can be tried again */
    CHECK_OK(rp_comm_groups(comm, list, LIST, made));
    for (int i = 0; i < LIST; i++)
        if (made[i]) sum(made[i], (float)i);
    for (int i = 0; i < LIST; i++) rp_comm_destroy(made[i]);
}

static void what_one_rank_refuses_fails_on_all(void) {
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        for (int rank = 0; rank < WORLD; rank += WORLD - 1)
            world_run(WORLD, NULL, refuse, &(refused){&refusals[i], rank});
}

/* A group of a list fails by itself. */
static void fail_one(rp_comm *comm, int rank, int world, void *context) {
    rp_comm *made[LIST];
    (void)world, (void)context;
    CHECK_OK(rp_comm_groups(comm, list, LIST, made));
    if (rank == 1) rp_comm_abort(made[0], RP_IO, "its disk is full");
    if (made[0]) CHECK_FAILS(rp_barrier(made[0]), IO, "its disk is full");
    for (int i = 1; i < LIST; i++)
        if (made[i]) sum(made[i], (float)i);
    sum(comm, 1);
    for (int i = 0; i < LIST; i++) rp_comm_destroy(made[i]);
    sum(comm, 1);
}

static void a_failure_is_of_one_of_them(void) {
    for (int w = 0; w < WORLDS; w++) world_run(WORLD, worlds[w], fail_one, NULL);
}

CASES({"a list is made at once", a_list_is_made_at_once},
      {"beside those made one by one", beside_those_made_one_by_one},
      {"what one rank refuses fails on all", what_one_rank_refuses_fails_on_all},
      {"a failure is of one of them", a_failure_is_of_one_of_them})
