/* Exchanges with neighbours: against the serial sum on every topology, with ranks that are
 * late, and lists that do not match. */
#include "redpoll/comm.h"

#include "base/clock.h"
#include "base/rng.h"
#include "comm/thread_world.h"
#include "plan/topologies/topology.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 16, COUNT = 1031, ROUNDS = 3, NEIGHBORS = MOST_RANKS };

/* One rank's part of a round. */
typedef struct part {
    rp_neighbor sources[NEIGHBORS], destinations[NEIGHBORS];
    rp_neighbors lists;
} part;

static double values[ROUNDS][MOST_RANKS][COUNT];

static void fill_values(uint64_t seed) {
    for (int round = 0; round < ROUNDS; round++)
        for (int rank = 0; rank < MOST_RANKS; rank++) {
            rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TEST, (uint64_t)(round * 100 + rank));
            for (int i = 0; i < COUNT; i++) values[round][rank][i] = rpi_rng_normal(&rng);
        }
}

/* What each sender gives each receiver: 1, or something else where `shares`. */
static double share_of(bool shares, int from, int to) {
    return shares ? 1 + from - 0.25 * to : 1;
}

static void part_of(const rpi_mixing *mixing, int rank, bool shares, part *p) {
    rpi_edges in = rpi_mixing_in(mixing, rank), out = rpi_mixing_out(mixing, rank);
    const rpi_edge *own = rpi_mixing_own(mixing, rank).list;
    *p = (part){.lists = {.self_weight = own->weight.times ? rpi_edge_weight(own) : 0}};
    /* From the last to the first: the order of the lists does not matter. */
    for (int i = in.count - 1; i >= 0; i--)
        p->sources[p->lists.source_count++] =
            (rp_neighbor){in.list[i].rank, rpi_edge_weight(&in.list[i])};
    for (int i = out.count - 1; i >= 0; i--)
        p->destinations[p->lists.destination_count++] =
            (rp_neighbor){out.list[i].rank, share_of(shares, rank, out.list[i].rank)};
    p->lists.sources = p->sources;
    p->lists.destinations = p->destinations;
}

static double weight_of(const part *p, int rank, int of) {
    if (of == rank) return p->lists.self_weight;
    for (size_t i = 0; i < p->lists.source_count; i++)
        if (p->sources[i].rank == of) return p->sources[i].weight;
    return NAN; /* not a neighbour */
}

static bool all_are_one(const part *p) {
    double same = 1.0 / (double)(p->lists.source_count + 1);
    bool are = fabs(p->lists.self_weight - same) < 1e-12;
    for (size_t i = 0; i < p->lists.source_count; i++)
        are &= fabs(p->sources[i].weight - same) < 1e-12;
    return are;
}

/* By rank, operation by operation. */
static double serial(const part *p, int rank, int world, bool shares, int round, int i) {
    double sum = 0;
    bool begun = false, divides = all_are_one(p);
    for (int r = 0; r < world; r++) {
        double weight = weight_of(p, rank, r), x = values[round][r][i];
        if (isnan(weight)) continue;
        if (r != rank) x *= share_of(shares, r, rank);
        if (!divides) x *= weight;
        sum = begun ? sum + x : x;
        begun = true;
    }
    return divides ? sum / (double)(p->lists.source_count + 1) : sum;
}

typedef struct trial {
    const char *topology;
    rpi_mixing rounds[ROUNDS];
    bool shares, in_place, late;
} trial;

static void check_serial(const part *p, int rank, int world, const trial *plan, int round,
                         const double *got) {
    for (int i = 0; i < COUNT; i++) {
        double want = serial(p, rank, world, plan->shares, round, i);
        CHECK_MSG(memcmp(&got[i], &want, sizeof want) == 0,
                  "%s of %d, rank %d, round %d, element %d: %a, not %a", plan->topology, world,
                  rank, round, i, got[i], want);
        if (memcmp(&got[i], &want, sizeof want) != 0) return;
    }
}

/* All rounds are in flight at once, and are waited for from the last to the first by odd ranks.
 */
static void run_trial(rp_comm *comm, int rank, int world, const trial *plan) {
    static _Thread_local part parts[ROUNDS];
    double *in[ROUNDS], *out[ROUNDS];
    rp_request *requests[ROUNDS] = {NULL};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, (uint64_t)rank);
    for (int k = 0; k < ROUNDS; k++) {
        in[k] = malloc(sizeof values[k][rank]);
        out[k] = plan->in_place ? in[k] : calloc(COUNT, sizeof(double));
        memcpy(in[k], values[k][rank], sizeof values[k][rank]);
        part_of(&plan->rounds[k], rank, plan->shares, &parts[k]);
        int64_t us = plan->late ? (int64_t)rpi_rng_below(&rng, 2000) : 0;
        rpi_sleep_until_ns(rpi_now_ns() + us * 1000);
        rp_segment two[] = {{.data = in[k], .count = 400, .dtype = RP_F64},
                            {.data = in[k] + 400, .count = COUNT - 400, .dtype = RP_F64}};
        void *outputs[] = {out[k], out[k] + 400};
        CHECK_OK(rp_neighbor_all_reduce_start(comm, two, plan->in_place ? NULL : outputs, 2,
                                              &parts[k].lists, NULL, &requests[k]));
    }
    for (int k = 0; k < ROUNDS; k++) {
        int which = rank % 2 ? ROUNDS - 1 - k : k;
        if (requests[which]) CHECK_OK(rp_request_wait(&requests[which]));
        check_serial(&parts[which], rank, world, plan, which, out[which]);
        if (!plan->in_place)
            CHECK(memcmp(in[which], values[which][rank], sizeof values[which][rank]) == 0);
    }
    for (int k = 0; k < ROUNDS; k++) {
        if (out[k] != in[k]) free(out[k]);
        free(in[k]);
    }
}

/* Until a trial without a topology. */
static void serial_world(rp_comm *comm, int rank, int world, void *context) {
    for (const trial *t = context; t->topology; t++) run_trial(comm, rank, world, t);
}

static const char *const topologies[] = {"ring",
                                         "ring:direction=left",
                                         "mesh",
                                         "torus",
                                         "star",
                                         "star:weights=uniform",
                                         "full",
                                         "exponential",
                                         "exponential:base=3,weights=sender",
                                         "exponential:base=4,symmetric=on",
                                         "one-peer-exponential",
                                         "base",
                                         "base:k=3",
                                         "equi",
                                         "equi:degree=2",
                                         "hierarchical:local=3,machines=ring",
                                         "inner-outer-ring:local=4",
                                         "inner-outer-expo:local=4"};
enum { TOPOLOGIES = sizeof topologies / sizeof topologies[0] };

static bool open_rounds(trial *plan, int world) {
    rpi_topology *topology = NULL;
    if (rpi_topology_open(plan->topology, world, &topology) != RP_OK) return false;
    for (int k = 0; k < ROUNDS; k++) {
        int64_t step = topology->period ? k % topology->period : k;
        CHECK_OK(rpi_topology_mix(topology, step, &plan->rounds[k]));
    }
    rpi_topology_close(topology);
    return true;
}

static void close_rounds(trial *plan) {
    for (int k = 0; k < ROUNDS; k++) rpi_mixing_free(&plan->rounds[k]);
}

static void every_topology_gives_the_serial_answer(void) {
    fill_values(5);
    int ran = 0;
    for (int world = 1; world <= MOST_RANKS; world++) {
        trial trials[TOPOLOGIES + 1] = {{.topology = NULL}};
        int count = 0;
        for (int t = 0; t < TOPOLOGIES; t++) {
            trials[count] = (trial){.topology = topologies[t],
                                    .shares = (t + world) % 3 == 0,
                                    .in_place = (t + world) % 2 == 0,
                                    .late = (t + world) % 5 == 0};
            if (open_rounds(&trials[count], world)) count++;
        }
        trials[count].topology = NULL;
        world_run(world, NULL, serial_world, trials);
        for (int t = 0; t < count; t++) close_rounds(&trials[t]);
        ran += count;
    }
    CHECK_MSG(ran > 200, "only %d trials", ran);
}

static void other_transports(void) {
    static const rp_comm_options options[] = {
        RP_COMM_OPTIONS(.transport = "shm"),
        RP_COMM_OPTIONS(.transport = "tcp", .chunk_bytes = 4096),
        RP_COMM_OPTIONS(.transport = "inproc", .progress_thread = 1, .chunk_bytes = 1024,
                        .chunks_in_flight = 2)};
    fill_values(6);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        trial trials[2] = {{.topology = "exponential", .shares = i == 1, .late = true}};
        REQUIRE(open_rounds(&trials[0], 7));
        world_run(7, &options[i], serial_world, trials);
        close_rounds(&trials[0]);
    }
}

/* ---- one round by hand ---- */

static rp_neighbors between(rp_neighbor *other, double self_weight) {
    return (rp_neighbors){.self_weight = self_weight,
                          .sources = other,
                          .source_count = 1,
                          .destinations = other,
                          .destination_count = 1};
}

/* Added first and divided once: what is equal stays what it is, also where products would not.
 */
static void equal_numbers_stay(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    rp_neighbor others[2] = {{(rank + 1) % world, 1.0 / 3}, {(rank + 2) % world, 1.0 / 3}};
    double tiny[2] = {ldexp(1, -256), 0.1};
    rp_segment segment = {.data = tiny, .count = 2, .dtype = RP_F64};
    rp_neighbor ones[2] = {{others[0].rank, 1}, {others[1].rank, 1}};
    rp_neighbors lists = {.self_weight = 1.0 / 3,
                          .sources = others,
                          .source_count = 2,
                          .destinations = ones,
                          .destination_count = 2};
    CHECK_OK(rp_neighbor_all_reduce(comm, &segment, NULL, 1, &lists, NULL));
    CHECK(tiny[0] == ldexp(1, -256));
    CHECK(tiny[1] == (0.1 + 0.1 + 0.1) / 3);
}

static void equal_weights_divide(void) {
    world_run(3, NULL, equal_numbers_stay, NULL);
}

/* Rank 0 and 1 swap, 1 keeps half of it; 2 has nobody, and then does not even call. */
static void some_have_nobody(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    (void)world;
    float x[3] = {(float)rank, 8, (float)INFINITY};
    rp_segment segment = {.data = x, .count = 3, .dtype = RP_F32};
    rp_neighbors nobody = {.self_weight = 0.5};
    if (rank < 2) {
        rp_neighbor other = {1 - rank, 1};
        rp_neighbors pair = between(&other, 0);
        x[2] = 4;
        CHECK_OK(rp_neighbor_all_reduce(comm, &segment, NULL, 1, &pair, NULL));
        CHECK(x[0] == (float)(1 - rank) && x[1] == 8 && x[2] == 4);
        pair.round = 9; /* of which rank 2 does not know */
        CHECK_OK(rp_neighbor_all_reduce(comm, &segment, NULL, 1, &pair, NULL));
        CHECK(x[0] == (float)rank);
    } else {
        CHECK_OK(rp_neighbor_all_reduce(comm, &segment, NULL, 1, &nobody, NULL));
        CHECK(x[0] == 1 && x[1] == 4 && isinf(x[2]));
    }
    nobody = (rp_neighbors){.self_weight = 1, .round = 20};
    CHECK_OK(rp_neighbor_all_reduce(comm, &segment, NULL, 1, &nobody, NULL));
    CHECK_OK(rp_neighbor_all_reduce(comm, NULL, NULL, 0, &(rp_neighbors){0}, NULL));
    rp_neighbor next = {(rank + 1) % 3, 1}, previous = {(rank + 2) % 3, 1};
    rp_neighbors round = {
        .sources = &previous, .source_count = 1, .destinations = &next, .destination_count = 1};
    x[1] = (float)rank;
    CHECK_OK(rp_neighbor_all_reduce(comm, &segment, NULL, 1, &round, NULL));
    CHECK(x[1] == (float)previous.rank);
    nobody.round = 4;
    CHECK_FAILS(rp_neighbor_all_reduce(comm, &segment, NULL, 1, &nobody, NULL), INVALID,
                "round 4 is not later than round 22");
    CHECK_OK(rp_barrier(comm)); /* refused, not failed */
}

static void ranks_without_neighbours(void) {
    world_run(3, NULL, some_have_nobody, NULL);
}

static void alone(rp_comm *comm, int rank, int world, void *context) {
    (void)rank;
    (void)world;
    (void)context;
    uint16_t x = rp_f32_to_bf16(3);
    rp_segment segment = {.data = &x, .count = 1, .dtype = RP_BF16};
    rp_neighbors nobody = {.self_weight = 0.25};
    CHECK_OK(rp_neighbor_all_reduce(comm, &segment, NULL, 1, &nobody, NULL));
    CHECK(rp_bf16_to_f32(x) == 0.75f);
    nobody.self_weight = 1;
    CHECK_OK(rp_neighbor_all_reduce(comm, &segment, NULL, 1, &nobody, NULL));
    CHECK(rp_bf16_to_f32(x) == 0.75f);
}

static void a_world_of_one(void) {
    world_run(1, NULL, alone, NULL);
}

/* ---- codecs ---- */

enum { LOSSY = 5000 };

typedef struct lossy {
    const char *codec;
    bool feedback;
} lossy;

/* A receiver adds what the sender's codec makes of its vector, times both weights; what it made
 * of it, all receivers have alike, and the residual holds the rest. */
static void lossy_world(rp_comm *comm, int rank, int world, void *context) {
    const lossy *l = context;
    float *x[2], *residual = calloc(LOSSY, sizeof *residual), *out = calloc(LOSSY, sizeof *out);
    float *decoded = calloc(LOSSY, sizeof *decoded);
    int other = (rank + world - 1) % world, next = (rank + 1) % world;
    for (int k = 0; k < 2; k++) {
        x[k] = calloc(LOSSY, sizeof *x[k]);
        world_fill(31, k ? other : rank, x[k], LOSSY);
    }
    rp_segment segment = {.data = x[0],
                          .count = LOSSY,
                          .dtype = RP_F32,
                          .residual = l->feedback ? residual : NULL};
    REQUIRE_OK(rp_codec_parse(l->codec, &segment.codec));
    rp_neighbor source = {other, 0.5}, destination = {next, 3};
    rp_neighbors lists = {.self_weight = 0.25,
                          .sources = &source,
                          .source_count = 1,
                          .destinations = &destination,
                          .destination_count = 1};
    void *outputs[] = {out};
    rp_collective_options direct = RP_COLLECTIVE_OPTIONS(.algorithm = "direct");
    CHECK_OK(rp_neighbor_all_reduce(comm, &segment, outputs, 1, &lists, &direct));
    size_t bytes = rp_codec_encoded_bytes(&segment.codec, RP_F32, LOSSY), written = 0;
    void *encoded = malloc(bytes);
    for (int k = 1; k >= 0; k--) { /* last the own: what its destination has of it */
        rp_encode_context context_of = {.role = 2 * (uint32_t)(k ? other : rank)};
        CHECK_OK(rp_codec_encode(&segment.codec, RP_F32, x[k], LOSSY, &context_of, encoded,
                                 &written));
        CHECK_OK(rp_codec_decode(&segment.codec, RP_F32, encoded, written, LOSSY, &context_of,
                                 decoded));
        for (int i = 0; k && i < LOSSY; i++) {
            float theirs = (float)((float)(decoded[i] * 3.0) * 0.5);
            float ours = (float)(x[0][i] * 0.25);
            CHECK_MSG(out[i] == ours + theirs, "%s, element %d: %g, not %g", l->codec, i,
                      (double)out[i], (double)(ours + theirs));
        }
    }
    for (int i = 0; l->feedback && i < LOSSY; i++)
        CHECK(fabsf(residual[i] - (x[0][i] - decoded[i])) < 1e-6f);
    free(encoded);
    free(decoded);
    free(out);
    free(residual);
    free(x[0]);
    free(x[1]);
}

static void codecs_lose_once_an_edge(void) {
    static lossy all[] = {{"fp32", false},        {"bf16", false},
                          {"q4", false},          {"q4", true},
                          {"q8:bucket=64", true}, {"q2:rounding=stochastic", false}};
    rp_comm_options small = RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 4096);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int world = 2; world <= 3; world++)
            world_run(world, world == 3 ? &small : NULL, lossy_world, &all[i]);
}

/* The wire carries a vector once an edge. */
static void count_bytes(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    enum { LONG = 400000 };
    float *x = calloc(LONG, sizeof *x);
    rp_neighbor next[2] = {{(rank + 1) % world, 1}, {(rank + 2) % world, 1}};
    rp_neighbor before[2] = {{(rank + world - 1) % world, 0.25},
                             {(rank + world - 2) % world, 0.25}};
    rp_neighbors lists = {.self_weight = 0.5,
                          .sources = before,
                          .source_count = 2,
                          .destinations = next,
                          .destination_count = 2};
    rp_segment segment = {.data = x, .count = LONG, .dtype = RP_F32};
    REQUIRE_OK(rp_codec_parse("q4", &segment.codec));
    CHECK_OK(rp_neighbor_all_reduce(comm, &segment, NULL, 1, &lists, NULL));
    CHECK_OK(rp_barrier(comm));
    rp_comm_stats stats;
    rp_comm_get_stats(comm, &stats);
    size_t once = rp_codec_encoded_bytes(&segment.codec, RP_F32, LONG);
    double ratio = (double)stats.wire_bytes_sent / (2.0 * (double)once);
    CHECK_MSG(ratio >= 1 && ratio < 1.01, "%g vectors an edge", ratio);
    free(x);
}

static void a_vector_crosses_an_edge_once(void) {
    world_run(5, NULL, count_bytes, NULL);
}

/* ---- who waits for whom ---- */

static atomic_int others_done;

/* A path 0 - 1 - 2 - ... - 6: the last rank comes when the first ones are done with theirs. */
static void far_world(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    float x[64];
    for (int i = 0; i < 64; i++) x[i] = (float)rank;
    rp_neighbor both[2];
    size_t count = 0;
    if (rank > 0) both[count++] = (rp_neighbor){rank - 1, 1};
    if (rank < world - 1) both[count++] = (rp_neighbor){rank + 1, 1};
    rp_neighbors lists = {.self_weight = 1,
                          .sources = both,
                          .source_count = count,
                          .destinations = both,
                          .destination_count = count};
    rp_segment segment = {.data = x, .count = 64, .dtype = RP_F32};
    int64_t give_up = rpi_now_ns() + 60 * RPI_SECOND_NS;
    while (rank == world - 1 && atomic_load(&others_done) < 4 && rpi_now_ns() < give_up)
        rpi_sleep_until_ns(rpi_now_ns() + 1000000);
    if (rank == world - 1) CHECK(atomic_load(&others_done) == 4);
    /* The k-th round of rank r needs what ranks up to r + k did. */
    for (int k = 0; k < 3; k++) {
        CHECK_OK(rp_neighbor_all_reduce(comm, &segment, NULL, 1, &lists, NULL));
        if (rank + k == 4 - 1 || (k == 2 && rank < 2)) atomic_fetch_add(&others_done, 1);
    }
    CHECK_OK(rp_barrier(comm));
}

static void a_late_rank_delays_its_neighbours_alone(void) {
    atomic_store(&others_done, 0);
    /* Done without rank 6: round 3 of ranks 0 and 1, round 2 of rank 2 and round 1 of rank 3
     * add up; ranks 1 and 2 also count where rank + k is 3. */
    world_run(7, NULL, far_world, NULL);
}

/* ---- lists that do not match ---- */

typedef struct lists_of {
    int sources[3], destinations[3]; /* -1: no more */
} lists_of;

typedef struct mismatch {
    const char *name;
    lists_of ranks[3];
    uint64_t rounds[3];   /* numbers; 0: counted */
    const char *words[3]; /* in the message of every rank */
} mismatch;

static rp_status exchange(rp_comm *comm, const lists_of *who, uint64_t round) {
    rp_neighbor sources[3], destinations[3];
    rp_neighbors lists = {
        .self_weight = 1, .sources = sources, .destinations = destinations, .round = round};
    for (int i = 0; i < 3 && who->sources[i] >= 0; i++)
        sources[lists.source_count++] = (rp_neighbor){who->sources[i], 1};
    for (int i = 0; i < 3 && who->destinations[i] >= 0; i++)
        destinations[lists.destination_count++] = (rp_neighbor){who->destinations[i], 1};
    float x[32] = {0};
    rp_segment segment = {.data = x, .count = 32, .dtype = RP_F32};
    return rp_neighbor_all_reduce(comm, &segment, NULL, 1, &lists, NULL);
}

/* A rank that is done before the others find out has it in its next operation. */
static void mismatch_world(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    const mismatch *m = context;
    rp_status status = exchange(comm, &m->ranks[rank], m->rounds[rank]);
    int64_t give_up = rpi_now_ns() + 30 * RPI_SECOND_NS;
    while (status == RP_OK && rpi_now_ns() < give_up) status = rp_barrier(comm);
    const char *message = rp_last_error()->message;
    CHECK_MSG(status == RP_MISMATCH, "%s, rank %d: %s (%s)", m->name, rank,
              rp_status_name(status), message);
    for (int i = 0; i < 3 && m->words[i]; i++)
        CHECK_MSG(strstr(message, m->words[i]), "%s: '%s' lacks '%s'", m->name, message,
                  m->words[i]);
}

static const mismatch mismatches[] = {
    {.name = "sent and not expected",
     .ranks = {{{-1}, {1, -1}}, {{2, -1}, {-1}}, {{-1}, {1, -1}}},
     .words = {"neighbor-all-reduce 1", "rank 0 sends its vector to rank 1"}},
    {.name = "expected and not sent",
     .ranks = {{{1, -1}, {-1}}, {{2, -1}, {2, -1}}, {{1, -1}, {1, -1}}},
     .words = {"neighbor-all-reduce 1", "rank 0", "rank 1"}},
    {.name = "expected by a rank that waits for another",
     .ranks = {{{1, -1}, {-1}}, {{2, -1}, {2, -1}}, {{0, -1}, {1, -1}}},
     .words = {"neighbor-all-reduce 1", "rank 1", "expects"}},
    {.name = "one names both, the others none",
     .ranks = {{{1, 2, -1}, {1, 2, -1}}, {{-1}, {-1}}, {{-1}, {-1}}},
     .words = {"rank 0", "neighbor-all-reduce 1"}},
    {.name = "other rounds",
     .ranks = {{{1, -1}, {1, -1}}, {{0, -1}, {0, -1}}, {{-1}, {-1}}},
     .rounds = {3, 4, 0},
     .words = {"neighbor-all-reduce 3", "rank 0", "rank 1"}},
    {.name = "only receivers, in a circle",
     .ranks = {{{1, -1}, {-1}}, {{2, -1}, {-1}}, {{0, -1}, {-1}}},
     .words = {"neighbor-all-reduce 1", "expects the vector of", "sends to none"}},
};

static void lists_that_do_not_match_fail_everywhere(void) {
    static const char *const transports[] = {"inproc", "tcp"};
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof mismatches / sizeof mismatches[0]; i++) {
            rp_comm_options options = RP_COMM_OPTIONS(.transport = transports[t]);
            world_run(3, &options, mismatch_world, (void *)(uintptr_t)&mismatches[i]);
        }
}

/* Rank 1 is done with the round long before rank 0 asks, having sent; nobody errs. */
static void asks_late(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    (void)world;
    static const lists_of parts[3] = {{{1, 2, -1}, {-1}}, {{-1}, {0, -1}}, {{-1}, {0, -1}}};
    if (rank == 2) rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 5);
    CHECK_OK(exchange(comm, &parts[rank], 0));
    CHECK_OK(rp_barrier(comm));
    if (rank == 1) rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 5);
    CHECK_OK(exchange(comm, &parts[rank], 0));
    CHECK_OK(rp_barrier(comm));
}

static void a_late_source_is_no_mismatch(void) {
    world_run(3, NULL, asks_late, NULL);
}

static void counts_differ(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    (void)world;
    float x[32] = {0};
    rp_segment segment = {.data = x, .count = rank ? 31 : 32, .dtype = RP_F32};
    rp_neighbor other = {1 - rank, 1};
    rp_neighbors lists = between(&other, 1);
    CHECK_FAILS(rp_neighbor_all_reduce(comm, &segment, NULL, 1, &lists, NULL), MISMATCH,
                "neighbor-all-reduce of 31 f32 with fp32");
}

static void neighbours_must_agree_on_what_they_exchange(void) {
    world_run(2, NULL, counts_differ, NULL);
}

static void leave_early(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    (void)world;
    static const lists_of path[3] = {
        {{1, -1}, {1, -1}}, {{0, 2, -1}, {0, 2, -1}}, {{1, -1}, {1, -1}}};
    CHECK_OK(exchange(comm, &path[rank], 0));
    if (rank == 2) return; /* its communicator is destroyed */
    rp_status status = exchange(comm, &path[rank], 0);
    if (status == RP_OK) status = rp_barrier(comm);
    CHECK_MSG(status == RP_PEER, "rank %d: %s", rank, rp_last_error()->message);
    CHECK_MSG(strstr(rp_last_error()->message, "rank 2"), "%s", rp_last_error()->message);
}

static void a_neighbour_that_leaves_is_named(void) {
    world_run(3, NULL, leave_early, NULL);
}

CASES({"every topology gives the serial answer", every_topology_gives_the_serial_answer},
      {"other transports", other_transports}, {"equal weights divide", equal_weights_divide},
      {"ranks without neighbours", ranks_without_neighbours},
      {"a world of one", a_world_of_one},
      {"codecs lose once an edge", codecs_lose_once_an_edge},
      {"a vector crosses an edge once", a_vector_crosses_an_edge_once},
      {"a late rank delays its neighbours alone", a_late_rank_delays_its_neighbours_alone},
      {"lists that do not match fail everywhere", lists_that_do_not_match_fail_everywhere},
      {"a late source is no mismatch", a_late_source_is_no_mismatch},
      {"neighbours must agree on what they exchange",
       neighbours_must_agree_on_what_they_exchange},
      {"a neighbour that leaves is named", a_neighbour_that_leaves_is_named})
