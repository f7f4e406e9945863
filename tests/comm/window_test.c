/* Windows: closed forms of every call, on ranks as threads. */
#include "comm/thread_world.h"
#include "redpoll/window.h"

#include "base/clock.h"
#include "base/memory.h"
#include "comm/core/communicator.h"

#include <stdbool.h>
#include <stdlib.h>

enum { COUNT = 10 };

/* A ring of all ranks, both ways, but for what a test says. */
typedef struct ring {
    int sources[2], destinations[2];
    rp_window_setup setup;
    double x[COUNT];
} ring;

static void ring_of(ring *r, int rank, int world, const char *name) {
    int left = (rank + world - 1) % world, right = (rank + 1) % world;
    size_t count = left == right ? 1 : 2;
    *r = (ring){.sources = {left, right}, .destinations = {left, right}};
    for (int i = 0; i < COUNT; i++) r->x[i] = rank;
    r->setup =
        (rp_window_setup)RP_WINDOW_SETUP(.name = name, .data = r->x, .count = COUNT,
                                         .dtype = RP_F64, .sources = r->sources,
                                         .source_count = count, .destinations = r->destinations,
                                         .destination_count = count);
}

static void check_all(const double *x, double want, int rank, const char *what) {
    for (int i = 0; i < COUNT; i++)
        if (fabs(x[i] - want) > 1e-12) {
            CHECK_MSG(false, "rank %d, %s: element %d is %.17g, not %.17g", rank, what, i, x[i],
                      want);
            return;
        }
}

static void put_and_wait(rp_window *window, const rp_window_send *send) {
    rp_window_operation *operation = NULL;
    REQUIRE_OK(rp_window_put(window, NULL, COUNT, send, &operation));
    CHECK_OK(rp_window_wait(&operation, 20));
    CHECK(operation == NULL);
}

/* ---- update ---- */

static void mean_of_neighbours(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    ring r;
    rp_window *window = NULL;
    ring_of(&r, rank, world, "mean");
    REQUIRE_OK(rp_window_create(comm, &r.setup, &window));
    int left = r.sources[0], right = r.sources[1];
    /* Slots begin as copies of the own vector. */
    CHECK_OK(rp_window_update(window, NULL, NULL));
    check_all(r.x, rank, rank, "nothing put");
    CHECK_EQ(rp_window_version(window, left), 0);
    CHECK_OK(rp_barrier(comm));
    put_and_wait(window, NULL);
    CHECK_OK(rp_barrier(comm));
    CHECK_EQ(rp_window_version(window, left), 1);
    double output[COUNT];
    CHECK_OK(rp_window_update(window, NULL, output));
    double mean = world == 2 ? (rank + left) / 2.0 : (rank + left + right) / 3.0;
    check_all(output, mean, rank, "mean, beside x");
    check_all(r.x, rank, rank, "x stays");
    CHECK_EQ(rp_window_version(window, left), 0);
    rp_neighbor one = {left, 0.25};
    rp_window_mix mix =
        RP_WINDOW_MIX(.self_weight = 0.5, .sources = &one, .count = 1, .reset = 1);
    CHECK_OK(rp_window_update(window, &mix, NULL));
    check_all(r.x, 0.5 * rank + 0.25 * left, rank, "weights");
    CHECK_OK(rp_window_read(window, left, output, NULL));
    check_all(output, 0, rank, "a slot that was reset");
    if (world > 2) CHECK_OK(rp_window_read(window, right, output, NULL));
    if (world > 2) check_all(output, right, rank, "a slot that was not used");
    CHECK_OK(rp_window_free(&window));
    CHECK(window == NULL);
}

static void means(void) {
    for (int world = 2; world <= 4; world++) world_run(world, NULL, mean_of_neighbours, NULL);
}

/* ---- put, accumulate, get ---- */

static void weights_and_versions(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    ring r;
    rp_window *window = NULL;
    rp_window_operation *operation = NULL;
    ring_of(&r, rank, world, "weights");
    r.setup.zero_slots = 1;
    REQUIRE_OK(rp_window_create(comm, &r.setup, &window));
    int left = r.sources[0];
    double slot[COUNT], other[COUNT];
    rp_neighbor halves[] = {{r.destinations[0], 0.5}, {r.destinations[1], 2}};
    rp_window_send send =
        RP_WINDOW_SEND(.targets = halves, .count = 2, .scales = 1, .self_weight = 3);
    put_and_wait(window, &send);
    check_all(r.x, 3 * rank, rank, "what is kept");
    CHECK_OK(rp_barrier(comm));
    CHECK_OK(rp_window_read(window, left, slot, NULL)); /* we are its right neighbour */
    check_all(slot, 2 * left, rank, "put with a weight");
    CHECK_OK(rp_barrier(comm));
    for (int i = 0; i < COUNT; i++) other[i] = 10;
    rp_window_send add = RP_WINDOW_SEND(.targets = halves, .count = 2);
    REQUIRE_OK(rp_window_accumulate(window, other, COUNT, &add, &operation));
    CHECK_OK(rp_window_wait(&operation, 20));
    check_all(other, 10, rank, "not scaled");
    CHECK_OK(rp_barrier(comm));
    CHECK_OK(rp_window_read(window, left, slot, NULL));
    check_all(slot, 2 * left + 20, rank, "accumulated");
    CHECK_EQ(rp_window_version(window, left), 1);
    rp_neighbor from = {left, -1};
    REQUIRE_OK(rp_window_get(window, &from, 1, 0, &operation));
    CHECK_OK(rp_window_wait(&operation, 20));
    CHECK_OK(rp_window_read(window, left, slot, NULL));
    check_all(slot, -3 * left, rank, "got");
    CHECK_EQ(rp_window_version(window, left), 2);
    CHECK_OK(rp_window_free(&window));
}

static void pushes_and_gets(void) {
    world_run(4, NULL, weights_and_versions, NULL);
}

/* What is pushed to one that takes nothing yet becomes one message: puts replace, accumulates
 * add, in their order. */
static void merged(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    ring r;
    rp_window *window = NULL;
    rp_window_operation *first = NULL, *last = NULL;
    ring_of(&r, rank, world, "merged");
    r.setup.follow_p = 1;
    REQUIRE_OK(rp_window_create(comm, &r.setup, &window));
    int other = 1 - rank;
    double values[COUNT], slot[COUNT], p = 0;
    if (rank == 0) CHECK_OK(rp_window_lock(window, &other, 1, 1, 10)); /* own, for rank 1 */
    CHECK_OK(rp_barrier(comm));
    rp_window_send held = RP_WINDOW_SEND(.mutex = 1);
    for (int k = 1; rank == 1 && k <= 20; k++) {
        for (int i = 0; i < COUNT; i++) values[i] = k;
        if (k == 5 || k == 10)
            CHECK_OK(rp_window_put(window, values, COUNT, &held, k == 5 ? &first : NULL));
        else
            CHECK_OK(
                rp_window_accumulate(window, values, COUNT, &held, k == 20 ? &last : NULL));
    }
    if (rank == 1) {
        CHECK_FAILS(rp_window_wait(&last, 0.05), TIMEOUT, "rank 0");
        CHECK(last != NULL);
        CHECK_EQ(rp_window_test(first), RP_PENDING);
    }
    CHECK_OK(rp_barrier(comm));
    CHECK_EQ(rp_window_version(window, other), 0); /* it is held off */
    CHECK_OK(rp_barrier(comm));
    if (rank == 0) CHECK_OK(rp_window_unlock(window, &other, 1, 1));
    if (rank == 1) CHECK_OK(rp_window_wait(&last, 20));
    if (rank == 1) CHECK_OK(rp_window_wait(&first, 0)); /* over already */
    CHECK_OK(rp_barrier(comm));
    if (rank == 0) {
        CHECK_OK(rp_window_read(window, 1, slot, &p));
        check_all(slot, 10 + 11 + 12 + 13 + 14 + 15 + 16 + 17 + 18 + 19 + 20, 0, "merged");
        CHECK_NEAR(p, 11, 0);
        CHECK_EQ(rp_window_version(window, 1), 2);
    }
    CHECK_OK(rp_window_free(&window));
}

static void pushes_merge(void) {
    world_run(2, NULL, merged, NULL);
}

/* ---- without a call of the owner ---- */

static void served(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    ring r;
    rp_window *window = NULL;
    ring_of(&r, rank, world, "served");
    REQUIRE_OK(rp_window_create(comm, &r.setup, &window));
    /* Rank 0 is past the library until rank 1 has all its answers. */
    if (rank == 1) {
        rp_window_operation *operation = NULL;
        put_and_wait(window, NULL);
        REQUIRE_OK(rp_window_get(window, NULL, 0, 0, &operation));
        CHECK_OK(rp_window_wait(&operation, 20));
        int other = 0;
        CHECK_OK(rp_window_lock(window, &other, 1, 0, 20));
        CHECK_OK(rp_window_unlock(window, &other, 1, 0));
    }
    world_meet();
    CHECK_EQ(rp_window_version(window, 1 - rank), 1);
    CHECK_OK(rp_window_free(&window));
}

static void owners_need_not_call(void) {
    world_run(2, NULL, served, NULL);
    world_run(2, &(rp_comm_options)RP_COMM_OPTIONS(.transport = "tcp", .connect_timeout_s = 20),
              served, NULL);
}

/* What comes while its owner adds slots up is applied right afterwards, though nobody waits for
 * it and nothing else comes. */
static void busy_owner(rp_comm *comm, int rank, int world, void *context) {
    enum { LONG = 1000000, ROUNDS = 8 };
    double *x = calloc(LONG, sizeof *x), *slot = calloc(LONG, sizeof *slot);
    int other = 1 - rank;
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "busy", .data = x, .count = LONG, .dtype = RP_F64,
                        .sources = &other, .source_count = 1, .destinations = &other,
                        .destination_count = 1, .zero_slots = 1);
    rp_window *window = NULL;
    REQUIRE_OK(rp_window_create(comm, &setup, &window));
    for (int k = 1; k <= ROUNDS; k++) {
        world_meet();
        if (rank == 1) {
            x[0] = k;
            CHECK_OK(rp_window_put(window, NULL, LONG, NULL, NULL));
            continue;
        }
        for (int i = 0; i < 10; i++) CHECK_OK(rp_window_update(window, NULL, slot));
        int64_t end_ns = rpi_now_ns() + 20 * RPI_SECOND_NS;
        do {
            CHECK_OK(rp_window_read(window, other, slot, NULL));
        } while (slot[0] != k && rpi_now_ns() < end_ns);
        CHECK_MSG(slot[0] == k, "put %d has not been applied", k);
    }
    world_meet();
    CHECK_OK(rp_window_free(&window));
    free(slot);
    free(x);
    (void)world, (void)context;
}

static void owners_may_be_busy(void) {
    world_run(2, NULL, busy_owner, NULL);
}

/* ---- push-sum ---- */

/* Known answers: a star of 5, x = 0 ... 4, each keeps and sends equal shares. */
static void star(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    int all[4] = {1, 2, 3, 4}, centre[1] = {0};
    double x[1] = {rank};
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "star", .data = x, .count = 1, .dtype = RP_F64,
                        .sources = rank ? centre : all, .source_count = rank ? 1 : 4,
                        .destinations = rank ? centre : all, .destination_count = rank ? 1 : 4,
                        .zero_slots = 1, .follow_p = 1);
    rp_window *window = NULL;
    REQUIRE_OK(rp_window_create(comm, &setup, &window));
    double edge_weight = rank ? 0.5 : 0.2;
    rp_neighbor targets[4];
    for (size_t i = 0; i < setup.destination_count; i++)
        targets[i] = (rp_neighbor){setup.destinations[i], edge_weight};
    rp_window_send send = RP_WINDOW_SEND(.targets = targets, .count = setup.destination_count,
                                         .scales = 1, .self_weight = edge_weight);
    rp_window_mix collect = RP_WINDOW_MIX(.self_weight = 1, .reset = 1);
    for (int step = 0; step < 400; step++) {
        CHECK_OK(rp_window_accumulate(window, NULL, 1, &send, NULL));
        if (step == 0) {
            CHECK_OK(rp_window_flush(window, 20));
            CHECK_OK(rp_barrier(comm));
        }
        CHECK_OK(rp_window_update(window, &collect, NULL));
        if (step) { /* asynchronous from here on; nobody shall be done before others begin */
            rpi_sleep_until_ns(rpi_now_ns() + 20000 * (1 + rank));
            continue;
        }
        static const double ones[] = {5, 0.5, 1, 1.5, 2}, ps[] = {2.2, 0.7, 0.7, 0.7, 0.7};
        CHECK_NEAR(x[0], ones[rank], 1e-12);
        CHECK_NEAR(rp_window_p(window), ps[rank], 1e-12);
        CHECK_OK(rp_barrier(comm));
    }
    CHECK_OK(rp_window_flush(window, 20));
    CHECK_OK(rp_barrier(comm));
    CHECK_OK(rp_window_update(window, &collect, NULL));
    /* On a busy machine one rank may have taken its steps alone: some more, in turns. */
    for (int step = 0; step < 30; step++) {
        CHECK_OK(rp_barrier(comm));
        CHECK_OK(rp_window_accumulate(window, NULL, 1, &send, NULL));
        CHECK_OK(rp_window_flush(window, 20));
        CHECK_OK(rp_barrier(comm));
        CHECK_OK(rp_window_update(window, &collect, NULL));
    }
    double sums[2] = {x[0], rp_window_p(window)};
    CHECK_NEAR(sums[0] / sums[1], 2, 1e-6);
    rp_segment segment = {.data = sums, .count = 2, .dtype = RP_F64};
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    CHECK_NEAR(sums[0], 10, 1e-9);
    CHECK_NEAR(sums[1], 5, 1e-9);
    CHECK_OK(rp_window_free(&window));
    (void)world;
}

static void push_sum(void) {
    world_run(5, NULL, star, NULL);
}

/* A directed ring with a chord, in rounds: the exact mean. */
static void directed(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    int right = (rank + 1) % world, left = (rank + world - 1) % world;
    int destinations[2] = {right, 0}, sources[2] = {left, 2};
    double x[1] = {rank * rank};
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "directed", .data = x, .count = 1, .dtype = RP_F64,
                        .sources = sources, .source_count = rank == 0 ? 2 : 1,
                        .destinations = destinations, .destination_count = rank == 2 ? 2 : 1,
                        .zero_slots = 1, .follow_p = 1);
    rp_window *window = NULL;
    REQUIRE_OK(rp_window_create(comm, &setup, &window));
    double edge_weight = 1.0 / (double)(setup.destination_count + 1);
    rp_neighbor targets[2] = {{right, edge_weight}, {0, edge_weight}};
    rp_window_send send = RP_WINDOW_SEND(.targets = targets, .count = setup.destination_count,
                                         .scales = 1, .self_weight = edge_weight);
    rp_window_mix collect = RP_WINDOW_MIX(.self_weight = 1, .reset = 1, .mutex = 1);
    for (int step = 0; step < 200; step++) {
        CHECK_OK(rp_window_accumulate(window, NULL, 1, &send, NULL));
        CHECK_OK(rp_window_flush(window, 20));
        CHECK_OK(rp_barrier(comm));
        CHECK_OK(rp_window_update(window, &collect, NULL));
        CHECK_OK(rp_barrier(comm));
    }
    double mean = 0;
    for (int r = 0; r < world; r++) mean += (double)(r * r) / world;
    CHECK_NEAR(x[0] / rp_window_p(window), mean, 1e-12);
    CHECK_OK(rp_window_free(&window));
}

static void push_sum_on_a_directed_graph(void) {
    world_run(5, NULL, directed, NULL);
}

/* ---- codecs ---- */

/* What a lossy codec takes of an accumulate comes with the next ones: sums differ by what is
 * held back, which does not grow. */
static void lossy(rp_comm *comm, int rank, int world, void *context) {
    const char *text = context;
    enum { LONG = 100000, ROUNDS = 30 };
    float *x = calloc(LONG, sizeof *x), *slot = calloc(LONG, sizeof *slot);
    int other = 1 - rank;
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = text, .data = x, .count = LONG, .dtype = RP_F32,
                        .sources = &other, .source_count = 1, .destinations = &other,
                        .destination_count = 1, .zero_slots = 1);
    rp_window *window = NULL;
    REQUIRE_OK(rp_codec_parse(text, &setup.codec));
    REQUIRE_OK(rp_window_create(comm, &setup, &window));
    world_fill(check_seed(), rank, x, LONG);
    for (int k = 0; k < ROUNDS; k++) {
        CHECK_OK(rp_window_accumulate(window, NULL, LONG, NULL, NULL));
        if (k % 3 == 0) CHECK_OK(rp_window_flush(window, 20));
    }
    CHECK_OK(rp_window_flush(window, 20));
    CHECK_OK(rp_barrier(comm));
    CHECK_OK(rp_window_read(window, other, slot, NULL));
    float *theirs = calloc(LONG, sizeof *theirs);
    world_fill(check_seed(), other, theirs, LONG);
    double wrong = 0, right = 0;
    for (int i = 0; i < LONG; i++) {
        wrong += pow(slot[i] - (double)ROUNDS * theirs[i], 2);
        right += pow((double)ROUNDS * theirs[i], 2);
    }
    CHECK_MSG(wrong <= 0.02 * 0.02 * right, "%s: an error of %g", text, sqrt(wrong / right));
    CHECK_OK(rp_window_free(&window));
    free(theirs);
    free(slot);
    free(x);
    (void)world;
}

static void codecs(void) {
    static const char *texts[] = {"q8", "q4", "bf16", "topk:ratio=10"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        rp_codec codec;
        if (rp_codec_parse(texts[i], &codec) != RP_OK) continue;
        world_run(2, NULL, lossy, (void *)(uintptr_t)texts[i]);
    }
}

/* ---- bytes ---- */

/* A put costs its encoding once for each destination, and a word of 64 bytes in answer to each
 * that comes. */
static void bytes_of_a_put(rp_comm *comm, int rank, int world, void *context) {
    enum { LONG = 1000000 };
    const char *text = context;
    float *x = calloc(LONG, sizeof *x);
    int other = 1 - rank;
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "bytes", .data = x, .count = LONG, .dtype = RP_F32,
                        .sources = &other, .source_count = 1, .destinations = &other,
                        .destination_count = 1);
    rp_window *window = NULL;
    rp_window_operation *operation = NULL;
    rp_comm_stats before, after;
    REQUIRE_OK(rp_codec_parse(text, &setup.codec));
    REQUIRE_OK(rp_window_create(comm, &setup, &window));
    world_meet(); /* the barrier of creating it has left */
    rp_comm_get_stats(comm, &before);
    world_meet();
    REQUIRE_OK(rp_window_put(window, NULL, LONG, NULL, &operation));
    CHECK_OK(rp_window_wait(&operation, 20));
    world_meet();
    rp_comm_get_stats(comm, &after);
    double sent = (double)(after.wire_bytes_sent - before.wire_bytes_sent);
    double raw = (double)rp_codec_encoded_bytes(&setup.codec, RP_F32, LONG);
    CHECK_MSG(sent >= raw && sent <= 1.001 * raw, "%s: %.0f bytes for %.0f", text, sent, raw);
    CHECK_EQ(after.value_bytes_sent - before.value_bytes_sent, LONG * sizeof *x);
    CHECK_OK(rp_window_free(&window));
    free(x);
    (void)world;
}

static void what_a_put_costs(void) {
    world_run(2, NULL, bytes_of_a_put, (void *)(uintptr_t) "fp32");
    world_run(2, NULL, bytes_of_a_put, (void *)(uintptr_t) "q4");
}

/* ---- what is refused ---- */

static void refused(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    ring r, bad;
    rp_window *window = NULL, *second = NULL;
    ring_of(&r, rank, world, "x");
    REQUIRE_OK(rp_window_create(comm, &r.setup, &window));
    /* Of all ranks, whoever it is that refuses. */
    CHECK_FAILS(rp_window_create(comm, &r.setup, &second), INVALID, "the name is taken");
    ring_of(&bad, rank, world, "y");
    if (rank == 1) bad.setup.data = NULL;
    if (rank == 1)
        CHECK_FAILS(rp_window_create(comm, &bad.setup, &second), INVALID, "data is NULL");
    else
        CHECK_FAILS(rp_window_create(comm, &bad.setup, &second), INVALID,
                    "rank 1 has refused it");
    ring_of(&bad, rank, world, "y");
    if (rank == 1) bad.setup.count = COUNT - 1;
    CHECK_FAILS(rp_window_create(comm, &bad.setup, &second), MISMATCH, "rank 1");
    ring_of(&bad, rank, world, rank == 2 ? "z" : "y");
    CHECK_FAILS(rp_window_create(comm, &bad.setup, &second), MISMATCH, "rank 2");
    ring_of(&bad, rank, world, "y");
    if (rank == 3) bad.setup.destination_count = 1; /* its left one alone */
    CHECK_FAILS(rp_window_create(comm, &bad.setup, &second), MISMATCH,
                "rank 0 has rank 3 among its sources, which has it not among its destinations");
    bad.setup.destinations = &rank;
    bad.setup.destination_count = 1;
    CHECK_FAILS(rp_window_create(comm, &bad.setup, &second), INVALID, "cannot be one of rank");
    CHECK(second == NULL);
    /* Calls: of this rank alone. */
    int far = (rank + 2) % world;
    rp_neighbor nobody = {far, 1}, odd = {r.sources[0], NAN};
    rp_window_send send = RP_WINDOW_SEND(.targets = &nobody, .count = 1);
    rp_window_mix mix = RP_WINDOW_MIX(.sources = &nobody, .count = 1);
    CHECK_FAILS(rp_window_put(window, r.x, COUNT + 1, NULL, NULL), INVALID, "has 10 elements");
    CHECK_FAILS(rp_window_put(window, NULL, COUNT, &send, NULL), INVALID, "no destination");
    CHECK_FAILS(rp_window_get(window, &nobody, 1, 0, NULL), INVALID, "no source");
    CHECK_FAILS(rp_window_update(window, &mix, NULL), INVALID, "no source");
    send.targets = &odd;
    CHECK_FAILS(rp_window_accumulate(window, NULL, COUNT, &send, NULL), INVALID, "nan");
    CHECK_FAILS(rp_window_unlock(window, NULL, 0, 1), STATE, "did not hold");
    CHECK_OK(rp_window_lock(window, NULL, 0, 1, 10));
    CHECK_FAILS(rp_window_lock(window, NULL, 0, 1, 10), STATE, "already");
    CHECK_OK(rp_window_unlock(window, NULL, 0, 1));
    CHECK_OK(rp_barrier(comm)); /* the ranks are as well as they were */
    check_all(r.x, rank, rank, "nothing was done");
    CHECK_OK(rp_window_free(&window));
    CHECK_OK(rp_window_free(&window));
}

static void what_is_refused(void) {
    world_run(4, NULL, refused, NULL);
}

/* Rank 2 keeps what rank 0 waits for, in slices; rank 1 is a bystander. */
static void kept_waiting(rp_comm *comm, int rank, int world, void *context) {
    float x[4] = {0};
    const int others[] = {(rank + 1) % world, (rank + 2) % world};
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "kept", .data = x, .count = 4, .dtype = RP_F32,
                        .sources = others, .source_count = 2, .destinations = others,
                        .destination_count = 2);
    rp_window *window = NULL;
    rp_window_operation *put = NULL;
    rp_window_send send = RP_WINDOW_SEND(.mutex = 1);
    REQUIRE_OK(rp_window_create(comm, &setup, &window));
    if (rank == 2) CHECK_OK(rp_window_lock(window, NULL, 0, 1, 20));
    CHECK_OK(rp_barrier(comm));
    if (rank == 0) {
        rp_window_waited(2.5);
        CHECK_FAILS(rp_window_lock(window, NULL, 0, 0, 0.5), TIMEOUT,
                    "timed out: a mutex was not given for 3.0 s: rank 2");
        CHECK_OK(rp_window_put(window, NULL, 4, &send, &put));
        rp_window_waited(59.5);
        CHECK_FAILS(rp_window_flush(window, 0.5), TIMEOUT,
                    "timed out: a push was not taken for 60.0 s: rank 2");
        CHECK_FAILS(rp_window_wait(&put, 0.5), TIMEOUT, "for 0.5 s: rank 2");
        CHECK(strstr(rp_last_error()->message, "rank 1") == NULL);
    }
    CHECK_OK(rp_barrier(comm));
    if (rank == 2) CHECK_OK(rp_window_unlock(window, NULL, 0, 1));
    if (rank == 0) CHECK_OK(rp_window_wait(&put, 20));
    CHECK_OK(rp_window_free(&window));
    (void)context;
}

static void who_is_waited_for(void) {
    world_run(3, NULL, kept_waiting, NULL);
}

static void integers(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    int32_t x[3] = {rank, 100, INT32_MAX};
    int other = 1 - rank;
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "integers", .data = x, .count = 3, .dtype = RP_I32,
                        .sources = &other, .source_count = 1, .destinations = &other,
                        .destination_count = 1, .zero_slots = 1);
    rp_window *window = NULL;
    REQUIRE_OK(rp_window_create(comm, &setup, &window));
    rp_neighbor half = {other, 0.5}, twice = {other, -2};
    rp_window_send send = RP_WINDOW_SEND(.targets = &half, .count = 1);
    CHECK_FAILS(rp_window_put(window, NULL, 3, &send, NULL), INVALID, "whole numbers");
    send.targets = &twice;
    CHECK_OK(rp_window_put(window, NULL, 3, &send, NULL));
    CHECK_OK(rp_window_flush(window, 20));
    CHECK_OK(rp_barrier(comm));
    CHECK_OK(rp_window_update(window, NULL, NULL)); /* cut towards zero */
    CHECK_EQ(x[0], (rank - 2 * other) / 2);
    CHECK_EQ(x[1], -50);
    CHECK_EQ(x[2], (int32_t)((uint32_t)INT32_MAX - 2 * (uint32_t)INT32_MAX) / 2);
    CHECK_OK(rp_window_free(&window));
    (void)world;
}

static void whole_numbers(void) {
    world_run(2, NULL, integers, NULL);
}

/* ---- freed, destroyed ---- */

/* A window that nobody has freed goes with its communicator; many, made and freed, leave
 * nothing. */
static void leave_windows(rp_comm *comm, int rank, int world, void *context) {
    rp_window **left = context;
    ring r;
    char name[32];
    for (int k = 0; k < 20; k++) {
        rp_window *windows[3] = {NULL};
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "w%d", i);
            ring_of(&r, rank, world, name);
            REQUIRE_OK(rp_window_create(comm, &r.setup, &windows[i]));
            CHECK_OK(rp_window_put(windows[i], NULL, COUNT, NULL, NULL));
        }
        for (int i = 0; i < 3; i++) CHECK_OK(rp_window_free(&windows[i]));
    }
    ring_of(&r, rank, world, "left");
    REQUIRE_OK(rp_window_create(comm, &r.setup, &left[rank]));
    CHECK_OK(rp_window_flush(left[rank], 20));
    CHECK_OK(rp_barrier(comm));
}

static void windows_outlive_nothing(void) {
    rp_window *left[3] = {NULL};
    int threads = check_threads();
    world_run(3, NULL, leave_windows, left);
    for (int rank = 0; rank < 3; rank++) {
        CHECK_FAILS(rp_window_put(left[rank], NULL, COUNT, NULL, NULL), CANCELLED, "destroyed");
        CHECK_OK(rp_window_free(&left[rank]));
    }
    CHECK_EQ(check_settled_threads(threads), threads);
}

/* One goes without a word: who pushes to it learns that, others do not mind. */
static void one_leaves(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    ring r;
    rp_window *window = NULL;
    rp_comm *group = NULL;
    int all[3] = {0, 1, 2};
    REQUIRE_OK(rp_comm_group(comm, all, 3, NULL, &group));
    ring_of(&r, rank, world, "left");
    REQUIRE_OK(rp_window_create(group, &r.setup, &window));
    if (rank == 2) {
        rp_comm_destroy(group);
    } else {
        rp_window_operation *operation = NULL;
        rp_neighbor gone = {2, 1}, there = {1 - rank, 1};
        rp_window_send send = RP_WINDOW_SEND(.targets = &gone, .count = 1),
                       good = RP_WINDOW_SEND(.targets = &there, .count = 1);
        rp_status status = RP_OK; /* until it is away it takes what comes */
        for (int k = 0; k < 20000 && status == RP_OK; k++) {
            status = rp_window_put(window, NULL, COUNT, &send, &operation);
            if (status == RP_OK) status = rp_window_wait(&operation, 20);
        }
        CHECK_EQ(status, RP_PEER);
        CHECK(strstr(rp_last_error()->message, "rank 2 has left") != NULL);
        put_and_wait(window, &good);
    }
    world_meet();
    if (rank != 2) rp_comm_destroy(group);
    CHECK_OK(rp_window_free(&window));
}

/* What was pushed last is still to be looked at when its communicator goes; the others of the
 * context go on. */
static void push_and_destroy(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    int all[2] = {0, 1};
    for (int round = 0; round < 20; round++) {
        ring r;
        rp_window *window = NULL;
        rp_comm *group = NULL;
        REQUIRE_OK(rp_comm_group(comm, all, 2, NULL, &group));
        ring_of(&r, rank, world, "short");
        REQUIRE_OK(rp_window_create(group, &r.setup, &window));
        for (int k = 0; k < 5; k++) {
            rp_status status = rp_window_put(window, NULL, COUNT, NULL, NULL);
            CHECK(status == RP_OK || status == RP_PEER);
        }
        rp_comm_destroy(group);
        CHECK_OK(rp_barrier(comm));
        CHECK_OK(rp_window_free(&window));
    }
}

static void destroyed_behind_a_push(void) {
    world_run(2, NULL, push_and_destroy, NULL);
}

/* Calls say why the communicator has failed, and of which window. */
static void aborted(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    ring r;
    rp_window *window = NULL;
    ring_of(&r, rank, world, "of the aborted");
    REQUIRE_OK(rp_window_create(comm, &r.setup, &window));
    CHECK_OK(rp_window_flush(window, 20));
    world_meet();
    rp_comm_abort(comm, RP_IO, "no more");
    CHECK_FAILS(rp_window_put(window, NULL, COUNT, NULL, NULL), IO, "no more");
    CHECK_FAILS(rp_window_flush(window, 20), IO, "window 'of the aborted': ");
    CHECK_FAILS(rp_window_update(window, NULL, NULL), IO, "no more");
    CHECK_FAILS(rp_window_free(&window), IO, "no more");
    CHECK(window == NULL); /* and yet it is gone */
}

static void a_failure_is_told_with_the_window(void) {
    world_run(2, NULL, aborted, NULL);
}

static void one_has_left(void) {
    world_run(3, NULL, one_leaves, NULL);
}

/* ---- memory ---- */

/* What could not be made is served no longer. */
static rp_status create_short_of_memory(long n, long *out_allocations) {
    double x[COUNT] = {0};
    rp_comm *comm = NULL;
    rp_window *window = NULL;
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "own", .data = x, .count = COUNT, .dtype = RP_F64);
    rp_status status = rp_comm_create(NULL, 0, 1, NULL, &comm);
    if (status != RP_OK) return status;
    rpi_memory_fail_after(n);
    status = rp_window_create(comm, &setup, &window);
    *out_allocations = rpi_memory_fail_after(0);
    CHECK_EQ(window != NULL, status == RP_OK);
    CHECK(comm->windows == window);
    CHECK_EQ(atomic_load(&comm->context->windows), window != NULL);
    if (window) CHECK_OK(rp_window_free(&window));
    rp_comm_destroy(comm);
    return status;
}

static void creating_may_run_out_of_memory(void) {
    long allocations = 0, unused;
    REQUIRE_OK(create_short_of_memory(0, &allocations));
    CHECK(allocations > 2);
    for (long n = 1; n <= allocations; n++)
        CHECK_MSG(create_short_of_memory(n, &unused) == RP_NOMEM, "allocation %ld of %ld", n,
                  allocations);
}

CASES({"what is refused", what_is_refused}, {"who is waited for", who_is_waited_for},
      {"whole numbers", whole_numbers}, {"what a put costs", what_a_put_costs},
      {"windows outlive nothing", windows_outlive_nothing}, {"one has left", one_has_left},
      {"a failure is told with the window", a_failure_is_told_with_the_window},
      {"destroyed behind a push", destroyed_behind_a_push}, {"means", means},
      {"pushes and gets", pushes_and_gets}, {"pushes merge", pushes_merge},
      {"owners need not call", owners_need_not_call},
      {"owners may be busy", owners_may_be_busy}, {"push-sum", push_sum},
      {"push-sum on a directed graph", push_sum_on_a_directed_graph}, {"codecs", codecs},
      {"creating may run out of memory", creating_may_run_out_of_memory})
