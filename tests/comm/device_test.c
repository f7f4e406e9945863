/* Operations on memory of a GPU, over its stand-in (tests/cuda/stand_in.h): the bits of the
 * same operations on memory of the host, whoever has which. */
#include "comm/core/communicator.h"
#include "comm/device_world.h"
#include "comm/values/reductions.h"
#include "cuda/device_codec.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 };

/* ---- all-reduce ---- */

typedef struct job {
    const char *algorithm, *codec;
    rp_dtype dtype;
    rp_reduction reduce;
    size_t counts[2]; /* of two segments; the second is exact, unless */
    bool both;        /* have the codec */
    bool feedback;
    int there; /* a bit for each rank whose elements lie with its GPU */
} job;

static unsigned char *results[2][DEVICE_WORLD]; /* with the host, and as the job says */

static size_t bytes_of(const job *j) {
    return (j->counts[0] + j->counts[1]) * (rp_dtype_bytes(j->dtype) + sizeof(float));
}

static void fill(const job *j, int rank, int step, void *data, size_t first, size_t count) {
    uint64_t seed = check_seed() + (uint64_t)step * 1000 + first;
    serial_fill(SERIAL_SMALL, j->dtype, seed, rank, data, count);
    float *values = data;
    for (size_t i = 0; j->dtype == RP_F32 && i < count; i++)
        values[i] += 1e-3f * (float)(i % 97) * (float)(rank + 1);
}

/* Three steps, each on what the one before has left; elements and residuals at the end. */
static void reduce(rp_comm *comm, const job *j, bool there, unsigned char *result) {
    int rank = rp_comm_rank(comm);
    size_t each = rp_dtype_bytes(j->dtype), at = 0;
    rp_segment segments[2] = {{0}};
    memory_piece data[2], residual[2];
    for (int s = 0; s < 2; s++) {
        size_t count = j->counts[s];
        data[s] = memory_take(there, count * each);
        residual[s] = memory_take(there, count * sizeof(float));
        memory_set(&residual[s], 0);
        segments[s] = (rp_segment){.data = data[s].at,
                                   .count = count,
                                   .dtype = j->dtype,
                                   .tensor = (uint32_t)s,
                                   .residual = j->feedback ? residual[s].at : NULL};
    }
    for (int s = 0; j->codec && s < 1 + j->both; s++)
        CHECK_OK(rp_codec_parse(j->codec, &segments[s].codec));
    for (int step = 0; step < STEPS; step++) {
        void *stream = memory_stream(there);
        for (int s = 0; s < 2; s++) {
            fill(j, rank, step, data[s].host, (size_t)s, j->counts[s]);
            memory_upload(&data[s], stream);
        }
        rp_collective_options options =
            RP_COLLECTIVE_OPTIONS(.algorithm = j->algorithm, .reduce = j->reduce, .seed = 5,
                                  .step = (uint64_t)step, .factor = 0.5 + rank,
                                  .memory = there ? RP_MEMORY_CUDA : RP_MEMORY_HOST,
                                  .stream = stream);
        rp_request *request = NULL;
        CHECK_OK(rp_all_reduce_start(comm, segments, 2, &options, &request));
        if (there && step % 2 && request) CHECK_OK(rp_request_wait_stream(request, stream));
        for (int s = 0; there && step % 2 && s < 2; s++) memory_download(&data[s], stream);
        if (request) CHECK_OK(rp_request_wait(&request));
        if (!(there && step % 2))
            for (int s = 0; s < 2; s++) memory_download(&data[s], stream);
        for (int s = 0; s < 2; s++) memory_download(&residual[s], stream);
        memory_finish(there, stream);
    }
    for (int s = 0; s < 2; s++) {
        memcpy(result + at, data[s].host, j->counts[s] * each);
        at += j->counts[s] * each;
        memcpy(result + at, residual[s].host, j->counts[s] * sizeof(float));
        at += j->counts[s] * sizeof(float);
        memory_give(&data[s]);
        memory_give(&residual[s]);
    }
}

static void reduce_both_ways(rp_comm *comm, int rank, int world, void *context) {
    const job *j = context;
    (void)world;
    device_rank(rank);
    reduce(comm, j, false, results[0][rank]);
    reduce(comm, j, j->there >> rank & 1, results[1][rank]);
}

static void compare(job j, int world, uint32_t chunk_bytes) {
    size_t bytes = bytes_of(&j);
    for (int way = 0; way < 2; way++)
        for (int rank = 0; rank < world; rank++) results[way][rank] = calloc(1, bytes + 1);
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .connect_timeout_s = 20,
                                              .timeout_s = 60, .chunk_bytes = chunk_bytes);
    world_run(world, &options, reduce_both_ways, &j);
    for (int rank = 0; rank < world; rank++) {
        CHECK_MSG(memcmp(results[0][rank], results[1][rank], bytes) == 0,
                  "%s of %s by %s, reduction %d, world %d, rank %d, on GPUs %x, feedback %d",
                  j.algorithm, rp_dtype_name(j.dtype), j.codec ? j.codec : "fp32",
                  (int)j.reduce, world, rank, j.there, j.feedback);
        for (int way = 0; way < 2; way++) free(results[way][rank]);
    }
}

static void every_algorithm(void) {
    device_begin();
    for (int a = 0; rpi_algorithm_at(a); a++)
        for (int world = 1; world <= DEVICE_WORLD; world++) {
            const rpi_algorithm *algorithm = rpi_algorithm_at(a);
            if (algorithm->collective != RPI_ALL_REDUCE) continue;
            if (!rpi_algorithm_fits(algorithm, world)) continue;
            compare((job){.algorithm = algorithm->name,
                          .dtype = RP_F32,
                          .counts = {5003, 70},
                          .there = 31},
                    world, 4096);
        }
}

/* Copies of what is added or held back: with kernels for a codec, of floats, only what travels
 * goes between a GPU and the host. */
static long copied(job j, int world) {
    stand_in *control = device_begin();
    size_t data = (j.counts[0] + j.counts[1]) * rp_dtype_bytes(j.dtype);
    size_t residual = (j.counts[0] + j.counts[1]) * sizeof(float);
    size_t users = (size_t)world * (STEPS * (2 * data + residual) + residual);
    long before = atomic_load(&control->crossed);
    compare(j, world, 0);
    return atomic_load(&control->crossed) - before - (long)users;
}

static void sums_stay_there(void) {
    static const rp_reduction reductions[] = {RP_SUM, RP_AVG};
    static const char *const codecs[] = {"q4", "q8:bucket=64", "bf16"};
    for (int world = 2; world <= 4; world++)
        for (int i = 0; i < 6; i++) {
            job j = {.codec = codecs[i % 3],
                     .dtype = RP_F32,
                     .reduce = reductions[i / 3],
                     .counts = {60003, 0},
                     .feedback = true,
                     .there = 31};
            long bytes = copied(j, world);
            CHECK_MSG(bytes == 0, "%s, reduction %d: copies of %ld bytes in a world of %d",
                      j.codec, (int)j.reduce, bytes, world);
        }
    job on_host = {.codec = "q4",
                   .dtype = RP_F32,
                   .reduce = RP_PREMUL_SUM,
                   .counts = {60003, 0},
                   .there = 31};
    CHECK(copied(on_host, 2) > 0); /* the host adds */
}

/* Behind a piece of an odd length. */
static void pieces_of_any_length(void) {
    static const char *const codecs[] = {"q4:bucket=64", "q8:bucket=64", "bf16", "q3", "sign"};
    stand_in *control = device_begin();
    long before = atomic_load(&control->ragged);
    for (int world = 2; world <= 3; world++)
        for (int i = 0; i < 5; i++)
            for (int dtype = 0; dtype < 2; dtype++)
                compare((job){.codec = codecs[i],
                              .dtype = dtype ? RP_BF16 : RP_F32,
                              .counts = {5003, 3001},
                              .both = true,
                              .feedback = true,
                              .there = 31},
                        world, i % 2 ? 0 : 9000);
    CHECK_EQ(atomic_load(&control->ragged) - before, 0);
}

static void every_dtype_and_reduction(void) {
    device_begin();
    for (int dtype = 0; dtype <= RP_C128; dtype++)
        for (int reduce = RP_SUM; reduce <= RP_PREMUL_SUM; reduce++) {
            if (!rp_dtype_bytes((rp_dtype)dtype)) continue;
            if (rpi_reduction_check((rp_reduction)reduce, (rp_dtype)dtype, &(rp_codec){0}))
                continue;
            compare((job){.dtype = (rp_dtype)dtype,
                          .reduce = (rp_reduction)reduce,
                          .counts = {1500, 33},
                          .there = 31},
                    3, 2048);
        }
}

static void some_ranks_only(void) {
    device_begin();
    for (int there = 1; there < 7; there++) {
        compare((job){.dtype = RP_F32, .counts = {3000, 0}, .there = there}, 3, 4096);
        compare((job){.dtype = RP_F32,
                      .codec = "q4:bucket=128",
                      .counts = {3000, 500},
                      .feedback = true,
                      .there = there},
                3, 4096);
    }
}

static const char *const codecs[] = {"q4:bucket=128", "q8:bucket=64,rounding=stochastic",
                                     "q1:bucket=64",  "sign:bucket=64",
                                     "bf16",          "fp16",
                                     "randk",         "topk",
                                     "v4:bucket=128", "fp32"};

/* Elements that travel as they are are copied; encodings of a length that only the data say
 * are made on the host. */
static bool has_kernels(const rp_codec *codec, const job *j) {
    rpi_device_call call;
    return !rp_codec_is_exact(codec, j->dtype) && !rpi_codec_kind_of(codec)->varies &&
           rpi_device_call_of(codec, j->dtype, 1, NULL, &call) == RP_OK;
}

/* Every kernel was loaded before something was put into its GPU's streams. */
static void every_codec(void) {
    static const rp_dtype dtypes[] = {RP_F32, RP_BF16, RP_F16};
    stand_in *control = device_begin();
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++)
        for (int way = 0; way < 6; way++) {
            rp_codec codec;
            long kernels = atomic_load(&control->kernels);
            REQUIRE_OK(rp_codec_parse(codecs[c], &codec));
            job j = {.codec = codecs[c],
                     .dtype = dtypes[way % 3],
                     .counts = {4000, 100},
                     .feedback = way >= 3 && way != 5,
                     .reduce = way == 5   ? RP_PREMUL_SUM
                               : way == 1 ? RP_AVG
                                          : RP_SUM,
                     .there = 31};
            if (!rp_codec_supports(&codec, j.dtype)) continue;
            if (j.feedback && rpi_codec_check_feedback(&codec, j.dtype) != RP_OK) continue;
            compare(j, 2 + way % 3, 4096);
            CHECK_MSG((atomic_load(&control->kernels) > kernels) == has_kernels(&codec, &j),
                      "%s of %s by kernels: %ld", codecs[c], rp_dtype_name(j.dtype),
                      atomic_load(&control->kernels) - kernels);
        }
    CHECK_EQ(atomic_load(&control->unloaded), 0);
}

static void between_hosts(void) {
    static const int host_of[] = {0, 0, 1, 1, 0};
    device_begin();
    world_hosts(host_of);
    for (int world = 3; world <= DEVICE_WORLD; world++)
        for (size_t c = 0; c < 3; c++)
            compare((job){.codec = codecs[c],
                          .dtype = RP_F32,
                          .counts = {3000, 100},
                          .feedback = c == 0,
                          .there = 31},
                    world, 4096);
    world_hosts(NULL);
}

/* ---- streams that are late ---- */

enum { LATE = 12 };

static atomic_bool holds;

/* In the stand-in's stream: what is behind it waits. */
static void hold(void *context) {
    (void)context;
    while (atomic_load(&holds)) rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 1000);
}

/* The first operation begins behind what is not done until all others are. */
static void reduce_from_late_streams(rp_comm *comm, int rank, int world, void *context) {
    const rpi_cuda_library *cuda = NULL;
    const char *codec = context;
    rp_request *requests[LATE] = {NULL};
    void *streams[LATE];
    memory_piece data[LATE];
    (void)world;
    device_rank(rank);
    CHECK_OK(rpi_cuda_open(&cuda));
    for (int i = 0; i < LATE; i++) {
        streams[i] = memory_stream(true);
        data[i] = memory_take(true, 5000 * sizeof(float));
        memory_set(&data[i], 0);
    }
    if (rank == 0) atomic_store(&holds, true);
    world_meet();
    for (int i = 0; i < LATE; i++) {
        rp_segment segment = {.data = data[i].at, .count = 5000, .dtype = RP_F32};
        rp_collective_options options =
            RP_COLLECTIVE_OPTIONS(.memory = RP_MEMORY_CUDA, .stream = streams[i]);
        CHECK_OK(rp_codec_parse(codec, &segment.codec));
        if (rank == 0 && i == 0) CHECK(cuda->stream_call(streams[0], hold, NULL) == 0);
        CHECK_OK(rp_all_reduce_start(comm, &segment, 1, &options, &requests[i]));
    }
    for (int i = LATE - 1; i >= 0; i--) {
        if (i == 0) world_meet(); /* all others are done on both */
        if (i == 0) atomic_store(&holds, false);
        if (requests[i]) CHECK_OK(rp_request_wait(&requests[i]));
    }
    for (int i = 0; i < LATE; i++) {
        memory_give(&data[i]);
        memory_finish(true, streams[i]);
    }
}

/* Nothing is put into a stream before what it waits for has happened, and two lanes a GPU do
 * for all requests: no stream is made in training. */
static void a_late_stream_holds_up_nobody(void) {
    static const char *const ways[] = {"fp32", "q4:bucket=128"};
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .connect_timeout_s = 20, .timeout_s = 60,
                        .progress_thread = 1, .chunk_bytes = 4096);
    for (int way = 0; way < 4; way++) {
        stand_in *control = device_begin();
        long movers = atomic_load(&control->movers), early = atomic_load(&control->early);
        world_run(2, &options, reduce_from_late_streams, (void *)(uintptr_t)ways[way % 2]);
        CHECK_EQ(atomic_load(&control->movers) - movers, 2 * 2);
        CHECK_EQ(atomic_load(&control->early) - early, 0);
    }
}

/* ---- what the first operation makes ---- */

static void reduce_some(rp_comm *comm, const memory_piece *slice, size_t count) {
    rp_segment segment = {.data = slice->at, .count = count, .dtype = RP_F32};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.memory = RP_MEMORY_CUDA);
    CHECK_OK(rp_codec_parse("q4:bucket=128", &segment.codec));
    CHECK_OK(rp_all_reduce(comm, &segment, 1, &options));
}

/* Pinning may stop a GPU: a small first operation, as DDP's, pins what later ones need. */
static void pin_first(rp_comm *comm, int rank, int world, void *context) {
    stand_in *control = context;
    (void)world;
    device_rank(rank);
    memory_piece slice = memory_take(true, 50000 * sizeof(float));
    memory_set(&slice, 0);
    reduce_some(comm, &slice, 100);
    world_meet();
    long pins = atomic_load(&control->pins);
    world_meet();
    for (int i = 0; i < 5; i++) reduce_some(comm, &slice, 50000);
    world_meet();
    CHECK_EQ(atomic_load(&control->pins), pins);
    world_meet();
    memory_give(&slice);
}

static void the_first_operation_pins_for_all(void) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .connect_timeout_s = 20,
                                              .timeout_s = 60, .chunk_bytes = 8192);
    world_run(3, &options, pin_first, device_begin());
}

/* ---- threads without a GPU ---- */

enum { BEYOND = 3 };

/* Memory is made with the rank's GPU chosen; the call is posted and finished by a thread that
 * has chosen none: any call that it makes of its own would open the first one. */
static void reduce_beyond(rp_comm *comm, int rank, int world, void *context) {
    const rpi_cuda_library *cuda = NULL;
    const char *codec = context;
    rpi_cuda_before before;
    rp_segment segment = {.count = 5000, .dtype = RP_F32};
    rp_request *request = NULL;
    (void)world;
    CHECK_OK(rpi_cuda_open(&cuda));
    REQUIRE(cuda->enter(BEYOND + rank, &before) == 0);
    memory_piece data = memory_take(true, segment.count * sizeof(float));
    memory_set(&data, 0);
    segment.data = data.at;
    CHECK_OK(rp_codec_parse(codec, &segment.codec));
    cuda->leave(&before);
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.memory = RP_MEMORY_CUDA);
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, &options, &request));
    if (request) CHECK_OK(rp_request_wait(&request));
    REQUIRE(cuda->enter(BEYOND + rank, &before) == 0);
    memory_give(&data);
    cuda->leave(&before);
}

static void other_gpus_stay_closed(void) {
    static const char *const ways[] = {"fp32", "q4:bucket=128"};
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .connect_timeout_s = 20, .timeout_s = 60,
                        .progress_thread = 1, .chunk_bytes = 4096);
    for (int way = 0; way < 4; way++) {
        stand_in *control = device_begin();
        world_run(2, &options, reduce_beyond, (void *)(uintptr_t)ways[way % 2]);
        for (int d = 0; d < STAND_IN_DEVICES; d++)
            CHECK_EQ(atomic_load(&control->opened[d]), d == BEYOND || d == BEYOND + 1);
    }
}

/* A GPU's driver may ring for the last time behind the end: it then has a descriptor for a
 * moment more, which the first count may see, too. */
static void descriptors_are_given_back(void) {
    const job j = {.algorithm = "ring", .dtype = RP_F32, .counts = {5003, 70}, .there = 31};
    device_begin();
    compare(j, 2, 4096); /* what the process opens once is open now */
    int before = check_descriptors();
    int64_t deadline_ns = rpi_deadline_ns(20);
    compare(j, 3, 4096);
    while (check_descriptors() > before && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + 1000000);
    CHECK(check_descriptors() <= before);
}

static void nothing_is_left(void) {
    device_begin();
    device_check_empty();
}

CASES({"sums_stay_there", sums_stay_there}, {"pieces_of_any_length", pieces_of_any_length},
      {"every_algorithm", every_algorithm},
      {"every_dtype_and_reduction", every_dtype_and_reduction},
      {"some_ranks_only", some_ranks_only}, {"every_codec", every_codec},
      {"between_hosts", between_hosts}, {"other_gpus_stay_closed", other_gpus_stay_closed},
      {"the_first_operation_pins_for_all", the_first_operation_pins_for_all},
      {"a_late_stream_holds_up_nobody", a_late_stream_holds_up_nobody},
      {"descriptors_are_given_back", descriptors_are_given_back},
      {"nothing_is_left", nothing_is_left})
