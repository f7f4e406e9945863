/* Codecs whose encodings are of any length, or whose places follow from the context, in every
 * collective that takes codecs: replicas are equal to the bit, and what a peer cannot have
 * encoded is refused in its name. */
#include "comm/thread_world.h"

#include "codec/codec.h"
#include "comm/core/communicator.h"
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_RANKS = 5, MOST_ELEMENTS = 40000 };

static float data[MOST_RANKS][MOST_RANKS * MOST_ELEMENTS];
static float residuals[MOST_RANKS][MOST_ELEMENTS];

static const char *const codecs[] = {"topk",
                                     "topk:k=5,bucket=64,values=q4",
                                     "topk:k=700,bucket=1000,values=fp32",
                                     "randk",
                                     "randk:k=9,bucket=100,values=q6",
                                     "sign",
                                     "sign:bucket=100",
                                     "v4:bucket=1000",
                                     "v1:quarters=3"};
enum { CODECS = sizeof codecs / sizeof codecs[0] };

static rp_codec codec_of(const char *text) {
    rp_codec codec = {0};
    CHECK_OK(rp_codec_parse(text, &codec));
    return codec;
}

typedef void (*each_function)(rp_comm *comm, int rank, const char *algorithm,
                              const char *codec);

typedef struct job {
    const char *algorithm, *codec;
    each_function run;
} job;

static void run_job(rp_comm *comm, int rank, int world, void *context) {
    const job *j = context;
    (void)world;
    j->run(comm, rank, j->algorithm, j->codec);
    world_meet();
}

/* Every algorithm of a collective that takes lossy codecs. */
static void for_each(rpi_collective collective, const rp_comm_options *options, int first,
                     int last, each_function run) {
    for (int a = 0; rpi_algorithm_at(a); a++) {
        const rpi_algorithm *algorithm = rpi_algorithm_at(a);
        if (algorithm->collective != collective || algorithm->exact) continue;
        for (int c = 0; c < CODECS; c++)
            for (int world = first; world <= last; world++) {
                job j = {algorithm->name, codecs[c], run};
                world_run(world, options, run_job, &j);
            }
    }
}

static void check_replicas(const char *algorithm, const char *codec, int rank, size_t count) {
    CHECK_MSG(memcmp(data[0], data[rank], count * sizeof(float)) == 0,
              "%s with %s: rank %d differs from rank 0", algorithm, codec, rank);
}

/* ---- all-reduce ---- */

enum { COUNTS = 5 };
static const size_t counts[COUNTS] = {0, 1, 63, 4097, MOST_ELEMENTS};

/* Two segments beside an exact one, so that frames hold encodings of several kinds; with error
 * feedback, over a few steps. */
static void reduce_segments(rp_comm *comm, int rank, const char *algorithm, const char *codec) {
    for (int n = 0; n < COUNTS; n++)
        for (uint64_t step = 0; step < 2; step++) {
            size_t count = counts[n], half = count / 2 / 64 * 64;
            float *x = data[rank];
            world_fill(check_seed() + step, rank, x, count);
            if (!step) memset(residuals[rank], 0, sizeof residuals[rank]);
            rp_segment segments[] = {
                {.data = x, .count = half, .dtype = RP_F32, .codec = codec_of(codec)},
                {.data = x + half,
                 .count = count - half,
                 .dtype = RP_F32,
                 .codec = codec_of(codec),
                 .tensor = 1},
                {.data = x + count, .count = 77, .dtype = RP_F32}};
            for (int k = 0; k < 77; k++) x[count + (size_t)k] = (float)k;
            segments[0].residual = residuals[rank];
            segments[1].residual = residuals[rank] + half;
            rp_collective_options options =
                RP_COLLECTIVE_OPTIONS(.algorithm = algorithm, .reduce = step ? RP_AVG : RP_SUM,
                                      .step = step);
            CHECK_OK(rp_all_reduce(comm, segments, 3, &options));
            world_meet();
            check_replicas(algorithm, codec, rank, count + 77);
            CHECK(x[count + 76] == (float)(76 * (step ? 1 : rp_comm_world(comm))));
            world_meet();
        }
}

static const rp_comm_options small_chunks =
    RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 20000, .chunks_in_flight = 3);

static void all_reduces_are_equal_on_all_ranks(void) {
    for_each(RPI_ALL_REDUCE, NULL, 2, MOST_RANKS, reduce_segments);
    for_each(RPI_ALL_REDUCE, &small_chunks, 3, 3, reduce_segments);
}

/* Exact inside hosts of two and three ranks, encoded between them. */
static void all_reduces_cross_hosts(void) {
    static const int host_of[MOST_RANKS] = {0, 0, 1, 1, 1};
    world_hosts(host_of);
    for_each(RPI_ALL_REDUCE, NULL, MOST_RANKS, MOST_RANKS, reduce_segments);
    world_hosts(NULL);
}

static void all_reduces_go_by_shm_and_tcp(void) {
    static const char *const transports[] = {"shm", "tcp"};
    for (int t = 0; t < 2; t++)
        for (int c = 0; c < CODECS; c++) {
            rp_comm_options options =
                RP_COMM_OPTIONS(.transport = transports[t], .chunk_bytes = 20000);
            job j = {"sra", codecs[c], reduce_segments};
            world_run(3, &options, run_job, &j);
        }
}

/* Whole numbers at the same places on every rank: their sum is what one rank would have sent.
 */
static void sum_places(rp_comm *comm, int rank, const char *algorithm, const char *codec) {
    enum { COUNT = 10000 };
    if (strncmp(codec, "randk", 5) != 0 || strstr(codec, "values=q")) return;
    if (strcmp(algorithm, "two-level") == 0) return; /* exact, all being on one host */
    for (int i = 0; i < COUNT; i++) data[rank][i] = (float)(rank + 1);
    rp_segment segment = {
        .data = data[rank], .count = COUNT, .dtype = RP_F32, .codec = codec_of(codec)};
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.algorithm = algorithm, .seed = 3, .step = 4);
    CHECK_OK(rp_all_reduce(comm, &segment, 1, &options));
    int world = rp_comm_world(comm), kept = 0, sum = world * (world + 1) / 2;
    for (int i = 0; i < COUNT; i++) {
        CHECK(data[rank][i] == 0 || data[rank][i] == (float)sum);
        kept += data[rank][i] != 0;
    }
    CHECK_EQ(kept, 32 + 32 + 15);
}

static void randk_keeps_sums_whole(void) {
    for_each(RPI_ALL_REDUCE, NULL, 2, MOST_RANKS, sum_places);
}

/* ---- reduce-scatter and all-gather ---- */

/* The owner's part of a sum enters the sum as it is, so that each has a sum of its own. */
static void scatter_blocks(rp_comm *comm, int rank, const char *algorithm, const char *codec) {
    enum { COUNT = 9000 };
    int world = rp_comm_world(comm);
    static float out[MOST_RANKS][COUNT];
    rp_codec c = codec_of(codec);
    world_fill(check_seed(), rank, data[rank], (size_t)world * COUNT);
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = algorithm);
    CHECK_OK(rp_reduce_scatter(comm, data[rank], out[rank], COUNT, RP_F32, &c, &options));
    double norm = 0;
    for (int i = 0; i < COUNT; i++) norm += (double)out[rank][i] * (double)out[rank][i];
    CHECK_MSG(isfinite(norm) && norm > 0.5 * COUNT, "%s with %s: %g", algorithm, codec, norm);
}

static void gather_blocks(rp_comm *comm, int rank, const char *algorithm, const char *codec) {
    enum { COUNT = 9000 };
    static float inputs[MOST_RANKS][COUNT];
    float *in = inputs[rank];
    int world = rp_comm_world(comm);
    rp_codec c = codec_of(codec);
    world_fill(check_seed(), rank, in, COUNT);
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = algorithm);
    CHECK_OK(rp_all_gather(comm, in, data[rank], COUNT, RP_F32, &c, &options));
    world_meet();
    check_replicas(algorithm, codec, rank, (size_t)world * COUNT);
    double lost = 0, norm = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double x = (double)in[i];
        lost += pow(x - (double)data[rank][(size_t)rank * COUNT + i], 2);
        norm += x * x;
    }
    CHECK_MSG(lost < norm * 1.001, "%s with %s loses %g of %g", algorithm, codec, lost, norm);
    world_meet();
}

static void blocks_take_every_codec(void) {
    for_each(RPI_REDUCE_SCATTER, NULL, 2, MOST_RANKS, scatter_blocks);
    for_each(RPI_REDUCE_SCATTER, &small_chunks, 3, 3, scatter_blocks);
    for_each(RPI_ALL_GATHER, NULL, 2, MOST_RANKS, gather_blocks);
    for_each(RPI_ALL_GATHER, &small_chunks, 3, 3, gather_blocks);
}

/* ---- disagreement ---- */

typedef struct difference {
    const char *codec[2];
    uint64_t step[2], seed[2];
    uint32_t tensor[2];
    const char *words;
} difference;

static void disagree(rp_comm *comm, int rank, int world, void *context) {
    const difference *d = context;
    int odd = rank == world - 1;
    rp_segment segment = {.data = data[rank],
                          .count = 9000,
                          .dtype = RP_F32,
                          .codec = codec_of(d->codec[odd]),
                          .tensor = d->tensor[odd]};
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.step = d->step[odd], .seed = d->seed[odd]);
    CHECK_EQ(rp_all_reduce(comm, &segment, 1, &options), RP_MISMATCH);
    CHECK_MSG(strstr(rp_last_error()->message, d->words), "%s", rp_last_error()->message);
}

static void ranks_agree_on_options_and_context(void) {
    static const difference differences[] = {
        {.codec = {"topk:k=3", "topk:k=4"}, .words = "topk:k="},
        {.codec = {"topk", "topk:values=q4"}, .words = "other options of codecs"},
        {.codec = {"topk", "randk"}, .words = "randk:bucket=4096"},
        {.codec = {"randk", "randk"}, .step = {1, 2}, .words = "step"},
        {.codec = {"randk", "randk"}, .seed = {1, 2}, .words = "seed"},
        {.codec = {"randk", "randk"}, .tensor = {1, 2}, .words = "tensor 2"},
    };
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        world_run(3, NULL, disagree, (void *)(uintptr_t)&differences[i]);
}

/* ---- what cannot have been encoded ---- */

typedef struct forgery {
    uint8_t bytes[24];
    size_t count;
    const char *words;
} forgery;

static rp_request *awaiting; /* rank 0's */

/* Rank 1 sends these bytes as its part of rank 0's slice, in place of an encoding. */
static void send_forgery(rp_comm *comm, const forgery *f) {
    rpi_link *link = comm->context->connections[0].link;
    const rpi_transport *transport = link->endpoint->transport;
    rpi_frame_header header = awaiting->header;
    header.kind = RPI_FRAME_EAGER;
    header.sequence = awaiting->sequence;
    void *region = NULL;
    REQUIRE_OK(transport->reserve(link, RPI_FRAME_HEADER_BYTES + f->count, &region));
    memcpy((char *)region + RPI_FRAME_HEADER_BYTES, f->bytes, f->count);
    rpi_frame_seal(region, &header, f->count, transport->checksum);
    REQUIRE_OK(transport->commit(link, RPI_FRAME_HEADER_BYTES + f->count));
}

static void forge(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    if (rank == 0) {
        rp_segment segment = {.data = data[0],
                              .count = 16,
                              .dtype = RP_F32,
                              .codec = codec_of("topk:k=2,bucket=8")};
        rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = "sra");
        REQUIRE_OK(rp_all_reduce_start(comm, &segment, 1, &options, &awaiting));
    }
    world_meet();
    if (rank == 1) send_forgery(comm, context);
    world_meet();
    if (rank == 0) {
        const forgery *f = context;
        CHECK_EQ(rp_request_wait(&awaiting), RP_CORRUPT);
        const char *message = rp_last_error()->message;
        CHECK_MSG(strstr(message, f->words) && strstr(message, "rank 1 sent part 0"),
                  "'%s' lacks '%s'", message, f->words);
    }
    world_meet();
}

static void what_a_peer_cannot_have_encoded_is_refused(void) {
    static const forgery forgeries[] = {
        {{0}, 0, "ends before the length"},
        {{7, 0, 0}, 3, "ends before the length"},
        {{7, 0, 0, 0, 2, 0}, 6, "an encoding of 7 bytes has 2 left"},
        {{255, 255, 255, 255, 2, 0}, 6, "an encoding of 4294967295 bytes"},
        {{1, 0, 0, 0, 2}, 5, "end before bucket 0"},
        {{7, 0, 0, 0, 2, 0, 0x0b, 0, 0, 0, 0}, 11, "keeps element 1 behind 3"},
        {{7, 0, 0, 0, 2, 0, 0x11, 0, 0, 0}, 10, "an encoding of 7 bytes has 6 left"},
        {{2, 0, 0, 0, 0, 0, 9}, 7, "1 bytes are behind its last encoding"},
        {{2, 0, 0, 0, 3, 0}, 6, "k is 2"},
        {{8, 0, 0, 0, 2, 0, 0x11, 0, 0, 0, 0, 0}, 12, "which is not what comes next"},
    };
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .timeout_s = 20);
    for (size_t i = 0; i < sizeof forgeries / sizeof forgeries[0]; i++)
        world_run(2, &options, forge, (void *)(uintptr_t)&forgeries[i]);
}

CASES({"all_reduces_are_equal_on_all_ranks", all_reduces_are_equal_on_all_ranks},
      {"all_reduces_cross_hosts", all_reduces_cross_hosts},
      {"all_reduces_go_by_shm_and_tcp", all_reduces_go_by_shm_and_tcp},
      {"randk_keeps_sums_whole", randk_keeps_sums_whole},
      {"blocks_take_every_codec", blocks_take_every_codec},
      {"ranks_agree_on_options_and_context", ranks_agree_on_options_and_context},
      {"what_a_peer_cannot_have_encoded_is_refused",
       what_a_peer_cannot_have_encoded_is_refused})
