/* Which codec is faster: the same answer on all ranks, and that of the link. */
#include "redpoll/codec_comparison.h"

#include "base/memory.h"
#include "comm/thread_world.h"

#include <string.h>

enum { MOST_RANKS = 4 };

typedef struct asked {
    const char *codec, *algorithm;
    size_t most;
    int feedback;
    rp_status status[MOST_RANKS];
    rp_codec_comparison found[MOST_RANKS];
    char text[MOST_RANKS][RP_COMPARISON_TEXT];
    double sent[MOST_RANKS]; /* bytes */
} asked;

static void compare(rp_comm *comm, int rank, int world, void *context) {
    asked *a = context;
    rp_codec codec;
    (void)world;
    REQUIRE_OK(rp_codec_parse(a->codec, &codec));
    a->status[rank] =
        rp_codec_compare(comm, &codec, a->most, a->feedback, a->algorithm, &a->found[rank]);
    rp_codec_comparison_text(&a->found[rank], &codec, a->text[rank]);
    rp_comm_stats stats;
    rp_comm_get_stats(comm, &stats);
    a->sent[rank] = (double)stats.wire_bytes_sent;
    float one = 1;
    CHECK_OK(
        rp_all_reduce(comm, &(rp_segment){.data = &one, .count = 1, .dtype = RP_F32}, 1, NULL));
    CHECK(one == (float)rp_comm_world(comm)); /* ranks are in step */
}

static void check_alike(const asked *a, int world) {
    for (int rank = 1; rank < world; rank++)
        CHECK(memcmp(&a->found[rank], &a->found[0], sizeof a->found[0]) == 0);
}

static void ranks_find_the_same(void) {
    static const struct {
        int world;
        asked a;
    } cases[] = {{2, {.codec = "q4", .most = 40000, .feedback = 1}},
                 {3, {.codec = "bf16", .most = 1}},
                 {4, {.codec = "v4", .most = 20000, .algorithm = "sra"}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        asked a = cases[i].a;
        world_run(cases[i].world, NULL, compare, &a);
        check_alike(&a, cases[i].world);
        const rp_codec_comparison *found = &a.found[0];
        CHECK_OK(a.status[0]);
        CHECK_EQ(found->count, a.most);
        REQUIRE(found->exact_s > 0 && found->lossy_s > 0);
        double world = cases[i].world, bytes = 4.0 * (double)found->count;
        CHECK_NEAR(found->sent_bytes_s * found->exact_s / (2 * (world - 1) / world * bytes), 1,
                   1e-9);
        CHECK(found->lossy_from == RP_LOSSY_NEVER || found->lossy_from <= a.most);
    }
}

/* Lengths grow by four: 17 turns of each at most, both ways, of the vector's bytes at most. */
static void few_lengths_are_tried(void) {
    asked a = {.codec = "q4", .most = 70000};
    world_run(2, NULL, compare, &a);
    CHECK_OK(a.status[0]);
    double most = 17 * 2 * 4.0 * (16384 + 65536 + 70000);
    CHECK_MSG(a.sent[0] < 1.1 * most, "%g bytes were sent, at most %g", a.sent[0], most);
}

static void it_says_what_it_found(void) {
    rp_codec codec;
    rp_codec_comparison found = {.lossy_from = RP_LOSSY_NEVER,
                                 .count = 1000000,
                                 .exact_s = 0.008,
                                 .lossy_s = 0.002,
                                 .sent_bytes_s = 1e9};
    char text[RP_COMPARISON_TEXT];
    REQUIRE_OK(rp_codec_parse("q4", &codec));
    rp_codec_comparison_text(&found, &codec, text);
    CHECK_MSG(strcmp(text, "fp32: 4 MB take 8 ms exact (8 Gbit/s sent by a rank), 2 ms as "
                           "q4:bucket=512") == 0,
              "%s", text);
}

/* Where the link sets the time, an eighth of the bytes is faster, and as many or more are not.
 */
static void the_link_decides(void) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .link = "20Mbit,1us");
    asked shorter = {.codec = "q4", .most = 16384}, same = {.codec = "fp32", .most = 16384},
          longer = {.codec = "topk:k=1024,bucket=1024,values=fp32", .most = 16384};
    world_run(2, &options, compare, &shorter);
    CHECK_EQ(shorter.found[0].lossy_from, 16384);
    CHECK_MSG(strstr(shorter.text[1], "q4:bucket=512 from 0.0655 MB on, fp32 below: 0.0655 MB"),
              "%s", shorter.text[1]);
    world_run(2, &options, compare, &same);
    CHECK_EQ(same.found[0].lossy_from, RP_LOSSY_NEVER);
    CHECK_MSG(strncmp(same.text[0], "fp32: 0.0655 MB take ", 21) == 0, "%s", same.text[0]);
    world_run(2, &options, compare, &longer); /* all elements, each with its place */
    CHECK_OK(longer.status[0]);
    CHECK_EQ(longer.found[0].lossy_from, RP_LOSSY_NEVER);
    CHECK(longer.found[0].lossy_s > longer.found[0].exact_s);
}

static void one_rank_has_nothing_to_gain(void) {
    asked a = {.codec = "q4", .most = 1000};
    world_run(1, NULL, compare, &a);
    CHECK_OK(a.status[0]);
    CHECK_EQ(a.found[0].lossy_from, RP_LOSSY_NEVER);
    CHECK_EQ(a.found[0].count, 0);
}

static void lengths_that_cannot_be_are_refused(void) {
    static const size_t lengths[] = {0, RPI_ELEMENTS_MAX + 1};
    for (int i = 0; i < 2; i++) {
        asked a = {.codec = "q4", .most = lengths[i]};
        world_run(1, NULL, compare, &a);
        CHECK_EQ(a.status[0], RP_INVALID);
    }
}

static void an_algorithm_for_exact_codecs_is_refused(void) {
    asked a = {.codec = "q4", .most = 1000, .algorithm = "doubling"};
    world_run(2, NULL, compare, &a);
    CHECK_EQ(a.status[0], RP_UNSUPPORTED);
    CHECK_EQ(a.status[1], RP_UNSUPPORTED);
}

CASES({"ranks_find_the_same", ranks_find_the_same},
      {"few_lengths_are_tried", few_lengths_are_tried},
      {"it_says_what_it_found", it_says_what_it_found}, {"the_link_decides", the_link_decides},
      {"one_rank_has_nothing_to_gain", one_rank_has_nothing_to_gain},
      {"lengths_that_cannot_be_are_refused", lengths_that_cannot_be_are_refused},
      {"an_algorithm_for_exact_codecs_is_refused", an_algorithm_for_exact_codecs_is_refused})
