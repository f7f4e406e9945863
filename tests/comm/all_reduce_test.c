/* All-reduce over the whole table: algorithms x codecs x worlds x counts, ranks as threads. */
#include "comm/thread_world.h"

#include "base/clock.h"
#include "codec/codec.h"
#include "plan/plan.h"

#include <stdlib.h>

enum { MOST_RANKS = 8, MOST_ELEMENTS = 300000 };

/* Results of all ranks, for rank 0 to compare. */
static float results[MOST_RANKS][MOST_ELEMENTS];

typedef struct job {
    const char *algorithm, *codec;
    size_t count;
    rp_reduction reduce;
    uint64_t seed, step;
    bool exact; /* the algorithm takes no other codec */
} job;

static rp_codec codec_of(const char *text) {
    rp_codec codec = {0};
    CHECK_OK(rp_codec_parse(text, &codec));
    return codec;
}

static void reduce_once(rp_comm *comm, const job *j) {
    int rank = rp_comm_rank(comm);
    world_fill(j->seed, rank, results[rank], j->count);
    rp_segment segment = {
        .data = results[rank], .count = j->count, .dtype = RP_F32, .codec = codec_of(j->codec)};
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.algorithm = j->algorithm, .reduce = j->reduce, .seed = j->seed,
                              .step = j->step);
    CHECK_OK(rp_all_reduce(comm, &segment, 1, &options));
}

static void check_replicas(const job *j, int world) {
    for (int rank = 1; rank < world; rank++)
        CHECK_MSG(memcmp(results[0], results[rank], j->count * sizeof(float)) == 0,
                  "%s %s world %d count %zu: rank %d differs from rank 0", j->algorithm,
                  j->codec, world, j->count, rank);
}

/* All ranks reduce; rank 0 compares. Returns the relative L2 error there. */
static double reduce_and_compare(rp_comm *comm, const job *j) {
    int world = rp_comm_world(comm);
    double error = 0, scale = j->reduce == RP_AVG ? 1.0 / world : 1;
    reduce_once(comm, j);
    world_meet();
    if (rp_comm_rank(comm) == 0) {
        check_replicas(j, world);
        error = world_error(j->seed, world, results[0], j->count, scale);
    }
    world_meet();
    return error;
}

static const size_t counts[] = {0, 1, 3, 7, 64, 511, 513, 1000, 4099, 70001};

/* Budget: relative L2 of the sum, generous; the tables below are exact about it. */
static const struct {
    const char *codec;
    double budget;
} codecs[] = {{"fp32", 1e-6},         {"bf16", 0.03}, {"fp16", 0.004},
              {"q8", 0.05},           {"q4", 0.8},    {"q4:bucket=33,rounding=stochastic", 1.2},
              {"q3:bucket=128", 1.8}, {"q1", 12}};

static void walk_table(rp_comm *comm, int rank, int world, void *context) {
    const job *base = context;
    for (size_t c = 0; c < sizeof codecs / sizeof codecs[0]; c++)
        for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
            job j = *base;
            j.codec = codecs[c].codec;
            if (c && base->exact) continue;
            j.count = counts[n];
            j.step = n;
            double error = reduce_and_compare(comm, &j);
            CHECK_MSG(rank || error <= codecs[c].budget, "%s %s world %d count %zu: error %g",
                      j.algorithm, j.codec, world, j.count, error);
        }
}

static void walk_algorithms(const rp_comm_options *options, int first_world, int last_world) {
    for (int a = 0; rpi_algorithm_at(a); a++) {
        if (rpi_algorithm_at(a)->collective != RPI_ALL_REDUCE) continue;
        job base = {.algorithm = rpi_algorithm_at(a)->name,
                    .seed = check_seed(),
                    .exact = rpi_algorithm_at(a)->exact};
        for (int world = first_world; world <= last_world; world++)
            world_run(world, options, walk_table, &base);
    }
}

static void every_algorithm_codec_world_and_count(void) {
    walk_algorithms(NULL, 1, MOST_RANKS);
}

static void the_same_with_tiny_chunks(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 4096, .chunks_in_flight = 3);
    walk_algorithms(&options, 3, 4);
}

static void the_same_with_progress_threads(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .progress_thread = 1, .chunk_bytes = 65536);
    walk_algorithms(&options, 2, 3);
}

/* ---- what the values are, to the bit ---- */

static void exact_sra(rp_comm *comm, int rank, int world, void *context) {
    enum { COUNT = 100003 };
    uint64_t seed = check_seed();
    rp_reduction reduce = *(rp_reduction *)context;
    job j = {
        .algorithm = "sra", .codec = "fp32", .count = COUNT, .seed = seed, .reduce = reduce};
    reduce_and_compare(comm, &j);
    if (rank) return;
    float *sum = calloc(COUNT, sizeof *sum), *x = calloc(COUNT, sizeof *x);
    world_fill(seed, 0, sum, COUNT);
    for (int r = 1; r < world; r++) {
        world_fill(seed, r, x, COUNT);
        for (size_t i = 0; i < COUNT; i++) sum[i] += x[i];
    }
    for (size_t i = 0; reduce == RP_AVG && i < COUNT; i++) sum[i] /= (float)world;
    CHECK_MSG(memcmp(sum, results[0], COUNT * sizeof *sum) == 0,
              "world %d: not the sum in rank order", world);
    free(sum);
    free(x);
}

static void exact_sra_adds_in_rank_order_and_divides(void) {
    rp_reduction reductions[] = {RP_SUM, RP_AVG};
    for (int i = 0; i < 2; i++)
        for (int world = 1; world <= 5; world++)
            world_run(world, NULL, exact_sra, &reductions[i]);
}

static void mean(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    static const char *const algorithms[] = {"sra",      "ring",    "two-level", "halving",
                                             "doubling", "oneshot", "star"};
    for (int a = 0; a < 7; a++)
        for (size_t c = 0; c < (a < 4 ? 4 : 1); c++) {
            job j = {.algorithm = algorithms[a],
                     .codec = codecs[c].codec,
                     .count = 20011,
                     .seed = check_seed(),
                     .reduce = RP_AVG};
            double error = reduce_and_compare(comm, &j);
            CHECK_MSG(rank || error <= codecs[c].budget, "mean by %s, %s, world %d: %g",
                      algorithms[a], j.codec, world, error);
        }
}

static void means_divide_once(void) {
    for (int world = 1; world <= 4; world++) world_run(world, NULL, mean, NULL);
}

/* Small integers: every order of adding gives the same, in every dtype. */
static void put(rp_dtype dtype, void *data, size_t i, int value) {
    switch (dtype) {
    case RP_F32: ((float *)data)[i] = (float)value; break;
    case RP_F64: ((double *)data)[i] = value; break;
    case RP_F16: ((uint16_t *)data)[i] = rp_f32_to_f16((float)value); break;
    case RP_BF16: ((uint16_t *)data)[i] = rp_f32_to_bf16((float)value); break;
    case RP_I8:
    case RP_U8: ((uint8_t *)data)[i] = (uint8_t)value; break;
    case RP_I16:
    case RP_U16: ((int16_t *)data)[i] = (int16_t)value; break;
    case RP_I32:
    case RP_U32: ((int32_t *)data)[i] = value; break;
    case RP_I64:
    case RP_U64: ((int64_t *)data)[i] = value; break;
    case RP_BOOL: ((uint8_t *)data)[i] = value > 0; break; /* their sum is "or" */
    case RP_C64:
        put(RP_F32, data, 2 * i, value);
        put(RP_F32, data, 2 * i + 1, -2 * value);
        break;
    case RP_C128:
        put(RP_F64, data, 2 * i, value);
        put(RP_F64, data, 2 * i + 1, -2 * value);
        break;
    }
}

static void all_dtypes(rp_comm *comm, int rank, int world, void *context) {
    enum { COUNT = 5001 };
    static const char *const algorithms[] = {"sra",      "ring",    "halving",
                                             "doubling", "oneshot", "star"};
    (void)context;
    int64_t *data = calloc(COUNT, 16), *wanted = calloc(COUNT, 16);
    for (rp_dtype dtype = RP_F32; rp_dtype_bytes(dtype); dtype++)
        for (int a = 0; a < 6; a++) {
            for (size_t i = 0; i < COUNT; i++) {
                put(dtype, data, i, (int)(i % 7) + rank);
                put(dtype, wanted, i, (int)(i % 7) * world + world * (world - 1) / 2);
            }
            rp_segment segment = {.data = data, .count = COUNT, .dtype = dtype};
            rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = algorithms[a]);
            CHECK_OK(rp_all_reduce(comm, &segment, 1, &options));
            CHECK_MSG(memcmp(data, wanted, COUNT * rp_dtype_bytes(dtype)) == 0,
                      "%s by %s in a world of %d", rp_dtype_name(dtype), options.algorithm,
                      world);
        }
    free(data);
    free(wanted);
}

static void every_dtype_sums_exactly(void) {
    for (int world = 1; world <= 4; world++) world_run(world, NULL, all_dtypes, NULL);
}

/* ---- lists of segments ---- */

static void mixed_list(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    enum { SEGMENTS = 9 };
    static const size_t sizes[SEGMENTS] = {10, 0, 5000, 1, 70000, 512, 33, 100000, 3};
    static const char *const kinds[SEGMENTS] = {"fp32", "q4", "q4",   "fp32", "q8:bucket=64",
                                                "bf16", "q2", "fp32", "q4"};
    rp_segment segments[SEGMENTS];
    size_t at = 0;
    world_fill(check_seed(), rank, results[rank], MOST_ELEMENTS);
    for (int s = 0; s < SEGMENTS; s++) {
        segments[s] = (rp_segment){.data = results[rank] + at,
                                   .count = sizes[s],
                                   .dtype = RP_F32,
                                   .codec = codec_of(kinds[s]),
                                   .tensor = (uint32_t)s};
        at += sizes[s] + 5; /* elements between segments are left alone */
    }
    CHECK_OK(rp_all_reduce(comm, segments, SEGMENTS, NULL));
    world_meet();
    if (rank == 0) {
        float *sum = calloc(at, sizeof *sum), *x = calloc(at, sizeof *x);
        for (int r = 0; r < world; r++) {
            world_fill(check_seed(), r, x, at);
            for (size_t i = 0; i < at; i++) sum[i] += x[i];
        }
        for (int s = 0, from = 0; s < SEGMENTS; s++) {
            for (int r = 1; r < world; r++)
                CHECK(memcmp(results[0] + from, results[r] + from, sizes[s] * 4) == 0);
            bool exact = rp_codec_is_exact(&segments[s].codec, RP_F32);
            double wrong = 0, right = 0;
            for (size_t i = 0; i < sizes[s]; i++) {
                double d = results[0][from + (int)i] - sum[from + (int)i];
                wrong += d * d;
                right += sum[from + (int)i] * sum[from + (int)i];
            }
            CHECK_MSG(sqrt(wrong) <= (exact ? 0 : 1.2) * sqrt(right),
                      "segment %d, world %d: %g", s, world, sqrt(wrong / right));
            from += (int)sizes[s] + 5;
        }
        float gap[5];
        memcpy(gap, x, 0);
        world_fill(check_seed(), 0, x, at);
        CHECK(memcmp(x + sizes[0], results[0] + sizes[0], sizeof gap) == 0);
        free(sum);
        free(x);
    }
    world_meet();
}

static void lists_mix_codecs(void) {
    for (int world = 1; world <= 6; world++) world_run(world, NULL, mixed_list, NULL);
}

/* ---- the error tables of the reference ---- */

typedef struct table_row {
    const char *algorithm, *codec;
    double wanted;
} table_row;

/* The table ends with zeros. One world for all rows: to make one takes longer than a row. */
static void measure_errors(rp_comm *comm, int rank, int world, void *context) {
    for (const table_row *row = context; row->codec; row++) {
        job j = {.algorithm = row->algorithm, .codec = row->codec, .count = 262144, .seed = 11};
        double error = reduce_and_compare(comm, &j);
        CHECK_MSG(rank || fabs(error - row->wanted) <= 0.03 * row->wanted,
                  "%s, %s, %d ranks: %g, not %g", row->algorithm, row->codec, world, error,
                  row->wanted);
    }
}

static void errors_are_those_of_the_reference(void) {
    static table_row eight[] = {{"sra", "q2", 0.875},
                                {"sra", "q3", 0.350},
                                {"sra", "q4", 0.161},
                                {"sra", "q5", 0.0779},
                                {"sra", "q6", 0.0383},
                                {"sra", "q7", 0.0190},
                                {"sra", "q8", 0.00945},
                                {"ring", "q2", 1.59},
                                {"ring", "q3", 0.577},
                                {"ring", "q4", 0.253},
                                {"ring", "q5", 0.121},
                                {"ring", "q6", 0.0595},
                                {"ring", "q7", 0.0294},
                                {"ring", "q8", 0.0147},
                                {"sra", "q1", 7.14},
                                {"sra", "q4:bucket=64", 0.123},
                                {"sra", "q4:bucket=128", 0.137},
                                {"sra", "q4:bucket=256", 0.150},
                                {"sra", "q4:bucket=1024", 0.172},
                                {"sra", "q4:bucket=2048", 0.183},
                                {"sra", "q4:bucket=16384", 0.212},
                                {0}};
    static table_row two[] = {{"sra", "q4", 0.144}, {"sra", "q1", 3.68}, {0}};
    world_run(8, NULL, measure_errors, eight);
    world_run(2, NULL, measure_errors, two);
}

/* ---- error feedback ---- */

/* With feedback the mean of repeated results approaches the true sum; without it stays off. */
static void repeat(rp_comm *comm, int rank, int world, void *context) {
    enum { COUNT = 4096, ROUNDS = 40 };
    double *off = context;
    for (int feedback = 0; feedback < 2; feedback++) {
        float *x = calloc(COUNT, sizeof *x), *residual = calloc(COUNT, sizeof *residual);
        double *total = calloc(COUNT, sizeof *total);
        for (int round = 0; round < ROUNDS; round++) {
            world_fill(3, rank, x, COUNT);
            rp_segment segment = {.data = x,
                                  .count = COUNT,
                                  .dtype = RP_F32,
                                  .codec = codec_of("q2"),
                                  .residual = feedback ? residual : NULL};
            CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
            for (size_t i = 0; i < COUNT; i++) total[i] += x[i];
        }
        for (size_t i = 0; i < COUNT; i++) x[i] = (float)(total[i] / ROUNDS);
        if (rank == 0) off[feedback] = world_error(3, world, x, COUNT, 1);
        free(x);
        free(residual);
        free(total);
    }
}

static void error_feedback_makes_up_for_what_was_lost(void) {
    double off[2] = {0};
    world_run(4, NULL, repeat, off);
    CHECK_MSG(off[1] < off[0] / 10, "error of the mean of 40: %g without, %g with feedback",
              off[0], off[1]);
}

/* ---- accounts ---- */

/* No more than went by. */
static void check_spent(double before_s, double after_s, double wall_s) {
    CHECK_MSG(after_s - before_s <= wall_s + 1e-6, "%g s before, %g s after %g s", before_s,
              after_s, wall_s);
}

static void count_bytes(rp_comm *comm, int rank, int world, void *context) {
    enum { COUNT = 1 << 20 };
    (void)rank;
    const char *algorithm = context;
    float *x = calloc(COUNT, sizeof *x);
    for (size_t c = 0; c < 5; c++) {
        rp_segment segment = {
            .data = x, .count = COUNT, .dtype = RP_F32, .codec = codec_of(codecs[c].codec)};
        rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = algorithm);
        rp_comm_stats before, after;
        CHECK_OK(rp_barrier(comm));
        int64_t begin_ns = rpi_now_ns();
        rp_comm_get_stats(comm, &before);
        CHECK_OK(rp_all_reduce(comm, &segment, 1, &options));
        rp_comm_get_stats(comm, &after);
        double wall_s = rpi_seconds(rpi_now_ns() - begin_ns);
        double size = (double)rp_codec_encoded_bytes(&segment.codec, RP_F32, COUNT);
        double wanted = 2 * size * (world - 1) / world;
        double sent = (double)(after.wire_bytes_sent - before.wire_bytes_sent);
        CHECK_MSG(fabs(sent - wanted) <= 0.02 * wanted, "%s %s world %d: %.0f bytes, not %.0f",
                  algorithm, codecs[c].codec, world, sent, wanted);
        double values = (double)(after.value_bytes_sent - before.value_bytes_sent);
        CHECK_NEAR(values * world / (world - 1) / (2 * COUNT * sizeof(float)), 1, 0.01);
        CHECK_EQ(after.operations - before.operations, 1);
        CHECK(after.busy_s > before.busy_s && after.wait_s >= before.wait_s);
        CHECK(after.encode_s > before.encode_s && after.decode_s > before.decode_s);
        check_spent(before.busy_s, after.busy_s, wall_s);
        check_spent(before.wait_s, after.wait_s, wall_s);
        check_spent(before.encode_s, after.encode_s, wall_s);
        check_spent(before.decode_s, after.decode_s, wall_s);
    }
    free(x);
}

/* A receive that nobody has sent anything for is in flight, until it is answered. */
static void be_busy(rp_comm *comm, int rank, int world, void *context) {
    rp_comm_stats idle, first, second;
    rp_request *request = NULL;
    float x = 0;
    (void)world, (void)context;
    CHECK_OK(rp_barrier(comm));
    rp_comm_get_stats(comm, &first);
    rp_comm_get_stats(comm, &idle);
    CHECK(idle.busy_s == first.busy_s);
    int64_t begin_ns = rpi_now_ns();
    if (rank == 0) CHECK_OK(rp_recv_start(comm, &x, 1, RP_F32, 1, 0, &request));
    if (rank == 0) {
        rp_comm_get_stats(comm, &first);
        rpi_sleep_until_ns(rpi_now_ns() + 1000);
        rp_comm_get_stats(comm, &second);
        double wall_s = rpi_seconds(rpi_now_ns() - begin_ns);
        CHECK(first.busy_s >= idle.busy_s && second.busy_s > first.busy_s);
        check_spent(idle.busy_s, second.busy_s, wall_s);
    }
    world_meet();
    if (rank == 1) CHECK_OK(rp_send(comm, &x, 1, RP_F32, 0, 0));
    if (rank == 0) CHECK_OK(rp_request_wait(&request));
}

static void an_operation_in_flight_counts(void) {
    world_run(2, NULL, be_busy, NULL);
}

static void wire_bytes_meet_the_formula(void) {
    for (int world = 2; world <= 4; world++) {
        world_run(world, NULL, count_bytes, "sra");
        world_run(world, NULL, count_bytes, "ring");
    }
}

CASES({"every algorithm, codec, world and count", every_algorithm_codec_world_and_count},
      {"the same with tiny chunks", the_same_with_tiny_chunks},
      {"the same with progress threads", the_same_with_progress_threads},
      {"exact SRA adds in rank order and divides", exact_sra_adds_in_rank_order_and_divides},
      {"means divide once", means_divide_once},
      {"every dtype sums exactly", every_dtype_sums_exactly},
      {"lists mix codecs", lists_mix_codecs},
      {"errors are those of the reference", errors_are_those_of_the_reference},
      {"error feedback makes up for what was lost", error_feedback_makes_up_for_what_was_lost},
      {"wire bytes meet the formula", wire_bytes_meet_the_formula},
      {"an operation in flight counts", an_operation_in_flight_counts})
