/* The books of a parameter server, by random schedules: every push is merged once, gradients
 * are no staler than allowed, nobody waits for ever. And what a slow worker costs, in steps. */
#include "methods/parameter_server/push_ledger.h"

#include "harness/check.h"
#include "redpoll/rng.h"

#include <stdlib.h>

enum { MOST = 7 };

typedef struct world {
    rpi_push_ledger ledger;
    uint64_t seed;
    uint32_t draws;
    uint64_t sent[MOST], merged[MOST]; /* by the test's own account */
    int64_t at_start[MOST][MOST];      /* merged of others when a worker began */
    bool gone[MOST];
} world;

static uint32_t draw(world *w, uint32_t below) {
    uint32_t numbers[4];
    rp_philox4x32((uint32_t[4]){w->draws++}, (uint32_t[2]){(uint32_t)w->seed, 0x9d5}, numbers);
    return numbers[0] % below;
}

static int present(const world *w) {
    int count = 0;
    for (int i = 0; i < w->ledger.count; i++) count += !w->gone[i];
    return count;
}

/* The most steps of another since it began. */
static int64_t lateness(const world *w, int worker) {
    int64_t most = 0;
    for (int x = 0; x < w->ledger.count; x++) {
        int64_t since = (int64_t)w->merged[x] - w->at_start[worker][x];
        if (x != worker && since > most) most = since;
    }
    return most;
}

static void check_merge(world *w, const int *members, int count) {
    const rpi_push_ledger *l = &w->ledger;
    if (!count) return;
    for (int i = 0; i < count; i++) {
        int worker = members[i];
        int64_t late = lateness(w, worker);
        CHECK_EQ(l->workers[worker].staleness, late);
        if (l->staleness >= 0)
            CHECK_MSG(late <= l->staleness, "a gradient %lld steps old, where %lld are allowed",
                      (long long)late, (long long)l->staleness);
        CHECK(i == 0 || members[i - 1] < worker);
        CHECK_EQ(w->merged[worker] + 1, w->sent[worker]); /* once, and in order */
    }
    for (int i = 0; i < count; i++) w->merged[members[i]]++;
    if (l->staleness == 0)
        for (int i = 0; i < l->count; i++)
            CHECK(w->gone[i] || w->merged[i] == w->merged[members[0]]);
}

static int computing(const world *w, int *out) {
    int count = 0;
    for (int i = 0; i < w->ledger.count; i++)
        if (w->ledger.workers[i].state == RPI_WORKER_COMPUTING) out[count++] = i;
    return count;
}

static void advance(world *w) {
    rpi_push_ledger *l = &w->ledger;
    for (;;) {
        int members[MOST], others[MOST], busy = computing(w, others);
        bool grace_over = draw(w, 2) != 0, quorum = rpi_ledger_has_quorum(l);
        int count = rpi_ledger_merge(l, grace_over, members);
        if (count && l->quorum && busy) CHECK(quorum && grace_over && count >= l->quorum);
        check_merge(w, members, count);
        int worker = rpi_ledger_admit(l);
        for (int x = 0; worker >= 0 && x < l->count; x++)
            w->at_start[worker][x] = (int64_t)w->merged[x];
        if (!count && worker < 0 && !(quorum && !grace_over)) return;
    }
}

static void push(world *w, int worker) {
    bool again = true;
    CHECK_OK(rpi_ledger_push(&w->ledger, worker, ++w->sent[worker], &again));
    CHECK(!again);
    if (draw(w, 4)) return;
    uint64_t version = w->ledger.version; /* the same once more, or an older one */
    CHECK_OK(rpi_ledger_push(&w->ledger, worker, w->sent[worker] - draw(w, 2), &again));
    CHECK(again && w->ledger.version == version);
    CHECK_FAILS(rpi_ledger_push(&w->ledger, worker, w->sent[worker] + 2, &again), CORRUPT,
                "is the next");
}

static void leave(world *w, int worker) {
    w->gone[worker] = true;
    if (draw(w, 2))
        rpi_ledger_lose(&w->ledger, worker);
    else
        rpi_ledger_end(&w->ledger, worker);
}

static void run(uint64_t seed) {
    world w = {.seed = seed};
    int workers = 1 + (int)draw(&w, MOST), ready[MOST];
    int64_t staleness = (int64_t)draw(&w, 5) - 1;
    int quorum = staleness && draw(&w, 2) ? 1 + (int)draw(&w, (uint32_t)workers) : 0;
    REQUIRE_OK(rpi_ledger_open(workers, staleness, quorum, &w.ledger));
    for (int i = 0; i < workers; i++) {
        int count = computing(&w, ready); /* the first push before the last has come */
        CHECK_OK(rpi_ledger_greet(&w.ledger, i));
        if (count && draw(&w, 2)) push(&w, ready[draw(&w, (uint32_t)count)]);
        if (draw(&w, 2)) advance(&w);
    }
    advance(&w);
    for (int event = 0; event < 300 && present(&w); event++) {
        int count = computing(&w, ready);
        CHECK_MSG(count > 0, "%d workers wait for ever, staleness %lld, quorum %d", present(&w),
                  (long long)staleness, quorum);
        if (!count) break;
        int worker = ready[draw(&w, (uint32_t)count)];
        if (event > 100 && draw(&w, 60) == 0)
            leave(&w, worker);
        else
            push(&w, worker);
        if (draw(&w, 2) || computing(&w, ready) == 0) advance(&w);
    }
    for (int i = 0; i < workers; i++)
        if (!w.gone[i]) leave(&w, i);
    advance(&w);
    CHECK(rpi_ledger_is_over(&w.ledger));
    for (int i = 0; i < workers; i++) CHECK_EQ(w.sent[i], w.merged[i]);
    rpi_ledger_close(&w.ledger);
}

static void random_schedules(void) {
    for (uint64_t i = 0; i < 2000 && !check_failures(); i++) run(check_seed() + i);
}

/* ---- steps, by a clock of the test's own: no time passes ---- */

/* Pushes in `ticks` of four workers of which the last takes three times as long. */
static int pushes_in(int ticks, int64_t staleness) {
    static const int cost[] = {10, 10, 10, 30};
    rpi_push_ledger ledger;
    int left[4], pushes = 0, members[4];
    uint64_t number[4] = {0};
    bool again;
    if (rpi_ledger_open(4, staleness, 0, &ledger) != RP_OK) return 0;
    for (int w = 0; w < 4; w++) CHECK_OK(rpi_ledger_greet(&ledger, w));
    for (int tick = 0; tick < ticks; tick++) {
        while (rpi_ledger_merge(&ledger, true, members) > 0) {
        }
        for (int w; (w = rpi_ledger_admit(&ledger)) >= 0;) left[w] = cost[w];
        for (int w = 0; w < 4; w++) {
            if (ledger.workers[w].state != RPI_WORKER_COMPUTING || --left[w] > 0) continue;
            CHECK_OK(rpi_ledger_push(&ledger, w, ++number[w], &again));
            pushes++;
        }
    }
    rpi_ledger_close(&ledger);
    return pushes;
}

static void a_straggler(void) {
    int all = 4 * 3000 / 10; /* if all were equally fast */
    int synchronous = pushes_in(3000, 0), bounded = pushes_in(3000, 4),
        any = pushes_in(3000, -1), tight = pushes_in(3000, 1);
    printf("of %d steps: synchronous %d, staleness 1 %d, staleness 4 %d, any %d\n", all,
           synchronous, tight, bounded, any);
    CHECK_EQ(synchronous, all / 3);
    CHECK(bounded >= all * 3 / 4);
    CHECK(any >= all * 3 / 4);
    CHECK(tight < bounded);
}

/* One merges what another has merged: when it is here, without what will not come, once. */
static void following(void) {
    rpi_push_ledger l;
    bool again;
    int members[4];
    REQUIRE_OK(rpi_ledger_open(4, -1, 2, &l));
    for (int w = 0; w < 4; w++) CHECK_OK(rpi_ledger_greet(&l, w));
    while (rpi_ledger_admit(&l) >= 0) {
    }
    CHECK_OK(rpi_ledger_push(&l, 0, 1, &again));
    CHECK_OK(rpi_ledger_push(&l, 3, 1, &again));
    CHECK(!rpi_ledger_can_follow(&l, (uint64_t[]){1, 1, 0, 0})); /* 1 is under way */
    CHECK_OK(rpi_ledger_push(&l, 1, 1, &again));
    CHECK(rpi_ledger_can_follow(&l, (uint64_t[]){1, 1, 0, 0}));
    CHECK_EQ(rpi_ledger_follow(&l, (uint64_t[]){1, 1, 0, 0}, 1, members), 2);
    CHECK(members[0] == 0 && members[1] == 1 && l.version == 1);
    CHECK_EQ(l.workers[0].updates, 0);
    CHECK_EQ(rpi_ledger_follow(&l, (uint64_t[]){1, 1, 0, 0}, 2, members), 0); /* not twice */
    CHECK_EQ(l.version, 2);
    l.workers[0].wanted = 3; /* parameters of a later version */
    CHECK_EQ(rpi_ledger_admit(&l), 1);
    CHECK_EQ(rpi_ledger_admit(&l), -1);
    CHECK(!rpi_ledger_can_follow(&l, (uint64_t[]){0, 0, 1, 1}));
    rpi_ledger_lose(&l, 2); /* its push will not come */
    CHECK(rpi_ledger_can_follow(&l, (uint64_t[]){0, 0, 1, 1}));
    rpi_ledger_lose(&l, 3); /* its push has come */
    CHECK_EQ(rpi_ledger_follow(&l, (uint64_t[]){0, 0, 1, 0}, 3, members), 0);
    CHECK_EQ(rpi_ledger_admit(&l), 0);
    CHECK_EQ(rpi_ledger_merge_rest(&l, members), 1);
    CHECK(members[0] == 3 && l.version == 3);
    CHECK_EQ(rpi_ledger_merge_rest(&l, members), 0);
    rpi_ledger_close(&l);
}

static void refused(void) {
    rpi_push_ledger ledger;
    bool again;
    REQUIRE_OK(rpi_ledger_open(2, 1, 0, &ledger));
    CHECK_FAILS(rpi_ledger_push(&ledger, 0, 1, &again), CORRUPT, "without parameters");
    CHECK_OK(rpi_ledger_greet(&ledger, 0));
    CHECK_FAILS(rpi_ledger_greet(&ledger, 0), CORRUPT, "a second time");
    CHECK_EQ(rpi_ledger_admit(&ledger), 0);
    CHECK_FAILS(rpi_ledger_push(&ledger, 0, 2, &again), CORRUPT, "number 1 is the next");
    rpi_ledger_close(&ledger);
}

CASES({"every push is merged once, no staler than allowed", random_schedules},
      {"what another has merged is merged once", following},
      {"three quarters of the steps with a straggler", a_straggler},
      {"what cannot be is refused", refused})
