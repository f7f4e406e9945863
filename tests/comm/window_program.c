#include "comm/window_program.h"

#include "base/clock.h"
#include "base/rng.h"
#include "harness/check.h"

#include <stdbool.h>
#include <stdlib.h>

enum { POTATOES = 64, STATES = 300, WORLD_MAX = 8 };
/* Own vectors of the third window, above all that is put. */
#define OWN 1e9

typedef struct part {
    rp_comm *comm;
    rpi_rng rng;
    int rank, world;
    int sources[WORLD_MAX], destinations[WORLD_MAX];
    size_t source_count, destination_count;
    rp_window *potato, *units, *states;
    double potatoes[POTATOES], own[STATES], put[STATES], seen[WORLD_MAX];
    int64_t *unit, *grains; /* of the second window: its vector, and what is sent of it */
    size_t unit_count;
    double counter;
} part;

static int below(part *p, int limit) {
    return (int)rpi_rng_below(&p->rng, (uint32_t)limit);
}

/* ---- the graph: the same on all ranks, of a stream of its own ---- */

static void make_graph(part *p, uint64_t seed) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TEST, 1000);
    for (int from = 0; from < p->world; from++)
        for (int to = 0; to < p->world; to++) {
            bool is_edge = to == (from + 1) % p->world || rpi_rng_below(&rng, 3) == 0;
            if (!is_edge || from == to) continue;
            if (from == p->rank) p->destinations[p->destination_count++] = to;
            if (to == p->rank) p->sources[p->source_count++] = from;
        }
}

static rp_status make_window(part *p, const char *name, void *data, size_t count,
                             rp_dtype dtype, rp_window **window) {
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = name, .data = data, .count = count, .dtype = dtype,
                        .sources = p->sources, .source_count = p->source_count,
                        .destinations = p->destinations,
                        .destination_count = p->destination_count, .zero_slots = 1,
                        .follow_p = data == p->potatoes);
    return rp_window_create(p->comm, &setup, window);
}

/* ---- operations ---- */

/* Half of the waits are given up soon: the operation goes on all the same. */
static void wait_or_not(part *p, rp_window_operation **operation) {
    int how = below(p, 8);
    if (how > 1) {
        rp_window_operation_free(operation);
        return;
    }
    rp_status status = rp_window_wait(operation, how ? 20 : 1e-4);
    CHECK_MSG(status == RP_OK || (status == RP_TIMEOUT && !how), "rank %d: %s", p->rank,
              rp_last_error()->message);
    rp_window_operation_free(operation);
}

/* Everything to one neighbour, or twice to one and the loss of it kept: whole numbers. */
static void pass_potato(part *p) {
    rp_window_operation *operation = NULL;
    int to = p->destinations[below(p, (int)p->destination_count)];
    rp_neighbor target = {to, 1};
    rp_window_send send =
        RP_WINDOW_SEND(.targets = &target, .count = 1, .scales = 1, .mutex = below(p, 4) == 0);
    CHECK_OK(rp_window_accumulate(p->potato, NULL, POTATOES, &send, &operation));
    wait_or_not(p, &operation);
}

static void send_grains(part *p) {
    rp_window_operation *operation = NULL;
    rp_neighbor targets[WORLD_MAX];
    size_t count = 0;
    int64_t total = 0;
    for (size_t i = 0; i < p->destination_count; i++) {
        if (below(p, 2)) continue;
        int weight = below(p, 7) - 3;
        targets[count++] = (rp_neighbor){p->destinations[i], weight};
        total += weight;
    }
    for (size_t i = 0; i < p->unit_count; i++) p->grains[i] = below(p, 100);
    for (size_t i = 0; i < p->unit_count; i++) p->unit[i] -= total * p->grains[i];
    rp_window_send send = RP_WINDOW_SEND(.targets = targets, .count = count);
    CHECK_OK(rp_window_accumulate(p->units, p->grains, p->unit_count, &send, &operation));
    wait_or_not(p, &operation);
}

static void collect(part *p, rp_window *window) {
    rp_window_mix mix =
        RP_WINDOW_MIX(.self_weight = 1, .reset = 1, .mutex = below(p, 4) == 0, .timeout_s = 60);
    CHECK_OK(rp_window_update(window, &mix, NULL));
}

static void put_state(part *p) {
    rp_window_operation *operation = NULL;
    p->counter++;
    for (int i = 0; i < STATES; i++) p->put[i] = p->counter;
    CHECK_OK(rp_window_put(p->states, p->put, STATES, NULL, &operation));
    wait_or_not(p, &operation);
}

static void get_state(part *p) {
    rp_window_operation *operation = NULL;
    rp_neighbor source = {p->sources[below(p, (int)p->source_count)], 2};
    CHECK_OK(rp_window_get(p->states, &source, 1, 0, &operation));
    wait_or_not(p, &operation);
}

/* All of one push, none older than what was there. */
static void look_at_state(part *p, int source) {
    double slot[STATES];
    CHECK_OK(rp_window_read(p->states, source, slot, NULL));
    for (int i = 1; i < STATES; i++)
        if (slot[i] != slot[0]) {
            CHECK_MSG(slot[i] == slot[0], "rank %d: half of a push from %d: %g and %g", p->rank,
                      source, slot[0], slot[i]);
            return;
        }
    bool is_own = slot[0] == 2 * (OWN + source);
    CHECK_MSG(is_own || slot[0] >= p->seen[source], "rank %d: %g of rank %d after %g", p->rank,
              slot[0], source, p->seen[source]);
    if (!is_own) p->seen[source] = slot[0];
}

static void take_mutexes(part *p) {
    rp_window *window = below(p, 2) ? p->potato : p->units;
    int own = below(p, 2);
    rp_status status = rp_window_lock(window, NULL, 0, own, below(p, 2) ? 1e-3 : 30);
    if (status == RP_TIMEOUT) return;
    CHECK_OK(status);
    if (below(p, 2)) pass_potato(p);
    CHECK_OK(rp_window_unlock(window, NULL, 0, own));
}

static void operate(part *p, const window_program *program) {
    int what = below(p, 100);
    if (what < 22)
        pass_potato(p);
    else if (what < 40)
        collect(p, p->potato);
    else if (what < 58)
        send_grains(p);
    else if (what < 70)
        collect(p, p->units);
    else if (what < 80)
        put_state(p);
    else if (what < 85)
        get_state(p);
    else if (what < 93)
        look_at_state(p, p->sources[below(p, (int)p->source_count)]);
    else if (what < 96)
        take_mutexes(p);
    else if (what < 97)
        CHECK_OK(rp_window_flush(p->units, 60));
    else
        rpi_sleep_until_ns(rpi_now_ns() + 1000 * (int64_t)below(p, program->pauses_us + 1));
}

/* ---- what must hold ---- */

static void settle(part *p, rp_window *window) {
    CHECK_OK(rp_window_flush(window, 60));
    CHECK_OK(rp_barrier(p->comm));
    rp_window_mix all = RP_WINDOW_MIX(.self_weight = 1, .reset = 1);
    CHECK_OK(rp_window_update(window, &all, NULL));
}

static double start_of(int rank, int i) {
    return i < POTATOES / 2 ? 1 : 1000 * rank + i;
}

static void check_potatoes(part *p) {
    settle(p, p->potato);
    double own_p = rp_window_p(p->potato), sum[POTATOES + 1];
    for (int i = 0; i < POTATOES / 2; i++)
        CHECK_MSG(p->potatoes[i] == own_p, "rank %d: p is %g, and what was 1 is %g", p->rank,
                  own_p, p->potatoes[i]);
    memcpy(sum, p->potatoes, sizeof p->potatoes);
    sum[POTATOES] = own_p;
    rp_segment all = {.data = sum, .count = POTATOES + 1, .dtype = RP_F64};
    CHECK_OK(rp_all_reduce(p->comm, &all, 1, NULL));
    CHECK_MSG(sum[POTATOES] == p->world, "p comes to %g, not %d", sum[POTATOES], p->world);
    for (int i = 0; i < POTATOES; i++) {
        double want = 0;
        for (int rank = 0; rank < p->world; rank++) want += start_of(rank, i);
        CHECK_MSG(sum[i] == want, "element %d comes to %g, not %g", i, sum[i], want);
    }
}

static void check_units(part *p) {
    settle(p, p->units);
    rp_segment all = {.data = p->unit, .count = p->unit_count, .dtype = RP_I64};
    CHECK_OK(rp_all_reduce(p->comm, &all, 1, NULL));
    for (size_t i = 0; i < p->unit_count; i++)
        if (p->unit[i] != (int64_t)p->world * (int64_t)i) {
            CHECK_MSG(false, "unit %zu comes to %lld, not %lld", i, (long long)p->unit[i],
                      (long long)p->world * (long long)i);
            return;
        }
}

/* The last put of everybody is there, unless a get came behind it. */
static void check_states(part *p) {
    double counters[WORLD_MAX];
    CHECK_OK(rp_window_flush(p->states, 60));
    CHECK_OK(rp_all_gather(p->comm, &p->counter, counters, 1, RP_F64, NULL, NULL));
    for (size_t i = 0; i < p->source_count; i++) {
        int source = p->sources[i];
        look_at_state(p, source);
        CHECK_MSG(p->seen[source] == counters[source] || counters[source] == 0 ||
                      p->seen[source] <= counters[source],
                  "rank %d has %g of rank %d, which put %g", p->rank, p->seen[source], source,
                  counters[source]);
    }
}

void window_program_run(rp_comm *comm, const window_program *program) {
    part *p = calloc(1, sizeof *p);
    *p = (part){.comm = comm, .rank = rp_comm_rank(comm), .world = rp_comm_world(comm)};
    p->rng = rpi_rng_make(program->seed, RPI_RNG_TEST, (uint64_t)p->rank);
    make_graph(p, program->seed);
    static const size_t counts[] = {3, 1000, 40000};
    p->unit_count = counts[program->seed % 3];
    p->unit = calloc(p->unit_count, sizeof *p->unit);
    p->grains = calloc(p->unit_count, sizeof *p->grains);
    for (int i = 0; i < POTATOES; i++) p->potatoes[i] = start_of(p->rank, i);
    for (size_t i = 0; i < p->unit_count; i++) p->unit[i] = (int64_t)i;
    for (int i = 0; i < STATES; i++) p->own[i] = OWN + p->rank;
    CHECK_OK(make_window(p, "potato", p->potatoes, POTATOES, RP_F64, &p->potato));
    CHECK_OK(make_window(p, "units", p->unit, p->unit_count, RP_I64, &p->units));
    CHECK_OK(make_window(p, "states", p->own, STATES, RP_F64, &p->states));
    for (int i = 0; i < program->operations && !check_failures(); i++) operate(p, program);
    if (!check_failures()) {
        check_potatoes(p);
        check_units(p);
        check_states(p);
    }
    CHECK_OK(rp_window_free(&p->states));
    CHECK_OK(rp_window_free(&p->units));
    CHECK_OK(rp_window_free(&p->potato));
    free(p->unit);
    free(p->grains);
    free(p);
}
