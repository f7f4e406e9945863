/* Frames that no honest rank sends: each is refused, in words that say what it was, and what
 * they take of memory has a bound. */
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/unexpected.h"
#include "comm/thread_world.h"

#include <sched.h>
#include <string.h>

/* A deadlock is to show soon. */
static rp_comm_options options_of(const char *transport) {
    return (rp_comm_options)RP_COMM_OPTIONS(.transport = transport, .timeout_s = 6,
                                            .warn_after_s = 6, .strict_timeout = 1);
}

static void post_frame(rp_comm *comm, int to, const rpi_frame_header *header, uint32_t bytes) {
    rpi_link *link = comm->context->connections[to].link;
    const rpi_transport *transport = link->endpoint->transport;
    void *region = NULL;
    REQUIRE_OK(transport->reserve(link, RPI_FRAME_HEADER_BYTES + bytes, &region));
    memset((char *)region + RPI_FRAME_HEADER_BYTES, 0, bytes);
    rpi_frame_seal(region, header, bytes, transport->checksum);
    REQUIRE_OK(transport->commit(link, RPI_FRAME_HEADER_BYTES + bytes));
}

static void post_word(rp_comm *comm, int to, int kind, uint64_t sequence, uint32_t bytes) {
    rpi_frame_header header = {.kind = (uint8_t)kind,
                               .communicator = comm->id,
                               .epoch = comm->epoch,
                               .sequence = sequence};
    post_frame(comm, to, &header, bytes);
}

typedef struct wrong_word {
    int kind;
    uint64_t sequence;
    uint32_t bytes;
    int times;
    rp_status status;
    const char *words;
} wrong_word;

/* Both are past a barrier, which was operation 1. */
static void say_what_cannot_be(rp_comm *comm, int rank, int world, void *context) {
    const wrong_word *word = context;
    (void)world;
    CHECK_OK(rp_barrier(comm));
    world_meet();
    for (int i = 0; rank == 1 && i < word->times; i++)
        post_word(comm, 0, word->kind, word->sequence, word->bytes);
    world_meet();
    if (rank == 0) {
        float x;
        CHECK_EQ(rp_recv(comm, &x, 1, RP_F32, 1, 0), word->status);
        CHECK_MSG(strstr(rp_last_error()->message, word->words), "%s",
                  rp_last_error()->message);
    }
    world_meet();
}

static void what_cannot_be_is_refused(void) {
    static const wrong_word words[] = {
        {RPI_FRAME_CTS_REQUEST, 1, 0, 1, RP_MISMATCH, "is finished and wanted nothing more"},
        {RPI_FRAME_CTS_REQUEST, 3, 8, 1, RP_CORRUPT, "a header alone"},
        {RPI_FRAME_CTS_REQUEST, RPI_P2P_SEQUENCE | 1, 0, 1, RP_CORRUPT, "asked for a start"},
        {RPI_FRAME_CTS, 9, 0, 1, RP_CORRUPT, "told of the start"},
        {RPI_FRAME_CREDIT, 9, 8, 1, RP_CORRUPT, "a header alone"},
        {RPI_FRAME_HELLO, 3, 0, 1, RP_CORRUPT, "what joins links"},
        {RPI_FRAME_DATA, 3, 64, 1, RP_CORRUPT, "has not begun with"},
        {RPI_FRAME_DATA, RPI_P2P_SEQUENCE | RPI_P2P_UPWARD | 1, 0, 1, RP_CORRUPT,
         "has not begun with"},
        {RPI_FRAME_EAGER, 3, 16000, 70, RP_CORRUPT, "more than was promised"}};
    rp_comm_options options = options_of("inproc");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        world_run(2, &options, say_what_cannot_be, (void *)(uintptr_t)&words[i]);
}

/* Of communicators that no rank can have numbered. */
static void name_no_communicator(rp_comm *comm, int rank, int world, void *context) {
    const rpi_frame_header *header = context;
    char words[64];
    (void)world;
    CHECK_OK(rp_barrier(comm));
    world_meet();
    if (rank == 1) post_frame(comm, 0, header, 0);
    world_meet();
    if (rank == 0) {
        float x;
        snprintf(words, sizeof words, "rank 1 sent a frame of communicator %u, epoch %u",
                 header->communicator, header->epoch);
        CHECK_FAILS(rp_recv(comm, &x, 1, RP_F32, 1, 0), MISMATCH, words);
    }
    world_meet();
}

static void frames_of_no_communicator_are_refused(void) {
    static const rpi_frame_header headers[] = {
        {.kind = RPI_FRAME_DATA, .communicator = 5, .epoch = 1, .sequence = 2}, /* of 4 */
        {.kind = RPI_FRAME_DATA, .communicator = 1, .epoch = 0, .sequence = 2},
        {.kind = RPI_FRAME_DATA, .communicator = 3, .epoch = 1, .sequence = 2}};
    rp_comm_options options = options_of("inproc");
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        world_run(2, &options, name_no_communicator, (void *)(uintptr_t)&headers[i]);
}

/* Rank 1 tells of the start of a sum which is not the one that rank 0 has posted. */
static void start_another_sum(rp_comm *comm, int rank, int world, void *context) {
    float x[4] = {0};
    rp_segment segment = {.data = x, .count = 4, .dtype = RP_F32};
    rp_request *request = NULL;
    (void)world, (void)context;
    CHECK_OK(rp_barrier(comm));
    if (rank == 0) CHECK_OK(rp_all_reduce_start(comm, &segment, 1, NULL, &request));
    world_meet();
    if (rank == 1) post_word(comm, 0, RPI_FRAME_CTS, 2, 0);
    world_meet();
    if (rank == 0) CHECK_EQ(rp_request_wait(&request), RP_MISMATCH);
    world_meet();
}

static void the_start_of_another_sum_is_refused(void) {
    rp_comm_options options = options_of("inproc");
    world_run(2, &options, start_another_sum, NULL);
}

/* Words that need no credit, of operations, rounds, messages and communicators without end: the
 * memory they take is bounded, and who says so many is refused. */
typedef struct flood {
    int kind, times;
    uint64_t first, step; /* of sequences */
    const char *words;
} flood;

static void flood_with_words(rp_comm *comm, int rank, int world, void *context) {
    const flood *f = context;
    (void)world;
    CHECK_OK(rp_barrier(comm));
    world_meet();
    rp_request *request = NULL;
    float x;
    if (rank == 0) CHECK_OK(rp_recv_start(comm, &x, 1, RP_F32, 1, 0, &request));
    for (int i = 0; rank == 1 && i < f->times; i++) {
        if (rp_comm_status(comm) != RP_OK) break;
        rpi_link *link = comm->context->connections[0].link;
        void *region = NULL;
        if (link->endpoint->transport->reserve(link, RPI_FRAME_HEADER_BYTES, &region) !=
            RP_OK) {
            i--; /* full: rank 0 takes them in */
            sched_yield();
            continue;
        }
        rpi_frame_header header = {.kind = (uint8_t)f->kind,
                                   .communicator = comm->id,
                                   .epoch = comm->epoch,
                                   .sequence = f->first + f->step * (uint64_t)i};
        rpi_frame_seal(region, &header, 0, link->endpoint->transport->checksum);
        REQUIRE_OK(link->endpoint->transport->commit(link, RPI_FRAME_HEADER_BYTES));
    }
    if (rank == 0) {
        CHECK_EQ(rp_request_wait(&request), RP_CORRUPT);
        CHECK_MSG(strstr(rp_last_error()->message, f->words), "%s", rp_last_error()->message);
    }
    world_meet();
}

static void words_without_end_are_refused(void) {
    /* From rank 1, the higher one: what it sends has bit 62 clear. */
    static const flood floods[] = {
        {RPI_FRAME_CTS_REQUEST, 200, 3, 1, "more than 128 operations"},
        {RPI_FRAME_PROBE, 200, RPI_EXCHANGE_SEQUENCE + 3, 1, "more than 128 operations"},
        {RPI_FRAME_RTS, RPI_TAGS_MOST + 10, RPI_P2P_SEQUENCE | 1,
         UINT64_C(1) << RPI_P2P_TAG_SHIFT, "more than 1048576 tags"}};
    rp_comm_options options = options_of("inproc");
    options.timeout_s = 300; /* a million words take a sanitizer a while */
    for (size_t i = 0; i < sizeof floods / sizeof floods[0]; i++)
        world_run(2, &options, flood_with_words, (void *)(uintptr_t)&floods[i]);
}

/* Frames without credit: as many as an honest rank can send, and one more is a fault. */
static void speak_of_many(rp_comm *comm, int rank, int world, void *context) {
    (void)world, (void)context;
    enum { FIRST = 1000 };
    int other = 1 - rank;
    rpi_unexpected *one = NULL;
    rpi_progress_acquire(comm->context);
    for (int i = 0; i < RPI_UNEXPECTED_CONTROL_MOST; i++)
        CHECK_OK(rpi_unexpected_get_for_control(comm, other, FIRST + (uint64_t)i, &one));
    for (int i = 0; i < 3; i++) /* what it has spoken of before is no more than that */
        CHECK_OK(rpi_unexpected_get_for_control(comm, other, FIRST + (uint64_t)i, &one));
    CHECK_OK(rpi_unexpected_get(comm, other, 1, &one)); /* of frames that had credit */
    rpi_unexpected_drop(comm, other, 1, one);
    rpi_unexpected_drop(comm, other, FIRST, rpi_unexpected_find(comm, other, FIRST));
    CHECK_OK(rpi_unexpected_get_for_control(comm, other, 7, &one));
    CHECK(rp_comm_status(comm) == RP_OK);
    world_meet();
    CHECK_EQ(rpi_unexpected_get_for_control(comm, other, 8, &one), RP_CORRUPT);
    rpi_progress_release(comm->context);
    CHECK_FAILS(rp_barrier(comm), CORRUPT, "spoke of more than 128 operations");
}

static void control_frames_have_a_bound(void) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc");
    world_run(2, &options, speak_of_many, NULL);
}

CASES({"control frames have a bound", control_frames_have_a_bound},
      {"words without end are refused", words_without_end_are_refused},
      {"frames of no communicator are refused", frames_of_no_communicator_are_refused},
      {"the start of another sum is refused", the_start_of_another_sum_is_refused},
      {"what cannot be is refused", what_cannot_be_is_refused})
