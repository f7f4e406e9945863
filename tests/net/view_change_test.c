/* Worlds of views whose members are threads, over each kind of store. */
#include "redpoll/view.h"

#include "base/clock.h"
#include "harness/check.h"
#include "net/world/view_world.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

enum { MOST = 8 };

/* Nobody is taken for dead on a busy machine. */
#define LONG_SILENCE .silence_s = 60

typedef struct place {
    rp_store_server *server;
    int port;
    rp_store store; /* this process's, or its own connection */
} place;

static bool open_local(place *p) {
    return rp_store_open_local(&p->store) == RP_OK;
}

static bool open_tcp(place *p) {
    return rp_store_serve(NULL, 0, &p->server, &p->port) == RP_OK &&
           rp_store_connect(NULL, p->port, 30, &p->store) == RP_OK;
}

static bool (*const kinds[])(place *) = {open_local, open_tcp};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static rp_store another(const place *p) {
    rp_store store = p->store;
    if (p->server) CHECK_OK(rp_store_connect(NULL, p->port, 30, &store));
    return store;
}

static void done_with(const place *p, rp_store *store) {
    if (p->server) rp_store_close(store);
}

static void close_place(place *p) {
    rp_store_close(&p->store);
    rp_store_server_stop(p->server);
}

/* ---- one thread each ---- */

typedef struct member {
    const place *at;
    rp_world_options options;
    rp_store store;
    rp_world *world;
    const rp_view *view;
    rp_status status;
    char message[400];
    double timeout_s;
    pthread_t thread;
} member;

static void *call_next(void *context) {
    member *m = context;
    m->status = rp_world_next(m->world, m->timeout_s, &m->view);
    snprintf(m->message, sizeof m->message, "%s", rp_last_error()->message);
    return NULL;
}

static void open_member(member *m, const place *at, const rp_world_options *options) {
    *m = (member){.at = at, .options = *options, .store = another(at), .timeout_s = 60};
    CHECK_OK(rp_world_open(&m->store, options, &m->world));
}

static void close_member(member *m) {
    rp_world_close(m->world);
    done_with(m->at, &m->store);
    m->world = NULL;
}

static void start_next(member *m) {
    m->status = RP_PENDING;
    pthread_create(&m->thread, NULL, call_next, m);
}

static rp_status finish_next(member *m) {
    pthread_join(m->thread, NULL);
    return m->status;
}

/* All of them come, and all hold one view. */
static void next_of(member *const *members, int count, uint32_t number) {
    for (int i = 0; i < count; i++) start_next(members[i]);
    for (int i = 0; i < count; i++)
        CHECK_MSG(finish_next(members[i]) == RP_OK, "%d: %s", i, members[i]->message);
    if (check_failures()) return;
    const rp_view *first = members[0]->view;
    bool taken[MOST] = {false};
    CHECK_EQ(first->number, number);
    CHECK(first->count >= count);
    for (int i = 0; i < count; i++) {
        const rp_view *v = members[i]->view;
        CHECK(v->number == first->number && v->count == first->count &&
              v->left_count == first->left_count && v->came == first->came);
        CHECK(memcmp(v->members, first->members, sizeof *v->members * (size_t)v->count) == 0);
        CHECK(v == rp_world_view(members[i]->world));
        CHECK(v->rank >= 0 && v->rank < v->count && !taken[v->rank]);
        taken[v->rank] = true;
    }
}

/* Newcomers are waited for by nobody: until one has come to make a view. */
static void await_newcomer(const place *at, uint32_t number, uint32_t id) {
    rp_store store = another(at);
    char key[64];
    size_t bytes = 0;
    snprintf(key, sizeof key, "world/views/meet/%u/%u", number, id);
    CHECK_OK(store.ops->get(store.context, key, 60, NULL, 0, &bytes));
    done_with(at, &store);
}

/* ---- cases ---- */

static void leave_and_come(const place *at) {
    rp_world_options options = RP_WORLD_OPTIONS(.least = 3, .most = 4, LONG_SILENCE);
    member a, b, c, d;
    options.member = "a";
    open_member(&a, at, &options);
    CHECK(rp_world_view(a.world) == NULL && rp_world_changing(a.world) == 0);
    options.member = "b";
    open_member(&b, at, &options);
    options.member = "c";
    open_member(&c, at, &options);
    member *all[4] = {&a, &b, &c};
    next_of(all, 3, 1);
    CHECK(a.view->came == 3 && a.view->left_count == 0 && a.view->rank == 0);
    CHECK(strcmp(a.view->members[1].name, "b") == 0);
    next_of(all, 3, 2); /* nothing has changed: another view all the same */
    CHECK(a.view->came == 0 && a.view->members[2].previous == 2);
    /* One comes: it is waited for by nobody, and waits for all. */
    options.member = "d";
    open_member(&d, at, &options);
    start_next(&d);
    await_newcomer(at, 3, 4);
    next_of(all, 3, 3);
    CHECK(finish_next(&d) == RP_OK);
    CHECK(d.view->number == 3 && d.view->rank == 3 && d.view->came == 1);
    CHECK(d.view->members[3].previous == -1 && d.view->members[0].previous == 0);
    all[3] = &d;
    /* The first leaves: the others keep their order. */
    CHECK_OK(rp_world_leave(a.world));
    CHECK_FAILS(rp_world_next(a.world, 1, &a.view), STATE, "has left world 'world'");
    close_member(&a);
    next_of(all + 1, 3, 4);
    CHECK(b.view->rank == 0 && c.view->rank == 1 && d.view->rank == 2);
    CHECK(b.view->left_count == 1 && strcmp(b.view->left[0].name, "a") == 0);
    CHECK(b.view->left[0].departure == RP_MEMBER_LEFT && b.view->left[0].previous == 0);
    CHECK(b.view->members[0].previous == 1);
    close_member(&b);
    close_member(&c);
    close_member(&d);
}

static void members_leave_and_come(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        place at = {0};
        REQUIRE(kinds[kind](&at));
        leave_and_come(&at);
        close_place(&at);
    }
}

static void await_change(const member *m) {
    int64_t deadline_ns = rpi_deadline_ns(60);
    while (!rp_world_changing(m->world) && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + 2000000);
    CHECK_EQ(rp_world_changing(m->world), 1);
}

/* Members hear of who waits, and of who wants to leave, and not any more once that is done. */
static void a_change_is_known(void) {
    place at = {0};
    member a, b, c;
    /* The thread looks five times in silence_s: nobody is judged by it here. */
    rp_world_options options =
        RP_WORLD_OPTIONS(.least = 2, .most = 3, .last_call_s = 0.01, .silence_s = 2);
    REQUIRE(open_tcp(&at));
    open_member(&a, &at, &options);
    open_member(&b, &at, &options);
    member *both[2] = {&a, &b};
    next_of(both, 2, 1);
    CHECK_EQ(rp_world_changing(a.world), 0);
    open_member(&c, &at, &options);
    start_next(&c);
    await_change(&a);
    await_change(&b);
    start_next(&a);
    start_next(&b);
    CHECK(finish_next(&a) == RP_OK && finish_next(&b) == RP_OK && finish_next(&c) == RP_OK);
    CHECK(a.view->count == 3 && rp_world_changing(a.world) == 0);
    CHECK_OK(rp_world_leave(b.world));
    await_change(&a);
    await_change(&c);
    close_member(&a);
    close_member(&b);
    close_member(&c);
    close_place(&at);
}

static void who_is_late_is_named(void) {
    place at = {0};
    member a, b;
    rp_world_options options = RP_WORLD_OPTIONS(.least = 2, .last_call_s = 0.01, LONG_SILENCE);
    REQUIRE(open_local(&at));
    options.member = "first";
    open_member(&a, &at, &options);
    CHECK_FAILS(rp_world_next(a.world, 0.05, &a.view), TIMEOUT,
                "1 of at least 2 members have come to make view 1 of world 'world'");
    options.member = "second";
    open_member(&b, &at, &options);
    member *both[2] = {&a, &b};
    next_of(both, 2, 1);
    CHECK_FAILS(rp_world_next(a.world, 0.05, &a.view), TIMEOUT,
                "rank 1 (second) of view 1 of world 'world' did not come to make view 2");
    CHECK_FAILS(rp_world_next(a.world, 0, &a.view), TIMEOUT, "rank 1 (second)");
    CHECK_EQ(rp_world_view(a.world)->number, 1);
    next_of(both, 2, 2); /* nothing is spoilt */
    close_member(&a);
    close_member(&b);
    close_place(&at);
}

/* Who lives and does not come is left out in the end, and told so. */
static void who_does_not_come_is_left_out(void) {
    place at = {0};
    member a, b, c;
    rp_world_options options =
        RP_WORLD_OPTIONS(.least = 1, .most = 2, LONG_SILENCE, .late_after_s = 0.1);
    REQUIRE(open_local(&at));
    open_member(&a, &at, &options);
    open_member(&b, &at, &options);
    member *both[2] = {&a, &b};
    next_of(both, 2, 1);
    member *ahead = a.view->rank == 0 ? &b : &a, *late = ahead == &a ? &b : &a;
    CHECK_OK(rp_world_next(ahead->world, 60, &ahead->view));
    CHECK(ahead->view->number == 2 && ahead->view->count == 1 &&
          ahead->view->left[0].departure == RP_MEMBER_LATE);
    for (int i = 0; i < 2; i++)
        CHECK_FAILS(rp_world_next(late->world, 60, &late->view), STATE,
                    "world 'world' went on to view 2 without this process, which was rank 0 of "
                    "view 1 and had not come within late_after_s; close the world, and open it "
                    "again");
    close_member(late);
    open_member(&c, &at, &options);
    start_next(&c);
    await_newcomer(&at, 3, 3);
    CHECK_OK(rp_world_next(ahead->world, 60, &ahead->view));
    CHECK(finish_next(&c) == RP_OK && c.view->rank == 1 && c.view->number == 3);
    close_member(ahead);
    close_member(&c);
    close_place(&at);
}

/* Calls that end before the time is over go on where the last one stopped: whoever asks again
 * and again gets a view in the end. */
static void poll_next(member *m, double timeout_s) {
    int64_t deadline_ns = rpi_deadline_ns(60);
    do {
        m->status = rp_world_next(m->world, timeout_s, &m->view);
        if (timeout_s <= 0) rpi_sleep_until_ns(rpi_now_ns() + 2000000);
    } while (m->status == RP_TIMEOUT && rpi_now_ns() < deadline_ns);
    CHECK_OK(m->status);
}

static void short_calls_add_up(double timeout_s) {
    place at = {0};
    member a, b;
    rp_world_options options =
        RP_WORLD_OPTIONS(.last_call_s = 0.2, LONG_SILENCE, .late_after_s = 0.2);
    REQUIRE(open_local(&at));
    open_member(&a, &at, &options);
    poll_next(&a, timeout_s);
    open_member(&b, &at, &options);
    start_next(&b);
    await_newcomer(&at, 2, 2);
    CHECK_OK(rp_world_next(a.world, 60, &a.view));
    CHECK(finish_next(&b) == RP_OK && b.view->count == 2);
    poll_next(&a, timeout_s); /* the other one does not come */
    CHECK(a.view->number == 3 && a.view->count == 1);
    CHECK(a.view->left_count == 1 && a.view->left[0].departure == RP_MEMBER_LATE);
    close_member(&a);
    close_member(&b);
    close_place(&at);
}

static void who_asks_again_and_again_gets_a_view(void) {
    short_calls_add_up(0.05);
    short_calls_add_up(0);
}

/* Times without end are times like any. */
static void nobody_need_ever_be_given_up(void) {
    static const double times_s[] = {1e9, 1e12, 1e300, INFINITY};
    for (size_t i = 0; i < sizeof times_s / sizeof times_s[0]; i++) {
        place at = {0};
        member a, b;
        double s = times_s[i];
        rp_world_options options =
            RP_WORLD_OPTIONS(.most = 2, .last_call_s = s, .silence_s = s, .late_after_s = s);
        REQUIRE(open_local(&at));
        open_member(&a, &at, &options);
        CHECK_FAILS(rp_world_next(a.world, 0.05, &a.view), TIMEOUT, "was not closed");
        open_member(&b, &at, &options);
        member *both[2] = {&a, &b};
        next_of(both, 2, 1);
        CHECK_FAILS(rp_world_next(a.world, 0.05, &a.view), TIMEOUT, "though it lives");
        close_member(&a);
        close_member(&b);
        close_place(&at);
    }
}

/* One stays while others come and go: who is gone is not looked at again, whatever it says. */
static void the_gone_are_not_looked_at(void) {
    place at = {0};
    member a, b;
    char key[64], ghost[64];
    rp_world_options options = RP_WORLD_OPTIONS(.last_call_s = 0.001, LONG_SILENCE);
    REQUIRE(open_local(&at));
    open_member(&a, &at, &options);
    CHECK_OK(rp_world_next(a.world, 60, &a.view));
    for (uint32_t id = 2; id < 10; id += 2) {
        open_member(&b, &at, &options); /* one that becomes no member */
        close_member(&b);
        open_member(&b, &at, &options);
        start_next(&b);
        await_newcomer(&at, id, id + 1);
        CHECK_OK(rp_world_next(a.world, 60, &a.view));
        CHECK(finish_next(&b) == RP_OK && b.view->count == 2);
        CHECK_EQ(b.view->members[1].id, id + 1);
        close_member(&b);
        CHECK_OK(rp_world_next(a.world, 60, &a.view));
        CHECK(a.view->count == 1 && a.view->left_count == 1);
        for (uint32_t gone = 2; gone <= id + 1; gone++) {
            snprintf(key, sizeof key, "world/views/member/%u", gone);
            int length = snprintf(ghost, sizeof ghost, "99 %u -1 0 ghost", id + 2);
            CHECK_OK(at.store.ops->set(at.store.context, key, ghost, (size_t)length));
        }
    }
    CHECK_OK(rp_world_next(a.world, 60, &a.view));
    CHECK_EQ(a.view->count, 1);
    close_member(&a);
    close_place(&at);
}

/* Whoever waits can be called off by another thread of its process. */
static void who_leaves_waits_no_longer(void) {
    place at = {0};
    member a, b;
    rp_world_options options = RP_WORLD_OPTIONS(.least = 2, .most = 2, .silence_s = 2);
    REQUIRE(open_local(&at));
    open_member(&a, &at, &options);
    a.timeout_s = -1;
    start_next(&a);
    await_newcomer(&at, 1, 1);
    CHECK_OK(rp_world_leave(a.world));
    CHECK(finish_next(&a) == RP_STATE && strstr(a.message, "has left world 'world'"));
    close_member(&a);
    open_member(&a, &at, &options);
    open_member(&b, &at, &options);
    member *both[2] = {&a, &b};
    next_of(both, 2, 1);
    a.timeout_s = -1; /* as a member that waits for another */
    start_next(&a);
    await_newcomer(&at, 2, 2);
    CHECK_OK(rp_world_leave(a.world));
    CHECK(finish_next(&a) == RP_STATE && strstr(a.message, "has left world 'world'"));
    close_member(&a);
    close_member(&b);
    close_place(&at);
}

/* A full world: who comes waits for a place, and disturbs nobody. */
static void who_finds_no_place_waits(void) {
    place at = {0};
    member a, b;
    rp_world_options options = RP_WORLD_OPTIONS(.most = 1, LONG_SILENCE);
    REQUIRE(open_local(&at));
    open_member(&a, &at, &options);
    CHECK_OK(rp_world_next(a.world, 60, &a.view));
    open_member(&b, &at, &options);
    start_next(&b);
    CHECK_OK(rp_world_next(a.world, 60, &a.view));
    CHECK(a.view->count == 1 && rp_world_changing(a.world) == 0);
    close_member(&a);
    CHECK(finish_next(&b) == RP_OK);
    CHECK(b.view->rank == 0 && b.view->left_count == 1 && b.view->came == 1);
    close_member(&b);
    close_place(&at);
}

static void all_say_the_same(void) {
    place at = {0};
    member a;
    rp_world *other = NULL;
    rp_world_options options = RP_WORLD_OPTIONS(.least = 2, .name = "w"), wrong = options;
    REQUIRE(open_local(&at));
    open_member(&a, &at, &options);
    wrong.least = 3;
    CHECK_FAILS(rp_world_open(&at.store, &wrong, &other), MISMATCH,
                "world 'w' was opened with least=2");
    close_member(&a);
    close_place(&at);
}

static void a_store_that_cannot_compare_is_refused(void) {
    rp_store store = {0};
    rp_world *world = NULL;
    REQUIRE_OK(rp_store_open_local(&store));
    rp_store_ops ops = *store.ops;
    ops.compare_set = NULL;
    rp_store poor = {.ops = &ops, .context = store.context};
    CHECK_FAILS(rp_world_open(&poor, NULL, &world), UNSUPPORTED, "cannot compare and set");
    rp_store_close(&store);
}

/* The store is gone: said by the next call, and closing ends. */
static void a_store_that_is_gone_is_told(void) {
    place at = {0};
    member a;
    rp_world_options options = RP_WORLD_OPTIONS(LONG_SILENCE);
    REQUIRE(open_tcp(&at));
    open_member(&a, &at, &options);
    CHECK_OK(rp_world_next(a.world, 60, &a.view));
    rp_store_server_stop(at.server);
    CHECK_FAILS(rp_world_next(a.world, 60, &a.view), PEER, "the store at");
    rp_world_close(a.world);
    rp_store_close(&a.store);
    rp_store_close(&at.store);
}

/* A store that does not answer what the world's thread says, until somebody has gone on. */
static struct {
    rp_store inner;
    rp_store_ops ops;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool holds, is_asked, gone_on; /* [lock] */
} held = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* False: nobody has done so for a minute. */
static bool await_held(const bool *what) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += 60;
    int error = 0;
    while (!*what && !error) error = pthread_cond_timedwait(&held.changed, &held.lock, &at);
    return *what;
}

static rp_status set_when_gone_on(void *context, const char *key, const void *value,
                                  size_t bytes) {
    pthread_mutex_lock(&held.lock);
    if (held.holds) {
        held.is_asked = true;
        pthread_cond_broadcast(&held.changed);
        CHECK_MSG(await_held(&held.gone_on), "nobody went on while the store did not answer");
        held.holds = false;
    }
    pthread_mutex_unlock(&held.lock);
    return held.inner.ops->set(context, key, value, bytes);
}

static void tell(bool *what) {
    pthread_mutex_lock(&held.lock);
    *what = true;
    pthread_cond_broadcast(&held.changed);
    pthread_mutex_unlock(&held.lock);
}

/* A communicator that has lost somebody is destroyed at once, whatever the store does, and the
 * store hears of it when it answers again. */
static void a_store_that_hangs_holds_up_nobody(void) {
    place at = {0};
    member a;
    char text[RPI_STATEMENT_BYTES] = "";
    size_t bytes = 0;
    rpi_statement says = {0};
    rp_world_options options = RP_WORLD_OPTIONS(.most = 1, .silence_s = 0.2);
    REQUIRE(open_local(&at));
    held.inner = at.store;
    held.ops = *at.store.ops;
    held.ops.set = set_when_gone_on;
    at.store.ops = &held.ops;
    open_member(&a, &at, &options);
    CHECK_OK(rp_world_next(a.world, 60, &a.view));
    tell(&held.holds);
    pthread_mutex_lock(&held.lock);
    CHECK(await_held(&held.is_asked));
    pthread_mutex_unlock(&held.lock);
    rpi_world_note_lost(a.world, 1, 0);
    tell(&held.gone_on);
    CHECK_OK(rp_world_leave(a.world));
    CHECK_OK(held.inner.ops->get(at.store.context, "world/views/member/1", 0, text,
                                 sizeof text - 1, &bytes));
    CHECK_OK(rpi_statement_read(text, &says));
    CHECK(says.lost == 0 && says.leaving);
    close_member(&a);
    close_place(&at);
}

/* Many at once, whose order nobody gives: some leave in each view, others come. */
static void crowds_agree(void) {
    place at = {0};
    static member all[4 * MOST];
    member *in[MOST];
    int next = 0;
    rp_world_options options = RP_WORLD_OPTIONS(.least = MOST, .most = MOST, LONG_SILENCE);
    REQUIRE(open_tcp(&at));
    for (int i = 0; i < MOST; i++) open_member(in[i] = &all[next++], &at, &options);
    for (uint32_t number = 1; number <= 4 && !check_failures(); number++) {
        next_of(in, MOST, number);
        for (int i = 0; i < MOST / 2 && number < 4; i++) {
            close_member(in[i * 2]);
            open_member(in[i * 2] = &all[next++], &at, &options);
        }
    }
    for (int i = 0; i < MOST; i++) close_member(in[i]);
    close_place(&at);
}

CASES({"members_leave_and_come", members_leave_and_come},
      {"a_change_is_known", a_change_is_known}, {"who_is_late_is_named", who_is_late_is_named},
      {"who_does_not_come_is_left_out", who_does_not_come_is_left_out},
      {"who_asks_again_and_again_gets_a_view", who_asks_again_and_again_gets_a_view},
      {"nobody_need_ever_be_given_up", nobody_need_ever_be_given_up},
      {"the_gone_are_not_looked_at", the_gone_are_not_looked_at},
      {"who_leaves_waits_no_longer", who_leaves_waits_no_longer},
      {"who_finds_no_place_waits", who_finds_no_place_waits},
      {"all_say_the_same", all_say_the_same},
      {"a_store_that_cannot_compare_is_refused", a_store_that_cannot_compare_is_refused},
      {"a_store_that_is_gone_is_told", a_store_that_is_gone_is_told},
      {"a_store_that_hangs_holds_up_nobody", a_store_that_hangs_holds_up_nobody},
      {"crowds_agree", crowds_agree})
