/* Algorithms that know hosts, over threads that count as being on several: sums, replicas, what
 * crosses hosts, and error feedback. */
#include "comm/core/communicator.h"

#include "codec/codec.h"
#include "comm/thread_world.h"

#include <stdlib.h>

enum { MOST_RANKS = 7, MOST_COUNT = 70001 };

static const struct {
    int world;
    int host_of[MOST_RANKS];
    const char *words;
} layouts[] = {
    {2, {0, 0}, "both on one host"},
    {2, {0, 1}, "a host each"},
    {4, {0, 0, 1, 1}, "two of two"},
    {4, {0, 1, 0, 1}, "two of two, in turns"},
    {6, {0, 0, 1, 1, 2, 2}, "three of two"},
    {7, {0, 0, 0, 0, 1, 1, 2}, "four, two and one"},
    {7, {0, 1, 1, 1, 2, 0, 1}, "all mixed up"},
    {5, {0, 0, 0, 0, 0}, "five on one host"},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static const struct {
    const char *codec;
    double budget; /* relative L2 of the sum */
} codecs[] = {{"fp32", 1e-6},
              {"bf16", 0.03},
              {"q4", 0.8},
              {"q8:bucket=100,rounding=stochastic", 0.1},
              {"q1:bucket=33", 12}};

static const size_t counts[] = {0, 1, 5, 64, 1000, MOST_COUNT};

static float results[MOST_RANKS][MOST_COUNT];

static void each_layout(const rp_comm_options *options, world_function function) {
    for (int i = 0; i < LAYOUTS; i++) {
        int before = check_failures();
        world_hosts(layouts[i].host_of);
        world_run(layouts[i].world, options, function, NULL);
        if (check_failures() > before) printf("  (%s)\n", layouts[i].words);
    }
    world_hosts(NULL);
}

/* Hosts are numbered in the order in which ranks name them, and again for a group. */
static void number_hosts(rp_comm *comm, int rank, int world, void *context) {
    const int *host_of = context;
    int members[MOST_RANKS], count = world - 1;
    rp_comm *group = NULL;
    bool on_one = true;
    for (int r = 0; r < world; r++) {
        CHECK_EQ(comm->hosts[r], host_of[r]);
        on_one &= host_of[r] == host_of[rank];
        members[r] = world - 1 - r; /* without rank 0, the last rank first */
    }
    CHECK_EQ(comm->one_host, on_one);
    if (rank == 0 || count < 2) return;
    REQUIRE_OK(rp_comm_group(comm, members, count,
                             &(rp_comm_options)RP_COMM_OPTIONS(.name = "others"), &group));
    CHECK_EQ(group->hosts[0], 0);
    for (int m = 1; m < count; m++)
        for (int n = 0; n < m; n++)
            CHECK_EQ(group->hosts[m] == group->hosts[n],
                     host_of[members[m]] == host_of[members[n]]);
    rp_comm_destroy(group);
}

static void hosts_are_numbered(void) {
    for (int i = 0; i < LAYOUTS; i++) {
        world_hosts(layouts[i].host_of);
        world_run(layouts[i].world, NULL, number_hosts, (void *)(uintptr_t)layouts[i].host_of);
    }
    world_hosts(NULL);
}

static void sum_once(rp_comm *comm, int rank, const char *codec, size_t count, bool mean) {
    rp_segment segment = {.data = results[rank], .count = count, .dtype = RP_F32};
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.algorithm = "two-level", .reduce = mean ? RP_AVG : RP_SUM,
                              .seed = 3);
    CHECK_OK(rp_codec_parse(codec, &segment.codec));
    world_fill(check_seed(), rank, results[rank], count);
    CHECK_OK(rp_all_reduce(comm, &segment, 1, &options));
}

static void check_all(int world, size_t c, size_t count, bool mean) {
    for (int r = 1; r < world; r++)
        CHECK_MSG(memcmp(results[0], results[r], count * sizeof(float)) == 0,
                  "%s, %zu elements: rank %d differs from rank 0", codecs[c].codec, count, r);
    double error = world_error(check_seed(), world, results[0], count, mean ? 1.0 / world : 1);
    CHECK_MSG(error <= codecs[c].budget, "%s, %zu elements: error %g", codecs[c].codec, count,
              error);
}

static void sums(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    for (size_t c = 0; c < sizeof codecs / sizeof codecs[0]; c++)
        for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
            sum_once(comm, rank, codecs[c].codec, counts[n], n % 2);
            world_meet();
            if (rank == 0) check_all(world, c, counts[n], n % 2);
            world_meet();
        }
}

static void every_layout_codec_and_count(void) {
    each_layout(NULL, sums);
}

static void the_same_in_tiny_chunks(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 4096, .chunks_in_flight = 3);
    each_layout(&options, sums);
}

/* Lossy codecs lose between hosts only: small integers on one host come out as they are. */
static void one_host_is_exact(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    for (size_t i = 0; i < 1000; i++) results[rank][i] = (float)(int)(i % 17) + (float)rank;
    rp_segment segment = {.data = results[rank], .count = 1000, .dtype = RP_F32};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = "two-level");
    CHECK_OK(rp_codec_parse("q1", &segment.codec));
    CHECK_OK(rp_all_reduce(comm, &segment, 1, &options));
    for (size_t i = 0; i < 1000; i++)
        CHECK_NEAR(results[rank][i], (double)(i % 17) * world + world * (world - 1) / 2.0, 0);
}

static void a_lossy_codec_is_exact_inside_a_host(void) {
    static const int host_of[MOST_RANKS] = {0};
    world_hosts(host_of);
    world_run(4, NULL, one_host_is_exact, NULL);
    world_hosts(NULL);
}

/* Granules that fit a frame encoded and not as they are. */
static void long_buckets(rp_comm *comm, int rank, int world, void *context) {
    enum { COUNT = 300000 };
    static float values[4][COUNT];
    rp_segment segment = {.data = values[rank], .count = COUNT, .dtype = RP_F32};
    rp_collective_options named = RP_COLLECTIVE_OPTIONS(.algorithm = "two-level");
    (void)context;
    CHECK_OK(rp_codec_parse("q8:bucket=200000", &segment.codec));
    world_fill(check_seed(), rank, values[rank], COUNT);
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1, &named), UNSUPPORTED, "use a smaller bucket");
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    double error = world_error(check_seed(), world, values[rank], COUNT, 1);
    CHECK_MSG(error < 0.1, "error %g", error);
}

static void buckets_longer_than_a_frame_go_another_way(void) {
    static const int host_of[MOST_RANKS] = {0, 0, 1, 1};
    world_hosts(host_of);
    world_run(4, NULL, long_buckets, NULL);
    world_hosts(NULL);
}

/* 16-bit data and reductions that are no sums. */
static void other_reductions(rp_comm *comm, int rank, int world, void *context) {
    enum { COUNT = 3001 };
    (void)context;
    int32_t *most = malloc(COUNT * sizeof *most);
    uint16_t *half = malloc(COUNT * sizeof *half);
    for (int i = 0; i < COUNT; i++) {
        most[i] = (i * 31 + rank * 17) % 1009;
        half[i] = rp_f32_to_bf16((float)(i % 5 + rank));
    }
    rp_segment segment = {.data = most, .count = COUNT, .dtype = RP_I32};
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.algorithm = "two-level", .reduce = RP_MAX);
    CHECK_OK(rp_all_reduce(comm, &segment, 1, &options));
    segment = (rp_segment){.data = half, .count = COUNT, .dtype = RP_BF16};
    options.reduce = RP_SUM;
    CHECK_OK(rp_all_reduce(comm, &segment, 1, &options));
    for (int i = 0; i < COUNT; i++) {
        int wanted = 0;
        for (int r = 0; r < world; r++)
            if ((i * 31 + r * 17) % 1009 > wanted) wanted = (i * 31 + r * 17) % 1009;
        CHECK_EQ(most[i], wanted);
        CHECK_EQ(half[i], rp_f32_to_bf16((float)(i % 5 * world + world * (world - 1) / 2)));
    }
    free(most);
    free(half);
}

static void other_reductions_and_dtypes(void) {
    each_layout(NULL, other_reductions);
}

/* With error feedback what one call loses the next ones make good: the mean of many sums of one
 * input comes ever closer to the exact sum. */
static void with_feedback(rp_comm *comm, int rank, int world, void *context) {
    enum { COUNT = 2000, STEPS = 64 };
    static float totals[MOST_RANKS][COUNT];
    (void)context;
    float *x = malloc(COUNT * sizeof *x), *residual = calloc(COUNT, sizeof *residual);
    memset(totals[rank], 0, sizeof totals[rank]);
    for (int step = 0; step < STEPS; step++) {
        world_fill(check_seed(), rank, x, COUNT);
        rp_segment segment = {.data = x, .count = COUNT, .dtype = RP_F32, .residual = residual};
        rp_collective_options options =
            RP_COLLECTIVE_OPTIONS(.algorithm = "two-level", .step = (uint64_t)step);
        CHECK_OK(rp_codec_parse("q4:bucket=64", &segment.codec));
        CHECK_OK(rp_all_reduce(comm, &segment, 1, &options));
        for (int i = 0; i < COUNT; i++) totals[rank][i] += x[i] / STEPS;
    }
    double error = world_error(check_seed(), world, totals[rank], COUNT, 1);
    CHECK_MSG(error < 0.02, "world %d: error %g after %d steps", world, error, STEPS);
    free(x);
    free(residual);
}

static void error_feedback_goes_between_hosts(void) {
    each_layout(NULL, with_feedback);
}

/* ---- misuse ---- */

static void refusals(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    (void)world;
    rp_segment segment = {.data = results[rank], .count = 10, .dtype = RP_F32};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = "doubling");
    CHECK_OK(rp_codec_parse("q4", &segment.codec));
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1, &options), UNSUPPORTED,
                "all-reduce 'doubling' takes no lossy codec");
    rp_comm *other = NULL;
    rp_comm_options wrong =
        RP_COMM_OPTIONS(.host = "a host with far too long a name, longer than any name "
                                "of a host has ever been in this or any other world");
    CHECK_FAILS(rp_comm_create(NULL, 0, 1, &wrong, &other), INVALID, "up to 63");
    wrong.host = "";
    CHECK_FAILS(rp_comm_create(NULL, 0, 1, &wrong, &other), INVALID, "host is empty");
    CHECK_OK(rp_barrier(comm));
}

static void misuse_is_refused(void) {
    world_hosts(layouts[2].host_of);
    world_run(4, NULL, refusals, NULL);
    world_hosts(NULL);
}

CASES({"hosts are numbered", hosts_are_numbered},
      {"every layout, codec and count", every_layout_codec_and_count},
      {"the same in tiny chunks", the_same_in_tiny_chunks},
      {"a lossy codec is exact inside a host", a_lossy_codec_is_exact_inside_a_host},
      {"other reductions and dtypes", other_reductions_and_dtypes},
      {"error feedback goes between hosts", error_feedback_goes_between_hosts},
      {"buckets longer than a frame go another way",
       buckets_longer_than_a_frame_go_another_way},
      {"misuse is refused", misuse_is_refused})
