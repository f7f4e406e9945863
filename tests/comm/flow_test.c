/* Flow control: legal programs in which a rank runs far ahead of another, and what that costs
 * in memory. */
#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"
#include "comm/core/progress_owner.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/unexpected.h"
#include "comm/run/diagnosis.h"
#include "comm/thread_world.h"

#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 }; /* slower, and its shadow grows */
#else
enum { IS_SANITIZED = 0 };
#endif

static const char *const transports[] = {"inproc", "shm", "tcp"};
enum { TRANSPORTS = sizeof transports / sizeof transports[0] };

/* A deadlock is to show soon. */
static rp_comm_options options_of(const char *transport) {
    return (rp_comm_options)RP_COMM_OPTIONS(.transport = transport, .timeout_s = 6,
                                            .warn_after_s = 6, .strict_timeout = 1);
}

/* ---- operations that flow one way ---- */

typedef struct one_way {
    const char *name;
    size_t reduced, moved; /* bytes of the all-reduce, and of what is sent behind it */
    rp_status (*start)(rp_comm *comm, unsigned char *data, size_t bytes, rp_request **request);
} one_way;

static rp_status start_broadcast(rp_comm *comm, unsigned char *data, size_t bytes,
                                 rp_request **request) {
    return rp_broadcast_start(comm, data, bytes, RP_U8, NULL, request);
}

/* Rank 0 is a leaf. */
static rp_status start_reduce(rp_comm *comm, unsigned char *data, size_t bytes,
                              rp_request **request) {
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.root = 1, .reduce = RP_BOR);
    return rp_reduce_start(comm, data, data, bytes, RP_U8, &options, request);
}

static rp_status start_gather(rp_comm *comm, unsigned char *data, size_t bytes,
                              rp_request **request) {
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.root = 1);
    rp_block blocks[8];
    for (int r = 0; r < rp_comm_world(comm); r++)
        blocks[r] = (rp_block){.data = r ? data + bytes : data, .count = r ? 0 : bytes};
    int rank = rp_comm_rank(comm);
    return rp_gather_start(comm, data, rank ? 0 : bytes, rank == 1 ? blocks : NULL, RP_U8,
                           &options, request);
}

static rp_status start_scatter(rp_comm *comm, unsigned char *data, size_t bytes,
                               rp_request **request) {
    rp_block blocks[8];
    for (int r = 0; r < rp_comm_world(comm); r++)
        blocks[r] = (rp_block){.data = data, .count = r == 1 ? bytes : 0};
    int rank = rp_comm_rank(comm);
    return rp_scatter_start(comm, rank ? NULL : blocks, data, rank == 1 ? bytes : 0, RP_U8,
                            NULL, request);
}

/* Rank 0 posts what others need and, behind it, what nobody has asked for yet. */
static void run_ahead(rp_comm *comm, int rank, int world, void *context) {
    const one_way *job = context;
    size_t count = job->reduced / 4;
    int32_t *sums = calloc(count, 4);
    unsigned char *moved = calloc(job->moved + 1, 1);
    rp_segment segment = {.data = sums, .count = count, .dtype = RP_I32};
    rp_request *first = NULL, *second = NULL;
    for (size_t i = 0; i < count; i++) sums[i] = rank + (int)(i % 1000);
    if (rank == 0) memset(moved, 77, job->moved);
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, NULL, &first));
    if (rank == 0) CHECK_OK(job->start(comm, moved, job->moved, &second));
    CHECK_MSG(rp_request_wait(&first) == RP_OK, "%s: %s", job->name, rp_last_error()->message);
    if (rank != 0) CHECK_OK(job->start(comm, moved, job->moved, &second));
    CHECK_MSG(rp_request_wait(&second) == RP_OK, "%s: %s", job->name, rp_last_error()->message);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += sums[i] != world * (int)(i % 1000) + world * (world - 1) / 2;
    for (size_t i = 0; rank == 1 && i < job->moved; i++) wrong += moved[i] != 77;
    CHECK_EQ(wrong, 0);
    free(sums);
    free(moved);
}

static void what_nobody_asked_for_stands_in_nobodys_way(void) {
    static const one_way jobs[] = {{"long broadcast", 64 << 20, 100000000, start_broadcast},
                                   {"broadcast", 8 << 20, 20000000, start_broadcast},
                                   {"reduce", 8 << 20, 20000000, start_reduce},
                                   {"gather", 8 << 20, 20000000, start_gather},
                                   {"scatter", 8 << 20, 20000000, start_scatter}};
    for (int t = 0; t < TRANSPORTS; t++)
        for (size_t i = t == 1 && !IS_SANITIZED ? 0 : 1; i < sizeof jobs / sizeof jobs[0];
             i++) {
            if (check_failures()) return;
            rp_comm_options options = options_of(transports[t]);
            world_run(2 + (int)(i % 2), &options, run_ahead, (void *)(uintptr_t)&jobs[i]);
        }
}

/* Credit spent on what nobody wants yet leaves what is wanted its way. */
static void run_ahead_in_small_steps(rp_comm *comm, int rank, int world, void *context) {
    enum { STEPS = 6000, COUNT = 1 << 20 };
    (void)context;
    rp_request **requests = calloc(STEPS, sizeof *requests), *first = NULL;
    float *sums = calloc(COUNT, sizeof *sums), *small = calloc(STEPS, 16 * sizeof *small);
    rp_segment segment = {.data = sums, .count = COUNT, .dtype = RP_F32};
    for (int i = 0; i < COUNT; i++) sums[i] = 1;
    for (int i = 0; i < STEPS; i++) small[16 * i] = rank ? -1 : (float)i;
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, NULL, &first));
    if (rank) CHECK_OK(rp_request_wait(&first));
    for (int i = 0; i < STEPS; i++)
        CHECK_OK(
            rp_broadcast_start(comm, small + (size_t)16 * i, 16, RP_F32, NULL, &requests[i]));
    if (!rank) CHECK_OK(rp_request_wait(&first));
    size_t wrong = 0;
    for (int i = 0; i < STEPS; i++) {
        CHECK_OK(rp_request_wait(&requests[i]));
        wrong += small[16 * i] != (float)i;
    }
    CHECK_EQ(wrong, 0);
    CHECK(sums[0] == (float)world && sums[COUNT - 1] == (float)world);
    free(requests);
    free(sums);
    free(small);
}

static void small_frames_ahead_stand_in_nobodys_way(void) {
    for (int t = 0; t < TRANSPORTS && !check_failures(); t++) {
        rp_comm_options options = options_of(transports[t]);
        world_run(2, &options, run_ahead_in_small_steps, NULL);
        world_run(4, &options, run_ahead_in_small_steps, NULL);
    }
}

/* Without credit every frame waits for word from its receiver, in every algorithm, with several
 * chunks and operations in flight. */
static const struct {
    const char *algorithm;
    int kind; /* 0 all-reduce, 1 broadcast, 2 reduce, 3 all-gather */
} all_kinds[] = {{"sra", 0},     {"ring", 0},   {"tree", 1}, {"scatter", 1},  {"direct", 2},
                 {"scatter", 2}, {"direct", 3}, {"ring", 3}, {"two-level", 0}};
enum { KINDS = sizeof all_kinds / sizeof all_kinds[0], KIND_COUNT = 6000 };

static rp_status start_kind(rp_comm *comm, int k, int32_t *data, int32_t *all,
                            rp_request **request) {
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = all_kinds[k].algorithm,
                                                          .root = k % rp_comm_world(comm));
    rp_segment segment = {.data = data, .count = KIND_COUNT, .dtype = RP_I32};
    switch (all_kinds[k].kind) {
    case 0: return rp_all_reduce_start(comm, &segment, 1, &options, request);
    case 1: return rp_broadcast_start(comm, data, KIND_COUNT, RP_I32, &options, request);
    case 2: return rp_reduce_start(comm, data, data, KIND_COUNT, RP_I32, &options, request);
    default:
        return rp_all_gather_start(comm, data, all, KIND_COUNT, RP_I32, NULL, &options,
                                   request);
    }
}

static int32_t wanted(int k, int world) {
    if (all_kinds[k].kind == 1) return k % world; /* the root's */
    return all_kinds[k].kind == 3 ? world - 1 : world * (world - 1) / 2;
}

static void ask_for_everything(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    int32_t *data = calloc((size_t)KINDS * KIND_COUNT, sizeof *data);
    int32_t *all = calloc((size_t)KINDS * KIND_COUNT * (size_t)world, sizeof *all);
    rp_request *requests[KINDS];
    for (int r = 0; r < world; r++) comm->peers[r].eager_sent = UINT64_C(1) << 60;
    for (size_t i = 0; i < (size_t)KINDS * KIND_COUNT; i++) data[i] = rank;
    for (int k = 0; k < KINDS; k++)
        CHECK_OK(start_kind(comm, k, data + (size_t)k * KIND_COUNT,
                            all + (size_t)k * KIND_COUNT * (size_t)world, &requests[k]));
    for (int k = 0; k < KINDS; k++) {
        int at = (k + 2 * rank) % KINDS;
        CHECK_MSG(rp_request_wait(&requests[at]) == RP_OK, "%s: %s", all_kinds[at].algorithm,
                  rp_last_error()->message);
        bool has = all_kinds[at].kind != 2 || rank == at % world;
        const int32_t *got = data + (size_t)at * KIND_COUNT;
        if (all_kinds[at].kind == 3)
            got = all + ((size_t)at * (size_t)world + (size_t)world - 1) * KIND_COUNT;
        CHECK_MSG(!has ||
                      (got[0] == wanted(at, world) && got[KIND_COUNT - 1] == wanted(at, world)),
                  "%s of %d ranks: %d and %d, not %d", all_kinds[at].algorithm, world, got[0],
                  got[KIND_COUNT - 1], wanted(at, world));
    }
    CHECK_OK(rp_barrier(comm));
    free(data);
    free(all);
}

static void without_credit_everything_is_asked_for(void) {
    for (int world = 2; world <= 5 && !check_failures(); world++) {
        rp_comm_options options = options_of("inproc");
        options.chunk_bytes = 2048;
        world_run(world, &options, ask_for_everything, NULL);
    }
}

/* ---- what is kept meanwhile ---- */

static size_t bytes_unexpected(const rp_comm *comm) {
    size_t bytes = 0;
    for (size_t i = 0; i < comm->unexpected.room; i++) {
        const rpi_unexpected *unexpected = comm->unexpected.slots[i].value;
        const rpi_frame_buffer *buffer = unexpected ? unexpected->frames.first : NULL;
        for (; buffer; buffer = buffer->next) bytes += buffer->bytes + RPI_FRAME_COST;
    }
    return bytes;
}

/* Rank 0 drives, and is late for a gather of which the others have sent what they may. */
static void gather_late(rp_comm *comm, int rank, int world, void *context) {
    enum { BYTES = 8 << 20 };
    (void)context;
    unsigned char *data = calloc((size_t)world, BYTES);
    rp_request *request = NULL;
    rp_block blocks[8];
    float x = 0;
    for (int r = 0; r < world; r++)
        blocks[r] = (rp_block){.data = data + (size_t)r * BYTES, .count = BYTES};
    if (rank) {
        memset(data, rank, BYTES);
        CHECK_OK(rp_gather_start(comm, data, BYTES, NULL, RP_U8, NULL, &request));
        for (int i = 0; i < 200; i++) {
            rp_status status = rp_request_wait_for(request, 0.001);
            CHECK_MSG(status == RP_PENDING, "%s", rp_status_name(status));
        }
        CHECK_OK(rp_send(comm, &x, 1, RP_F32, 0, 0));
    } else {
        for (int r = 1; r < world; r++) CHECK_OK(rp_recv(comm, &x, 1, RP_F32, r, 0));
        size_t most = (size_t)(world - 1) * RPI_EAGER_LINK, kept = bytes_unexpected(comm);
        CHECK_MSG(kept > 0 && kept <= most, "%zu bytes are aside, of %zu", kept, most);
        memset(data, 0, BYTES);
        CHECK_OK(rp_gather_start(comm, data, BYTES, blocks, RP_U8, NULL, &request));
    }
    CHECK_OK(rp_request_wait(&request));
    for (int r = 0; rank == 0 && r < world; r++)
        CHECK(data[(size_t)r * BYTES] == r && data[(size_t)(r + 1) * BYTES - 1] == r);
    CHECK_OK(rp_barrier(comm));
    CHECK_EQ(comm->unexpected.count, 0);
    CHECK(comm->context->idle_buffer_bytes <= 4 << 20);
    free(data);
}

static void what_comes_early_is_bounded(void) {
    for (int t = 0; t < TRANSPORTS; t++) {
        rp_comm_options options = options_of(transports[t]);
        world_run(4, &options, gather_late, NULL);
    }
    CHECK_EQ(rpi_flow_promised(), 0);
}

/* All links of many communicators are used in the way that makes them want more. */
static void use_many(rp_comm *comm, int rank, int world, void *context) {
    enum { COMMS = 24, BYTES = 60000 };
    rp_comm *comms[COMMS] = {NULL};
    unsigned char *data = calloc(1, BYTES);
    char name[24];
    for (int i = 0; i < COMMS; i++) {
        snprintf(name, sizeof name, "many%d", i);
        rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .name = name);
        CHECK_OK(rp_comm_create(context, rank, world, &options, &comms[i]));
    }
    for (int root = 0; root < world; root++)
        for (int i = 0; i < COMMS; i++) {
            rp_collective_options options = RP_COLLECTIVE_OPTIONS(.root = root);
            data[7] = rank == root ? (unsigned char)(i + root) : 255;
            CHECK_OK(rp_broadcast(comms[i], data, BYTES, RP_U8, &options));
            CHECK_EQ(data[7], i + root);
        }
    world_meet();
    CHECK(rpi_flow_promised() > RPI_EAGER_PROCESS / 2);
    CHECK(rpi_flow_promised() <= RPI_EAGER_PROCESS);
    CHECK_OK(rp_barrier(comm));
    for (int i = 0; i < COMMS; i++) rp_comm_destroy(comms[i]);
    free(data);
}

static void many_communicators_share_one_account(void) {
    rp_store store = {0};
    REQUIRE_OK(rp_store_open_local(&store));
    world_run(4, NULL, use_many, &store);
    rp_store_close(&store);
    CHECK_EQ(rpi_flow_promised(), 0);
}

/* Receives with credit for their tokens and without, and their sends much later. */
static void receive_by_the_thousand(rp_comm *comm, int rank, int world, void *context) {
    enum { MESSAGES = 1500, TAGS = 50 };
    (void)world, (void)context;
    rp_request **requests = calloc(MESSAGES, sizeof *requests);
    int32_t *data = calloc(MESSAGES, sizeof *data);
    size_t wrong = 0;
    for (int i = 0; i < MESSAGES && rank == 1; i++) {
        if (i == 500) comm->peers[0].eager_sent = UINT64_C(1) << 60; /* credit is spent */
        CHECK_OK(rp_recv_start(comm, &data[i], 1, RP_I32, 0, i % TAGS, &requests[i]));
    }
    CHECK_OK(rp_barrier(comm));
    for (int i = 0; i < MESSAGES && rank == 0; i++) {
        data[i] = i;
        CHECK_OK(rp_send_start(comm, &data[i], 1, RP_I32, 1, i % TAGS, &requests[i]));
    }
    for (int i = MESSAGES - 1; i >= 0; i--) {
        CHECK_OK(rp_request_wait(&requests[i]));
        wrong += data[i] != i;
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(comm->by_number.count, 0);
    free(requests);
    free(data);
}

static void receives_may_be_posted_by_the_thousand(void) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .timeout_s = 60);
    world_run(2, &options, receive_by_the_thousand, NULL);
}

/* ---- a long run ---- */

static long resident_kib(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) abort();
    if (fscanf(file, "%ld %ld", &pages, &resident) != 2) abort();
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

enum { LONG_BYTES = 3 << 20, LONG_OPERATIONS = 7 };

/* Everybody posts, and waits in an order of its own; one is late. */
static void one_round(rp_comm *comm, int rank, int round, unsigned char *data[]) {
    rp_request *requests[LONG_OPERATIONS] = {NULL};
    rp_collective_options root = RP_COLLECTIVE_OPTIONS(.root = round % 3);
    rp_segment lossy = {.data = data[0], .count = LONG_BYTES / 4, .dtype = RP_F32};
    CHECK_OK(rp_codec_parse("q4", &lossy.codec));
    if (rank == round % 3) rpi_sleep_until_ns(rpi_now_ns() + 200000);
    CHECK_OK(rp_all_reduce_start(comm, &lossy, 1, NULL, &requests[0]));
    for (int i = 1; i < 4; i++) {
        root.root = (round + i) % 3;
        CHECK_OK(rp_broadcast_start(comm, data[i], LONG_BYTES >> 4 * (i - 1), RP_U8, &root,
                                    &requests[i]));
    }
    root.reduce = RP_MAX;
    CHECK_OK(rp_reduce_start(comm, data[4], data[4], LONG_BYTES, RP_U8, &root, &requests[4]));
    CHECK_OK(
        rp_send_start(comm, data[5], 5000, RP_U8, (rank + 1) % 3, round % 20, &requests[5]));
    CHECK_OK(rp_recv_any_start(comm, data[6], 5000, RP_U8, round % 20, &requests[6]));
    for (int i = 0; i < LONG_OPERATIONS; i++) {
        int k = (i * (1 + rank) + round) % LONG_OPERATIONS;
        CHECK_OK(rp_request_wait(&requests[k]));
    }
}

static void run_long(rp_comm *comm, int rank, int world, void *context) {
    (void)world, (void)context;
    unsigned char *data[LONG_OPERATIONS];
    int rounds = check_long() ? 6000 : 120;
    long before = 0;
    for (int i = 0; i < LONG_OPERATIONS; i++) data[i] = calloc(1, LONG_BYTES);
    for (int round = 0; round < rounds && !check_failures(); round++) {
        if (round == rounds / 4) {
            world_meet();
            before = resident_kib();
        }
        one_round(comm, rank, round, data);
    }
    CHECK_OK(rp_barrier(comm));
    world_meet();
    long grown = resident_kib() - before;
    CHECK_MSG(grown < 4096, "%ld KiB more are resident after %d rounds, %ld before", grown,
              rounds, before);
    world_meet();
    for (int i = 0; i < LONG_OPERATIONS; i++) free(data[i]);
}

static void a_long_run_takes_no_more_memory(void) {
    if (IS_SANITIZED) {
        check_skip("the sanitizer's own memory grows");
        return;
    }
    for (int t = 0; t < TRANSPORTS; t++) {
        rp_comm_options options = RP_COMM_OPTIONS(.transport = transports[t], .timeout_s = 30);
        world_run(3, &options, run_long, NULL);
    }
}

/* ---- what is waited for ---- */

/* Rank 0 only sends. What is longer than its credit waits for rank 1, which has not come. */
static void send_ahead(rp_comm *comm, int rank, int world, void *context) {
    enum { LONG = 1 << 21 };
    static float in[LONG], out[LONG];
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.root = 1);
    rp_request *request = NULL;
    (void)world, (void)context;
    if (rank == 0) {
        CHECK_OK(rp_reduce_start(comm, in, out, LONG, RP_F32, &options, &request));
        CHECK_EQ(rp_request_wait_for(request, 0.1), RP_PENDING);
        rpi_progress_acquire(comm->context);
        CHECK_EQ(rpi_request_gap(request).from, 1);
        rpi_progress_release(comm->context);
    }
    world_meet();
    if (rank == 1) CHECK_OK(rp_reduce_start(comm, in, out, LONG, RP_F32, &options, &request));
    CHECK_OK(rp_request_wait(&request));
}

static void who_lacks_credit_waits_for_the_receiver(void) {
    for (int t = 0; t < TRANSPORTS; t++) {
        rp_comm_options options = RP_COMM_OPTIONS(.transport = transports[t]);
        world_run(2, &options, send_ahead, NULL);
    }
}

CASES({"what nobody asked for stands in nobody's way",
       what_nobody_asked_for_stands_in_nobodys_way},
      {"small frames ahead stand in nobody's way", small_frames_ahead_stand_in_nobodys_way},
      {"without credit everything is asked for", without_credit_everything_is_asked_for},
      {"what comes early is bounded", what_comes_early_is_bounded},
      {"many communicators share one account", many_communicators_share_one_account},
      {"receives may be posted by the thousand", receives_may_be_posted_by_the_thousand},
      {"a long run takes no more memory", a_long_run_takes_no_more_memory},
      {"who lacks credit waits for the receiver", who_lacks_credit_waits_for_the_receiver})
