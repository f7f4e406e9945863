/* What comes to a listening port besides peers, and bytes that are no frames. */
#include "link_pair.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"
#include "net/bytes/endian.h"
#include "net/bytes/frame.h"
#include "net/link/acceptor.h"
#include "net/socket/stream.h"
#include "net/tcp/tcp_endpoint.h"
#include "net/tcp/tcp_multistream.h"
#include "net/tcp/tcp_out.h"
#include "net/trust/secret.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FRAME_BYTES = 4096, HEADER = RPI_FRAME_HEADER_BYTES };

static const rpi_transport *tcp(void) {
    const rpi_transport *transport = NULL;
    CHECK_OK(rpi_transport_find("tcp", &transport));
    return transport;
}

/* Rank 0 of 2 on its way to connect to rank 1, and a plain socket that came in its place. */
typedef struct visit {
    link_pair pair; /* only rank 0 */
    int port, fd;
    pthread_t thread;
    rp_status status;
} visit;

static void *wait_for_rank_1(void *argument) {
    visit *v = argument;
    v->status =
        tcp()->connect(v->pair.endpoints[0], 1, "", rpi_deadline_ns(20), &v->pair.links[0]);
    return NULL;
}

static rp_status visit_start(visit *v) {
    char address[256];
    *v = (visit){.fd = -1};
    link_pair_options(&v->pair, tcp(), FRAME_BYTES);
    RP_TRY(tcp()->open(&v->pair.options[0], &v->pair.endpoints[0]));
    RP_TRY(tcp()->address(v->pair.endpoints[0], address, sizeof address));
    v->port = atoi(strrchr(address, ':') + 1);
    pthread_create(&v->thread, NULL, wait_for_rank_1, v);
    return rpi_stream_dial(NULL, v->port, rpi_deadline_ns(10), &v->fd);
}

static void send_hello(int fd, const rpi_endpoint_options *options, int rank) {
    unsigned char bytes[HEADER];
    rpi_frame_header hello = {.kind = RPI_FRAME_HELLO,
                              .sequence = options->session,
                              .part = rank,
                              .count = (uint64_t)options->world,
                              .bucket = (uint32_t)options->frame_bytes};
    rpi_frame_seal(bytes, &hello, 0, false);
    CHECK_OK(rpi_stream_write(fd, bytes, sizeof bytes, rpi_deadline_ns(10)));
    CHECK_OK(rpi_stream_read(fd, bytes, sizeof bytes, rpi_deadline_ns(10)));
}

/* A visitor that passes for rank 1. */
static rp_status visit_as_rank_1(visit *v) {
    RP_TRY(visit_start(v));
    send_hello(v->fd, &v->pair.options[0], 1);
    pthread_join(v->thread, NULL);
    return v->status;
}

static void visit_end(visit *v) {
    if (v->fd >= 0) close(v->fd);
    link_pair_close(&v->pair);
}

static void strangers_do_not_disturb(void) {
    static const char http[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: curl/8\r\n\r\n"
                               "and some more, so that it is longer than a hello";
    visit v;
    unsigned char noise[4096];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    int64_t deadline_ns = rpi_deadline_ns(20);
    int before = check_descriptors(), silent = -1, brief = -1, real = -1;
    REQUIRE_OK(visit_start(&v));
    CHECK_OK(rpi_stream_write(v.fd, http, sizeof http, deadline_ns));
    CHECK(rpi_stream_read(v.fd, noise, 1, deadline_ns) == RP_PEER); /* hung up on */
    for (int i = 0; i < 100; i++) { /* more than may wait to be accepted */
        int fd = -1;
        for (size_t k = 0; k < sizeof noise; k++) noise[k] = (unsigned char)rpi_rng_u32(&rng);
        REQUIRE_OK(rpi_stream_dial(NULL, v.port, deadline_ns, &fd));
        rpi_stream_write(fd, noise, 1 + rpi_rng_below(&rng, sizeof noise), deadline_ns);
        close(fd);
    }
    REQUIRE_OK(rpi_stream_dial(NULL, v.port, deadline_ns, &silent));
    REQUIRE_OK(rpi_stream_dial(NULL, v.port, deadline_ns, &brief));
    CHECK_OK(rpi_stream_write(brief, "RPLL", 4, deadline_ns));
    REQUIRE_OK(rpi_stream_dial(NULL, v.port, deadline_ns, &real));
    send_hello(real, &v.pair.options[0], 1);
    pthread_join(v.thread, NULL);
    CHECK_OK(v.status);
    close(silent), close(brief), close(real);
    visit_end(&v);
    CHECK_EQ(check_descriptors(), before);
}

static void a_refused_caller_learns_why_but_no_session(void) {
    visit v;
    unsigned char bytes[HEADER];
    rpi_frame_header answer;
    REQUIRE_OK(visit_start(&v));
    rpi_frame_header hello = {.kind = RPI_FRAME_HELLO, .sequence = 1, .part = 1, .count = 2};
    rpi_frame_seal(bytes, &hello, 0, false);
    CHECK_OK(rpi_stream_write(v.fd, bytes, sizeof bytes, rpi_deadline_ns(10)));
    CHECK_OK(rpi_stream_read(v.fd, bytes, sizeof bytes, rpi_deadline_ns(10)));
    CHECK_OK(rpi_frame_open(bytes, sizeof bytes, false, &answer));
    CHECK(answer.operation != 0);
    CHECK_EQ(answer.sequence, 0);
    int real = -1;
    REQUIRE_OK(rpi_stream_dial(NULL, v.port, rpi_deadline_ns(10), &real));
    send_hello(real, &v.pair.options[0], 1);
    pthread_join(v.thread, NULL);
    CHECK_OK(v.status);
    close(real);
    visit_end(&v);
}

/* An address of several may lead to another host, where the port is another rank's: that rank
 * says so, and goes on waiting for its own. */
static void who_calls_another_rank_is_no_failure(void) {
    visit v;
    unsigned char bytes[HEADER];
    rpi_frame_header answer;
    REQUIRE_OK(visit_start(&v));
    rpi_frame_header hello = {.kind = RPI_FRAME_HELLO,
                              .sequence = v.pair.options[0].session,
                              .chunk = 1,
                              .part = 1,
                              .count = 2,
                              .bucket = FRAME_BYTES};
    rpi_frame_seal(bytes, &hello, 0, false);
    CHECK_OK(rpi_stream_write(v.fd, bytes, sizeof bytes, rpi_deadline_ns(10)));
    CHECK_OK(rpi_stream_read(v.fd, bytes, sizeof bytes, rpi_deadline_ns(10)));
    CHECK_OK(rpi_frame_open(bytes, sizeof bytes, false, &answer));
    CHECK_EQ(answer.operation, 3); /* docs/wire.md: wrong rank */
    int real = -1;
    REQUIRE_OK(rpi_stream_dial(NULL, v.port, rpi_deadline_ns(10), &real));
    send_hello(real, &v.pair.options[0], 1);
    pthread_join(v.thread, NULL);
    CHECK_OK(v.status);
    close(real);
    visit_end(&v);
}

static void seal(unsigned char *frame, size_t payload) {
    rpi_frame_header header = {.kind = RPI_FRAME_DATA};
    memset(frame + HEADER, 7, payload);
    rpi_frame_seal(frame, &header, payload, true);
}

static rp_status next_frame(visit *v, size_t *out_bytes) {
    const void *frame = NULL;
    int64_t deadline_ns = rpi_deadline_ns(20);
    rp_status status;
    while ((status = tcp()->peek(v->pair.links[0], &frame, out_bytes)) == RP_PENDING &&
           rpi_now_ns() < deadline_ns)
        link_wait(v->pair.endpoints[0]);
    if (status == RP_OK) tcp()->release(v->pair.links[0]);
    return status;
}

/* Are there news that taking in what the kernel has does not settle? Who waits would not sleep,
 * however often he looks. */
static bool is_restless(rpi_endpoint *endpoint) {
    bool news = true;
    for (int i = 0; i < 5 && news; i++) {
        int fd = -1;
        int64_t wake_at_ns = 0;
        CHECK_OK(tcp()->progress(endpoint));
        news = tcp()->arm(endpoint, &fd, &wake_at_ns);
        tcp()->disarm(endpoint);
    }
    return news;
}

static void await_bytes(rpi_link *link, uint64_t received) {
    int64_t deadline_ns = rpi_deadline_ns(20);
    while (link->bytes_received < received && rpi_now_ns() < deadline_ns)
        CHECK_OK(tcp()->progress(link->endpoint));
    CHECK_EQ(link->bytes_received, received);
}

/* A fault is news until it is told, and an idle link has none. */
static void a_fault_is_news_once(void) {
    visit v;
    size_t bytes = 0;
    REQUIRE_OK(visit_as_rank_1(&v));
    CHECK(!is_restless(v.pair.endpoints[0]));
    close(v.fd);
    v.fd = -1;
    CHECK_FAILS(next_frame(&v, &bytes), PEER, "closed the connection");
    CHECK(!is_restless(v.pair.endpoints[0]));
    visit_end(&v);
}

/* TLS may have to hear before it can speak, and to speak before it can hear. */
static void either_event_moves_tls(void) {
    static rpi_tcp_stream stream;
    for (int tls = 0; tls < 2; tls++)
        for (int ended = 0; ended < 2; ended++) {
            rpi_tcp_in idle = ended ? RPI_TCP_IN_ENDED : RPI_TCP_IN_DRY;
            stream = (rpi_tcp_stream){.in = idle, .out = RPI_TCP_OUT_FULL};
            stream.channel.tls = tls ? (rpi_tls *)&stream : NULL; /* which is not looked at */
            rpi_tcp_stream_event(&stream, EPOLLOUT);
            CHECK_EQ(stream.out, RPI_TCP_OUT_OPEN);
            CHECK_EQ(stream.in, tls && !ended ? RPI_TCP_IN_READY : idle);
            stream.in = idle;
            stream.out = RPI_TCP_OUT_FULL;
            rpi_tcp_stream_event(&stream, EPOLLIN);
            CHECK_EQ(stream.in, ended ? RPI_TCP_IN_ENDED : RPI_TCP_IN_READY);
            CHECK_EQ(stream.out, tls ? RPI_TCP_OUT_OPEN : RPI_TCP_OUT_FULL);
        }
}

/* Whatever else is said with it, and whatever was before: it is read to its end. */
static void a_hang_up_is_read_to_the_end(void) {
    static rpi_tcp_stream stream;
    static const uint32_t ends[] = {EPOLLRDHUP, EPOLLHUP, EPOLLERR, EPOLLIN | EPOLLRDHUP};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        for (rpi_tcp_in in = RPI_TCP_IN_DRY; in <= RPI_TCP_IN_ENDED; in++) {
            rpi_tcp_in wanted = in == RPI_TCP_IN_ENDED ? in : RPI_TCP_IN_LAST;
            stream = (rpi_tcp_stream){.in = in, .out = RPI_TCP_OUT_ENDED};
            rpi_tcp_stream_event(&stream, ends[i]);
            CHECK_EQ(stream.in, wanted);
            CHECK_EQ(rpi_tcp_stream_may_receive(&stream), wanted == RPI_TCP_IN_LAST);
            rpi_tcp_stream_event(&stream, EPOLLIN | EPOLLOUT);
            CHECK_EQ(stream.in, wanted); /* later news changes nothing of it */
            CHECK_EQ(stream.out, RPI_TCP_OUT_ENDED);
            stream.full = true;
            CHECK(!rpi_tcp_stream_may_receive(&stream));
        }
}

/* Its end comes as a reset, since it leaves our frames unread: what it has sent is no less
 * ours. */
static void what_came_before_a_reset_is_taken(void) {
    visit v;
    unsigned char frame[164];
    size_t bytes = 0;
    REQUIRE_OK(visit_as_rank_1(&v));
    for (uint64_t sent = 0; tcp()->flushed(v.pair.endpoints[0]) == RP_OK; sent++)
        REQUIRE_OK(link_send(v.pair.links[0], sent, FRAME_BYTES));
    seal(frame, 100);
    CHECK_OK(rpi_stream_write(v.fd, frame, sizeof frame, rpi_deadline_ns(10)));
    close(v.fd);
    v.fd = -1;
    CHECK_OK(next_frame(&v, &bytes));
    CHECK_EQ(bytes, sizeof frame);
    CHECK_FAILS(next_frame(&v, &bytes), PEER, "closed the connection");
    visit_end(&v);
}

/* It sends nothing and leaves nothing unread, and ends all the same by a reset. */
static void a_reset_is_called_one(void) {
    static const struct linger at_once = {.l_onoff = 1};
    visit v;
    size_t bytes = 0;
    REQUIRE_OK(visit_as_rank_1(&v));
    CHECK(setsockopt(v.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    close(v.fd);
    v.fd = -1;
    for (int again = 0; again < 2; again++)
        CHECK_FAILS(next_frame(&v, &bytes), PEER, "connection reset by peer");
    visit_end(&v);
}

/* Cut after every possible number of bytes: whole frames come, then the cut has its length. */
static void a_cut_stream_says_how_much_is_missing(void) {
    static const size_t cuts[] = {0, 1, 63, 64, 65, 100, 163, 164, 165, 228, 300, 327, 328};
    unsigned char frames[328];
    seal(frames, 100);
    seal(frames + 164, 100);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        visit v;
        size_t bytes = 0;
        char wanted[64] = "closed the connection";
        size_t in_frame = cuts[i] % 164;
        REQUIRE_OK(visit_as_rank_1(&v));
        CHECK_OK(rpi_stream_write(v.fd, frames, cuts[i], rpi_deadline_ns(10)));
        close(v.fd);
        v.fd = -1;
        for (size_t whole = 0; whole < cuts[i] / 164; whole++) CHECK_OK(next_frame(&v, &bytes));
        if (in_frame > 0)
            snprintf(wanted, sizeof wanted, "mid-%s, %zu bytes short",
                     in_frame < HEADER ? "header" : "frame",
                     in_frame < HEADER ? HEADER - in_frame : 164 - in_frame);
        CHECK_FAILS(next_frame(&v, &bytes), PEER, wanted);
        CHECK_FAILS(next_frame(&v, &bytes), PEER, wanted);
        visit_end(&v);
    }
}

static void what_is_no_frame_is_corrupt(void) {
    for (int kind = 0; kind < 4; kind++) {
        visit v;
        size_t bytes = 0;
        unsigned char frames[164 + HEADER + 8192];
        rpi_frame_header header = {.kind = RPI_FRAME_DATA};
        seal(frames, 100);
        seal(frames + 164, FRAME_BYTES - HEADER);
        if (kind == 0) memset(frames + 164, 'x', HEADER);
        if (kind == 1) frames[164 + 20] ^= 1;
        if (kind == 2) rpi_frame_seal(frames + 164, &header, FRAME_BYTES - HEADER + 1, true);
        if (kind == 3) rpi_frame_seal(frames + 164, &header, 8192, false);
        REQUIRE_OK(visit_as_rank_1(&v));
        CHECK_OK(rpi_stream_write(v.fd, frames, sizeof frames, rpi_deadline_ns(10)));
        CHECK_OK(next_frame(&v, &bytes));
        CHECK_EQ(bytes, 164);
        for (int again = 0; again < 2; again++)
            CHECK_FAILS(next_frame(&v, &bytes), CORRUPT, "from rank 1: ");
        visit_end(&v);
    }
}

/* ---- several connections as one link ---- */

enum { STREAMS = 2, NUMBER = 8, SMALL = 164 };

/* A visitor that passes for rank 1, whose links are two connections. */
typedef struct visit_of_two {
    visit v;
    int fds[STREAMS];
} visit_of_two;

static void send_hello_of(int fd, const rpi_endpoint_options *options, int stream) {
    unsigned char bytes[HEADER];
    rpi_frame_header hello = {.kind = RPI_FRAME_HELLO,
                              .sequence = options->session,
                              .part = 1,
                              .count = (uint64_t)options->world,
                              .communicator = (uint32_t)stream,
                              .epoch = STREAMS - 1,
                              .bucket = (uint32_t)options->frame_bytes};
    rpi_frame_seal(bytes, &hello, 0, false);
    CHECK_OK(rpi_stream_write(fd, bytes, sizeof bytes, rpi_deadline_ns(10)));
    CHECK_OK(rpi_stream_read(fd, bytes, sizeof bytes, rpi_deadline_ns(10)));
}

static rp_status visit_twice(visit_of_two *it) {
    char address[256];
    *it = (visit_of_two){.v = {.fd = -1}, .fds = {-1, -1}};
    visit *v = &it->v;
    link_pair_options(&v->pair, tcp(), FRAME_BYTES);
    v->pair.options[0].streams = STREAMS;
    RP_TRY(tcp()->open(&v->pair.options[0], &v->pair.endpoints[0]));
    RP_TRY(tcp()->address(v->pair.endpoints[0], address, sizeof address));
    v->port = atoi(strrchr(address, ':') + 1);
    pthread_create(&v->thread, NULL, wait_for_rank_1, v);
    for (int i = STREAMS - 1; i >= 0; i--) { /* they come in any order */
        RP_TRY(rpi_stream_dial(NULL, v->port, rpi_deadline_ns(10), &it->fds[i]));
        send_hello_of(it->fds[i], &v->pair.options[0], i);
    }
    pthread_join(v->thread, NULL);
    return v->status;
}

static void leave_twice(visit_of_two *it) {
    for (int i = 0; i < STREAMS; i++)
        if (it->fds[i] >= 0) close(it->fds[i]);
    visit_end(&it->v);
}

static void hang_up(visit_of_two *it, int stream) {
    close(it->fds[stream]);
    it->fds[stream] = -1;
}

/* docs/wire.md: the number and its checksum, then the frame, which says the number, too. */
static void post_numbered(visit_of_two *it, int stream, uint32_t number, bool damaged) {
    unsigned char bytes[NUMBER + SMALL];
    rpi_frame_header header = {.kind = RPI_FRAME_DATA, .sequence = number};
    rpi_put_u32(bytes, number);
    rpi_put_u32(bytes + 4, rpi_crc32c(0, bytes, 4) ^ damaged);
    memset(bytes + NUMBER + HEADER, 7, SMALL - HEADER);
    rpi_frame_seal(bytes + NUMBER, &header, SMALL - HEADER, true);
    CHECK_OK(rpi_stream_write(it->fds[stream], bytes, sizeof bytes, rpi_deadline_ns(10)));
}

static void look_at_numbered(visit_of_two *it, uint32_t number) {
    rpi_link *link = it->v.pair.links[0];
    const void *frame = NULL;
    rpi_frame_header header = {.sequence = 0};
    size_t bytes = 0;
    int64_t deadline_ns = rpi_deadline_ns(20);
    rp_status status;
    while ((status = tcp()->peek(link, &frame, &bytes)) == RP_PENDING &&
           rpi_now_ns() < deadline_ns)
        link_wait(it->v.pair.endpoints[0]);
    REQUIRE_OK(status);
    CHECK_EQ(bytes, SMALL);
    CHECK_OK(rpi_frame_open(frame, bytes, true, &header));
    CHECK_EQ(header.sequence, number);
}

static void take_numbered(visit_of_two *it, uint32_t number) {
    look_at_numbered(it, number);
    tcp()->release(it->v.pair.links[0]);
}

/* In the order of their numbers, whichever stream is faster. */
static void streams_are_put_in_order(void) {
    static const int stream_of[] = {1, 0, 0, 1, 1, 0, 1, 0, 0};
    enum { FRAMES = sizeof stream_of / sizeof stream_of[0] };
    visit_of_two it;
    size_t bytes = 0;
    const void *frame = NULL;
    REQUIRE_OK(visit_twice(&it));
    for (uint32_t i = 0; i < FRAMES; i++)
        if (stream_of[i] == 0) post_numbered(&it, 0, i, false);
    for (int i = 0; i < 5; i++) { /* what comes early is no news */
        CHECK_OK(tcp()->progress(it.v.pair.endpoints[0]));
        CHECK_EQ(tcp()->peek(it.v.pair.links[0], &frame, &bytes), RP_PENDING);
    }
    for (uint32_t i = 0; i < FRAMES; i++)
        if (stream_of[i] == 1) post_numbered(&it, 1, i, false);
    for (uint32_t i = 0; i < FRAMES; i++) take_numbered(&it, i);
    leave_twice(&it);
}

/* One connection ends before what was sent on the other has come: nothing of that is lost. */
static void the_end_of_one_stream_waits_for_the_others(void) {
    visit_of_two it;
    size_t bytes = 0;
    const void *frame = NULL;
    REQUIRE_OK(visit_twice(&it));
    post_numbered(&it, 0, 0, false);
    hang_up(&it, 0);
    take_numbered(&it, 0);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(tcp()->progress(it.v.pair.endpoints[0]));
        CHECK_EQ(tcp()->peek(it.v.pair.links[0], &frame, &bytes), RP_PENDING);
    }
    post_numbered(&it, 1, 1, false);
    post_numbered(&it, 1, 2, false);
    hang_up(&it, 1);
    take_numbered(&it, 1);
    take_numbered(&it, 2);
    for (int i = 0; i < 2; i++)
        CHECK_FAILS(next_frame(&it.v, &bytes), PEER,
                    "rank 1 closed the connection (stream 1 of 2)");
    leave_twice(&it);
}

/* The other side of a link of which one connection has ended hears of it on all. */
static void one_stream_ends_all(void) {
    visit_of_two it;
    char byte;
    void *region = NULL;
    REQUIRE_OK(visit_twice(&it));
    hang_up(&it, 1);
    int64_t deadline_ns = rpi_deadline_ns(20);
    rp_status status;
    while ((status = tcp()->reserve(it.v.pair.links[0], 100, &region)) == RP_OK &&
           rpi_now_ns() < deadline_ns)
        link_wait(it.v.pair.endpoints[0]);
    CHECK_EQ(status, RP_PEER);
    CHECK(rpi_stream_read(it.fds[0], &byte, 1, rpi_deadline_ns(10)) == RP_PEER);
    CHECK_OK(tcp()->flushed(it.v.pair.endpoints[0]));
    leave_twice(&it);
}

/* Each frame goes to the kernel at once, so none waits: the stream that has sent least is next.
 */
static void streams_share_what_is_posted(void) {
    enum { FRAMES = 6 };
    visit_of_two it;
    unsigned char bytes[NUMBER + SMALL];
    REQUIRE_OK(visit_twice(&it));
    for (uint32_t i = 0; i < FRAMES; i++)
        CHECK_OK(link_send_wait(it.v.pair.links[0], i, SMALL));
    for (uint32_t i = 0; i < FRAMES; i++) {
        CHECK_OK(
            rpi_stream_read(it.fds[i % STREAMS], bytes, sizeof bytes, rpi_deadline_ns(10)));
        CHECK_EQ(rpi_get_u32(bytes), i);
    }
    leave_twice(&it);
}

static void a_bundle_lends_no_more_than_a_frame(void) {
    static const size_t wrong[] = {0, FRAME_BYTES + 1, (size_t)1 << 30};
    visit_of_two it;
    void *region = NULL;
    REQUIRE_OK(visit_twice(&it));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK_FAILS(tcp()->reserve(it.v.pair.links[0], wrong[i], &region), INVALID,
                    "1 to 4096 are allowed");
    leave_twice(&it);
}

/* What is lent stays so, for any length up to it, until it is posted; the next stream is then
 * the one that has sent least. */
static void a_bundle_lends_the_same_region_again(void) {
    visit_of_two it;
    void *first = NULL, *again = NULL, *next = NULL;
    REQUIRE_OK(visit_twice(&it));
    rpi_link *link = it.v.pair.links[0];
    REQUIRE_OK(tcp()->reserve(link, SMALL, &first));
    for (size_t bytes = SMALL; bytes > 0; bytes /= 2) {
        CHECK_OK(tcp()->reserve(link, bytes, &again));
        CHECK(again == first);
    }
    CHECK_FAILS(tcp()->commit(link, SMALL + 1), STATE, "posted into a region of");
    CHECK_FAILS(tcp()->commit(link, 0), STATE, "0 bytes posted");
    memset(first, 0, SMALL);
    CHECK_OK(tcp()->commit(link, SMALL));
    CHECK_FAILS(tcp()->commit(link, SMALL), STATE, "into a region of 0");
    CHECK_OK(tcp()->reserve(link, SMALL, &next));
    CHECK(next != first);
    leave_twice(&it);
}

/* A host that cannot be looked up is another error than text that is no address. */
static void addresses_have_bounds(void) {
    char host[RPI_HOST_BYTES + 1], address[sizeof host + 16];
    static const char *const others[] = {"tcp",         "tcp:",    "tcp::80",
                                         "shm:host:80", "host:80", ""};
    int fd = -1, ways = 0;
    for (size_t letters = RPI_HOST_BYTES - 1; letters <= RPI_HOST_BYTES; letters++) {
        memset(host, 'x', letters);
        host[letters] = '\0';
        snprintf(address, sizeof address, "tcp:%s:80", host);
        rp_status status = rpi_tcp_connecting.dial(address, 0, &fd, &ways);
        CHECK(status < 0 && (status == RP_INVALID) == (letters == RPI_HOST_BYTES));
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK_FAILS(rpi_tcp_connecting.dial(others[i], 0, &fd, &ways), INVALID,
                    "is no address of a tcp endpoint");
    CHECK_EQ(fd, -1);
}

/* Socket pairs, whose far ends are the test's. */
static void pair_up(rpi_channel channels[STREAMS], int far[STREAMS]) {
    for (int i = 0; i < STREAMS; i++) {
        int pair[2] = {-1, -1};
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
        channels[i] = (rpi_channel){.fd = pair[0]};
        far[i] = pair[1];
    }
}

/* Two streams over them. */
static void open_bundle(rpi_tcp_multistream *multistream, rpi_link *link, int far[STREAMS]) {
    rpi_channel channels[STREAMS];
    pair_up(channels, far);
    CHECK_OK(rpi_tcp_multistream_open(multistream, link, channels, STREAMS, FRAME_BYTES));
}

/* Wherever memory runs out, the connections were given away, and are closed. */
static void a_bundle_without_memory_closes_its_connections(void) {
    int before = check_descriptors();
    rp_status status = RP_NOMEM;
    for (long n = 1; status == RP_NOMEM && n < 20; n++) {
        rpi_link link = {.peer = 1};
        rpi_tcp_multistream multistream;
        rpi_channel channels[STREAMS];
        int far[STREAMS];
        pair_up(channels, far);
        rpi_memory_fail_after(n);
        status = rpi_tcp_multistream_open(&multistream, &link, channels, STREAMS, FRAME_BYTES);
        rpi_memory_fail_after(0);
        rpi_tcp_multistream_close(&multistream);
        for (int i = 0; i < STREAMS; i++) close(far[i]);
        CHECK_EQ(check_descriptors(), before);
    }
    CHECK_OK(status);
}

/* Nothing is sent on a link that has failed, though some of its streams have not. */
static void a_stream_is_muted_by_the_end_of_another(void) {
    for (int failed = 0; failed < STREAMS; failed++) {
        rpi_endpoint endpoint = {.world = 2};
        rpi_link link = {.endpoint = &endpoint, .peer = 1};
        rpi_tcp_multistream multistream;
        int far[STREAMS];
        open_bundle(&multistream, &link, far);
        const rpi_tcp_stream *other = &multistream.streams[!failed];
        CHECK_EQ(other->out, RPI_TCP_OUT_OPEN);
        close(far[failed]);
        rpi_tcp_stream_event(&multistream.streams[failed], EPOLLIN | EPOLLRDHUP);
        rpi_tcp_multistream_move(&multistream);
        CHECK_EQ(multistream.streams[failed].in, RPI_TCP_IN_ENDED);
        CHECK_EQ(other->out, RPI_TCP_OUT_ENDED);
        CHECK(other->in != RPI_TCP_IN_ENDED); /* what is on its way is read */
        CHECK(rpi_tcp_multistream_is_flushed(&multistream) &&
              rpi_tcp_multistream_is_delivered(&multistream));
        close(far[!failed]);
        rpi_tcp_multistream_close(&multistream);
    }
}

/* Who holds a frame hears of the end of a connection if it waits for room; who does not looks
 * again when it has taken the frame. */
static void an_end_is_news_for_who_waits_for_room(void) {
    for (int lane = 0; lane < 4; lane++)
        for (int held = 0; held < 2; held++) {
            rpi_tcp_stream stream = {.in = RPI_TCP_IN_ENDED, .held = held};
            stream.sticky.status = RP_PEER;
            if (lane == 1) stream.others.starved = 1;
            if (lane == 2) stream.bulk_starved = 1;
            if (lane == 3) stream.first.starved = 1;
            CHECK_MSG(rpi_tcp_stream_is_ready(&stream) == (!held || lane > 0),
                      "lane %d, held %d", lane, held);
            stream.sticky.told = true;
            CHECK(!rpi_tcp_stream_is_ready(&stream));
        }
}

/* Of a frame that is longer than what the kernel takes nothing is passed by an urgent one. */
static void an_urgent_frame_waits_for_the_one_that_goes(void) {
    rpi_endpoint endpoint = {.world = 2};
    rpi_link link = {.endpoint = &endpoint, .peer = 1};
    rpi_tcp_stream stream;
    int pair[2] = {-1, -1};
    enum { LONG = 1 << 20 };
    unsigned char got[4096];
    void *region = NULL;
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    REQUIRE_OK(rpi_tcp_stream_open(&stream, &link, (rpi_channel){.fd = pair[0]}, LONG, false));
    REQUIRE_OK(rpi_tcp_stream_reserve(&stream, LONG, &region));
    memset(region, 'o', LONG);
    CHECK_OK(rpi_tcp_stream_commit(&stream, LONG, 0));
    CHECK_EQ(stream.out, RPI_TCP_OUT_FULL);
    CHECK_EQ(stream.goes, RPI_TCP_GOES_OTHER);
    REQUIRE_OK(rpi_tcp_stream_reserve_first(&stream, 10, &region));
    memset(region, 'f', 10);
    CHECK_OK(rpi_tcp_stream_commit_first(&stream, 10));
    size_t others = 0, firsts = 0;
    int64_t deadline_ns = rpi_deadline_ns(20);
    while (others + firsts < LONG + 10 && rpi_now_ns() < deadline_ns) {
        ssize_t bytes = recv(pair[1], got, sizeof got, MSG_DONTWAIT);
        for (ssize_t i = 0; i < bytes; i++) {
            if (got[i] == 'f') CHECK_EQ(others, LONG);
            *(got[i] == 'f' ? &firsts : &others) += 1;
        }
        rpi_tcp_stream_event(&stream, EPOLLOUT);
        rpi_tcp_stream_move(&stream);
    }
    CHECK(others == LONG && firsts == 10);
    CHECK_EQ(stream.goes, RPI_TCP_GOES_NONE);
    CHECK_EQ(stream.queued, 0);
    CHECK_EQ(link.settled, 1); /* of those that may be passed */
    close(pair[1]);
    rpi_tcp_stream_close(&stream);
}

/* Who waits for a link that is idle sleeps; who waits for a frame that is here does not. */
static void a_bundle_has_news_when_its_next_frame_is_here(void) {
    visit_of_two it;
    size_t bytes = 0;
    REQUIRE_OK(visit_twice(&it));
    rpi_endpoint *endpoint = it.v.pair.endpoints[0];
    CHECK(!is_restless(endpoint));
    post_numbered(&it, 0, 0, false);
    post_numbered(&it, 0, 1, false);
    await_bytes(it.v.pair.links[0], (uint64_t)STREAMS * (NUMBER + SMALL));
    CHECK(is_restless(endpoint));
    CHECK_OK(next_frame(&it.v, &bytes));
    CHECK(is_restless(endpoint));
    CHECK_OK(next_frame(&it.v, &bytes));
    CHECK(!is_restless(endpoint));
    leave_twice(&it);
}

/* A frame that is looked at is no news, nor is the end behind it before that is next. */
static void the_end_of_a_bundle_is_news_behind_its_last_frame(void) {
    visit_of_two it;
    size_t bytes = 0;
    REQUIRE_OK(visit_twice(&it));
    rpi_endpoint *endpoint = it.v.pair.endpoints[0];
    post_numbered(&it, 0, 0, false);
    for (int i = 0; i < STREAMS; i++) hang_up(&it, i);
    look_at_numbered(&it, 0);
    CHECK(!is_restless(endpoint));
    tcp()->release(it.v.pair.links[0]);
    CHECK(is_restless(endpoint));
    CHECK_FAILS(next_frame(&it.v, &bytes), PEER, "closed the connection");
    CHECK(!is_restless(endpoint));
    leave_twice(&it);
}

static void what_is_no_number_is_corrupt(void) {
    for (int kind = 0; kind < 3; kind++) {
        static const char *const words[] = {"number is damaged", "comes behind frame 0",
                                            "no stream brings frame 1"};
        visit_of_two it;
        size_t bytes = 0;
        REQUIRE_OK(visit_twice(&it));
        post_numbered(&it, 0, 0, false);
        if (kind == 0) post_numbered(&it, 1, 1, true);
        if (kind == 1) post_numbered(&it, 0, 0, false);
        if (kind == 2) post_numbered(&it, 0, 2, false), post_numbered(&it, 1, 3, false);
        CHECK_OK(next_frame(&it.v, &bytes));
        for (int again = 0; again < 2; again++)
            CHECK_FAILS(next_frame(&it.v, &bytes), CORRUPT, words[kind]);
        leave_twice(&it);
    }
}

static void a_peer_that_does_not_come_is_waited_for_until_the_deadline(void) {
    link_pair pair;
    rpi_link *link = NULL;
    link_pair_options(&pair, tcp(), FRAME_BYTES);
    REQUIRE_OK(tcp()->open(&pair.options[0], &pair.endpoints[0]));
    CHECK_FAILS(tcp()->connect(pair.endpoints[0], 1, "", rpi_now_ns() + 1000000, &link),
                TIMEOUT, "rank 1");
    CHECK_FAILS(tcp()->connect(pair.endpoints[0], 0, "", rpi_now_ns(), &link), INVALID,
                "rank 0");
    link_pair_close(&pair);
    REQUIRE_OK(tcp()->open(&pair.options[1], &pair.endpoints[1]));
    CHECK_FAILS(tcp()->connect(pair.endpoints[1], 0, "shm:x", rpi_now_ns(), &link), INVALID,
                "no address");
    link_pair_close(&pair);
}

/* What a kernel keeps while the peer does not read is flushed, and not delivered. */
static void delivered_is_more_than_flushed(void) {
    link_pair pair;
    uint64_t sent = 0;
    rp_status status = RP_OK;
    REQUIRE_OK(link_pair_open(&pair, tcp(), FRAME_BYTES));
    CHECK_OK(tcp()->delivered(pair.endpoints[0]));
    while (tcp()->flushed(pair.endpoints[0]) == RP_OK &&
           tcp()->delivered(pair.endpoints[0]) == RP_OK) {
        status = link_send(pair.links[0], sent, FRAME_BYTES);
        sent += status == RP_OK;
    }
    CHECK_EQ(tcp()->delivered(pair.endpoints[0]), RP_PENDING);
    for (uint64_t i = 0; i < sent; i++) {
        (void)tcp()->progress(pair.endpoints[0]);
        CHECK_OK(link_receive_wait(pair.links[1], i, FRAME_BYTES));
    }
    int64_t deadline_ns = rpi_deadline_ns(20);
    while ((status = tcp()->delivered(pair.endpoints[0])) == RP_PENDING &&
           rpi_now_ns() < deadline_ns)
        (void)tcp()->progress(pair.endpoints[0]);
    CHECK_OK(status);
    link_pair_close(&pair);
}

/* A descriptor that listens no more is ready for ever and gives nobody: no reason to turn round
 * and round. */
static void a_listener_that_is_gone_is_an_error(void) {
    rpi_hello self = {
        .rank = 0, .world = 2, .session = 7, .frame_bytes = FRAME_BYTES, .streams = 1};
    rpi_acceptor acceptor;
    rpi_channel channel;
    int listener = -1, port = 0;
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
    REQUIRE_OK(rpi_acceptor_open(&acceptor, &self, listener, NULL));
    CHECK_EQ(shutdown(listener, SHUT_RDWR), 0);
    alarm(20); /* ends the test where the call does not return */
    CHECK_FAILS(rpi_acceptor_wait(&acceptor, 1, 0, rpi_deadline_ns(2), &channel), IO,
                "cannot accept a connection");
    alarm(0);
    rpi_acceptor_close(&acceptor);
}

static void a_stream_to_nobody_is_an_error(void) {
    int pair[2];
    char byte = 0;
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    close(pair[1]);
    alarm(20); /* ends the test where a call does not return */
    CHECK_FAILS(rpi_stream_write(pair[0], &byte, 1, rpi_deadline_ns(2)), PEER, "closed");
    CHECK_FAILS(rpi_stream_read(pair[0], &byte, 1, rpi_deadline_ns(2)), PEER, "closed");
    close(pair[0]);
    CHECK_FAILS(rpi_stream_write(pair[0], &byte, 1, rpi_deadline_ns(2)), IO, "failed");
    CHECK_FAILS(rpi_stream_read(pair[0], &byte, 1, rpi_deadline_ns(2)), IO, "failed");
    alarm(0);
}

/* Whoever opened it has nothing to close: the descriptor was given away. */
static void an_acceptor_without_memory_closes_its_listener(void) {
    rpi_hello self = {
        .rank = 0, .world = 2, .session = 7, .frame_bytes = FRAME_BYTES, .streams = 1};
    rpi_acceptor acceptor;
    int before = check_descriptors(), listener = -1, port = 0;
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
    rpi_memory_fail_after(1);
    rp_status status = rpi_acceptor_open(&acceptor, &self, listener, NULL);
    rpi_memory_fail_after(0);
    CHECK_EQ(status, RP_NOMEM);
    CHECK_EQ(check_descriptors(), before);
    rpi_acceptor_close(&acceptor); /* does no harm */
}

static const rpi_hello called = {
    .rank = 0, .world = 2, .session = 7, .frame_bytes = FRAME_BYTES, .streams = 1};

/* A caller of rank 0, which has been let in. */
static void come_to(rpi_acceptor *acceptor, const rpi_hello *self, int *out_fd) {
    int listener = -1, port = 0;
    REQUIRE_OK(rpi_stream_listen("127.0.0.1", 0, &listener, &port));
    REQUIRE_OK(rpi_acceptor_open(acceptor, self, listener, NULL));
    REQUIRE_OK(rpi_stream_dial("127.0.0.1", port, rpi_deadline_ns(10), out_fd));
}

/* What there is to hear within ten seconds. */
static void attend(rpi_acceptor *acceptor) {
    struct pollfd fds[RPI_CALLERS + 1];
    int64_t wake_ns = RPI_NEVER_NS;
    int count = rpi_acceptor_polls(acceptor, fds, &wake_ns);
    CHECK(poll(fds, (nfds_t)count, 10000) > 0);
    CHECK_OK(rpi_acceptor_attend(acceptor, fds, count));
}

/* It hears why, and its place is free for others at once. */
static void who_is_refused_is_let_go(void) {
    rpi_hello other = called;
    rpi_acceptor acceptor;
    rpi_channel channel = {.fd = -1};
    other.rank = 1;
    other.session = 8;
    come_to(&acceptor, &called, &channel.fd);
    attend(&acceptor);
    CHECK_EQ(acceptor.caller_count, 1);
    CHECK_OK(rpi_hello_greet(&channel, &other, 0, rpi_deadline_ns(10)));
    attend(&acceptor);
    CHECK_EQ(acceptor.caller_count, 0);
    CHECK_FAILS(rpi_hello_receive(&channel, &other, 0, rpi_deadline_ns(10)), MISMATCH,
                "refused");
    rpi_channel_close(&channel);
    rpi_acceptor_close(&acceptor);
}

static void who_leaves_before_its_proof_is_let_go(void) {
    rpi_hello secretive = called;
    rpi_acceptor acceptor;
    int fd = -1;
    if (!rpi_secret_is_supported()) {
        check_skip("this build has no secrets");
        return;
    }
    CHECK_OK(rpi_secret_make("the test", "the secret of this job", &secretive.secret));
    come_to(&acceptor, &secretive, &fd);
    attend(&acceptor);
    CHECK_EQ(acceptor.caller_count, 1);
    close(fd);
    attend(&acceptor);
    CHECK_EQ(acceptor.caller_count, 0);
    rpi_acceptor_close(&acceptor);
    rpi_secret_wipe(&secretive.secret);
}

/* The last rank expects nobody. */
static void an_acceptor_of_nobody_closes_its_listener(void) {
    rpi_hello self = {
        .rank = 1, .world = 2, .session = 7, .frame_bytes = FRAME_BYTES, .streams = 1};
    rpi_acceptor acceptor;
    rpi_channel channel;
    int before = check_descriptors(), listener = -1, port = 0;
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
    REQUIRE_OK(rpi_acceptor_open(&acceptor, &self, listener, NULL));
    CHECK_EQ(check_descriptors(), before);
    CHECK_FAILS(rpi_acceptor_wait(&acceptor, 0, 0, rpi_now_ns(), &channel), STATE, "everybody");
    rpi_acceptor_close(&acceptor);
}

CASES({"streams_are_put_in_order", streams_are_put_in_order},
      {"the_end_of_one_stream_waits_for_the_others",
       the_end_of_one_stream_waits_for_the_others},
      {"one_stream_ends_all", one_stream_ends_all},
      {"streams_share_what_is_posted", streams_share_what_is_posted},
      {"a_bundle_lends_no_more_than_a_frame", a_bundle_lends_no_more_than_a_frame},
      {"a_bundle_lends_the_same_region_again", a_bundle_lends_the_same_region_again},
      {"an_end_is_news_for_who_waits_for_room", an_end_is_news_for_who_waits_for_room},
      {"who_is_refused_is_let_go", who_is_refused_is_let_go},
      {"who_leaves_before_its_proof_is_let_go", who_leaves_before_its_proof_is_let_go},
      {"addresses_have_bounds", addresses_have_bounds},
      {"a_bundle_without_memory_closes_its_connections",
       a_bundle_without_memory_closes_its_connections},
      {"a_stream_is_muted_by_the_end_of_another", a_stream_is_muted_by_the_end_of_another},
      {"an_urgent_frame_waits_for_the_one_that_goes",
       an_urgent_frame_waits_for_the_one_that_goes},
      {"a_bundle_has_news_when_its_next_frame_is_here",
       a_bundle_has_news_when_its_next_frame_is_here},
      {"the_end_of_a_bundle_is_news_behind_its_last_frame",
       the_end_of_a_bundle_is_news_behind_its_last_frame},
      {"a_fault_is_news_once", a_fault_is_news_once},
      {"either_event_moves_tls", either_event_moves_tls},
      {"a_hang_up_is_read_to_the_end", a_hang_up_is_read_to_the_end},
      {"what_came_before_a_reset_is_taken", what_came_before_a_reset_is_taken},
      {"what_is_no_number_is_corrupt", what_is_no_number_is_corrupt},
      {"delivered_is_more_than_flushed", delivered_is_more_than_flushed},
      {"a_stream_to_nobody_is_an_error", a_stream_to_nobody_is_an_error},
      {"an_acceptor_without_memory_closes_its_listener",
       an_acceptor_without_memory_closes_its_listener},
      {"an_acceptor_of_nobody_closes_its_listener", an_acceptor_of_nobody_closes_its_listener},
      {"a_listener_that_is_gone_is_an_error", a_listener_that_is_gone_is_an_error},
      {"strangers_do_not_disturb", strangers_do_not_disturb},
      {"who_calls_another_rank_is_no_failure", who_calls_another_rank_is_no_failure},
      {"a_refused_caller_learns_why_but_no_session",
       a_refused_caller_learns_why_but_no_session},
      {"a_reset_is_called_one", a_reset_is_called_one},
      {"a_cut_stream_says_how_much_is_missing", a_cut_stream_says_how_much_is_missing},
      {"what_is_no_frame_is_corrupt", what_is_no_frame_is_corrupt},
      {"a_peer_that_does_not_come_is_waited_for_until_the_deadline",
       a_peer_that_does_not_come_is_waited_for_until_the_deadline})
