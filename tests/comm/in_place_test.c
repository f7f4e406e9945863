/* Operations on buffers that ranks read in place: the same bits as of other memory, whoever has
 * them, and nothing of a buffer that its owner has back. */
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/thread_world.h"

#include "base/clock.h"
#include "base/rng.h"
#include "redpoll/buffer.h"

#include <stdlib.h>

enum { MOST_RANKS = 4, COUNT = 140001, AHEAD = 5 };

static const rp_comm_options over_shm =
    RP_COMM_OPTIONS(.transport = "shm", .connect_timeout_s = 20, .timeout_s = 60);

/* Of AHEAD and COUNT floats. */
static float *take(bool shared) {
    void *data = NULL;
    size_t bytes = (AHEAD + COUNT) * sizeof(float);
    if (!shared)
        data = malloc(bytes);
    else
        CHECK_OK(rp_buffer_allocate(bytes, &data));
    if (!data) abort();
    return data;
}

static void give(float *data) {
    if (rp_buffer_free(data) == RP_INVALID) free(data);
}

/* ---- the same bits ---- */

typedef struct job {
    const char *algorithm;
    int shared;       /* a bit for each rank whose vector lies in a buffer */
    size_t partition; /* elements of the first of two segments; 0: there is one */
    rp_reduction reduce;
    uint64_t in_use, written; /* frames of all ranks whose payload stayed where it was, or was
                               put where it was wanted; without those of acquaintance */
} job;

static float *results[2][MOST_RANKS]; /* of plain memory, and of buffers */

/* Each pair offers in the first exchange and has heard the answer when the second has ended. */
static void get_to_know(rp_comm *comm, float *data) {
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = "sra");
    for (int i = 0; i < 3; i++) CHECK_OK(rp_all_reduce(comm, &segment, 1, &options));
}

static void reduce(rp_comm *comm, job *j, bool shared, float *result) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int rank = rp_comm_rank(comm);
    float *data = take(shared) + AHEAD;
    if (j->shared) get_to_know(comm, data);
    uint64_t in_use = comm->in_place_frames, written = comm->written_frames;
    world_fill(check_seed(), rank, data, COUNT);
    rp_segment segments[2] = {
        {.data = data, .count = j->partition ? j->partition : COUNT, .dtype = RP_F32},
        {.data = data + j->partition, .count = COUNT - j->partition, .dtype = RP_F32}};
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.algorithm = j->algorithm, .reduce = j->reduce);
    CHECK_OK(rp_all_reduce(comm, segments, j->partition ? 2 : 1, &options));
    memcpy(result, data, COUNT * sizeof(float));
    give(data - AHEAD);
    pthread_mutex_lock(&lock);
    j->in_use += comm->in_place_frames - in_use;
    j->written += comm->written_frames - written;
    pthread_mutex_unlock(&lock);
}

static void reduce_both_ways(rp_comm *comm, int rank, int world, void *context) {
    job *j = context;
    (void)world;
    reduce(comm, j, false, results[0][rank]);
    reduce(comm, j, j->shared >> rank & 1, results[1][rank]);
}

static void compare(job j, int world) {
    for (int way = 0; way < 2; way++)
        for (int rank = 0; rank < world; rank++) results[way][rank] = take(false);
    world_run(world, &over_shm, reduce_both_ways, &j);
    for (int rank = 0; rank < world; rank++)
        CHECK_MSG(memcmp(results[0][rank], results[1][rank], COUNT * sizeof(float)) == 0,
                  "%s, world %d, rank %d, buffers %d", j.algorithm, world, rank, j.shared);
    /* A sum lies in memory of the library's; what goes into it does not. */
    CHECK_MSG((j.in_use > 0) == (j.shared != 0) || strcmp(j.algorithm, "sra") != 0,
              "%s, world %d, buffers %d: %llu frames stayed", j.algorithm, world, j.shared,
              (unsigned long long)j.in_use);
    CHECK_MSG((j.written > 0) == (j.shared != 0) || strcmp(j.algorithm, "sra") != 0 ||
                  world > 2,
              "%s, buffers %d: %llu frames were written", j.algorithm, j.shared,
              (unsigned long long)j.written);
    /* Two that sum into what they lend would wait for each other. */
    CHECK_MSG(j.in_use == 0 || world > 2 || strcmp(j.algorithm, "oneshot") != 0,
              "%s: %llu frames stayed", j.algorithm, (unsigned long long)j.in_use);
    for (int way = 0; way < 2; way++)
        for (int rank = 0; rank < world; rank++) give(results[way][rank]);
}

static void every_algorithm_gives_the_same(void) {
    for (int a = 0; rpi_algorithm_at(a); a++)
        for (int world = 2; world <= MOST_RANKS; world++) {
            const rpi_algorithm *algorithm = rpi_algorithm_at(a);
            if (algorithm->collective != RPI_ALL_REDUCE) continue;
            if (!rpi_algorithm_fits(algorithm, world)) continue;
            compare((job){.algorithm = algorithm->name, .shared = 15}, world);
        }
}

static void whoever_has_buffers(void) {
    for (int shared = 0; shared < 4; shared++)
        compare((job){.algorithm = "sra", .shared = shared}, 2);
    compare((job){.algorithm = "sra", .shared = 3, .reduce = RP_AVG}, 2);
    compare((job){.algorithm = "sra", .shared = 3, .partition = 30011},
            2); /* one stretch of memory */
    compare((job){.algorithm = "sra", .shared = 5}, 3);
}

/* ---- whose memory it is ---- */

static void free_too_early(rp_comm *comm, int rank, int world, void *context) {
    float *data = take(true);
    rp_request *request = NULL;
    (void)world, (void)context;
    if (rank == 0) data[COUNT - 1] = 7;
    if (rank == 1) world_meet();
    CHECK_OK(rp_broadcast_start(comm, data, COUNT, RP_F32, NULL, &request));
    if (rank == 0) {
        CHECK_FAILS(rp_buffer_free(data), STATE, "in flight");
        world_meet();
    }
    CHECK_OK(rp_request_wait(&request));
    CHECK_EQ(data[COUNT - 1], 7);
    CHECK_OK(rp_buffer_free(data));
}

static void a_buffer_in_use_is_not_freed(void) {
    world_run(2, &over_shm, free_too_early, NULL);
}

/* Rank 0 gives up at any moment, and has its memory back, where rank 1 writes nothing more;
 * what rank 1 then has is an error, or the sum. */
typedef struct surrender {
    int64_t delay_ns;
    uint64_t in_use; /* frames of rank 0, of all turns */
} surrender;

static void give_up(rp_comm *comm, int rank, int world, void *context) {
    surrender *it = context;
    float *data = take(true);
    rp_request *request = NULL;
    (void)world;
    get_to_know(comm, data);
    for (int i = 0; i < COUNT; i++) data[i] = (float)(i % 1000);
    world_meet();
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = "sra");
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, &options, &request));
    if (rank == 0) {
        rpi_sleep_until_ns(rpi_now_ns() + it->delay_ns);
        (void)rp_request_test(request);
        rp_comm_abort(comm, RP_CANCELLED, "enough");
        (void)rp_request_wait(&request);
        for (int i = 0; i < COUNT; i++) data[i] = -1e9F;
    } else if (rp_request_wait(&request) == RP_OK) {
        int wrong = 0;
        for (int i = 0; i < COUNT; i++) wrong += data[i] != (float)(2 * (i % 1000));
        CHECK_EQ(wrong, 0);
    }
    world_meet();
    int changed = 0;
    for (int i = 0; rank == 0 && i < COUNT; i++) changed += data[i] != -1e9F;
    CHECK_EQ(changed, 0);
    if (rank == 0) it->in_use += comm->in_place_frames;
    CHECK_OK(rp_buffer_free(data));
}

static void what_is_given_up_is_not_read(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    surrender it = {0};
    for (int turn = 0; turn < 40; turn++) {
        it.delay_ns = 1000 * (int64_t)rpi_rng_below(&rng, 400);
        world_run(2, &over_shm, give_up, &it);
    }
    CHECK(it.in_use > 0);
}

/* Rank 0 sleeps until rank 1 has put its sum, and may find that it has left when it wakes. */
static void leave_first(rp_comm *comm, int rank, int world, void *context) {
    float *data = take(true);
    rp_request *request = NULL;
    (void)world;
    get_to_know(comm, data);
    for (int i = 0; i < COUNT; i++) data[i] = (float)(i % 1000);
    world_meet();
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = "sra");
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, &options, &request));
    for (int looks = 0; rank == 1 && looks < *(int *)context; looks++)
        (void)rp_request_test(request);
    if (rank == 1) rpi_sleep_until_ns(rpi_now_ns() + 10 * 1000 * 1000);
    CHECK_OK(rp_request_wait(&request));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) wrong += data[i] != (float)(2 * (i % 1000));
    CHECK_EQ(wrong, 0);
    CHECK_OK(rp_buffer_free(data));
}

static void a_sum_outlives_who_put_it(void) {
    for (int looks = 0; looks < 40; looks++) world_run(2, &over_shm, leave_first, &looks);
}

/* Rank 1 says that it has written what it was never given. */
static void lie(rp_comm *comm, const rp_request *request) {
    rpi_link *link = rpi_peer_link(&comm->peers[0]);
    const rpi_transport *transport = link->endpoint->transport;
    rpi_frame_header header = request->header;
    void *region = NULL;
    header.kind = RPI_FRAME_DATA;
    size_t bytes = rpi_partition_part_bytes(&request->partition, 0, 0, RPI_LEVEL_WORLD);
    CHECK_OK(transport->reserve(link, transport->zero_copy->frame_bytes, &region));
    rpi_frame_seal(region, &header, bytes, false);
    CHECK_OK(transport->zero_copy->commit_written(link, bytes));
}

static void believe(rp_comm *comm, int rank, int world, void *context) {
    float *data = take(false);
    rp_request *request = NULL;
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = "sra");
    (void)world, (void)context;
    memset(data, 0, COUNT * sizeof *data);
    if (rank == 1) rpi_progress_acquire(comm->context); /* nothing leaves of itself */
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, &options, &request));
    world_meet();
    if (rank == 1) lie(comm, request);
    if (rank == 1) rpi_progress_release(comm->context);
    CHECK_FAILS(rp_request_wait(&request), CORRUPT, "it was not to be written here");
    give(data);
}

static void what_was_not_lent_is_not_written(void) {
    world_run(2, &over_shm, believe, NULL);
}

CASES({"every_algorithm_gives_the_same", every_algorithm_gives_the_same},
      {"whoever_has_buffers", whoever_has_buffers},
      {"a_buffer_in_use_is_not_freed", a_buffer_in_use_is_not_freed},
      {"what_is_given_up_is_not_read", what_is_given_up_is_not_read},
      {"a_sum_outlives_who_put_it", a_sum_outlives_who_put_it},
      {"what_was_not_lent_is_not_written", what_was_not_lent_is_not_written})
