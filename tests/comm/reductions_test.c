/* Every reduction of every dtype: the loops alone on every instruction set, and through every
 * algorithm that reduces, against the serial answer. */
#include "comm/values/reductions.h"

#include "comm/serial.h"
#include "comm/thread_world.h"
#include "comm/values/values.h"
#include "plan/plan.h"

#include <stdlib.h>

enum { MOST_RANKS = 7, REDUCTIONS = RP_PREMUL_SUM + 1 };

static const int worlds[] = {1, 2, 3, 5, 7};

typedef void (*pair_function)(rp_reduction reduction, rp_dtype dtype, void *context);

static void each_pair(pair_function function, void *context) {
    for (rp_dtype dtype = RP_F32; rp_dtype_bytes(dtype); dtype++)
        for (int r = 0; r < REDUCTIONS; r++)
            if (serial_takes((rp_reduction)r, dtype)) function((rp_reduction)r, dtype, context);
}

/* ---- the loops alone ---- */

/* Two inputs, the second at an odd address, into an accumulator of the sum's dtype. */
static void combine_two(rp_reduction reduction, rp_dtype dtype, void *context) {
    enum { COUNT = 4099 };
    rpi_isa isa = *(rpi_isa *)context;
    rp_dtype sum_dtype = rpi_sum_dtype(dtype);
    size_t bytes = rp_dtype_bytes(dtype);
    char *a = malloc(COUNT * bytes), *b = malloc(COUNT * bytes),
         *odd = malloc(COUNT * bytes + 1);
    char *sum = malloc(COUNT * 16), *got = malloc(COUNT * 16), *wanted = malloc(COUNT * 16);
    void *inputs[] = {a, b};
    serial_fill(SERIAL_ANY, dtype, check_seed(), 0, a, COUNT);
    serial_fill(SERIAL_ANY, dtype, check_seed(), 1, b, COUNT);
    memcpy(odd + 1, b, COUNT * bytes);
    rpi_values_convert(a, dtype, sum, sum_dtype, COUNT);
    rpi_reduce(reduction, isa, dtype, odd + 1, COUNT, sum);
    rpi_values_convert(sum, sum_dtype, got, dtype, COUNT);
    serial_reduce(reduction, dtype, inputs, 2, COUNT, wanted);
    size_t i = serial_differs(dtype, got, wanted, COUNT);
    CHECK_MSG(i == COUNT, "%s of %s with %s: element %zu", rpi_reduction_name(reduction),
              rp_dtype_name(dtype), rpi_isa_name(isa), i);
    free(a), free(b), free(odd), free(sum), free(got), free(wanted);
}

/* The mean and the factor are not the loops' matter. */
static void combine_two_if_plain(rp_reduction reduction, rp_dtype dtype, void *context) {
    if (reduction != RP_AVG && reduction != RP_PREMUL_SUM)
        combine_two(reduction, dtype, context);
}

static void loops_give_the_serial_answer_on_every_isa(void) {
    for (int isa = 0; isa <= (int)rpi_cpu_isa_max(); isa++) {
        rpi_isa this_one = (rpi_isa)isa;
        each_pair(combine_two_if_plain, &this_one);
    }
}

static void a_nan_wins(void) {
    float nan_first[] = {NAN, 1, -INFINITY, INFINITY}, other[] = {1, NAN, NAN, NAN};
    for (int isa = 0; isa <= (int)rpi_cpu_isa_max(); isa++)
        for (int r = RP_MIN; r <= RP_MAX; r++) {
            float x[4];
            memcpy(x, nan_first, sizeof x);
            rpi_reduce((rp_reduction)r, (rpi_isa)isa, RP_F32, other, 4, x);
            for (int i = 0; i < 4; i++) CHECK(isnan(x[i]));
        }
}

/* All finite halves, and what lies between them. */
static void narrowing_is_the_same_on_every_isa(void) {
    enum { COUNT = 100003 };
    float *x = malloc(COUNT * sizeof *x);
    uint16_t *got = malloc(2 * COUNT), *wanted = malloc(2 * COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t bits = i * 42949u; /* spread over all there are */
        memcpy(&x[i], &bits, sizeof bits);
    }
    for (int isa = 1; isa <= (int)rpi_cpu_isa_max(); isa++) {
        rpi_narrow(RPI_ISA_SCALAR)->f16(x, COUNT, wanted);
        rpi_narrow((rpi_isa)isa)->f16(x, COUNT, got);
        CHECK(memcmp(got, wanted, 2 * COUNT) == 0);
        rpi_narrow(RPI_ISA_SCALAR)->bf16(x, COUNT, wanted);
        rpi_narrow((rpi_isa)isa)->bf16(x, COUNT, got);
        CHECK(memcmp(got, wanted, 2 * COUNT) == 0);
    }
    free(x), free(got), free(wanted);
}

static void what_is_not_defined_is_refused_in_words(void) {
    rp_codec exact = {0}, lossy = {0}, bf16 = {0};
    REQUIRE_OK(rp_codec_parse("q4", &lossy));
    REQUIRE_OK(rp_codec_parse("bf16", &bf16));
    for (rp_dtype dtype = RP_F32; rp_dtype_bytes(dtype); dtype++)
        for (int r = 0; r < REDUCTIONS; r++) {
            rp_status status = rpi_reduction_check((rp_reduction)r, dtype, &exact);
            CHECK_EQ(status, serial_takes((rp_reduction)r, dtype) ? RP_OK : RP_INVALID);
        }
    CHECK_FAILS(rpi_reduction_check(RP_AVG, RP_I32, &exact), INVALID, "floats and complex");
    CHECK_FAILS(rpi_reduction_check(RP_MAX, RP_C64, &exact), INVALID, "max of c64");
    CHECK_FAILS(rpi_reduction_check(RP_BAND, RP_F32, &exact), INVALID, "integers and bool");
    CHECK_FAILS(rpi_reduction_check((rp_reduction)77, RP_F32, &exact), INVALID, "77");
    CHECK_FAILS(rpi_reduction_check(RP_MAX, RP_F32, &lossy), UNSUPPORTED, "q4:bucket=512");
    CHECK_FAILS(rpi_reduction_check(RP_MAX, RP_F32, &bf16), UNSUPPORTED, "lossy");
    CHECK_OK(rpi_reduction_check(RP_MAX, RP_BF16, &bf16));
    CHECK_OK(rpi_reduction_check(RP_PREMUL_SUM, RP_F32, &lossy));
    CHECK(strcmp(rpi_reduction_name((rp_reduction)77), "unknown") == 0);
}

/* ---- through the communicator ---- */

enum { MOST_COUNT = 1003 };

/* One operation as all ranks see it; buffers have room for world * MOST_COUNT c128. */
typedef struct trial {
    const rpi_algorithm *algorithm;
    rp_comm *comm;
    char *inputs[MOST_RANKS]; /* what every rank contributes, known to all */
    char *data, *wanted;
    serial_input kind;
    rp_dtype filled; /* what the inputs are; nothing changes them */
} trial;

static rp_collective_options options_of(const trial *t, rp_reduction reduction) {
    return (rp_collective_options)RP_COLLECTIVE_OPTIONS(.algorithm = t->algorithm->name,
                                                        .reduce = reduction,
                                                        .factor = serial_factor(
                                                            rp_comm_rank(t->comm)),
                                                        .root = rp_comm_world(t->comm) / 2);
}

static void expect(const trial *t, rp_reduction reduction, rp_dtype dtype, size_t first,
                   size_t count) {
    void *inputs[MOST_RANKS];
    int world = rp_comm_world(t->comm);
    for (int rank = 0; rank < world; rank++)
        inputs[rank] = t->inputs[rank] + first * rp_dtype_bytes(dtype);
    serial_reduce(reduction, dtype, inputs, world, count, t->wanted);
}

static void compare(const trial *t, rp_reduction reduction, rp_dtype dtype, const void *got,
                    size_t count, const char *how) {
    size_t i = serial_differs(dtype, got, t->wanted, count);
    CHECK_MSG(i == count, "%s by '%s' (%s), %s of %zu %s, rank %d of %d: element %zu",
              rpi_collective_name(t->algorithm->collective), t->algorithm->name, how,
              rpi_reduction_name(reduction), count, rp_dtype_name(dtype), rp_comm_rank(t->comm),
              rp_comm_world(t->comm), i);
}

static void try_all_reduce(const trial *t, rp_reduction reduction, rp_dtype dtype) {
    static const size_t counts[] = {1, MOST_COUNT};
    rp_collective_options options = options_of(t, reduction);
    for (int n = 0; n < 2; n++) {
        memcpy(t->data, t->inputs[rp_comm_rank(t->comm)], counts[n] * rp_dtype_bytes(dtype));
        rp_segment segment = {.data = t->data, .count = counts[n], .dtype = dtype};
        CHECK_OK(rp_all_reduce(t->comm, &segment, 1, &options));
        expect(t, reduction, dtype, 0, counts[n]);
        compare(t, reduction, dtype, t->data, counts[n], "in place");
    }
}

static void try_reduce(const trial *t, rp_reduction reduction, rp_dtype dtype) {
    int rank = rp_comm_rank(t->comm);
    rp_collective_options options = options_of(t, reduction);
    bool is_root = rank == options.root;
    size_t bytes = MOST_COUNT * rp_dtype_bytes(dtype);
    expect(t, reduction, dtype, 0, MOST_COUNT);
    for (int in_place = 0; in_place < 2; in_place++) {
        char *input = t->data, *output = in_place ? t->data : t->data + bytes;
        memcpy(input, t->inputs[rank], bytes);
        CHECK_OK(
            rp_reduce(t->comm, input, is_root ? output : NULL, MOST_COUNT, dtype, &options));
        if (is_root)
            compare(t, reduction, dtype, output, MOST_COUNT, in_place ? "in place" : "copied");
        if (!is_root || !in_place) CHECK(memcmp(input, t->inputs[rank], bytes) == 0);
    }
}

static void try_reduce_scatter(const trial *t, rp_reduction reduction, rp_dtype dtype) {
    int rank = rp_comm_rank(t->comm), world = rp_comm_world(t->comm);
    size_t count = MOST_COUNT / MOST_RANKS, size = rp_dtype_bytes(dtype);
    size_t all = (size_t)world * count * size;
    rp_collective_options options = options_of(t, reduction);
    expect(t, reduction, dtype, (size_t)rank * count, count);
    for (int in_place = 0; in_place < 2; in_place++) {
        char *output = in_place ? t->data + (size_t)rank * count * size : t->data + all;
        memcpy(t->data, t->inputs[rank], all);
        CHECK_OK(rp_reduce_scatter(t->comm, t->data, output, count, dtype, NULL, &options));
        compare(t, reduction, dtype, output, count, in_place ? "in place" : "copied");
        if (!in_place) CHECK(memcmp(t->data, t->inputs[rank], all) == 0);
    }
}

/* Blocks of 0, 1, 100 ... elements. */
static void try_reduce_scatter_v(const trial *t, rp_reduction reduction, rp_dtype dtype) {
    static const size_t counts[MOST_RANKS] = {100, 0, 1, 499, 64, 0, 3};
    int rank = rp_comm_rank(t->comm), world = rp_comm_world(t->comm);
    rp_block blocks[MOST_RANKS];
    size_t size = rp_dtype_bytes(dtype), at = 0, mine = 0;
    for (int r = 0; r < world; r++) {
        if (r == rank) mine = at;
        blocks[r] = (rp_block){.data = counts[r] ? t->inputs[rank] + at * size : NULL,
                               .count = counts[r]};
        at += counts[r] + 2;
    }
    rp_collective_options options = options_of(t, reduction);
    CHECK_OK(rp_reduce_scatter_v(t->comm, blocks, t->data, dtype, NULL, &options));
    expect(t, reduction, dtype, mine, counts[rank]);
    compare(t, reduction, dtype, t->data, counts[rank], "blocks");
}

static void try_pair(rp_reduction reduction, rp_dtype dtype, void *context) {
    trial *t = context;
    for (int rank = 0; dtype != t->filled && rank < rp_comm_world(t->comm); rank++)
        serial_fill(t->kind, dtype, check_seed(), rank, t->inputs[rank], MOST_COUNT);
    t->filled = dtype;
    switch (t->algorithm->collective) {
    case RPI_ALL_REDUCE: try_all_reduce(t, reduction, dtype); break;
    case RPI_REDUCE: try_reduce(t, reduction, dtype); break;
    default: try_reduce_scatter(t, reduction, dtype); try_reduce_scatter_v(t, reduction, dtype);
    }
}

static void try_all_pairs(rp_comm *comm, int rank, int world, void *context) {
    (void)rank;
    const rpi_algorithm *algorithm = context;
    trial t = {.algorithm = algorithm,
               .comm = comm,
               .data = malloc(2 * MOST_COUNT * 16),
               .wanted = malloc(MOST_COUNT * 16),
               .kind = algorithm->rank_order ? SERIAL_ANY : SERIAL_SMALL};
    for (int r = 0; r < world; r++) t.inputs[r] = malloc(MOST_COUNT * 16);
    each_pair(try_pair, &t);
    for (int r = 0; r < world; r++) free(t.inputs[r]);
    free(t.data);
    free(t.wanted);
}

static bool reduces(const rpi_algorithm *algorithm) {
    return algorithm->collective == RPI_ALL_REDUCE || algorithm->collective == RPI_REDUCE ||
           algorithm->collective == RPI_REDUCE_SCATTER;
}

static void walk(const rp_comm_options *options, size_t first_world, size_t last_world) {
    for (int a = 0; rpi_algorithm_at(a); a++)
        for (size_t w = first_world; w <= last_world; w++)
            if (reduces(rpi_algorithm_at(a)) &&
                rpi_algorithm_fits(rpi_algorithm_at(a), worlds[w]))
                world_run(worlds[w], options, try_all_pairs,
                          (void *)(uintptr_t)rpi_algorithm_at(a));
}

static void every_collective_algorithm_dtype_and_reduction(void) {
    walk(NULL, 0, 4);
}

static void the_same_in_many_chunks(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 1024, .chunks_in_flight = 3);
    walk(&options, 2, 2);
}

/* ---- lossy ---- */

static void scale_and_compress(rp_comm *comm, int rank, int world, void *context) {
    enum { COUNT = 3000 };
    (void)context;
    static float x[MOST_RANKS][COUNT], residual[MOST_RANKS][COUNT];
    rp_codec codec = {0};
    REQUIRE_OK(rp_codec_parse("q8", &codec));
    double sum[COUNT] = {0};
    for (int r = 0; r < world; r++) {
        float input[COUNT];
        world_fill(check_seed(), r, input, COUNT);
        for (int i = 0; i < COUNT; i++) sum[i] += input[i] * serial_factor(r);
    }
    memset(residual[rank], 0, sizeof residual[rank]);
    world_fill(check_seed(), rank, x[rank], COUNT);
    rp_segment segment = {.data = x[rank],
                          .count = COUNT,
                          .dtype = RP_F32,
                          .codec = codec,
                          .residual = residual[rank]};
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.reduce = RP_PREMUL_SUM, .factor = serial_factor(rank));
    CHECK_OK(rp_all_reduce(comm, &segment, 1, &options));
    double wrong = 0, right = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += pow(x[rank][i] - sum[i], 2);
        right += sum[i] * sum[i];
    }
    CHECK_MSG(sqrt(wrong / right) < 0.05, "error %g", sqrt(wrong / right));
    options.reduce = RP_MAX;
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1, &options), UNSUPPORTED, "lossy");
    segment.codec = (rp_codec){0};
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1, &options), INVALID, "error feedback");
    world_meet();
    CHECK(memcmp(x[0], x[rank], sizeof x[0]) == 0);
}

static void lossy_codecs_take_scaled_sums_and_no_maxima(void) {
    for (int world = 1; world <= 4; world++) world_run(world, NULL, scale_and_compress, NULL);
}

CASES({"loops give the serial answer on every ISA", loops_give_the_serial_answer_on_every_isa},
      {"a NaN wins", a_nan_wins},
      {"narrowing is the same on every ISA", narrowing_is_the_same_on_every_isa},
      {"what is not defined is refused in words", what_is_not_defined_is_refused_in_words},
      {"every collective, algorithm, dtype and reduction",
       every_collective_algorithm_dtype_and_reduction},
      {"the same in many chunks", the_same_in_many_chunks},
      {"lossy codecs take scaled sums and no maxima",
       lossy_codecs_take_scaled_sums_and_no_maxima})
