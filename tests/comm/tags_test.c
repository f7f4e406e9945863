/* Sends and receives with tags, and receives from any rank. */
#include "comm/core/tags.h"
#include "comm/thread_world.h"

#include "base/memory.h"
#include "base/rng.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

static const rp_comm_options plain = RP_COMM_OPTIONS(.transport = "inproc");
static const rp_comm_options threaded =
    RP_COMM_OPTIONS(.transport = "inproc", .progress_thread = 1);
static const rp_comm_options tiny = RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 256);

static void run_all_ways(int world, world_function function) {
    world_run(world, &plain, function, NULL);
    world_run(world, &threaded, function, NULL);
    world_run(world, &tiny, function, NULL);
}

static void pause_ms(int milliseconds) {
    struct timespec span = {.tv_nsec = milliseconds * 1000000L};
    nanosleep(&span, NULL);
}

/* ---- the table ---- */

static void counts_of_every_tag_are_kept(void) {
    rpi_tags tags = {0};
    enum { TAGS = 1000 };
    CHECK(rpi_tags_find(&tags, 3) == NULL);
    for (int i = 0; i < TAGS; i++) {
        rpi_tag *tag = NULL;
        REQUIRE_OK(rpi_tags_get(&tags, i * 2147483 % 2147483647, &tag));
        CHECK_EQ(tag->sent, 0);
        tag->sent = (uint32_t)i;
    }
    for (int i = 0; i < TAGS; i++) {
        const rpi_tag *tag = rpi_tags_find(&tags, i * 2147483 % 2147483647);
        REQUIRE(tag != NULL);
        CHECK_EQ(tag->sent, i);
    }
    CHECK(rpi_tags_find(&tags, 2147483647) == NULL);
    rpi_tag *last = NULL;
    REQUIRE_OK(rpi_tags_get(&tags, 2147483647, &last));
    CHECK(rpi_tags_find(&tags, 2147483647) == last);
    rpi_tags_free(&tags);
}

static void counts_go_round(void) {
    rpi_tag tag = {.received = UINT32_C(0x7ffffffe), .has_rts = UINT32_C(0x7ffffffe)};
    CHECK(!rpi_tag_waits(&tag));
    for (int i = 0; i < 4; i++) {
        uint32_t next = rpi_tag_next(tag.has_rts);
        CHECK(rpi_tag_is_new(&tag, next));
        tag.has_rts = next;
        CHECK(!rpi_tag_is_new(&tag, next));
        CHECK(rpi_tag_waits(&tag));
    }
    CHECK_EQ(tag.has_rts, 2);
    for (int i = 0; i < 4; i++) tag.received = rpi_tag_next(tag.received);
    CHECK(!rpi_tag_waits(&tag));
    tag.received = rpi_tag_next(tag.received); /* a receive that came first */
    CHECK(!rpi_tag_waits(&tag));
}

static void a_table_that_cannot_grow_stays_as_it_is(void) {
    rpi_tags tags = {0};
    rpi_tag *tag = NULL;
    for (int i = 0; i < 4; i++) CHECK_OK(rpi_tags_get(&tags, i, &tag));
    rpi_memory_fail_after(1);
    CHECK_EQ(rpi_tags_get(&tags, 4, &tag), RP_NOMEM);
    rpi_memory_fail_after(1);
    for (int i = 0; i < 4; i++) CHECK_OK(rpi_tags_get(&tags, i, &tag)); /* needs no room */
    rpi_memory_fail_after(0);
    for (int i = 0; i < 4; i++) CHECK(rpi_tags_find(&tags, i) != NULL);
    CHECK(rpi_tags_find(&tags, 4) == NULL);
    rpi_tags_free(&tags);
}

/* ---- tags ---- */

enum { MESSAGES = 24, LENGTH = 300 };

static void fill(int32_t *data, int value) {
    for (int i = 0; i < LENGTH; i++) data[i] = value + i;
}

static void check_filled(const int32_t *data, int value) {
    int wrong = 0;
    for (int i = 0; i < LENGTH; i++) wrong += data[i] != value + i;
    CHECK_MSG(wrong == 0, "%d of the elements of message %d are wrong", wrong, value);
}

/* Tags 0 ... 3 in a circle; received tag by tag, each in order. */
static void by_tag(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    int32_t(*out)[LENGTH] = calloc(MESSAGES, sizeof *out);
    int32_t(*in)[LENGTH] = calloc(MESSAGES, sizeof *in);
    rp_request *sends[MESSAGES];
    int to = (rank + 1) % world, from = (rank + world - 1) % world;
    static const int tags[4] = {0, 2147483647, 7, 1 << 20};
    for (int m = 0; m < MESSAGES; m++) {
        fill(out[m], 1000 * m + rank);
        CHECK_OK(rp_send_start(comm, out[m], LENGTH, RP_I32, to, tags[m % 4], &sends[m]));
    }
    for (int t = 3; t >= 0; t--)
        for (int m = t; m < MESSAGES; m += 4) {
            CHECK_OK(rp_recv(comm, in[m], LENGTH, RP_I32, from, tags[t]));
            check_filled(in[m], 1000 * m + from);
        }
    rp_request *empty = NULL;
    CHECK_OK(rp_send_start(comm, NULL, 0, RP_I32, to, 7, &empty));
    CHECK_OK(rp_recv(comm, NULL, 0, RP_I32, from, 7));
    CHECK_OK(rp_request_wait(&empty));
    for (int m = 0; m < MESSAGES; m++) {
        CHECK_OK(rp_request_wait_for(sends[m], -1));
        CHECK_EQ(rp_request_source(sends[m]), to);
        CHECK_OK(rp_request_free(&sends[m]));
    }
    free(out);
    free(in);
}

static void messages_match_by_tag_in_order(void) {
    for (int world = 2; world <= 4; world++) run_all_ways(world, by_tag);
}

/* Much that nobody wants yet stands in no one's way. */
static void out_of_order(rp_comm *comm, int rank, int world, void *context) {
    (void)context, (void)world;
    enum { BIG = 2000000 };
    float *big = calloc(BIG, sizeof *big), x = 5;
    rp_request *request = NULL;
    if (rank == 0) {
        for (size_t i = 0; i < BIG; i++) big[i] = (float)i;
        CHECK_OK(rp_send_start(comm, big, BIG, RP_F32, 1, 1, &request));
        CHECK_OK(rp_send(comm, &x, 1, RP_F32, 1, 2));
        CHECK_OK(rp_barrier(comm));
        CHECK_OK(rp_request_wait(&request));
    } else {
        x = 0;
        CHECK_OK(rp_recv(comm, &x, 1, RP_F32, 0, 2));
        CHECK_EQ(x, 5);
        CHECK_OK(rp_barrier(comm));
        CHECK_OK(rp_recv(comm, big, BIG, RP_F32, 0, 1));
        size_t wrong = 0;
        for (size_t i = 0; i < BIG; i++) wrong += big[i] != (float)i;
        CHECK_EQ(wrong, 0);
    }
    free(big);
}

static void an_unwanted_message_is_overtaken(void) {
    world_run(2, &plain, out_of_order, NULL);
    world_run(2, &threaded, out_of_order, NULL);
}

static void refuse(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    float x = 0;
    rp_request *request = NULL;
    int other = (rank + 1) % world;
    CHECK_FAILS(rp_send(comm, &x, 1, RP_F32, other, -1), INVALID, "tag is -1");
    CHECK_FAILS(rp_recv(comm, &x, 1, RP_F32, other, -5), INVALID, "tag is -5");
    CHECK_FAILS(rp_recv_any_start(comm, &x, 1, RP_F32, -1, &request), INVALID, "tag is -1");
    CHECK_FAILS(rp_recv(comm, &x, 1, RP_F32, -1, 0), INVALID, "rank");
    CHECK_FAILS(rp_send(comm, NULL, 1, RP_F32, other, 0), INVALID, "no data");
    CHECK_OK(rp_barrier(comm));
}

static void wrong_tags_are_refused(void) {
    world_run(2, &plain, refuse, NULL);
    rp_comm *comm = NULL;
    rp_request *request = NULL;
    float x = 0;
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, NULL, &comm));
    CHECK_FAILS(rp_recv_any_start(comm, &x, 1, RP_F32, 0, &request), INVALID, "nobody");
    rp_comm_destroy(comm);
}

static void disagree(rp_comm *comm, int rank, int world, void *context) {
    (void)context, (void)world;
    float x[8] = {0};
    rp_request *request = NULL;
    rp_status status;
    if (rank == 0) {
        status = rp_send(comm, x, 7, RP_F32, 1, 3);
    } else {
        CHECK_OK(rp_recv_any_start(comm, x, 8, RP_F32, 3, &request));
        status = rp_request_wait(&request);
    }
    CHECK_EQ(status, RP_MISMATCH);
    CHECK(strstr(rp_last_error()->message, "send-recv of 7 f32") != NULL);
    CHECK(strstr(rp_last_error()->message, "send-recv of 8 f32") != NULL);
}

static void lengths_must_agree(void) {
    world_run(2, &plain, disagree, NULL);
}

/* ---- from any rank ---- */

/* Everybody sends to rank 0, which asks nobody by name. */
static void to_one(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    int32_t data[LENGTH] = {0};
    int got[8] = {0};
    if (rank > 0) {
        for (int m = 0; m < MESSAGES; m++) {
            if (m % 8 == rank) pause_ms(1);
            fill(data, 1000 * m + rank);
            CHECK_OK(rp_send(comm, data, LENGTH, RP_I32, 0, 9));
        }
        return;
    }
    for (int m = 0; m < MESSAGES * (world - 1); m++) {
        rp_request *request = NULL;
        CHECK_OK(rp_recv_any_start(comm, data, LENGTH, RP_I32, 9, &request));
        CHECK_OK(rp_request_wait_for(request, -1));
        int source = rp_request_source(request);
        CHECK_OK(rp_request_free(&request));
        if (source < 1 || source >= world) {
            check_failed(__FILE__, __LINE__, "source is %d", source);
            return;
        }
        check_filled(data, 1000 * got[source]++ + source);
    }
    for (int source = 1; source < world; source++) CHECK_EQ(got[source], MESSAGES);
}

static void a_receive_from_any_rank_takes_what_comes(void) {
    for (int world = 2; world <= 5; world++) run_all_ways(world, to_one);
}

/* Several are posted before anything is sent; a receive by name takes its own. */
static void by_name_first(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    int32_t data[8][LENGTH] = {{0}};
    rp_request *requests[8] = {0};
    int seen = 0;
    if (rank == 0) {
        for (int r = 0; r < world - 1; r++)
            CHECK_OK(rp_recv_any_start(comm, data[r], LENGTH, RP_I32, 4, &requests[r]));
        CHECK_OK(rp_recv_start(comm, data[7], LENGTH, RP_I32, 1, 4, &requests[7]));
    }
    CHECK_OK(rp_barrier(comm));
    if (rank > 0)
        for (int m = 0; m < 1 + (rank == 1); m++) {
            fill(data[0], 1000 * m + rank);
            CHECK_OK(rp_send(comm, data[0], LENGTH, RP_I32, 0, 4));
        }
    if (rank > 0) return;
    for (int r = 0; r < world - 1; r++) {
        CHECK_OK(rp_request_wait_for(requests[r], -1));
        int source = rp_request_source(requests[r]);
        check_filled(data[r], source == 1 ? 1000 + 1 : source);
        seen |= 1 << source;
        CHECK_OK(rp_request_free(&requests[r]));
    }
    CHECK_EQ(seen, (1 << world) - 2);
    CHECK_OK(rp_request_wait(&requests[7]));
    check_filled(data[7], 1);
}

static void a_receive_by_name_comes_first(void) {
    for (int world = 2; world <= 5; world++) run_all_ways(world, by_name_first);
}

/* Rank 2 leaves, rank 1 computes for longer than the timeout and sends then. */
static void outlast(rp_comm *comm, int rank, int world, void *context) {
    (void)world, (void)context;
    float x = 0, sent = 7;
    rp_request *request = NULL;
    CHECK_OK(rp_barrier(comm));
    if (rank == 2) return;
    if (rank == 1) {
        for (int i = 0; i < 3; i++) pause_ms(800);
        CHECK_OK(rp_send(comm, &sent, 1, RP_F32, 0, 5));
        return;
    }
    CHECK_OK(rp_recv_any_start(comm, &x, 1, RP_F32, 5, &request));
    CHECK_OK(rp_request_wait(&request));
    CHECK_EQ(x, 7);
}

static void who_has_left_is_not_waited_for(void) {
    rp_comm_options short_of_time = RP_COMM_OPTIONS(.transport = "inproc", .timeout_s = 0.5);
    world_run(3, &short_of_time, outlast, NULL);
}

/* ---- at random ---- */

enum { RANDOM_TAGS = 3, RANDOM_SENDS = 60 };

/* What `from` sends to `to`, the same on both sides: tag and length of each message. */
static rpi_rng plan_of(uint64_t seed, int round, int from, int to) {
    return rpi_rng_make(seed, RPI_RNG_TEST,
                        (uint64_t)round * 64 + (uint64_t)from * 8 + (uint64_t)to);
}

typedef struct random_side {
    rp_request *requests[8][RANDOM_SENDS];
    int32_t data[8][RANDOM_SENDS][8];
} random_side;

static void start_sends(rp_comm *comm, random_side *side, uint64_t seed, int round, int rank,
                        int world) {
    for (int m = 0; m < RANDOM_SENDS; m++)
        for (int to = 0; to < world; to++) {
            if (to == rank) continue;
            rpi_rng rng = plan_of(seed, round * RANDOM_SENDS + m, rank, to);
            int tag = (int)rpi_rng_below(&rng, RANDOM_TAGS);
            for (int i = 0; i < 8; i++) side->data[to][m][i] = m * 100 + rank;
            CHECK_OK(rp_send_start(comm, side->data[to][m], 8, RP_I32, to, tag,
                                   &side->requests[to][m]));
        }
}

/* Half of the tags are received by name, half from anybody; all in an order of the receiver's.
 */
static void at_random(rp_comm *comm, int rank, int world, void *context) {
    const uint64_t seed = *(uint64_t *)context;
    random_side *side = calloc(1, sizeof *side);
    for (int round = 0; round < 3; round++) {
        int left[8][RANDOM_TAGS] = {0}, last[8][RANDOM_TAGS], any[RANDOM_TAGS] = {0};
        memset(last, -1, sizeof last);
        start_sends(comm, side, seed, round, rank, world);
        int total = 0;
        for (int from = 0; from < world; from++)
            for (int m = 0; from != rank && m < RANDOM_SENDS; m++, total++) {
                rpi_rng rng = plan_of(seed, round * RANDOM_SENDS + m, from, rank);
                int tag = (int)rpi_rng_below(&rng, RANDOM_TAGS);
                left[from][tag]++;
                any[tag] += 1;
            }
        rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TEST, 9000 + (uint64_t)rank);
        while (total > 0) {
            int tag = (int)rpi_rng_below(&rng, RANDOM_TAGS);
            int from = (int)rpi_rng_below(&rng, (uint32_t)world);
            bool named = tag == 0;
            if (named ? from == rank || !left[from][tag] : !any[tag]) continue;
            int32_t data[8] = {0};
            rp_request *request = NULL;
            CHECK_OK(named ? rp_recv_start(comm, data, 8, RP_I32, from, tag, &request)
                           : rp_recv_any_start(comm, data, 8, RP_I32, tag, &request));
            CHECK_OK(rp_request_wait_for(request, -1));
            int source = rp_request_source(request);
            CHECK_OK(rp_request_free(&request));
            CHECK_EQ(data[7] % 100, source);
            CHECK(data[7] / 100 > last[source][tag]);
            last[source][tag] = data[7] / 100;
            left[source][tag]--;
            any[tag]--;
            total--;
        }
        for (int to = 0; to < world; to++)
            for (int m = 0; to != rank && m < RANDOM_SENDS; m++)
                CHECK_OK(rp_request_wait(&side->requests[to][m]));
        CHECK_OK(rp_barrier(comm));
    }
    free(side);
}

static void messages_are_taken_once_and_in_order(void) {
    uint64_t seed = check_seed();
    for (int world = 2; world <= 4; world++) {
        world_run(world, &plain, at_random, &seed);
        world_run(world, &threaded, at_random, &seed);
    }
}

CASES({"counts of every tag are kept", counts_of_every_tag_are_kept},
      {"counts go round", counts_go_round},
      {"a table that cannot grow stays as it is", a_table_that_cannot_grow_stays_as_it_is},
      {"messages match by tag, in order", messages_match_by_tag_in_order},
      {"an unwanted message is overtaken", an_unwanted_message_is_overtaken},
      {"wrong tags are refused", wrong_tags_are_refused},
      {"lengths must agree", lengths_must_agree},
      {"a receive from any rank takes what comes", a_receive_from_any_rank_takes_what_comes},
      {"a receive by name comes first", a_receive_by_name_comes_first},
      {"who has left is not waited for", who_has_left_is_not_waited_for},
      {"messages are taken once, in order", messages_are_taken_once_and_in_order})
