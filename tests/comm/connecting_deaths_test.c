/* A rank dies between any two words of connecting: the launcher says so, and the others fail at
 * once with its name, long before the time to connect is over. */
#include "harness/ranks.h"
#include "net/world/launch_watch.h"
#include "redpoll/comm.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD = 4, ENOUGH_S = 600 };

/* A store of a rank that dies behind the request of a key that ends so. */
typedef struct dying {
    rp_store store;
    const char *end;
} dying;

static dying rank_store;

/* As its launcher does, which may speak as soon as it is dead. */
static void die_behind(const dying *d, const char *key) {
    size_t length = strlen(key), end = strlen(d->end);
    if (!end || length < end || strcmp(key + length - end, d->end) != 0) return;
    CHECK_OK(rpi_launch_note_end(&d->store, ranks_rank(), "was killed by signal 9 (Killed)"));
    raise(SIGKILL);
}

static rp_status dying_set(void *context, const char *key, const void *value, size_t bytes) {
    const dying *d = context;
    rp_status status = d->store.ops->set(d->store.context, key, value, bytes);
    die_behind(d, key);
    return status;
}

static rp_status dying_get(void *context, const char *key, double timeout_s, void *value,
                           size_t capacity, size_t *bytes) {
    const dying *d = context;
    rp_status status =
        d->store.ops->get(d->store.context, key, timeout_s, value, capacity, bytes);
    if (status == RP_OK) die_behind(d, key);
    return status;
}

static rp_status dying_add(void *context, const char *key, int64_t amount, int64_t *result) {
    const dying *d = context;
    rp_status status = d->store.ops->add(d->store.context, key, amount, result);
    die_behind(d, key);
    return status;
}

static rp_status dying_remove(void *context, const char *key) {
    const dying *d = context;
    return d->store.ops->remove(d->store.context, key);
}

static const rp_store_ops dying_ops = {
    .set = dying_set, .get = dying_get, .add = dying_add, .remove = dying_remove};

/* The argument: the victim, a transport, and the end of the key. */
static void connect_or_die(void) {
    char transport[16] = "", end[32] = "";
    int victim = -1;
    rp_comm *comm = NULL;
    CHECK_EQ(sscanf(ranks_argument(), "%d %15s %31s", &victim, transport, end), 3);
    REQUIRE_OK(ranks_store(&rank_store.store));
    rank_store.end = ranks_rank() == victim ? end : "";
    rp_store store = {&dying_ops, &rank_store};
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = transport, .connect_timeout_s = ENOUGH_S);
    if (rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    rp_comm_destroy(comm);
    rp_store_close(&rank_store.store);
}

static void lose(int victim, const char *transport, const char *end) {
    char argument[80], name[32];
    snprintf(argument, sizeof argument, "%d %s %s", victim, transport, end);
    snprintf(name, sizeof name, "rank %d", victim);
    ranks *world = ranks_start("connect_or_die", WORLD, &(ranks_options){.argument = argument});
    CHECK_MSG(ranks_finish(world, 60), "behind %s", argument);
    for (int rank = 0; rank < WORLD; rank++) {
        if (rank == victim)
            ranks_check_exit(world, rank, 128 + SIGKILL, NULL);
        else
            ranks_check_exit(world, rank, 1, name);
        CHECK_MSG(!strstr(ranks_output(world, rank), "timed out"), "behind %s: %s", argument,
                  ranks_output(world, rank));
    }
    ranks_free(world);
}

/* Behind which word of its own a rank dies. */
static void lose_behind(const char *subject, const char *transport) {
    static const int victims[] = {0, 1, WORLD - 1};
    char end[32];
    for (size_t i = 0; i < sizeof victims / sizeof victims[0]; i++) {
        snprintf(end, sizeof end, "/%s/%d", subject, victims[i]);
        lose(victims[i], transport, end);
    }
}

static void who_dies_while_they_meet_is_named(void) {
    static const char *const subjects[] = {"arrived", "info"};
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++)
        lose_behind(subjects[i], "shm");
}

static void who_dies_while_they_dial_is_named(void) {
    lose_behind("addresses", "shm");
    lose_behind("addresses", "tcp");
}

static void who_dies_behind_the_links_is_named(void) {
    static const struct {
        int victim;
        const char *end;
    } rows[] = {{0, "/control"}, {WORLD - 1, "/control"}, {WORLD - 1, "/outcome"}};
    lose_behind("ready", "shm");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        lose(rows[i].victim, "shm", rows[i].end);
}

static const ranks_function functions[] = {{"connect_or_die", connect_or_die}};
static const check_case cases[] = {
    {"who_dies_while_they_meet_is_named", who_dies_while_they_meet_is_named},
    {"who_dies_while_they_dial_is_named", who_dies_while_they_dial_is_named},
    {"who_dies_behind_the_links_is_named", who_dies_behind_the_links_is_named}};
RANKS_MAIN(functions, cases)
