/* Counts of several communicators are added up, each of them. */
#include "comm/thread_world.h"
#include "comm/world/comm_stats.h"

static void add_twice(rp_comm *comm, int rank, int world, void *context) {
    float x[1000] = {0};
    rp_segment segment = {.data = x, .count = 1000, .dtype = RP_F32};
    rp_codec q4;
    rp_comm_stats one, two = {0};
    (void)rank, (void)world, (void)context;
    REQUIRE_OK(rp_codec_parse("q4", &q4));
    segment.codec = q4;
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    world_meet();
    rp_comm_get_stats(comm, &one);
    CHECK(one.operations && one.wire_bytes_sent && one.wire_bytes_received);
    CHECK(one.value_bytes_sent && one.encode_s > 0 && one.decode_s > 0);
    CHECK(one.wait_s >= 0 && one.busy_s > 0);
    rpi_add_comm_stats(NULL, &two); /* of a group that this rank is not in */
    CHECK_EQ(two.operations, 0);
    rpi_add_comm_stats(comm, &two);
    rpi_add_comm_stats(comm, &two);
    CHECK_EQ(two.operations, 2 * one.operations);
    CHECK_EQ(two.wire_bytes_sent, 2 * one.wire_bytes_sent);
    CHECK_EQ(two.wire_bytes_received, 2 * one.wire_bytes_received);
    CHECK_EQ(two.value_bytes_sent, 2 * one.value_bytes_sent);
    CHECK_NEAR(two.encode_s, 2 * one.encode_s, 0);
    CHECK_NEAR(two.decode_s, 2 * one.decode_s, 0);
    CHECK_NEAR(two.wait_s, 2 * one.wait_s, 0);
    CHECK_NEAR(two.busy_s, 2 * one.busy_s, 0);
    world_meet();
}

static void every_count_is_added(void) {
    world_run(2, NULL, add_twice, NULL);
}

CASES({"every count is added", every_count_is_added})
