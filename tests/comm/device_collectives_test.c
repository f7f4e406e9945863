/* The other operations on memory of a GPU, over its stand-in: the bits of the same on memory of
 * the host. */
#include "comm/device_world.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 2500 };

typedef enum operation {
    REDUCE_SCATTER,
    ALL_GATHER,
    REDUCE_SCATTER_SEGMENTS,
    ALL_GATHER_SEGMENTS,
    BROADCAST,
    REDUCE,
    GATHER,
    SCATTER,
    ALL_TO_ALL,
    NEIGHBORS,
    SEND_RECV,
    OPERATIONS
} operation;

typedef struct job {
    operation operation;
    const char *codec;
    rp_dtype dtype;
    bool in_place, feedback;
    int there; /* a bit for each rank whose elements lie with its GPU */
} job;

static unsigned char *results[2][DEVICE_WORLD];

/* Blocks of one memory, a length for each rank; the third is empty. */
static size_t count_of(int rank) {
    return rank == 2 ? 0 : (size_t)(COUNT + 100 * rank);
}

static size_t all_counts(int world) {
    size_t count = 0;
    for (int rank = 0; rank < world; rank++) count += count_of(rank);
    return count;
}

static void blocks_of(void *memory, int world, size_t each, rp_block *blocks) {
    char *at = memory;
    for (int rank = 0; rank < world; rank++) {
        blocks[rank] = (rp_block){at, count_of(rank)};
        at += count_of(rank) * each;
    }
}

static char *block_at(void *memory, int rank, size_t each) {
    char *at = memory;
    for (int r = 0; r < rank; r++) at += count_of(r) * each;
    return at;
}

/* Two for each rank but the third, in no order of their owners, with error feedback where there
 * is a codec; residuals lie behind the elements, and are not zeros. */
static rp_status start_owned(rp_comm *comm, const job *j, void *in, void *out,
                             const rp_collective_options *options, rp_request **request) {
    int world = rp_comm_world(comm), rank = rp_comm_rank(comm), count = 0;
    bool gathers = j->operation == ALL_GATHER_SEGMENTS;
    size_t each = rp_dtype_bytes(j->dtype);
    rp_owned_segment segments[2 * DEVICE_WORLD];
    float *held = (float *)(void *)((char *)(gathers ? out : in) + all_counts(world) * each);
    for (int half = 0; half < 2; half++)
        for (int owner = world - 1; owner >= 0; owner--) {
            size_t first = half ? 600 : 0, all = count_of(owner);
            rp_segment segment = {.count = !all   ? 0
                                           : half ? all - 600
                                                  : 600,
                                  .dtype = j->dtype,
                                  .tensor = (uint32_t)(2 * owner + half)};
            char *data = block_at(gathers ? out : in, owner, each) + first * each;
            char *own = block_at(gathers ? in : out, owner, each) + first * each;
            if (j->codec) CHECK_OK(rp_codec_parse(j->codec, &segment.codec));
            segment.data = segment.count ? data : NULL;
            if (j->feedback) segment.residual = held + owner * 600;
            if (segment.count > 600) segment.residual = NULL;
            bool apart = segment.count && owner == rank && !j->in_place;
            segments[count++] = (rp_owned_segment){
                .segment = segment, .owner = owner, .own = apart ? own : NULL};
        }
    return gathers
               ? rp_all_gather_segments_start(comm, segments, (size_t)count, options, request)
               : rp_reduce_scatter_segments_start(comm, segments, (size_t)count, options,
                                                  request);
}

static rp_status start_neighbors(rp_comm *comm, const job *j, const void *in, void *out,
                                 const rp_collective_options *options, rp_request **request) {
    int world = rp_comm_world(comm), rank = rp_comm_rank(comm);
    rp_neighbor next = {(rank + 1) % world, 0.25}, last = {(rank + world - 1) % world, 2};
    rp_segment segment = {.data = (void *)(uintptr_t)in, .count = COUNT, .dtype = j->dtype};
    if (j->codec) CHECK_OK(rp_codec_parse(j->codec, &segment.codec));
    void *outputs[1] = {out};
    rp_neighbors neighbors = {.self_weight = 0.5,
                              .sources = &last,
                              .destinations = &next,
                              .source_count = world > 1,
                              .destination_count = world > 1};
    return rp_neighbor_all_reduce_start(comm, &segment, outputs, 1, &neighbors, options,
                                        request);
}

/* To the next rank, and from the last one, or from anybody. What is sent is waited for here. */
static rp_status start_messages(rp_comm *comm, const job *j, const void *in, void *out,
                                const rp_collective_options *options, rp_request **request) {
    int world = rp_comm_world(comm), rank = rp_comm_rank(comm);
    rp_request *send = NULL, *receive = NULL;
    if (world == 1) return rp_barrier_start(comm, request);
    if (j->in_place)
        CHECK_OK(rp_recv_any_with_start(comm, out, COUNT, j->dtype, 7, options, &receive));
    else
        CHECK_OK(rp_recv_with_start(comm, out, COUNT, j->dtype, (rank + world - 1) % world, 7,
                                    options, &receive));
    rp_status status =
        rp_send_with_start(comm, in, COUNT, j->dtype, (rank + 1) % world, 7, options, &send);
    if (status == RP_OK) CHECK_OK(rp_request_wait(&send));
    *request = receive;
    return status;
}

static rp_status start(rp_comm *comm, const job *j, void *in, void *out,
                       const rp_collective_options *options, rp_request **request) {
    int world = rp_comm_world(comm), rank = rp_comm_rank(comm);
    size_t each = rp_dtype_bytes(j->dtype);
    bool is_root = rank == options->root;
    rp_block inputs[DEVICE_WORLD], outputs[DEVICE_WORLD];
    rp_codec codec = {0};
    if (j->codec) CHECK_OK(rp_codec_parse(j->codec, &codec));
    blocks_of(in, world, each, inputs);
    blocks_of(out, world, each, outputs);
    char *own = j->in_place ? block_at(out, rank, each) : in;
    switch (j->operation) {
    case REDUCE_SCATTER:
        return rp_reduce_scatter_v_start(comm, inputs, j->in_place ? inputs[rank].data : out,
                                         j->dtype, &codec, options, request);
    case ALL_GATHER:
        return rp_all_gather_v_start(comm, own, outputs, j->dtype, &codec, options, request);
    case REDUCE_SCATTER_SEGMENTS:
    case ALL_GATHER_SEGMENTS: return start_owned(comm, j, in, out, options, request);
    case BROADCAST: return rp_broadcast_start(comm, in, COUNT, j->dtype, options, request);
    case REDUCE:
        return rp_reduce_start(comm, in, j->in_place ? in : out, COUNT, j->dtype, options,
                               request);
    case GATHER:
        return rp_gather_start(comm, is_root ? own : in, count_of(rank),
                               is_root ? outputs : NULL, j->dtype, options, request);
    case SCATTER:
        return rp_scatter_start(comm, is_root ? inputs : NULL, out, count_of(rank), j->dtype,
                                options, request);
    case ALL_TO_ALL:
        /* Rank s has for rank r what r has for s. */
        for (int r = 0; r < world; r++) {
            size_t count = count_of(r) < count_of(rank) ? count_of(r) : count_of(rank);
            inputs[r].count = outputs[r].count = count;
        }
        return rp_all_to_all_start(comm, inputs, outputs, j->dtype, options, request);
    case NEIGHBORS: return start_neighbors(comm, j, in, out, options, request);
    case SEND_RECV: return start_messages(comm, j, in, out, options, request);
    case OPERATIONS: break;
    }
    return RP_INVALID;
}

static void run(rp_comm *comm, const job *j, bool there, unsigned char *result) {
    int world = rp_comm_world(comm), rank = rp_comm_rank(comm);
    size_t bytes = all_counts(world) * rp_dtype_bytes(j->dtype) + 16 * COUNT;
    void *stream = memory_stream(there);
    memory_piece in = memory_take(there, bytes), out = memory_take(there, bytes);
    rp_request *request = NULL;
    serial_fill(SERIAL_SMALL, j->dtype, check_seed(), rank, in.host,
                bytes / rp_dtype_bytes(j->dtype));
    serial_fill(SERIAL_SMALL, j->dtype, check_seed() + 1, rank, out.host,
                bytes / rp_dtype_bytes(j->dtype));
    memory_upload(&in, stream);
    memory_upload(&out, stream);
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.root = world - 1,
                              .memory = there ? RP_MEMORY_CUDA : RP_MEMORY_HOST,
                              .stream = stream);
    CHECK_OK(start(comm, j, in.at, out.at, &options, &request));
    if (request) CHECK_OK(rp_request_wait_stream(request, stream));
    memory_download(&in, stream);
    memory_download(&out, stream);
    if (request) CHECK_OK(rp_request_wait(&request));
    memory_finish(there, stream);
    memcpy(result, in.host, bytes);
    memcpy(result + bytes, out.host, bytes);
    memory_give(&in);
    memory_give(&out);
}

static void run_both_ways(rp_comm *comm, int rank, int world, void *context) {
    const job *j = context;
    (void)world;
    device_rank(rank);
    run(comm, j, false, results[0][rank]);
    run(comm, j, j->there >> rank & 1, results[1][rank]);
}

static void compare(job j, int world) {
    size_t bytes = 2 * (all_counts(world) * rp_dtype_bytes(j.dtype) + 16 * COUNT);
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = world % 2 ? "inproc" : "shm", .connect_timeout_s = 20,
                        .timeout_s = 60, .chunk_bytes = 4096);
    for (int way = 0; way < 2; way++)
        for (int rank = 0; rank < world; rank++) results[way][rank] = calloc(1, bytes);
    world_run(world, &options, run_both_ways, &j);
    for (int rank = 0; rank < world; rank++) {
        CHECK_MSG(memcmp(results[0][rank], results[1][rank], bytes) == 0,
                  "operation %d of %s by %s, world %d, rank %d, in place %d, on GPUs %x",
                  (int)j.operation, rp_dtype_name(j.dtype), j.codec ? j.codec : "fp32", world,
                  rank, j.in_place, j.there);
        for (int way = 0; way < 2; way++) free(results[way][rank]);
    }
}

static void every_operation(void) {
    static const rp_dtype dtypes[] = {RP_F32, RP_BF16, RP_F64};
    device_begin();
    for (int o = 0; o < OPERATIONS; o++)
        for (int world = 1; world <= DEVICE_WORLD; world++)
            for (int way = 0; way < 4; way++)
                compare((job){.operation = (operation)o,
                              .dtype = dtypes[(way + world) % 3],
                              .in_place = way % 2,
                              .feedback = (way + world) % 3 == 0,
                              .there = way < 2 ? 31 : 5},
                        world);
}

static void operations_with_codecs(void) {
    static const operation with[] = {REDUCE_SCATTER, ALL_GATHER, REDUCE_SCATTER_SEGMENTS,
                                     ALL_GATHER_SEGMENTS, NEIGHBORS};
    static const char *const codecs[] = {"q4:bucket=100", "bf16", "topk"};
    stand_in *control = device_begin();
    for (size_t o = 0; o < sizeof with / sizeof with[0]; o++)
        for (int c = 0; c < 3; c++)
            for (int world = 2; world <= 4; world++) {
                long kernels = atomic_load(&control->kernels);
                compare((job){.operation = with[o],
                              .dtype = RP_F32,
                              .codec = codecs[c],
                              .in_place = world % 2,
                              .feedback = true,
                              .there = 31},
                        world);
                CHECK((atomic_load(&control->kernels) > kernels) ==
                      (c < 2)); /* topk has none */
            }
}

/* ---- many at once ---- */

enum { AT_ONCE = 20, EACH = 700 };

/* A little at a time: what is not ready yet may be asked again. */
static rp_status follow(rp_request *request, void *stream, int turn) {
    rp_status status = RP_PENDING;
    while (status == RP_PENDING)
        status = rp_request_wait_stream_for(request, stream, turn++ % 2 ? 0 : 0.001);
    return status;
}

/* Of every third the answer is taken by another stream. */
static void post_many(rp_comm *comm, int rank, int world, void *context) {
    rp_request *requests[AT_ONCE] = {NULL};
    memory_piece data[AT_ONCE];
    void *streams[2];
    (void)context;
    device_rank(rank);
    for (int i = 0; i < 2; i++) streams[i] = memory_stream(true);
    for (int i = 0; i < AT_ONCE; i++) {
        data[i] = memory_take(true, EACH * sizeof(float));
        float *values = data[i].host;
        for (int k = 0; k < EACH; k++) values[k] = (float)(i + k + rank);
        memory_upload(&data[i], streams[i % 2]);
        rp_segment segment = {.data = data[i].at, .count = EACH, .dtype = RP_F32};
        rp_collective_options options =
            RP_COLLECTIVE_OPTIONS(.memory = RP_MEMORY_CUDA, .stream = streams[i % 2]);
        CHECK_OK(rp_all_reduce_start(comm, &segment, 1, &options, &requests[i]));
    }
    for (int k = 0; k < AT_ONCE; k++) {
        int i = (k * 7 + rank) % AT_ONCE;
        if (i % 3 == 0) CHECK_OK(follow(requests[i], streams[(i + 1) % 2], i));
        if (i % 3 == 0) memory_download(&data[i], streams[(i + 1) % 2]);
        CHECK_OK(rp_request_wait(&requests[i]));
        if (i % 3) memory_download(&data[i], streams[(i + 1) % 2]);
    }
    for (int i = 0; i < 2; i++) memory_finish(true, streams[i]);
    for (int i = 0; i < AT_ONCE; i++) {
        const float *values = data[i].host;
        for (int k = 0; k < EACH; k++)
            if (values[k] != (float)(world * (i + k) + world * (world - 1) / 2)) {
                check_failed(__FILE__, __LINE__, "operation %d, element %d: %g", i, k,
                             (double)values[k]);
                break;
            }
        memory_give(&data[i]);
    }
}

static void many_at_once(void) {
    device_begin();
    for (int thread = 0; thread < 2; thread++) {
        rp_comm_options options =
            RP_COMM_OPTIONS(.transport = "inproc", .connect_timeout_s = 20, .timeout_s = 60,
                            .progress_thread = thread, .chunk_bytes = 1024);
        world_run(3, &options, post_many, NULL);
    }
}

static void nothing_is_left(void) {
    device_begin();
    device_check_empty();
}

CASES({"every_operation", every_operation}, {"operations_with_codecs", operations_with_codecs},
      {"many_at_once", many_at_once}, {"nothing_is_left", nothing_is_left})
