/* The other collectives and point to point, walking the catalogue of algorithms. */
#include "comm/thread_world.h"

#include "plan/plan.h"

#include <pthread.h>
#include <stdlib.h>

enum { MOST_RANKS = 8, MOST_COUNT = 100003 };

static const size_t counts[] = {0, 1, 5, 63, 1000, MOST_COUNT};
static const rp_dtype dtypes[] = {RP_F32, RP_I8, RP_I64};

/* Where every rank has a part of its own, the longest vector is no longer as a whole. */
static size_t part_count(size_t n, int world) {
    return counts[n] == MOST_COUNT ? MOST_COUNT / (size_t)world : counts[n];
}

/* Each rank's data, made once: bytes one by one take long under a sanitizer. */
static unsigned char patterns[MOST_RANKS][8 * MOST_COUNT];

static void make_patterns(void) {
    for (int rank = 0; rank < MOST_RANKS; rank++)
        for (size_t i = 0; i < sizeof patterns[rank]; i++)
            patterns[rank][i] = (unsigned char)(7 * rank + 13 * i + i / 251);
}

static const unsigned char *pattern_of(int rank) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_patterns);
    return patterns[rank];
}

static void fill(int rank, unsigned char *data, size_t bytes) {
    memcpy(data, pattern_of(rank), bytes);
}

static bool is_pattern(int rank, const unsigned char *data, size_t bytes) {
    return memcmp(data, pattern_of(rank), bytes) == 0;
}

/* Three hosts, uneven, in no order. */
static const int mixed_hosts[MOST_RANKS] = {0, 1, 1, 0, 0, 2, 1, 2};
static bool mixed; /* else all on one */

/* Those that know hosts also with several ranks on some. */
static void each_algorithm(rpi_collective collective, const rp_comm_options *options,
                           int last_world, world_function function) {
    for (int a = 0; rpi_algorithm_at(a); a++) {
        const rpi_algorithm *algorithm = rpi_algorithm_at(a);
        if (algorithm->collective != collective) continue;
        for (int hosts = 0; hosts < (algorithm->knows_hosts ? 2 : 1); hosts++) {
            mixed = hosts;
            world_hosts(mixed ? mixed_hosts : NULL);
            for (int world = 1; world <= last_world; world++)
                if (rpi_algorithm_fits(algorithm, world))
                    world_run(world, options, function, (void *)(uintptr_t)algorithm->name);
        }
    }
    world_hosts(NULL);
}

static const rp_comm_options small_chunks =
    RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 8192);

static void broadcast(rp_comm *comm, int rank, int world, void *context) {
    unsigned char *data = malloc(8 * MOST_COUNT);
    for (size_t d = 0; d < 3; d++)
        for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++)
            for (int root = 0; root < world; root += 1 + (n > 3)) {
                size_t bytes = counts[n] * rp_dtype_bytes(dtypes[d]);
                fill(rank, data, bytes);
                rp_collective_options options =
                    RP_COLLECTIVE_OPTIONS(.algorithm = context, .root = root);
                CHECK_OK(rp_broadcast(comm, data, counts[n], dtypes[d], &options));
                CHECK_MSG(is_pattern(root, data, bytes),
                          "%s: world %d rank %d root %d count %zu", options.algorithm, world,
                          rank, root, counts[n]);
            }
    free(data);
}

static void broadcasts_give_everybody_the_roots_data(void) {
    each_algorithm(RPI_BROADCAST, NULL, MOST_RANKS, broadcast);
    each_algorithm(RPI_BROADCAST, &small_chunks, 4, broadcast);
}

static void gather(rp_comm *comm, int rank, int world, void *context) {
    unsigned char *in = malloc(8 * MOST_COUNT), *out = malloc((size_t)world * 8 * MOST_COUNT);
    for (size_t d = 0; d < 3; d++)
        for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++)
            for (int in_place = 0; in_place < 2; in_place++) {
                size_t count = part_count(n, world);
                size_t bytes = count * rp_dtype_bytes(dtypes[d]);
                memset(out, 0xee, (size_t)world * bytes);
                unsigned char *mine = in_place ? out + (size_t)rank * bytes : in;
                fill(rank, mine, bytes);
                rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = context);
                CHECK_OK(rp_all_gather(comm, mine, out, count, dtypes[d], NULL, &options));
                for (int r = 0; r < world; r++)
                    CHECK_MSG(is_pattern(r, out + (size_t)r * bytes, bytes),
                              "%s: world %d rank %d count %zu: part %d", options.algorithm,
                              world, rank, count, r);
            }
    free(in);
    free(out);
}

static void all_gathers_give_everybody_everything(void) {
    each_algorithm(RPI_ALL_GATHER, NULL, MOST_RANKS, gather);
    each_algorithm(RPI_ALL_GATHER, &small_chunks, 4, gather);
}

static void gather_encoded(rp_comm *comm, int rank, int world, void *context) {
    enum { COUNT = 3001 };
    static float all[MOST_RANKS][MOST_RANKS * COUNT];
    float in[COUNT];
    rp_codec codec;
    REQUIRE_OK(rp_codec_parse("q4:bucket=128", &codec));
    world_fill(check_seed(), rank, in, COUNT);
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = context);
    CHECK_OK(rp_all_gather(comm, in, all[rank], COUNT, RP_F32, &codec, &options));
    world_meet();
    CHECK(memcmp(all[0], all[rank], sizeof(float) * COUNT * (size_t)world) == 0);
    double wrong = 0;
    for (size_t i = 0; i < COUNT; i++)
        wrong += pow(all[rank][(size_t)rank * COUNT + i] - in[i], 2);
    bool one_host = !mixed || world == 1;
    bool exact = one_host && strcmp(options.algorithm, "two-level") == 0;
    CHECK_MSG(sqrt(wrong / COUNT) < 0.2 && (exact ? wrong == 0 : wrong > 0 || world == 1),
              "%s: world %d: error %g", options.algorithm, world, sqrt(wrong / COUNT));
    world_meet();
}

static void all_gathers_take_codecs(void) {
    each_algorithm(RPI_ALL_GATHER, NULL, MOST_RANKS, gather_encoded);
}

static void scatter(rp_comm *comm, int rank, int world, void *context) {
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++)
        for (int in_place = 0; in_place < 2; in_place++) {
            size_t count = part_count(n, world);
            int32_t *in = calloc((size_t)world * count + 1, sizeof *in);
            int32_t *out =
                in_place ? in + (size_t)rank * count : calloc(count + 1, sizeof *out);
            for (size_t i = 0; i < (size_t)world * count; i++)
                in[i] = (int32_t)(i % 1000) * (rank + 1);
            rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = context);
            CHECK_OK(rp_reduce_scatter(comm, in, out, count, RP_I32, NULL, &options));
            bool right = true;
            for (size_t i = 0; i < count; i++) {
                size_t at = (size_t)rank * count + i;
                right &= out[i] == (int32_t)(at % 1000) * world * (world + 1) / 2;
            }
            CHECK_MSG(right, "%s: world %d rank %d count %zu", options.algorithm, world, rank,
                      count);
            if (!in_place) free(out);
            free(in);
        }
}

static void scatter_mean(rp_comm *comm, int rank, int world, void *context) {
    enum { COUNT = 2000 };
    (void)rank;
    float in[MOST_RANKS * COUNT], out[COUNT];
    for (int i = 0; i < world * COUNT; i++) in[i] = 2;
    rp_codec codec;
    REQUIRE_OK(rp_codec_parse("q4", &codec));
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.algorithm = context, .reduce = RP_AVG);
    CHECK_OK(rp_reduce_scatter(comm, in, out, COUNT, RP_F32, &codec, &options));
    for (int i = 0; i < COUNT; i++) CHECK_NEAR(out[i], 2, 1e-6);
}

static void reduce_scatters_give_each_its_part(void) {
    each_algorithm(RPI_REDUCE_SCATTER, NULL, MOST_RANKS, scatter);
    each_algorithm(RPI_REDUCE_SCATTER, &small_chunks, 4, scatter);
    each_algorithm(RPI_REDUCE_SCATTER, NULL, MOST_RANKS, scatter_mean);
}

/* ---- barrier ---- */

static int arrived[MOST_RANKS];

static void barrier(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    for (int round = 1; round <= 200; round++) {
        __atomic_store_n(&arrived[rank], round, __ATOMIC_RELEASE);
        CHECK_OK(rp_barrier(comm));
        for (int r = 0; r < world; r++)
            CHECK(__atomic_load_n(&arrived[r], __ATOMIC_ACQUIRE) >= round);
    }
    world_meet();
    arrived[rank] = 0;
}

static void nobody_leaves_a_barrier_before_all_came(void) {
    for (int world = 1; world <= MOST_RANKS; world++) world_run(world, NULL, barrier, NULL);
}

/* ---- point to point ---- */

static void round_trip(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    unsigned char *data = malloc(MOST_COUNT), *got = malloc(MOST_COUNT);
    int next = (rank + 1) % world, previous = (rank + world - 1) % world;
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
        fill(rank, data, counts[n]);
        memset(got, 0, counts[n]);
        rp_request *send = NULL, *recv = NULL;
        CHECK_OK(rp_send_start(comm, data, counts[n], RP_U8, next, 0, &send));
        CHECK_OK(rp_recv_start(comm, got, counts[n], RP_U8, previous, 0, &recv));
        CHECK_OK(rp_request_wait(&send));
        CHECK_OK(rp_request_wait(&recv));
        CHECK(is_pattern(previous, got, counts[n]));
    }
    free(data);
    free(got);
}

static void sends_meet_receives(void) {
    for (int world = 2; world <= 5; world++) world_run(world, NULL, round_trip, NULL);
    for (int world = 2; world <= 5; world++) world_run(world, &small_chunks, round_trip, NULL);
}

/* Twenty receives posted before anything is sent, answered by sends waited for backwards. */
static void crossed(rp_comm *comm, int rank, int world, void *context) {
    enum { MESSAGES = 20, COUNT = 20000 };
    (void)world, (void)context;
    int peer = 1 - rank;
    rp_request *sends[MESSAGES], *recvs[MESSAGES];
    int32_t *out = calloc(MESSAGES * COUNT, sizeof *out),
            *in = calloc(MESSAGES * COUNT, sizeof *in);
    for (int m = 0; m < MESSAGES; m++) {
        for (int i = 0; i < COUNT; i++) out[m * COUNT + i] = 1000 * rank + m;
        CHECK_OK(rp_recv_start(comm, in + m * COUNT, COUNT, RP_I32, peer, 0, &recvs[m]));
    }
    for (int m = 0; m < MESSAGES; m++)
        CHECK_OK(rp_send_start(comm, out + m * COUNT, COUNT, RP_I32, peer, 0, &sends[m]));
    for (int k = 0; k < MESSAGES; k++) {
        int m = rank ? MESSAGES - 1 - k : k;
        CHECK_OK(rp_request_wait(&recvs[m]));
        CHECK_OK(rp_request_wait(&sends[m]));
        CHECK_EQ(in[m * COUNT], 1000 * peer + m);
        CHECK_EQ(in[m * COUNT + COUNT - 1], 1000 * peer + m);
    }
    free(out);
    free(in);
}

/* Hundreds of receives whose sends come only after a collective. */
static void early_receives(rp_comm *comm, int rank, int world, void *context) {
    enum { MESSAGES = 300 };
    (void)world, (void)context;
    rp_request *recvs[MESSAGES];
    int32_t in[MESSAGES], sum[1000];
    for (int i = 0; i < 1000; i++) sum[i] = i;
    for (int m = 0; m < MESSAGES && rank == 0; m++)
        CHECK_OK(rp_recv_start(comm, &in[m], 1, RP_I32, 1, 0, &recvs[m]));
    rp_segment segment = {.data = sum, .count = 1000, .dtype = RP_I32};
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    for (int m = 0; m < MESSAGES; m++) {
        if (rank == 1) CHECK_OK(rp_send(comm, &m, 1, RP_I32, 0, 0));
        if (rank == 0) CHECK_OK(rp_request_wait(&recvs[m]));
        if (rank == 0) CHECK_EQ(in[m], m);
    }
}

static void messages_match_in_order_between_a_pair(void) {
    world_run(2, NULL, early_receives, NULL);
    world_run(2, NULL, crossed, NULL);
    rp_comm_options threaded = RP_COMM_OPTIONS(.transport = "inproc", .progress_thread = 1);
    world_run(2, &threaded, crossed, NULL);
}

CASES({"broadcasts give everybody the root's data", broadcasts_give_everybody_the_roots_data},
      {"all-gathers give everybody everything", all_gathers_give_everybody_everything},
      {"all-gathers take codecs", all_gathers_take_codecs},
      {"reduce-scatters give each its part", reduce_scatters_give_each_its_part},
      {"nobody leaves a barrier before all came", nobody_leaves_a_barrier_before_all_came},
      {"sends meet receives", sends_meet_receives},
      {"messages match in order between a pair", messages_match_in_order_between_a_pair})
