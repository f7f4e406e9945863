/* Random operations, many in flight, each rank with memory where it likes, over a stand-in for
 * a GPU: the bits of the same on memory of the host. */
#include "comm/core/communicator.h"
#include "comm/device_world.h"
#include "comm/values/reductions.h"

#include "base/clock.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

enum { OPERATIONS = 14, MOST = 9000 };

/* The same on all ranks, by seed. */
typedef struct operation {
    int kind;
    rp_dtype dtype;
    char codec[64];
    size_t count;
    bool feedback;
    rp_reduction reduce;
    int root;
} operation;

typedef struct program {
    uint64_t number;
    int world;
    operation operations[OPERATIONS];
    rp_comm_options options;
    char hosts;
} program;

enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, KINDS };

static uint32_t below(rpi_rng *rng, uint32_t bound) {
    return rpi_rng_below(rng, bound);
}

static void draw_operation(rpi_rng *rng, int world, operation *o) {
    static const rp_dtype dtypes[] = {RP_F32, RP_F32, RP_BF16, RP_F16, RP_F64, RP_I32};
    static const char *const codecs[] = {"fp32",
                                         "q4:bucket=64",
                                         "q2:rounding=stochastic,bucket=128",
                                         "sign:bucket=128",
                                         "bf16",
                                         "topk",
                                         "randk:k=4,bucket=64",
                                         "v4:bucket=128"};
    *o = (operation){.kind = (int)below(rng, KINDS),
                     .dtype = dtypes[below(rng, 6)],
                     .count = below(rng, 4) ? below(rng, MOST) : below(rng, 5),
                     .root = (int)below(rng, (uint32_t)world)};
    rp_codec codec;
    snprintf(o->codec, sizeof o->codec, "%s", codecs[below(rng, 8)]);
    REQUIRE_OK(rp_codec_parse(o->codec, &codec));
    if (!rp_codec_supports(&codec, o->dtype) || o->kind >= BROADCAST)
        snprintf(o->codec, sizeof o->codec, "fp32");
    REQUIRE_OK(rp_codec_parse(o->codec, &codec));
    static const rp_reduction reductions[] = {RP_SUM, RP_AVG, RP_MAX, RP_PREMUL_SUM};
    o->reduce = reductions[below(rng, 4)];
    if (o->kind != ALL_REDUCE && o->kind != REDUCE_SCATTER && o->kind != REDUCE)
        o->reduce = RP_SUM;
    if (rpi_reduction_check(o->reduce, o->dtype, &codec) != RP_OK) o->reduce = RP_SUM;
    o->feedback = o->kind == ALL_REDUCE && o->reduce != RP_MAX && below(rng, 2) &&
                  rpi_codec_check_feedback(&codec, o->dtype) == RP_OK;
}

static program draw_program(uint64_t number) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, number);
    program p = {.number = number, .world = 1 + (int)below(&rng, DEVICE_WORLD)};
    p.options = (rp_comm_options)RP_COMM_OPTIONS(.transport = below(&rng, 2) ? "inproc" : "shm",
                                                 .connect_timeout_s = 30, .timeout_s = 60,
                                                 .progress_thread = (int)below(&rng, 2),
                                                 .chunk_bytes = below(&rng, 2) ? 4096 : 0,
                                                 .chunks_in_flight = below(&rng, 2) ? 2 : 0,
                                                 .memory = below(&rng, 2) ? RP_MEMORY_CUDA
                                                                          : RP_MEMORY_HOST);
    p.hosts = (char)below(&rng, 2);
    for (int i = 0; i < OPERATIONS; i++) draw_operation(&rng, p.world, &p.operations[i]);
    return p;
}

/* ---- running it ---- */

typedef struct running {
    rp_request *request;
    memory_piece in, out, residual;
    void *stream;
    bool there;
} running;

static unsigned char *results[2][DEVICE_WORLD];

static size_t bytes_of(const program *p, const operation *o) {
    return (size_t)p->world * o->count * rp_dtype_bytes(o->dtype);
}

static rp_status start(rp_comm *comm, const program *p, int i, running *r) {
    const operation *o = &p->operations[i];
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.reduce = o->reduce, .seed = 3, .step = (uint64_t)i,
                              .root = o->root, .factor = 0.5 + rp_comm_rank(comm),
                              .memory = r->there ? RP_MEMORY_CUDA : RP_MEMORY_HOST,
                              .stream = r->stream);
    rp_codec codec;
    CHECK_OK(rp_codec_parse(o->codec, &codec));
    rp_segment segment = {.data = r->in.at,
                          .count = o->count,
                          .dtype = o->dtype,
                          .codec = codec,
                          .residual = o->feedback ? r->residual.at : NULL};
    switch (o->kind) {
    case ALL_REDUCE: return rp_all_reduce_start(comm, &segment, 1, &options, &r->request);
    case REDUCE_SCATTER:
        return rp_reduce_scatter_start(comm, r->in.at, r->out.at, o->count, o->dtype, &codec,
                                       &options, &r->request);
    case ALL_GATHER:
        return rp_all_gather_start(comm, r->in.at, r->out.at, o->count, o->dtype, &codec,
                                   &options, &r->request);
    case BROADCAST:
        return rp_broadcast_start(comm, r->in.at, o->count, o->dtype, &options, &r->request);
    default:
        return rp_reduce_start(comm, r->in.at, r->out.at, o->count, o->dtype, &options,
                               &r->request);
    }
}

static void begin(rp_comm *comm, const program *p, int i, running *r) {
    const operation *o = &p->operations[i];
    size_t bytes = bytes_of(p, o);
    r->stream = memory_stream(r->there);
    r->in = memory_take(r->there, bytes);
    r->out = memory_take(r->there, bytes);
    r->residual = memory_take(r->there, o->count * sizeof(float));
    serial_fill(SERIAL_SMALL, o->dtype, check_seed() + (uint64_t)i, rp_comm_rank(comm),
                r->in.host, (size_t)p->world * o->count);
    float *residual = r->residual.host;
    for (size_t k = 0; k < o->count; k++) residual[k] = 0.01f * (float)(k % 7);
    memory_upload(&r->in, r->stream);
    memory_upload(&r->out, r->stream);
    memory_upload(&r->residual, r->stream);
    CHECK_OK(start(comm, p, i, r));
}

static void finish(const program *p, int i, running *r, bool by_stream, unsigned char *result) {
    const operation *o = &p->operations[i];
    size_t bytes = bytes_of(p, o);
    if (by_stream && r->request) CHECK_OK(rp_request_wait_stream(r->request, r->stream));
    if (!by_stream && r->request) CHECK_OK(rp_request_wait(&r->request));
    memory_download(&r->in, r->stream);
    memory_download(&r->out, r->stream);
    memory_download(&r->residual, r->stream);
    memory_finish(r->there, r->stream);
    if (r->request) CHECK_OK(rp_request_wait(&r->request));
    memcpy(result, r->in.host, bytes);
    memcpy(result + bytes, r->out.host, bytes);
    memcpy(result + 2 * bytes, r->residual.host, o->count * sizeof(float));
    memory_give(&r->in);
    memory_give(&r->out);
    memory_give(&r->residual);
}

static size_t result_bytes(const program *p, int until) {
    size_t bytes = 0;
    for (int i = 0; i < until; i++)
        bytes += 2 * bytes_of(p, &p->operations[i]) + p->operations[i].count * sizeof(float);
    return bytes;
}

static void run(rp_comm *comm, const program *p, bool may_be_there, unsigned char *result) {
    running all[OPERATIONS] = {{0}};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST,
                               p->number * 100 + 1 + (uint64_t)rp_comm_rank(comm));
    for (int i = 0; i < OPERATIONS; i++) {
        all[i].there = may_be_there && below(&rng, 4) > 0;
        begin(comm, p, i, &all[i]);
    }
    int first = (int)below(&rng, OPERATIONS);
    for (int k = 0; k < OPERATIONS; k++) {
        int i = (first + 3 * k) % OPERATIONS;
        finish(p, i, &all[i], below(&rng, 2), result + result_bytes(p, i));
    }
}

static void run_both_ways(rp_comm *comm, int rank, int world, void *context) {
    const program *p = context;
    (void)world;
    device_rank(rank);
    run(comm, p, false, results[0][rank]);
    run(comm, p, true, results[1][rank]);
}

static void compare(const program *p) {
    for (int rank = 0; rank < p->world; rank++)
        for (int i = 0; i < OPERATIONS; i++) {
            const operation *o = &p->operations[i];
            size_t at = result_bytes(p, i), bytes = result_bytes(p, i + 1) - at;
            CHECK_MSG(memcmp(results[0][rank] + at, results[1][rank] + at, bytes) == 0,
                      "program %llu, world %d, rank %d, operation %d: kind %d of %zu %s by %s, "
                      "reduction %d, feedback %d",
                      (unsigned long long)p->number, p->world, rank, i, o->kind, o->count,
                      rp_dtype_name(o->dtype), o->codec, (int)o->reduce, o->feedback);
        }
}

static void random_programs(void) {
    static const int host_of[] = {0, 1, 0, 1, 1};
    int64_t end = rpi_now_ns() + (int64_t)(check_seconds(5, 600) * 1e9);
    device_begin();
    for (uint64_t number = 0; rpi_now_ns() < end && !check_failures(); number++) {
        program p = draw_program(number);
        for (int rank = 0; rank < p.world; rank++)
            for (int way = 0; way < 2; way++)
                results[way][rank] = calloc(1, result_bytes(&p, OPERATIONS) + 1);
        world_hosts(p.hosts ? host_of : NULL);
        world_run(p.world, &p.options, run_both_ways, &p);
        compare(&p);
        for (int rank = 0; rank < p.world; rank++)
            for (int way = 0; way < 2; way++) free(results[way][rank]);
    }
    world_hosts(NULL);
    device_check_empty();
}

CASES({"random_programs", random_programs})
