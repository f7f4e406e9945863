/* Payloads that stay in a buffer of their sender, over links of shared memory: when they are
 * used, when they are back, what is withdrawn, and what a peer that lies about them gets. */
#include "link_pair.h"

#include "base/clock.h"
#include "base/memory.h"
#include "harness/check.h"
#include "net/bytes/frame.h"
#include "net/memory/buffers.h"
#include "net/shm/shm_buffers.h"
#include "net/shm/shm_endpoint.h"
#include "net/socket/pass_fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAME_BYTES = 65536, BYTES = 20000, BUFFER_BYTES = 100000 };

static const rpi_transport *shm;
static const rpi_zero_copy *zero_copy;

static void open_pair(link_pair *pair, bool shares0, bool shares1) {
    rp_status status_of[2];
    CHECK_OK(rpi_transport_find("shm", &shm));
    zero_copy = shm->zero_copy;
    link_pair_options(pair, shm, FRAME_BYTES);
    pair->options[0].zero_copy = shares0;
    pair->options[1].zero_copy = shares1;
    CHECK_OK(link_pair_open_with(pair, status_of));
}

/* Sleeping: epoll finds what lies in the sockets. */
static void look(const link_pair *pair, int rank) {
    int fd = -1;
    int64_t wake_at_ns = 0;
    (void)shm->arm(pair->endpoints[rank], &fd, &wake_at_ns);
    shm->disarm(pair->endpoints[rank]);
}

static bool reach(const link_pair *pair, const void *data, size_t bytes) {
    if (zero_copy->reaches(pair->links[0], data, bytes)) return true;
    look(pair, 1);
    look(pair, 0);
    return zero_copy->reaches(pair->links[0], data, bytes);
}

static rp_status post_as(const link_pair *pair, const void *data, size_t bytes, bool writable,
                         uint32_t *number) {
    void *region = NULL;
    rpi_frame_header header = {.kind = RPI_FRAME_DATA, .sequence = 7};
    RP_TRY(shm->reserve(pair->links[0], zero_copy->frame_bytes, &region));
    rpi_frame_seal(region, &header, bytes, false);
    return zero_copy->commit(pair->links[0], data, bytes, writable, number);
}

static rp_status commit(const link_pair *pair, const void *data, size_t bytes,
                        uint32_t *number) {
    return post_as(pair, data, bytes, false, number);
}

static unsigned char *make_buffer(void) {
    void *buffer = NULL;
    CHECK_OK(rp_buffer_allocate(BUFFER_BYTES, &buffer));
    unsigned char *bytes = buffer;
    for (int i = 0; i < BUFFER_BYTES; i++) bytes[i] = (unsigned char)(i * 7 + (i >> 8));
    return bytes;
}

/* At odd places: nothing has to be aligned. */
static void payloads_are_read_where_they_lie(void) {
    link_pair pair;
    const void *frame = NULL;
    size_t got = 0;
    uint32_t number = 0;
    rpi_frame_header header;
    int before = check_descriptors();
    unsigned char *buffer = make_buffer();
    open_pair(&pair, true, true);
    CHECK(
        !zero_copy->reaches(pair.links[0], buffer + 3, BYTES)); /* the peer has yet to map it */
    REQUIRE(reach(&pair, buffer + 3, BYTES));
    CHECK(!zero_copy->reaches(pair.links[0], buffer + BUFFER_BYTES, BYTES));
    CHECK(!zero_copy->reaches(pair.links[0], &pair, 1));
    for (int turn = 0; turn < 600; turn++) { /* twice round the words of a link */
        REQUIRE_OK(commit(&pair, buffer + turn, BYTES, &number));
        REQUIRE_OK(shm->peek(pair.links[1], &frame, &got));
        CHECK_OK(rpi_frame_open(frame, got, false, &header));
        CHECK_EQ(header.bytes, BYTES);
        const void *payload = zero_copy->payload(pair.links[1]);
        REQUIRE(payload && payload != buffer + turn);
        CHECK(memcmp(payload, buffer + turn, BYTES) == 0);
        CHECK(zero_copy->is_valid(pair.links[1]));
        CHECK(!zero_copy->is_completed(pair.links[0], number));
        shm->release(pair.links[1]);
        CHECK(zero_copy->is_completed(pair.links[0], number));
    }
    CHECK_EQ(pair.links[0]->bytes_sent, 600 * (64 + BYTES));
    CHECK_EQ(pair.links[1]->bytes_received, 600 * (64 + BYTES));
    CHECK_OK(link_send_wait(pair.links[0], 1, 1000)); /* and others as ever */
    CHECK(link_receive_wait(pair.links[1], 1, 1000) == RP_OK);
    CHECK(zero_copy->payload(pair.links[1]) == NULL);
    link_pair_close(&pair);
    CHECK_OK(rp_buffer_free(buffer));
    CHECK_EQ(check_descriptors(), before);
}

static void *release_later(void *argument) {
    const link_pair *pair = argument;
    const void *frame = NULL;
    size_t got = 0;
    while (shm->peek(pair->links[1], &frame, &got) == RP_PENDING) link_wait(pair->endpoints[1]);
    rpi_sleep_until_ns(rpi_now_ns() + 20 * 1000 * 1000);
    shm->release(pair->links[1]);
    return NULL;
}

static void who_sleeps_for_a_payload_is_woken(void) {
    link_pair pair;
    pthread_t thread;
    uint32_t number = 0;
    unsigned char *buffer = make_buffer();
    open_pair(&pair, true, true);
    REQUIRE(reach(&pair, buffer, BYTES));
    REQUIRE_OK(commit(&pair, buffer, BYTES, &number));
    REQUIRE(pthread_create(&thread, NULL, release_later, &pair) == 0);
    int sleeps = 0;
    for (; !zero_copy->is_completed(pair.links[0], number) && sleeps < 1000; sleeps++)
        CHECK(link_wait(pair.endpoints[0]));
    CHECK_MSG(sleeps < 10, "%d sleeps for one payload", sleeps);
    pthread_join(thread, NULL);
    link_pair_close(&pair);
    CHECK_OK(rp_buffer_free(buffer));
}

static void both_must_want_it(void) {
    for (int who = 0; who < 3; who++) {
        link_pair pair;
        unsigned char *buffer = make_buffer();
        open_pair(&pair, who & 1, who & 2);
        CHECK(!reach(&pair, buffer, BYTES));
        CHECK_OK(link_send_wait(pair.links[0], 1, 1000));
        CHECK_OK(link_receive_wait(pair.links[1], 1, 1000));
        link_pair_close(&pair);
        CHECK_OK(rp_buffer_free(buffer));
    }
}

static void what_was_withdrawn_is_not_taken(void) {
    link_pair pair;
    const void *frame = NULL;
    size_t got = 0;
    uint32_t first = 0, second = 0;
    unsigned char *buffer = make_buffer();
    open_pair(&pair, true, true);
    REQUIRE(reach(&pair, buffer, BYTES));
    REQUIRE_OK(commit(&pair, buffer, BYTES, &first));
    REQUIRE_OK(commit(&pair, buffer, BYTES, &second));
    CHECK_OK(link_send_wait(pair.links[0], 3, 1000));
    REQUIRE_OK(shm->peek(pair.links[1], &frame, &got));
    CHECK(zero_copy->is_valid(pair.links[1]));
    zero_copy->revoke(pair.links[0], first);
    zero_copy->revoke(pair.links[0], second);
    CHECK(!zero_copy->is_valid(pair.links[1]));
    /* The buffer goes while its payload is being read: that memory is still there. */
    const unsigned char *payload = zero_copy->payload(pair.links[1]);
    CHECK_OK(rp_buffer_free(buffer));
    CHECK_OK(shm->progress(pair.endpoints[0])); /* says so */
    look(&pair, 1);
    CHECK_EQ(payload[100], 0); /* and given back */
    shm->release(pair.links[1]);
    CHECK_OK(link_receive_wait(pair.links[1], 3, 1000)); /* the second was never seen */
    CHECK(zero_copy->is_completed(pair.links[0], second));
    link_pair_close(&pair);
}

/* ---- answers that are written where the question lay ---- */

static void answers_are_written_where_that_is_allowed(void) {
    link_pair pair;
    const void *frame = NULL;
    size_t got = 0;
    uint32_t number = 0;
    void *region = NULL;
    rpi_frame_header header = {.kind = RPI_FRAME_DATA};
    unsigned char *buffer = make_buffer();
    open_pair(&pair, true, true);
    REQUIRE(reach(&pair, buffer, BYTES));
    REQUIRE_OK(commit(&pair, buffer, BYTES, &number));
    REQUIRE_OK(shm->peek(pair.links[1], &frame, &got));
    CHECK(zero_copy->begin_write(pair.links[1]) == NULL); /* not allowed */
    shm->release(pair.links[1]);
    REQUIRE_OK(post_as(&pair, buffer + 9, BYTES, true, &number));
    REQUIRE_OK(shm->peek(pair.links[1], &frame, &got));
    unsigned char *there = zero_copy->begin_write(pair.links[1]);
    REQUIRE(there != NULL);
    memset(there, 0x5a, BYTES);
    zero_copy->end_write(pair.links[1]);
    shm->release(pair.links[1]);
    REQUIRE_OK(shm->reserve(pair.links[1], zero_copy->frame_bytes, &region));
    rpi_frame_seal(region, &header, BYTES, false);
    REQUIRE_OK(zero_copy->commit_written(pair.links[1], BYTES));
    REQUIRE_OK(shm->peek(pair.links[0], &frame, &got));
    CHECK_EQ(got, 64 + BYTES);
    CHECK(zero_copy->is_written(pair.links[0]) && !zero_copy->payload(pair.links[0]));
    CHECK(zero_copy->is_completed(pair.links[0], number));
    shm->release(pair.links[0]);
    CHECK(!zero_copy->is_written(pair.links[0]));
    CHECK(buffer[8] == 56 && buffer[9] == 0x5a && buffer[8 + BYTES] == 0x5a);
    CHECK(buffer[9 + BYTES] != 0x5a);
    link_pair_close(&pair);
    CHECK_OK(rp_buffer_free(buffer));
}

/* The one thread here would wait for itself. */
static void who_withdraws_waits_for_no_writer(void) {
    link_pair pair;
    const void *frame = NULL;
    size_t got = 0;
    uint32_t number = 0;
    unsigned char *buffer = make_buffer();
    open_pair(&pair, true, true);
    REQUIRE(reach(&pair, buffer, BYTES));
    REQUIRE_OK(post_as(&pair, buffer, BYTES, true, &number));
    REQUIRE_OK(shm->peek(pair.links[1], &frame, &got));
    REQUIRE(zero_copy->begin_write(pair.links[1]) != NULL);
    CHECK(!zero_copy->revoke(pair.links[0], number));
    zero_copy->end_write(pair.links[1]);
    CHECK(zero_copy->revoke(pair.links[0], number));
    CHECK(zero_copy->begin_write(pair.links[1]) == NULL); /* it is too late now */
    link_pair_close(&pair);
    CHECK_OK(rp_buffer_free(buffer));
}

/* One that is stopped in the middle, and goes on when the memory is its owner's again. */
static void who_writes_for_ever_writes_elsewhere(void) {
    link_pair pair;
    const void *frame = NULL;
    size_t got = 0;
    uint32_t number = 0;
    rpi_buffer_place place;
    unsigned char *buffer = make_buffer();
    open_pair(&pair, true, true);
    REQUIRE(reach(&pair, buffer + 5000, BYTES));
    REQUIRE_OK(post_as(&pair, buffer + 5000, BYTES, true, &number));
    REQUIRE_OK(shm->peek(pair.links[1], &frame, &got));
    unsigned char *there = zero_copy->begin_write(pair.links[1]);
    REQUIRE(there != NULL);
    CHECK(!zero_copy->revoke(pair.links[0], number));
    CHECK_OK(rpi_buffers_detach(buffer + 5000, BYTES));
    memset(there, 0xaa, BYTES);
    for (int i = 0; i < BUFFER_BYTES; i++)
        REQUIRE(buffer[i] == (unsigned char)(i * 7 + (i >> 8)));
    CHECK(!rpi_buffers_find(buffer, BYTES, &place)); /* read in place no more */
    CHECK(!zero_copy->reaches(pair.links[0], buffer, BYTES));
    CHECK(!rpi_buffers_find(buffer + 28671, 1, &place)); /* nor is the rest of its pages */
    CHECK(!rpi_buffers_find(buffer + 4096, 1, &place));
    CHECK(rpi_buffers_find(buffer, 4096, &place) && place.offset == 0); /* but all else is */
    CHECK(zero_copy->reaches(pair.links[0], buffer + 28672, BYTES));
    CHECK_OK(rpi_buffers_detach(buffer + 50000, 1));
    CHECK(!rpi_buffers_find(buffer + 45056, BYTES, &place));
    CHECK(rpi_buffers_find(buffer + 53248, BYTES, &place));
    CHECK(rpi_buffers_find(buffer + 28672, 20480, &place)); /* between two of them */
    buffer[28672] = 0x77;
    shm->release(pair.links[1]);
    REQUIRE_OK(commit(&pair, buffer + 28672, BYTES, &number));
    REQUIRE_OK(shm->peek(pair.links[1], &frame, &got));
    CHECK_EQ(*(const unsigned char *)zero_copy->payload(pair.links[1]), 0x77);
    link_pair_close(&pair);
    CHECK_OK(rp_buffer_free(buffer));
}

/* A freed buffer's address may be a new one's: nothing of the old is seen. */
static void buffers_come_and_go(void) {
    link_pair pair;
    const void *frame = NULL;
    size_t got = 0;
    uint32_t number = 0;
    open_pair(&pair, true, true);
    for (int turn = 0; turn < 3 * RPI_SHM_BUFFERS; turn++) {
        unsigned char *buffer = make_buffer();
        buffer[0] = (unsigned char)turn;
        CHECK(!zero_copy->reaches(pair.links[0], buffer, BYTES));
        REQUIRE(reach(&pair, buffer, BYTES));
        REQUIRE_OK(commit(&pair, buffer, BYTES, &number));
        REQUIRE_OK(shm->peek(pair.links[1], &frame, &got));
        CHECK_EQ(*(const unsigned char *)zero_copy->payload(pair.links[1]), turn % 256);
        shm->release(pair.links[1]);
        CHECK_OK(rp_buffer_free(buffer));
        CHECK_OK(shm->progress(pair.endpoints[0])); /* says so at once */
    }
    link_pair_close(&pair);
}

static void more_than_are_mapped_are_copied(void) {
    link_pair pair;
    unsigned char *buffers[RPI_SHM_BUFFERS + 1];
    open_pair(&pair, true, true);
    for (int i = 0; i <= RPI_SHM_BUFFERS; i++) {
        buffers[i] = make_buffer();
        CHECK_EQ(reach(&pair, buffers[i], BYTES), i < RPI_SHM_BUFFERS);
    }
    link_pair_close(&pair);
    for (int i = 0; i <= RPI_SHM_BUFFERS; i++) CHECK_OK(rp_buffer_free(buffers[i]));
}

/* Without room an offer is made again, but not with the next frame. */
static void offers_wait_for_room(void) {
    int sockets[2];
    char byte = 0;
    rpi_shm_buffers buffers = {0};
    rpi_shm_place place;
    rpi_shm_note note = {0};
    unsigned char *buffer = make_buffer();
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) == 0);
    while (send(sockets[0], &byte, 1, 0) == 1) {
    }
    CHECK(!rpi_shm_buffers_reach(&buffers, sockets[0], buffer, BYTES, &place));
    while (recv(sockets[1], &byte, 1, 0) == 1) {
    }
    int asks = 0, fd = -1;
    do CHECK(!rpi_shm_buffers_reach(&buffers, sockets[0], buffer, BYTES, &place));
    while (++asks < 1000 &&
           rpi_note_receive(sockets[1], &note, sizeof note, &fd) == RP_PENDING);
    CHECK_MSG(asks > 100 && asks < 1000, "offered after %d more", asks);
    CHECK_EQ(note.word, RPI_SHM_OFFER);
    REQUIRE(fd >= 0);
    close(fd);
    CHECK(!rpi_shm_buffers_reach(&buffers, sockets[0], buffer, BYTES, &place));
    CHECK(rpi_note_receive(sockets[1], &note, sizeof note, &fd) == RP_PENDING); /* once */
    rpi_shm_buffers_close(&buffers);
    close(sockets[0]);
    close(sockets[1]);
    CHECK_OK(rp_buffer_free(buffer));
}

/* ---- a peer that lies ---- */

static void places_are_checked(void) {
    static const struct {
        rpi_shm_place lie; /* added to what is true */
        const char *part;
    } lies[] = {{{.buffer = 1}, "named a buffer that it has not passed"},
                {{.offset = 100000}, "of a buffer of"},
                {{.offset = UINT64_MAX - 1000}, "of a buffer of"},
                {{.bytes = FRAME_BYTES}, "a payload of"},
                {{.bytes = UINT32_MAX / 2}, "a payload of"}};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        link_pair pair;
        const void *frame = NULL;
        size_t got = 0;
        uint32_t number = 0;
        void *region = NULL;
        rpi_shm_place place;
        unsigned char *buffer = make_buffer();
        open_pair(&pair, true, true);
        REQUIRE(reach(&pair, buffer + 100, BYTES));
        REQUIRE_OK(shm->reserve(pair.links[0], zero_copy->frame_bytes, &region));
        REQUIRE_OK(commit(&pair, buffer + 100, BYTES, &number));
        memcpy(&place, (char *)region + RPI_FRAME_HEADER_BYTES, sizeof place);
        place.buffer += lies[i].lie.buffer;
        place.offset += lies[i].lie.offset;
        place.bytes += lies[i].lie.bytes;
        memcpy((char *)region + RPI_FRAME_HEADER_BYTES, &place, sizeof place);
        CHECK_FAILS(shm->peek(pair.links[1], &frame, &got), CORRUPT, lies[i].part);
        CHECK_FAILS(shm->peek(pair.links[1], &frame, &got), CORRUPT, lies[i].part);
        link_pair_close(&pair);
        CHECK_OK(rp_buffer_free(buffer));
    }
}

/* It says that it has read more frames than there are. Whoever waits for a payload asks for
 * that, and is told by the link. */
static void frames_that_were_never_posted_do_not_come_back(void) {
    link_pair pair;
    const void *frame = NULL;
    size_t got = 0;
    uint32_t number = 0;
    unsigned char *buffer = make_buffer();
    open_pair(&pair, true, true);
    REQUIRE(reach(&pair, buffer, BYTES));
    REQUIRE_OK(commit(&pair, buffer, BYTES, &number));
    CHECK_EQ(shm->peek(pair.links[0], &frame, &got), RP_PENDING);
    atomic_store(&((rpi_shm_link *)pair.links[1])->pair.mine->released, 77);
    CHECK(!zero_copy->is_completed(pair.links[0], number));
    CHECK(link_wait(pair.endpoints[0]));
    for (int i = 0; i < 2; i++)
        CHECK_FAILS(shm->peek(pair.links[0], &frame, &got), CORRUPT,
                    "gave back 77 frames of 1");
    link_pair_close(&pair);
    CHECK_OK(rp_buffer_free(buffer));
}

/* One end of a socket hears what the other says. */
typedef struct heard {
    int sockets[2];
    rpi_shm_buffers buffers;
} heard;

static void listen_to(heard *h) {
    *h = (heard){0};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, h->sockets) ==
            0);
}

static void stop_listening(heard *h) {
    rpi_shm_buffers_close(&h->buffers);
    close(h->sockets[0]);
    close(h->sockets[1]);
}

static rp_status say(heard *h, uint32_t word, uint64_t buffer, uint64_t bytes, int fd) {
    rpi_shm_note note = {RPI_SHM_NOTE_MAGIC, word, buffer, bytes};
    CHECK_OK(rpi_note_send(h->sockets[1], &note, sizeof note, fd));
    return rpi_shm_buffers_receive(&h->buffers, h->sockets[0]);
}

static uint32_t answer(const heard *h) {
    rpi_shm_note note = {0};
    int fd = -1;
    CHECK_OK(rpi_note_receive(h->sockets[1], &note, sizeof note, &fd));
    CHECK_EQ(fd, -1);
    return note.word;
}

static int memory_file(size_t bytes, int seals) {
    int fd = memfd_create("a test's", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

/* Of files of a test's. */
static int mappings(void) {
    char line[512];
    int count = 0;
    FILE *stream = fopen("/proc/self/maps", "r");
    while (stream && fgets(line, sizeof line, stream))
        count += strstr(line, "memfd:a test's") != NULL;
    if (stream) fclose(stream);
    return stream ? count : -1;
}

static void only_sealed_memory_is_mapped(void) {
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    int good = memory_file(8192, seals), soft = memory_file(8192, F_SEAL_GROW);
    int pipes[2], before = check_descriptors();
    REQUIRE(pipe(pipes) == 0);
    heard h;
    listen_to(&h);
    const struct {
        uint64_t buffer, bytes;
        int fd;
    } offers[] = {{1, 8192, soft}, {2, 16384, good}, {3, 4096, good}, {4, 8192, pipes[0]},
                  {5, 8192, -1},   {0, 8192, good},  {6, 0, good},    {7, UINT64_MAX, good}};
    for (size_t i = 0; i < sizeof offers / sizeof offers[0]; i++) {
        CHECK(say(&h, RPI_SHM_OFFER, offers[i].buffer, offers[i].bytes, offers[i].fd) ==
              RP_PENDING);
        CHECK_EQ(answer(&h), RPI_SHM_REFUSE);
    }
    CHECK(say(&h, RPI_SHM_OFFER, 9, 8192, good) == RP_PENDING);
    CHECK_EQ(answer(&h), RPI_SHM_ACCEPT);
    CHECK(say(&h, RPI_SHM_OFFER, 9, 8192, good) == RP_PENDING); /* a second time */
    CHECK_EQ(answer(&h), RPI_SHM_REFUSE);
    CHECK_EQ(h.buffers.theirs_count, 1);
    CHECK_EQ(mappings(), 1);
    CHECK(say(&h, RPI_SHM_ACCEPT, 77, 0, -1) == RP_PENDING); /* of nothing here */
    CHECK(say(&h, RPI_SHM_DROP, 77, 0, -1) == RP_PENDING);
    CHECK(say(&h, RPI_SHM_DROP, 9, 0, -1) == RP_PENDING);
    CHECK_EQ(h.buffers.theirs_count, 0);
    CHECK_EQ(mappings(), 0);
    stop_listening(&h);
    close(pipes[0]);
    close(pipes[1]);
    CHECK_EQ(check_descriptors(), before);
    close(good);
    close(soft);
}

static void notes_that_are_none_are_an_error(void) {
    heard h;
    listen_to(&h);
    CHECK_FAILS(say(&h, 9, 1, 1, -1), CORRUPT, "unknown word 9");
    stop_listening(&h);
    listen_to(&h);
    CHECK_OK(rpi_note_send(h.sockets[1], "hello", 5, -1));
    CHECK_FAILS(rpi_shm_buffers_receive(&h.buffers, h.sockets[0]), CORRUPT, "in 5 bytes");
    stop_listening(&h);
    listen_to(&h);
    CHECK_OK(rpi_note_send(h.sockets[1], "this is not a note, really", 24, -1));
    CHECK_FAILS(rpi_shm_buffers_receive(&h.buffers, h.sockets[0]), CORRUPT, "begins with");
    stop_listening(&h);
    listen_to(&h);
    close(h.sockets[1]);
    CHECK(rpi_shm_buffers_receive(&h.buffers, h.sockets[0]) == RP_PEER);
    h.sockets[1] = dup(h.sockets[0]);
    stop_listening(&h);
}

/* ---- the buffers of a process ---- */

static void buffers_are_freed_once_and_when_idle(void) {
    void *buffer = NULL;
    rpi_buffer_place place;
    int before = check_descriptors(), stack = 0;
    CHECK_FAILS(rp_buffer_allocate(0, &buffer), INVALID, "0 bytes");
    CHECK_FAILS(rp_buffer_allocate((size_t)-1, &buffer), INVALID, "bytes; 1 to");
    CHECK_FAILS(rp_buffer_allocate(1, NULL), INVALID, "NULL");
    CHECK_OK(rp_buffer_free(NULL));
    CHECK_FAILS(rp_buffer_free(&stack), INVALID, "no buffer");
    REQUIRE_OK(rp_buffer_allocate(5000, &buffer));
    CHECK_EQ((uintptr_t)buffer % 4096, 0);
    char *bytes = buffer;
    for (int i = 0; i < 5000; i++) CHECK_EQ(bytes[i], 0);
    CHECK_FAILS(rp_buffer_free(bytes + 1), INVALID, "no buffer");
    CHECK(rpi_buffers_find(bytes + 10, 4990, &place) && place.offset == 10);
    CHECK(!rpi_buffers_find(bytes + 10, 8183, &place));
    CHECK(!rpi_buffers_find(bytes - 1, 1, &place));
    CHECK_OK(rpi_buffers_detach(&stack, sizeof stack)); /* of none, and of nothing in one */
    CHECK_OK(rpi_buffers_detach(bytes, 0));
    CHECK(rpi_buffers_find(bytes, 5000, &place));
    rpi_buffers_use(bytes + 10, 20, 1);
    CHECK_FAILS(rp_buffer_free(buffer), STATE, "in flight");
    rpi_buffers_use(bytes + 10, 20, -1);
    CHECK_OK(rp_buffer_free(buffer));
    CHECK_FAILS(rp_buffer_free(buffer), INVALID, "no buffer");
    CHECK_EQ(check_descriptors(), before);
}

static void a_buffer_is_whole_pages(void) {
    void *buffer = NULL;
    rpi_buffer_place place;
    REQUIRE_OK(rp_buffer_allocate(8192, &buffer));
    CHECK(rpi_buffers_find(buffer, 8192, &place) && place.bytes == 8192);
    CHECK_OK(rp_buffer_free(buffer));
    REQUIRE_OK(rp_buffer_allocate(8193, &buffer));
    CHECK(rpi_buffers_find(buffer, 12288, &place) && place.bytes == 12288);
    CHECK_OK(rp_buffer_free(buffer));
}

/* Neither when a buffer is made nor when pages are taken from one. */
static void lack_of_memory_leaves_nothing_behind(void) {
    int before = check_descriptors();
    void *buffer = NULL;
    rpi_buffer_place place;
    rpi_memory_fail_after(1);
    CHECK_FAILS(rp_buffer_allocate(5000, &buffer), NOMEM, "buffers");
    rpi_memory_fail_after(0);
    CHECK_EQ(check_descriptors(), before);
    REQUIRE_OK(rp_buffer_allocate(5000, &buffer));
    rpi_memory_fail_after(1);
    CHECK_FAILS(rpi_buffers_detach(buffer, 100), NOMEM, "detached pages");
    rpi_memory_fail_after(0);
    CHECK(rpi_buffers_find(buffer, 100, &place));
    CHECK_OK(rp_buffer_free(buffer));
    CHECK_EQ(check_descriptors(), before);
}

/* The kernel ends a process that makes a longer file than it may (SIGXFSZ). */
static void a_limit_of_file_sizes_is_an_error(void) {
    struct rlimit before, low;
    void *buffer = NULL;
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    low = before;
    low.rlim_cur = 1 << 20;
    int descriptors = check_descriptors();
    REQUIRE(setrlimit(RLIMIT_FSIZE, &low) == 0);
    rp_status above = rp_buffer_allocate((1 << 20) + 1, &buffer);
    const char *text = rp_last_error()->message;
    bool says = strstr(text, "ulimit -f") != NULL;
    rp_status within = rp_buffer_allocate(1 << 20, &buffer);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK_EQ(above, RP_NOMEM);
    CHECK(says);
    CHECK_EQ(within, RP_OK);
    CHECK_OK(rp_buffer_free(buffer));
    CHECK_EQ(check_descriptors(), descriptors);
}

static void pages_can_be_taken_at_once(void) {
    unsigned char *buffer = make_buffer();
    CHECK_OK(rpi_buffers_reserve(buffer)); /* and keep what they hold */
    CHECK_EQ(buffer[1], 7);
    CHECK(rpi_buffers_is_one(buffer) && !rpi_buffers_is_one(buffer + 1));
    CHECK_FAILS(rpi_buffers_reserve(buffer + 1), INVALID, "no buffer");
    CHECK_OK(rp_buffer_free(buffer));
    CHECK(!rpi_buffers_is_one(buffer));
}

/* Looks that are rare otherwise, and neither side sleeps. */
static void offers_are_heard_by_who_polls(void) {
    link_pair pair;
    const void *frame = NULL;
    size_t bytes = 0;
    unsigned char *buffer = make_buffer();
    open_pair(&pair, true, true);
    CHECK(!zero_copy->reaches(pair.links[0], buffer, BYTES)); /* it is offered */
    CHECK_EQ(shm->peek(pair.links[1], &frame, &bytes), RP_PENDING);
    CHECK_EQ(shm->peek(pair.links[0], &frame, &bytes), RP_PENDING);
    CHECK(zero_copy->reaches(pair.links[0], buffer, BYTES));
    link_pair_close(&pair);
    CHECK_OK(rp_buffer_free(buffer));
}

/* A child that frees what it has from its parent changes nothing there. */
static void a_forked_child_is_in_nobodys_way(void) {
    unsigned char *buffer = make_buffer();
    pid_t child = fork();
    if (child == 0) {
        rpi_buffer_place place;
        bool none = !rpi_buffers_find(buffer, 1, &place);
        void *own = NULL;
        bool fine = rp_buffer_free(buffer) == RP_OK && none &&
                    rp_buffer_allocate(100, &own) == RP_OK && rp_buffer_free(own) == RP_OK;
        _exit(fine ? 0 : 1);
    }
    int status = 0;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
    CHECK_EQ(buffer[1], 7);
    CHECK_OK(rp_buffer_free(buffer));
}

CASES({"payloads_are_read_where_they_lie", payloads_are_read_where_they_lie},
      {"who_sleeps_for_a_payload_is_woken", who_sleeps_for_a_payload_is_woken},
      {"both_must_want_it", both_must_want_it},
      {"what_was_withdrawn_is_not_taken", what_was_withdrawn_is_not_taken},
      {"answers_are_written_where_that_is_allowed", answers_are_written_where_that_is_allowed},
      {"who_withdraws_waits_for_no_writer", who_withdraws_waits_for_no_writer},
      {"who_writes_for_ever_writes_elsewhere", who_writes_for_ever_writes_elsewhere},
      {"buffers_come_and_go", buffers_come_and_go},
      {"more_than_are_mapped_are_copied", more_than_are_mapped_are_copied},
      {"offers_wait_for_room", offers_wait_for_room},
      {"places_are_checked", places_are_checked},
      {"frames_that_were_never_posted_do_not_come_back",
       frames_that_were_never_posted_do_not_come_back},
      {"only_sealed_memory_is_mapped", only_sealed_memory_is_mapped},
      {"notes_that_are_none_are_an_error", notes_that_are_none_are_an_error},
      {"buffers_are_freed_once_and_when_idle", buffers_are_freed_once_and_when_idle},
      {"a_buffer_is_whole_pages", a_buffer_is_whole_pages},
      {"lack_of_memory_leaves_nothing_behind", lack_of_memory_leaves_nothing_behind},
      {"a_limit_of_file_sizes_is_an_error", a_limit_of_file_sizes_is_an_error},
      {"pages_can_be_taken_at_once", pages_can_be_taken_at_once},
      {"offers_are_heard_by_who_polls", offers_are_heard_by_who_polls},
      {"a_forked_child_is_in_nobodys_way", a_forked_child_is_in_nobodys_way})
