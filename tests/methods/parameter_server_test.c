/* Parameter servers over threads: synchronous steps against the serial ones bit for bit, every
 * push merged once on each shard, the staleness kept whatever the delays. */
#include "redpoll/parameter_server.h"

#include "base/clock.h"
#include "comm/core/communicator.h"
#include "comm/thread_world.h"
#include "methods/parameter_server/parameter_server_object.h"
#include "redpoll/rng.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { COUNT = 1000, FIRST = 700, MOST = 8, STEPS = 20, MERGES = 1000 };

typedef struct job {
    rp_parameter_server_options options;
    const char *codec;
    int steps, spans;
    uint64_t seed; /* of delays; 0: none */
    bool constant; /* gradients are 1: counts what is merged */
    /* What came of it. */
    float values[COUNT];
    atomic_int pushes, merges, stalest, incomplete;
    atomic_int merged[MOST];        /* on each server, */
    uint32_t members[MOST][MERGES]; /* a bit for each worker in it */
} job;

typedef struct place {
    job *job;
    int rank;
    float values[COUNT], gradient[COUNT], residual[COUNT], momentum[COUNT];
} place;

static void note_members(job *j, int server, const rp_parameter_merge *m) {
    int number = j->merged[server]++;
    if (number >= MERGES) return;
    j->members[server][number] = 0;
    for (int i = 0; i < m->push_count; i++)
        j->members[server][number] |= 1U << m->pushes[i].worker;
}

/* SGD with momentum, as any optimizer: state of its own by element. */
static rp_status merge(void *context, const rp_parameter_merge *m) {
    place *p = context;
    job *j = p->job;
    for (size_t i = 0; i < m->count; i++) {
        float *momentum = &p->momentum[m->first + i];
        *momentum = (j->constant ? 0 : .9f) * *momentum + m->gradient[i];
        m->values[i] -= (j->constant ? 1 : .1f) * *momentum;
    }
    for (int i = 0; i < m->push_count; i++) {
        CHECK(m->pushes[i].weight == .25);
        CHECK(m->pushes[i].notes[1] == (double)m->pushes[i].worker);
        CHECK(m->pushes[i].notes[0] == (double)m->pushes[i].number);
        if (m->pushes[i].staleness > j->stalest) j->stalest = (int)m->pushes[i].staleness;
    }
    CHECK_NEAR(m->weight, .25 * m->push_count, 1e-12);
    note_members(j, p->rank, m);
    if (!m->is_complete) j->incomplete++;
    if (m->first > 0) return RP_OK;
    j->pushes += m->push_count;
    j->merges++;
    return RP_OK;
}

/* A gradient that depends on the parameters, the worker and the step. */
static void compute(int worker, int step, const float *x, float *g) {
    for (int i = 0; i < COUNT; i++)
        g[i] = .25f * (x[i] - (float)((worker * 7 + i * 3 + step) % 11) * .1f);
}

static void dawdle(uint64_t seed, int worker, int step) {
    uint32_t numbers[4];
    if (!seed) return;
    rp_philox4x32((uint32_t[4]){(uint32_t)step, (uint32_t)worker},
                  (uint32_t[2]){(uint32_t)seed, 1}, numbers);
    if (numbers[0] % 4 == 0) rpi_sleep_until_ns(rpi_now_ns() + numbers[1] % 2000000);
}

static void learn(rp_parameter_server *s, place *p) {
    job *j = p->job;
    int worker = rp_parameter_server_worker(s);
    static _Thread_local int step;
    step = 0;
    for (int span = 0; span < j->spans; span++) {
        uint64_t first = (uint64_t)(span * j->steps);
        CHECK_OK(rp_parameter_server_begin(s, p->values, first, (uint64_t)j->steps));
        while (rp_parameter_server_goes_on(s)) {
            rp_parameter_report report = {0};
            compute(worker, step, p->values, p->gradient);
            for (int i = 0; j->constant && i < COUNT; i++) p->gradient[i] = 1;
            dawdle(j->seed, worker, step);
            step++;
            if (step % 2) CHECK_OK(rp_parameter_server_final(s, FIRST));
            double notes[RP_PUSH_NOTES] = {step, worker};
            CHECK_OK(rp_parameter_server_push(s, .25, notes, &report));
            if (check_failures()) return;
        }
        CHECK_OK(rp_parameter_server_end(s));
    }
}

static void take_part(rp_comm *comm, int rank, int world, void *context) {
    job *j = context;
    (void)world;
    place *p = calloc(1, sizeof *p);
    REQUIRE(p);
    p->job = j;
    p->rank = rank;
    rp_codec codec = {0};
    if (j->codec) CHECK_OK(rp_codec_parse(j->codec, &codec));
    rp_segment segments[] = {
        {.data = p->gradient,
         .count = FIRST,
         .dtype = RP_F32,
         .codec = codec,
         .residual = j->codec ? p->residual : NULL},
        {.data = p->gradient + FIRST, .count = COUNT - FIRST, .dtype = RP_F32, .tensor = 1}};
    rp_parameter_server_options o = j->options;
    o.size = sizeof o; /* jobs without options have the defaults */
    o.merge = merge;
    o.context = p;
    rp_parameter_server *s = NULL;
    REQUIRE_OK(rp_parameter_server_create(comm, segments, 2, &o, &s));
    learn(s, p);
    CHECK_OK(rp_parameter_server_gather(s, p->momentum));
    CHECK(rp_parameter_server_comm(s) == comm);
    if (rank == 0) memcpy(j->values, p->values, sizeof p->values);
    world_meet();
    CHECK(memcmp(j->values, p->values, sizeof p->values) == 0); /* all have the same */
    rp_parameter_server_destroy(s);
    free(p);
}

/* ---- synchronous ---- */

static void serial(int workers, int steps, float *x) {
    static float momentum[COUNT], sum[COUNT], g[COUNT];
    memset(momentum, 0, sizeof momentum);
    memset(x, 0, COUNT * sizeof *x);
    for (int step = 0; step < steps; step++) {
        for (int w = 0; w < workers; w++) {
            compute(w, step, x, g);
            for (int i = 0; i < COUNT; i++) sum[i] = w ? sum[i] + g[i] : g[i];
        }
        for (int i = 0; i < COUNT; i++) {
            momentum[i] = .9f * momentum[i] + sum[i];
            x[i] -= .1f * momentum[i];
        }
    }
}

static void run(job *j, int world) {
    if (!j->spans) j->spans = 1;
    if (!j->steps) j->steps = STEPS;
    j->pushes = j->merges = j->stalest = j->incomplete = 0;
    for (int i = 0; i < MOST; i++) j->merged[i] = 0;
    world_run(world, NULL, take_part, j);
}

static void synchronous(void) {
    static float wanted[COUNT];
    serial(4, 2 * STEPS, wanted);
    for (int servers = 0; servers <= 3; servers++) {
        job j = {.options = RP_PARAMETER_SERVER_OPTIONS(.servers = servers),
                 .spans = 2,
                 .seed = check_seed()};
        run(&j, 4 + servers);
        CHECK_MSG(memcmp(j.values, wanted, sizeof wanted) == 0, "%d servers", servers);
        CHECK_EQ(j.merges, 2 * STEPS);
        CHECK_EQ(j.pushes, 2 * STEPS * 4);
        CHECK_EQ(j.stalest, 0);
        CHECK_EQ(j.incomplete, 0);
    }
}

/* Any number of servers gives the same bits, also where pushes are rounded at random. */
static void codecs(void) {
    static const char *const all[] = {"q4:bucket=64,rounding=stochastic", "topk:k=8,bucket=64",
                                      "randk:k=8,bucket=64", "bf16"};
    rp_codec codec;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (rp_codec_parse(all[i], &codec) != RP_OK) continue;
        job one = {.codec = all[i],
                   .options = RP_PARAMETER_SERVER_OPTIONS(.servers = 1, .seed = 5)};
        run(&one, 4);
        for (int servers = 0; servers <= 3; servers += 3) {
            job other = {.codec = all[i],
                         .options = RP_PARAMETER_SERVER_OPTIONS(.servers = servers, .seed = 5)};
            run(&other, 3 + servers);
            CHECK_MSG(memcmp(one.values, other.values, sizeof one.values) == 0,
                      "%s, %d servers", all[i], servers);
        }
    }
}

/* ---- the others: each push is merged once on every shard ---- */

static void check_counts(const job *j, int workers) {
    int pushes = j->steps * j->spans * workers;
    CHECK_EQ(j->pushes, pushes);
    for (int i = 0; i < COUNT; i++)
        CHECK_MSG(j->values[i] == (float)-pushes, "element %d: %g of %d pushes", i,
                  (double)-j->values[i], pushes);
}

static void interleavings(void) {
    static const int64_t staleness[] = {1, 2, 4, RP_ANY_STALENESS};
    uint64_t seed = check_seed();
    for (size_t i = 0; i < sizeof staleness / sizeof staleness[0]; i++)
        for (int servers = 0; servers <= 2; servers++) {
            job j = {.options = RP_PARAMETER_SERVER_OPTIONS(.servers = servers,
                                                            .staleness = staleness[i]),
                     .constant = true,
                     .spans = 2,
                     .seed = seed + i};
            run(&j, 4 + servers);
            check_counts(&j, 4);
            CHECK_EQ(j.merges, j.pushes);
            if (staleness[i] >= 0)
                CHECK_MSG(j.stalest <= staleness[i], "%d steps old, %lld allowed", j.stalest,
                          (long long)staleness[i]);
        }
}

/* Shards are merged by the same pushes, in the same order. */
static void check_members(const job *j, int servers) {
    for (int server = 1; server < servers; server++) {
        CHECK_EQ(j->merged[server], j->merged[0]);
        for (int i = 0; i < j->merged[0] && i < MERGES; i++)
            CHECK_MSG(j->members[server][i] == j->members[0][i],
                      "merge %d has workers %x on server %d, %x on the first", i,
                      j->members[server][i], server, j->members[0][i]);
    }
}

static void run_quorum(int servers, int64_t staleness, int quorum) {
    static job j;
    j = (job){.options = RP_PARAMETER_SERVER_OPTIONS(.servers = servers, .staleness = staleness,
                                                     .quorum = quorum,
                                                     .grace_s = quorum == 3 ? .001 : 0),
              .constant = true,
              .spans = 2,
              .seed = check_seed() + (uint64_t)quorum};
    run(&j, 4 + servers);
    check_counts(&j, 4);
    CHECK(j.merges <= j.pushes);
    check_members(&j, servers ? servers : 4);
    if (staleness >= 0)
        CHECK_MSG(j.stalest <= staleness, "%d steps old, %lld allowed", j.stalest,
                  (long long)staleness);
}

static void quorums(void) {
    for (int servers = 0; servers <= 3; servers++)
        for (int64_t staleness = RP_ANY_STALENESS; staleness <= 2; staleness += 3)
            for (int quorum = 1; quorum <= 4; quorum++) run_quorum(servers, staleness, quorum);
}

/* Bit for bit, whoever serves. */
static void a_quorum_of_all_is_synchronous(void) {
    static float wanted[COUNT];
    serial(4, STEPS, wanted);
    for (int servers = 0; servers <= 3; servers++) {
        job j = {.options = RP_PARAMETER_SERVER_OPTIONS(.servers = servers,
                                                        .staleness = RP_ANY_STALENESS,
                                                        .quorum = 4, .grace_s = 0),
                 .seed = check_seed()};
        run(&j, 4 + servers);
        CHECK_MSG(memcmp(j.values, wanted, sizeof wanted) == 0, "%d servers", servers);
        CHECK_EQ(j.merges, STEPS);
    }
}

/* Three of four workers are there: a step is as many pushes as it was with all of them, and no
 * synchronous merge is of all. */
static void workers_that_are_missing(void) {
    job synchronous = {.options = RP_PARAMETER_SERVER_OPTIONS(.servers = 2, .workers = 4)};
    run(&synchronous, 5);
    CHECK_EQ(synchronous.merges, STEPS);
    CHECK_EQ(synchronous.incomplete, 2 * STEPS); /* on each server */
    job stale = {.options =
                     RP_PARAMETER_SERVER_OPTIONS(.servers = 1, .workers = 4, .staleness = 2),
                 .constant = true,
                 .spans = 2};
    run(&stale, 4);
    check_counts(&stale, 4);
    job quorum = {.options = RP_PARAMETER_SERVER_OPTIONS(.servers = 1, .workers = 4,
                                                         .staleness = -1, .quorum = 4),
                  .constant = true};
    run(&quorum, 4);
    check_counts(&quorum, 4);
}

static void other_transports(void) {
    static const char *const transports[] = {"shm", "tcp"};
    static float wanted[COUNT];
    serial(3, STEPS, wanted);
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++)
        for (int servers = 0; servers <= 2; servers += 2) {
            rp_comm_options options = RP_COMM_OPTIONS(.transport = transports[i]);
            job j = {.options = RP_PARAMETER_SERVER_OPTIONS(.servers = servers),
                     .spans = 1,
                     .steps = STEPS};
            world_run(3 + servers, &options, take_part, &j);
            CHECK_MSG(memcmp(j.values, wanted, sizeof wanted) == 0, "%s, %d servers",
                      transports[i], servers);
        }
}

static void alone(void) {
    static float wanted[COUNT];
    serial(1, STEPS, wanted);
    job j = {.options = RP_PARAMETER_SERVER_OPTIONS()};
    run(&j, 1);
    CHECK(memcmp(j.values, wanted, sizeof wanted) == 0);
}

/* ---- a straggler, by counts ---- */

typedef struct race {
    int64_t staleness;
    atomic_int done[MOST];
    float values[COUNT];
} race;

static rp_status count_push(void *context, const rp_parameter_merge *m) {
    race *r = context;
    for (int i = 0; i < m->push_count; i++) r->done[m->pushes[i].worker]++;
    return RP_OK;
}

/* The last worker makes a step when each other has made three, or cannot go on without it. */
static bool others_are_ahead(race *r, int own) {
    for (int w = 0; w < 3; w++)
        if (r->done[w] < 3 * (own + 1) && (r->staleness != 0 || r->done[w] < own)) return false;
    return true;
}

static void run_race(rp_comm *comm, int rank, int world, void *context) {
    race *r = context;
    static float gradient[MOST][COUNT], values[MOST][COUNT];
    rp_segment segment = {.data = gradient[rank], .count = COUNT, .dtype = RP_F32};
    rp_parameter_server_options o =
        RP_PARAMETER_SERVER_OPTIONS(.servers = 1, .staleness = r->staleness,
                                    .merge = count_push, .context = r);
    rp_parameter_server *s = NULL;
    REQUIRE_OK(rp_parameter_server_create(comm, &segment, 1, &o, &s));
    CHECK_OK(rp_parameter_server_begin(s, values[rank], 0, 30));
    bool is_slow = rank == world - 1;
    for (int own = 0; rp_parameter_server_goes_on(s); own++) {
        while (is_slow && r->staleness && !others_are_ahead(r, own) &&
               r->done[0] + r->done[1] + r->done[2] + own + 1 < 30 * 4)
            rpi_sleep_until_ns(rpi_now_ns() + 100000);
        CHECK_OK(rp_parameter_server_push(s, 1, NULL, NULL));
        if (check_failures()) break;
    }
    CHECK_OK(rp_parameter_server_end(s));
    rp_parameter_server_destroy(s);
}

/* Of 30 steps of 4 workers, 120 pushes, the slow one's are a tenth: the others make the rest,
 * 36 each. In lockstep they would have made three each for one of its, 30 for 30. */
static void a_straggler_costs_its_own_steps(void) {
    static const int64_t staleness[] = {4, RP_ANY_STALENESS};
    for (size_t i = 0; i < sizeof staleness / sizeof staleness[0]; i++) {
        race r = {.staleness = staleness[i]};
        world_run(5, NULL, run_race, &r);
        int all = 0;
        for (int w = 0; w < 4; w++) all += r.done[w];
        printf("staleness %lld: %d %d %d and %d pushes\n", (long long)staleness[i], r.done[0],
               r.done[1], r.done[2], r.done[3]);
        CHECK_EQ(all, 120);
        CHECK(r.done[3] <= 15);
        CHECK(r.done[0] + r.done[1] + r.done[2] >= 3 * 30);
    }
    race lockstep = {.staleness = 0};
    world_run(5, NULL, run_race, &lockstep);
    for (int w = 0; w < 4; w++) CHECK_EQ(lockstep.done[w], 30);
}

/* ---- one that cannot go on ---- */

static rp_status refuse(void *context, const rp_parameter_merge *m) {
    (void)context;
    return m->step == 2 ? RP_FAIL(IO, "the disk of this server is full") : RP_OK;
}

static void fail_together(rp_comm *comm, int rank, int world, void *context) {
    const rp_parameter_server_options *given = context;
    static float gradient[MOST][COUNT], values[MOST][COUNT];
    (void)world;
    rp_segment segment = {.data = gradient[rank], .count = COUNT, .dtype = RP_F32};
    rp_parameter_server_options o = *given;
    rp_status status = RP_OK;
    rp_parameter_server *s = NULL;
    o.merge = refuse;
    REQUIRE_OK(rp_parameter_server_create(comm, &segment, 1, &o, &s));
    status = rp_parameter_server_begin(s, values[rank], 0, 100);
    while (status == RP_OK && rp_parameter_server_goes_on(s))
        status = rp_parameter_server_push(s, 1, NULL, NULL);
    if (status == RP_OK) status = rp_parameter_server_end(s);
    CHECK_FAILS(status, IO, "the disk of this server is full");
    world_meet();
    rp_parameter_server_destroy(s);
}

static void a_failure_is_everybodys(void) {
    for (int servers = 0; servers <= 2; servers++) {
        rp_parameter_server_options o = RP_PARAMETER_SERVER_OPTIONS(.servers = servers);
        world_run(3 + servers, NULL, fail_together, &o);
    }
}

static void refused(void) {
    const struct {
        rp_parameter_server_options options;
        const char *words;
    } bad[] = {
        {{.servers = 4}, "take at most 3"},
        {{.servers = -1}, "-1 servers"},
        {{.staleness = -2}, "a staleness of -2"},
        {{.servers = 1, .quorum = 4, .staleness = 1}, "a quorum of 4 of 3 workers"},
        {{.quorum = 2}, "say staleness=inf"},
        {{.quorum = 2, .servers = 1, .staleness = -1, .grace_s = -1}, "a grace of -1 s"},
        {{.staleness = 1, .grace_s = 1}, "say quorum=K"},
        {{.goes_on = 1}, "servers=1 or more"},
        {{.servers = 1, .workers = 2}, "shared among 2 workers, and 3 are there"},
        {{.workers = -1}, "shared among -1 workers"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rp_parameter_server_options options = bad[i].options;
        options.size = sizeof options;
        CHECK_FAILS(rp_parameter_server_check(&options, 4), INVALID, bad[i].words);
    }
    CHECK_OK(rp_parameter_server_check(
        &(rp_parameter_server_options)RP_PARAMETER_SERVER_OPTIONS(.servers = 4), 0));
}

/* ---- orders of the first of two servers ---- */

/* So many workers that an order waits for its receiver; more orders than slots. */
enum { MANY = 3000, SLOTS = 2, ORDERS = 5, TOKEN = 9 };

static void open_orders(rp_parameter_server *s, rp_comm *comm, int rank) {
    rp_completions *queue = s->at.queue;
    *s = (rp_parameter_server){.comm = comm,
                               .options = RP_PARAMETER_SERVER_OPTIONS(.servers = 2),
                               .server_count = 2,
                               .workers = MANY,
                               .server = rank,
                               .worker = -1,
                               .first_merges = true,
                               .at.queue = queue};
    pthread_mutex_init(&s->handover.lock, NULL);
    s->at.members = calloc(MANY, sizeof *s->at.members);
    REQUIRE(s->at.members != NULL);
    REQUIRE_OK(rpi_ledger_open(MANY, RP_ANY_STALENESS, 1, &s->at.ledger));
    REQUIRE_OK(rpi_push_orders_open(s));
    s->at.orders.comms[!rank] = comm;
    if (rank == 0) s->at.orders.slots = SLOTS;
}

static void close_orders(rp_parameter_server *s) {
    rpi_push_orders_close(s);
    rpi_ledger_close(&s->at.ledger);
    free(s->at.members);
    pthread_mutex_destroy(&s->handover.lock);
}

static bool is_idle(rp_parameter_server *s) {
    pthread_mutex_lock(&s->handover.lock);
    bool idle = s->waits.idle;
    pthread_mutex_unlock(&s->handover.lock);
    return idle;
}

static void give_orders(rp_parameter_server *s) {
    rpi_push_orders *o = &s->at.orders;
    CHECK_OK(rpi_push_expect_order(s, TOKEN)); /* from nobody */
    CHECK(!o->requests[0]);
    for (int n = 1; n <= ORDERS; n++) {
        s->at.ledger.version = (uint64_t)n;
        s->at.ledger.workers[n].merged = 7 * (uint64_t)n;
        s->at.members[0] = n;
        CHECK_OK(rpi_push_order(s, 1));
        CHECK(!is_idle(s));
    }
    CHECK_OK(rpi_push_order_end(s));
    CHECK(!is_idle(s));
    for (int slot = 0; slot < SLOTS; slot++) CHECK(!o->requests[2 * slot + 1]);
}

static void await_order(rp_parameter_server *s) {
    uint64_t token = 0;
    size_t count = 0;
    CHECK_OK(rpi_push_expect_order(s, TOKEN));
    CHECK_OK(rp_completions_wait(s->at.queue, 20, &token, 1, &count));
    CHECK(count == 1 && token == TOKEN);
    CHECK_OK(rpi_push_receive_order(s));
}

static void take_orders(rp_parameter_server *s) {
    rpi_push_orders *o = &s->at.orders;
    bool heeded = false;
    for (int n = 1; n <= ORDERS; n++) {
        await_order(s);
        for (int w = 0; w < MANY; w++) CHECK_EQ(o->numbers[w], w == n ? 7 * n : 0);
        s->at.ledger.workers[n].state = RPI_WORKER_COMPUTING;
        CHECK_EQ(rpi_push_follow(s, s->at.members, &heeded), 0);
        CHECK(!heeded && o->has_order); /* the push is under way */
        s->at.ledger.workers[n].received = 7 * (uint64_t)n;
        (void)rpi_push_follow(s, s->at.members, &heeded);
        CHECK(heeded && !o->has_order);
        CHECK_EQ(s->at.ledger.version, n);
    }
    await_order(s);
    (void)rpi_push_follow(s, s->at.members, &heeded);
    CHECK(!heeded && o->is_over);
    o->comms[0] = NULL;
    CHECK_EQ(rpi_push_expect_order(s, TOKEN), RP_INVALID);
}

static void pass_orders(rp_comm *comm, int rank, int world, void *context) {
    rp_parameter_server *servers = context;
    (void)world;
    open_orders(&servers[rank], comm, rank);
    world_meet();
    if (rank == 0) give_orders(&servers[0]);
    int64_t deadline_ns = rpi_deadline_ns(20);
    while (rank == 1 && !is_idle(&servers[0]) && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + 1000000);
    if (rank == 1) CHECK(is_idle(&servers[0])); /* its slots are full: it waits, and says so */
    if (rank == 1) take_orders(&servers[1]);
    world_meet();
    close_orders(&servers[rank]);
}

static void orders_are_heeded_in_turn(void) {
    static rp_parameter_server servers[2];
    rp_comm_options options = RP_COMM_OPTIONS(.progress_thread = 1);
    REQUIRE_OK(rp_completions_create(&servers[1].at.queue));
    world_run(2, &options, pass_orders, servers);
    rp_completions_destroy(servers[1].at.queue); /* communicators are gone */
}

CASES({"synchronous steps are the serial ones", synchronous},
      {"codecs, with any number of servers", codecs},
      {"every push is merged once, within the staleness", interleavings}, {"quorums", quorums},
      {"a quorum of all is synchronous", a_quorum_of_all_is_synchronous},
      {"workers that are missing", workers_that_are_missing},
      {"every transport", other_transports}, {"a world of one", alone},
      {"a straggler costs its own steps", a_straggler_costs_its_own_steps},
      {"a failure is everybody's", a_failure_is_everybodys},
      {"orders are heeded in turn", orders_are_heeded_in_turn},
      {"what cannot be is refused", refused})
