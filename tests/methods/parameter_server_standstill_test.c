/* A server that never gives an answer, or none any more: all fail within the timeout, and say
 * who waits for what. One that only waits for a slow worker does not. */
#include "methods/parameter_server/parameter_server_object.h"

#include "comm/thread_world.h"

#include <unistd.h>

enum { COUNT = 600, MOST = 8, LAST = 1000 };

typedef struct job {
    rp_parameter_server_options options;
    int server;     /* whose answers stay out */
    bool holds;     /* it thinks that they may not be given; else that it has given them */
    int dawdler;    /* rank that computes for longer than the timeout, once; 0: none */
    uint64_t steps; /* 0: LAST */
    const char *words;
} job;

typedef struct place {
    const job *job;
    int rank, merges;
    rp_parameter_server *server;
    float gradient[COUNT], values[COUNT];
} place;

static void withhold(const place *p, int worker) {
    rpi_ledger_worker *one = &p->server->at.ledger.workers[worker];
    if (p->job->holds)
        one->wanted = UINT64_MAX;
    else
        one->state = RPI_WORKER_EXPECTED;
}

static rp_status merge(void *context, const rp_parameter_merge *m) {
    place *p = context;
    for (size_t i = 0; i < m->count; i++) m->values[i] -= m->gradient[i];
    if (!p->job->words || p->rank != p->job->server || ++p->merges < 4) return RP_OK;
    if (p->merges == 4 || p->job->holds) withhold(p, m->pushes[0].worker);
    return RP_OK;
}

static rp_status learn(place *p) {
    rp_parameter_server *s = p->server;
    RP_TRY(rp_parameter_server_begin(s, p->values, 0, p->job->steps ? p->job->steps : LAST));
    for (int step = 0; rp_parameter_server_goes_on(s); step++) {
        if (step == 2 && p->job->dawdler == p->rank) sleep(5);
        RP_TRY(rp_parameter_server_push(s, 1, NULL, NULL));
    }
    return rp_parameter_server_end(s);
}

static void take_part(rp_comm *comm, int rank, int world, void *context) {
    static place places[MOST];
    place *p = &places[rank];
    (void)world;
    *p = (place){.job = context, .rank = rank};
    rp_segment segment = {.data = p->gradient, .count = COUNT, .dtype = RP_F32};
    rp_parameter_server_options o = p->job->options;
    o.size = sizeof o; /* jobs without options have the defaults */
    o.merge = merge;
    o.context = p;
    REQUIRE_OK(rp_parameter_server_create(comm, &segment, 1, &o, &p->server));
    rp_status status = learn(p);
    if (p->job->words)
        CHECK_FAILS(status, TIMEOUT, p->job->words);
    else
        CHECK_OK(status);
    world_meet();
    rp_parameter_server_destroy(p->server);
}

static void run(int world, const job *j) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .timeout_s = 3);
    world_run(world, &options, take_part, (void *)(uintptr_t)j);
}

/* Ranks that learn are alive: none is left behind where others would go on. */
static void lost_on_the_way(void) {
    static const char words[] = ", which serves parameters, timed out: no progress for ";
    static const char which[] = "for what comes behind that: a message between them is lost";
    run(8, &(job){.options = RP_PARAMETER_SERVER_OPTIONS(.servers = 3, .quorum = 2,
                                                         .staleness = 2, .goes_on = 1),
                  .server = 1,
                  .words = words});
    run(4, &(job){.options = RP_PARAMETER_SERVER_OPTIONS(.servers = 2, .goes_on = 1),
                  .server = 1,
                  .words = which});
    run(3, &(job){.server = 1, .words = which});
}

static void held_back_for_ever(void) {
    run(4, &(job){.options =
                      RP_PARAMETER_SERVER_OPTIONS(.servers = 1, .staleness = RP_ANY_STALENESS),
                  .holds = true,
                  .words = "all ranks wait: rank 1 is held back behind its push "});
    run(6, &(job){.options =
                      RP_PARAMETER_SERVER_OPTIONS(.servers = 2, .staleness = RP_ANY_STALENESS,
                                                  .quorum = 2),
                  .server = 1,
                  .holds = true,
                  .words = "all ranks wait: "});
}

/* Others wait for it for longer than the timeout, and so do servers. */
static void slow(void) {
    run(4,
        &(job){.options = RP_PARAMETER_SERVER_OPTIONS(.servers = 1), .dawdler = 2, .steps = 4});
    run(6, &(job){.options = RP_PARAMETER_SERVER_OPTIONS(.servers = 2, .quorum = 2,
                                                         .staleness = 1, .goes_on = 1),
                  .dawdler = 4,
                  .steps = 8});
    run(3, &(job){.dawdler = 2, .steps = 4});
}

CASES({"an answer that is lost is named", lost_on_the_way},
      {"workers that are held back are named", held_back_for_ever},
      {"a slow worker is waited for", slow})
