/* Who is late when ranks wait for each other. */
#include "net/store/bootstrap.h"

#include "harness/check.h"
#include "net/store/bootstrap_keys.h"

#include <pthread.h>

enum { WORLD = 4 };

typedef struct guest {
    rp_store store;
    int rank, waits_for;
    rpi_bootstrap_pair pair;
} guest;

static void *wait_in_vain(void *context) {
    guest *self = context;
    rpi_bootstrap bootstrap;
    CHECK_OK(rpi_bootstrap_arrive(&bootstrap, &self->store, self->rank, WORLD, "meeting", 20));
    char reason[32];
    snprintf(reason, sizeof reason, "reason of %d", self->rank);
    rpi_bootstrap_find_pair(&bootstrap, self->waits_for, reason, &self->pair);
    return NULL;
}

/* waits_for[rank]: a rank, or -1 for one that waits for nobody. */
static void hold(const int waits_for[WORLD], guest guests[WORLD]) {
    pthread_t threads[WORLD];
    rp_store store = {0};
    REQUIRE_OK(rp_store_open_local(&store));
    for (int i = 0; i < WORLD; i++) {
        guests[i] = (guest){.store = store, .rank = i, .waits_for = waits_for[i]};
        if (waits_for[i] >= 0) pthread_create(&threads[i], NULL, wait_in_vain, &guests[i]);
    }
    for (int i = 0; i < WORLD; i++)
        if (waits_for[i] >= 0) pthread_join(threads[i], NULL);
    rp_store_close(&store);
}

static void the_end_of_a_chain_is_late(void) {
    guest guests[WORLD];
    hold((int[WORLD]){1, -1, 0, 2}, guests);
    for (int i = 0; i < WORLD; i++) {
        if (i == 1) continue;
        CHECK_EQ(guests[i].pair.waiter, 0);
        CHECK_EQ(guests[i].pair.late, 1);
        CHECK(!guests[i].pair.mutual);
        CHECK(strcmp(guests[i].pair.reason, "reason of 0") == 0);
    }
}

/* Ranks 1 and 2 wait for each other, the others for one of them. */
static void a_pair_is_found_by_all(void) {
    guest guests[WORLD];
    hold((int[WORLD]){1, 2, 1, 0}, guests);
    for (int i = 0; i < WORLD; i++) {
        const rpi_bootstrap_pair *pair = &guests[i].pair;
        CHECK(pair->mutual);
        CHECK_EQ(pair->waiter + pair->late, 3);
        CHECK(pair->waiter == 1 || pair->waiter == 2);
        CHECK_MSG(strcmp(pair->reason, "reason of 2") == 0, "%s", pair->reason);
    }
}

static void a_circle_has_an_end(void) {
    guest guests[WORLD];
    hold((int[WORLD]){1, 2, 0, -1}, guests);
    for (int i = 0; i < 3; i++) CHECK(guests[i].pair.late >= 0 && guests[i].pair.late < 3);
}

/* What rank 1 may have noted, and who is late then. */
static const struct {
    const char *note;
    int late;
} notes[] = {{"3 why", 3}, {"4 why", 1}, {"-1 why", 1}, {"3why", 1}};

static void a_note_that_makes_no_sense_ends_a_chain(void) {
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        rp_store store = {0};
        rpi_bootstrap bootstrap;
        rpi_bootstrap_pair pair;
        REQUIRE_OK(rp_store_open_local(&store));
        CHECK_OK(rpi_bootstrap_arrive(&bootstrap, &store, 0, WORLD, "meeting", 20));
        CHECK_OK(rpi_bootstrap_set(&bootstrap, "waits", 1, notes[i].note));
        rpi_bootstrap_find_pair(&bootstrap, 1, "because", &pair);
        CHECK_MSG(pair.late == notes[i].late, "'%s': rank %d", notes[i].note, pair.late);
        CHECK(!pair.mutual);
        rp_store_close(&store);
    }
}

/* Info of another program: as long as there is room for, without the end of a text. */
static void info_that_is_too_long_is_refused(void) {
    enum { ROOM = 16 };
    rp_store store = {0};
    rpi_bootstrap bootstrap;
    REQUIRE_OK(rp_store_open_local(&store));
    REQUIRE_OK(rpi_bootstrap_arrive(&bootstrap, &store, 0, 1, "meeting", 20));
    for (int bytes = 0; bytes <= 2 * ROOM; bytes++) {
        char info[ROOM + 1], text[2 * ROOM + 1];
        memset(info, '#', sizeof info);
        snprintf(text, sizeof text, "%.*s", bytes, "0123456789abcdef0123456789abcdef");
        CHECK_OK(rpi_bootstrap_show(&bootstrap, "info", text));
        rp_status status = rpi_bootstrap_read(&bootstrap, "info", 0, info, ROOM);
        CHECK_EQ(status, bytes < ROOM ? RP_OK : RP_CORRUPT);
        if (status == RP_OK)
            CHECK(strcmp(info, text) == 0);
        else
            CHECK(strstr(rp_last_error()->message, "fewer than 16 were expected"));
        CHECK(info[ROOM] == '#');
    }
    rp_store_close(&store);
}

/* A store of a rank that dies: so many requests go through, and then none. */
typedef struct dying {
    rp_store store;
    int left;
} dying;

static rp_status dying_set(void *context, const char *key, const void *value, size_t bytes) {
    dying *d = context;
    if (d->left-- <= 0) return RP_FAIL(IO, "the rank is dead");
    return d->store.ops->set(d->store.context, key, value, bytes);
}

static rp_status dying_add(void *context, const char *key, int64_t amount, int64_t *result) {
    dying *d = context;
    if (d->left-- <= 0) return RP_FAIL(IO, "the rank is dead");
    return d->store.ops->add(d->store.context, key, amount, result);
}

static rp_status dying_get(void *context, const char *key, double timeout_s, void *value,
                           size_t capacity, size_t *bytes) {
    dying *d = context;
    if (d->left-- <= 0) return RP_FAIL(IO, "the rank is dead");
    return d->store.ops->get(d->store.context, key, timeout_s, value, capacity, bytes);
}

/* Rank 1 of 2 has connected, and dies after so many requests of its leave: rank 0 goes on, and
 * finds out by its link, or knows who it waited for. */
static void leave_a_rank_that_dies(int requests) {
    rp_store store = {0};
    rpi_bootstrap meetings[2];
    REQUIRE_OK(rp_store_open_local(&store));
    dying context = {store, requests};
    rp_store_ops ops = *store.ops;
    ops.set = dying_set;
    ops.add = dying_add;
    ops.get = dying_get;
    const rp_store of_1 = {&ops, &context};
    for (int rank = 0; rank < 2; rank++)
        REQUIRE_OK(rpi_bootstrap_arrive(&meetings[rank], &store, rank, 2, "meeting", 0.2));
    meetings[1].store = &of_1;
    static const char *const nothing[] = {NULL};
    CHECK(rpi_bootstrap_leave(&meetings[1], nothing) != RP_OK);
    rp_status status = rpi_bootstrap_leave(&meetings[0], nothing);
    if (status != RP_OK)
        CHECK_MSG(strstr(rp_last_error()->message, "rank 1 arrived"), "after %d: %s", requests,
                  rp_last_error()->message);
    rp_store_close(&store);
}

static void who_dies_while_leaving_is_named(void) {
    for (int requests = 0; requests < 3; requests++) leave_a_rank_that_dies(requests);
}

/* Whether the one before had come, was on its way, or had met the others. */
static void who_replaces_a_rank_learns_how_far_it_was(void) {
    rp_store store = {0};
    rpi_bootstrap bootstrap, other;
    char value[16];
    bool has_met = true;
    REQUIRE_OK(rp_store_open_local(&store));
    CHECK_OK(rpi_bootstrap_replace(&store, 1, 2, "meeting", &has_met));
    CHECK(!has_met);
    CHECK_OK(rpi_bootstrap_arrive(&bootstrap, &store, 1, 2, "meeting", 20)); /* in its place */
    CHECK_OK(rpi_bootstrap_arrive(&other, &store, 0, 2, "meeting", 20));
    CHECK_FAILS(rpi_bootstrap_replace(&store, 1, 2, "meeting", &has_met), PEER,
                "died while the ranks were meeting");
    CHECK_FAILS(rpi_bootstrap_read(&other, "info", 1, value, sizeof value), PEER,
                "rank 1 gave up connecting: the process before this one died");
    REQUIRE_OK(rpi_bootstrap_arrive(&bootstrap, &store, 0, 1, "well", 20));
    CHECK_OK(rpi_bootstrap_leave(&bootstrap, (const char *const[]){NULL}));
    CHECK_EQ(rpi_bootstrap_replaced(&store, "well"), -1);
    CHECK_OK(rpi_bootstrap_replace(&store, 0, 1, "well", &has_met));
    CHECK(has_met);
    CHECK_EQ(rpi_bootstrap_replaced(&store, "well"), 0);
    CHECK_OK(rpi_bootstrap_replace(&store, 12, 16, "well", &has_met));
    CHECK_EQ(rpi_bootstrap_replaced(&store, "well"), 12);
    rp_store_close(&store);
}

/* ---- bootstraps that fail ---- */

static void fail(rpi_bootstrap *bootstrap, const char *why) {
    CHECK_EQ(rpi_bootstrap_give_up(bootstrap, RP_FAIL(IO, "%s", why)), RP_IO);
}

/* Who has been in it comes to the next one; who has not is told, and then comes, too. */
static void a_failure_is_of_one_meeting(void) {
    static const char *const prefixes[] = {"meeting/0", "meeting/1", "meeting/2"};
    rp_store store = {0};
    rpi_bootstrap meetings[2];
    REQUIRE_OK(rp_store_open_local(&store));
    for (int turn = 0; turn < 2; turn++) {
        REQUIRE_OK(rpi_bootstrap_arrive(&meetings[0], &store, 0, 2, "meeting", 20));
        CHECK_MSG(!strcmp(meetings[0].prefix, prefixes[turn]), "%s", meetings[0].prefix);
        fail(&meetings[0], "no network");
        CHECK_FAILS(rpi_bootstrap_arrive(&meetings[1], &store, 1, 2, "meeting", 20), IO,
                    "rank 0 gave up connecting: no network");
    }
    for (int rank = 0; rank < 2; rank++) {
        REQUIRE_OK(rpi_bootstrap_arrive(&meetings[rank], &store, rank, 2, "meeting", 20));
        CHECK_MSG(!strcmp(meetings[rank].prefix, prefixes[2]), "%s", meetings[rank].prefix);
    }
    REQUIRE_OK(rpi_bootstrap_arrive(&meetings[0], &store, 0, 2, "other", 20));
    CHECK_MSG(!strcmp(meetings[0].prefix, "other/0"), "%s", meetings[0].prefix);
    rp_store_close(&store);
}

/* Who cannot meet says so to those who wait for it, and keeps its own reason. */
static void who_declines_is_named(void) {
    rp_store store = {0};
    rpi_bootstrap meeting;
    REQUIRE_OK(rp_store_open_local(&store));
    rp_status why = RP_FAIL(IO, "no network");
    CHECK_FAILS(rpi_bootstrap_decline(&store, 1, 2, "meeting", 20, why), IO, "no network");
    CHECK_FAILS(rpi_bootstrap_arrive(&meeting, &store, 0, 2, "meeting", 20), IO,
                "rank 1 gave up connecting: no network");
    rp_store_close(&store);
    why = RP_FAIL(IO, "no network");
    CHECK_FAILS(rpi_bootstrap_decline(&store, 1, 2, "", 20, why), IO, "no network");
}

static void two_of_one_rank_are_named(void) {
    rp_store store = {0};
    rpi_bootstrap meetings[3];
    REQUIRE_OK(rp_store_open_local(&store));
    REQUIRE_OK(rpi_bootstrap_arrive(&meetings[0], &store, 1, 2, "meeting", 20));
    CHECK_FAILS(rpi_bootstrap_arrive(&meetings[1], &store, 1, 2, "meeting", 20), MISMATCH,
                "two processes say that they are rank 1");
    CHECK_FAILS(rpi_bootstrap_arrive(&meetings[2], &store, 0, 2, "meeting", 20), MISMATCH,
                "rank 1 gave up connecting: two processes say");
    rp_store_close(&store);
}

/* A store whose reader of the outcome sees rank 0 come back behind it. */
typedef struct returning {
    rp_store store;
    rpi_bootstrap *bootstrap; /* of rank 0; NULL: it is back */
} returning;

static rp_status returning_set(void *context, const char *key, const void *value,
                               size_t bytes) {
    returning *r = context;
    return r->store.ops->set(r->store.context, key, value, bytes);
}

static rp_status returning_add(void *context, const char *key, int64_t amount,
                               int64_t *result) {
    returning *r = context;
    return r->store.ops->add(r->store.context, key, amount, result);
}

static rp_status returning_get(void *context, const char *key, double timeout_s, void *value,
                               size_t capacity, size_t *bytes) {
    returning *r = context;
    rp_status status =
        r->store.ops->get(r->store.context, key, timeout_s, value, capacity, bytes);
    rpi_bootstrap *bootstrap = r->bootstrap;
    r->bootstrap = NULL;
    if (bootstrap) CHECK_OK(rpi_bootstrap_arrive(bootstrap, &r->store, 0, 3, "meeting", 20));
    return status;
}

/* Rank 1 has not been in the failed bootstrap, from which rank 0 comes back after it. */
static void who_comes_between_is_in_the_next(void) {
    rpi_bootstrap meetings[2];
    returning context = {.bootstrap = NULL};
    REQUIRE_OK(rp_store_open_local(&context.store));
    rp_store_ops ops = *context.store.ops;
    ops.set = returning_set;
    ops.add = returning_add;
    ops.get = returning_get;
    const rp_store of_1 = {&ops, &context};
    REQUIRE_OK(rpi_bootstrap_arrive(&meetings[0], &context.store, 0, 3, "meeting", 20));
    fail(&meetings[0], "no network");
    context.bootstrap = &meetings[0];
    CHECK_OK(rpi_bootstrap_arrive(&meetings[1], &of_1, 1, 3, "meeting", 20));
    for (int rank = 0; rank < 2; rank++)
        CHECK_MSG(!strcmp(meetings[rank].prefix, "meeting/1"), "%s", meetings[rank].prefix);
    rp_store_close(&context.store);
}

static void names_have_bounds(void) {
    char name[RPI_BOOTSTRAP_NAME_MAX + 2];
    rp_store store = {0};
    rpi_bootstrap bootstrap;
    REQUIRE_OK(rp_store_open_local(&store));
    memset(name, 'n', sizeof name);
    name[RPI_BOOTSTRAP_NAME_MAX + 1] = '\0';
    CHECK_FAILS(rpi_bootstrap_check_name(name), INVALID, "...' has ");
    CHECK_FAILS(rpi_bootstrap_check_name(""), INVALID, "the name '' has 0 bytes");
    CHECK_FAILS(rpi_bootstrap_arrive(&bootstrap, &store, 0, 1, "", 20), INVALID,
                " are allowed");
    name[RPI_BOOTSTRAP_NAME_MAX] = '\0';
    CHECK_OK(rpi_bootstrap_check_name(name));
    CHECK_OK(rpi_bootstrap_arrive(&bootstrap, &store, 0, 1, name, 20));
    rp_store_close(&store);
}

CASES({"who replaces a rank learns how far it was", who_replaces_a_rank_learns_how_far_it_was},
      {"a failure is of one meeting", a_failure_is_of_one_meeting},
      {"who declines is named", who_declines_is_named},
      {"two of one rank are named", two_of_one_rank_are_named},
      {"who comes between is in the next", who_comes_between_is_in_the_next},
      {"names have bounds", names_have_bounds},
      {"who_dies_while_leaving_is_named", who_dies_while_leaving_is_named},
      {"info_that_is_too_long_is_refused", info_that_is_too_long_is_refused},
      {"the_end_of_a_chain_is_late", the_end_of_a_chain_is_late},
      {"a_pair_is_found_by_all", a_pair_is_found_by_all},
      {"a_note_that_makes_no_sense_ends_a_chain", a_note_that_makes_no_sense_ends_a_chain},
      {"a_circle_has_an_end", a_circle_has_an_end})
