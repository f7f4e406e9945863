/* Links that are made when they are first needed: by either side or by both at once, among
 * strangers, to peers that have ended, that hang up or that never answer. */
#include "net/link/connector.h"
#include "net/trust/channel.h"

#include "link_pair.h"

#include "base/clock.h"
#include "base/memory.h"
#include "harness/check.h"
#include "net/bytes/frame.h"
#include "net/socket/stream.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FRAME_BYTES = 4096, CROSSINGS = 200, STRANGERS = 300 };

#define SESSION 0x5ec3e7

/* Each kind as it is, and what carries a proof with one; TLS where bytes leave the host. */
typedef struct manner {
    const rpi_transport *transport;
    bool secret, tls;
    int streams;
} manner;

static bool manner_at(int index, manner *out) {
    static const manner each[] = {{NULL, false, false, 1},
                                  {NULL, true, false, 1},
                                  {NULL, true, true, 1},
                                  {NULL, false, false, 3},
                                  {NULL, true, true, 3}};
    enum { EACH = sizeof each / sizeof each[0] };
    const rpi_transport *transport = rpi_transport_at(index / EACH);
    *out = each[index % EACH];
    out->transport = transport;
    return transport != NULL;
}

static bool is_of_use(const manner *m) {
    bool has_proofs =
        m->transport == rpi_transport_at(1) || m->transport == rpi_transport_at(2);
    if (m->streams > 1 && !m->transport->multistream) return false;
    return !m->secret || (has_proofs && rpi_secret_is_supported());
}

static rpi_secret secret_of(const char *text, bool tls) {
    rpi_secret secret = {0};
    CHECK_OK(rpi_secret_make("the test", text, &secret));
    if (tls) CHECK_OK(rpi_secret_ask_for_tls(&secret));
    return secret;
}

typedef struct ends {
    link_pair pair;
    rpi_secret secret;
    char addresses[2][256];
} ends;

static void open_ends(ends *e, const manner *m) {
    link_pair_options(&e->pair, m->transport, FRAME_BYTES);
    if (m->secret)
        e->secret = secret_of("the secret of this job", m->tls && rpi_tls_is_supported());
    for (int rank = 0; rank < 2; rank++) {
        e->pair.options[rank].on_need = true;
        e->pair.options[rank].streams = m->streams;
        e->pair.options[rank].secret = m->secret ? &e->secret : NULL;
        REQUIRE_OK(m->transport->open(&e->pair.options[rank], &e->pair.endpoints[rank]));
        REQUIRE_OK(m->transport->address(e->pair.endpoints[rank], e->addresses[rank],
                                         sizeof e->addresses[rank]));
    }
}

static rp_status call(ends *e, int rank) {
    return e->pair.transport->call(e->pair.endpoints[rank], !rank, e->addresses[!rank]);
}

/* What comes of it, within a deadline. */
static rp_status await(const rpi_transport *transport, rpi_endpoint *endpoint, int *out_peer,
                       rpi_link **out_link) {
    int64_t deadline_ns = rpi_deadline_ns(20);
    rp_status status;
    while ((status = transport->connected(endpoint, out_peer, out_link)) == RP_PENDING) {
        if (rpi_now_ns() > deadline_ns) return RP_FAIL(TIMEOUT, "no link came");
        link_wait(endpoint);
    }
    return status;
}

static void await_both(ends *e) {
    for (int rank = 0; rank < 2; rank++) {
        int peer = -1;
        CHECK_OK(
            await(e->pair.transport, e->pair.endpoints[rank], &peer, &e->pair.links[rank]));
        CHECK_EQ(peer, !rank);
    }
}

/* Frames go both ways, so both sides have the same connection; and no other link comes. */
static void check_link(ends *e) {
    REQUIRE(e->pair.links[0] && e->pair.links[1]);
    for (int from = 0; from < 2; from++) {
        CHECK_OK(link_send_wait(e->pair.links[from], 7, 1000));
        CHECK_OK(link_receive_wait(e->pair.links[!from], 7, 1000));
    }
    for (int rank = 0; rank < 2; rank++) {
        rpi_link *link = NULL;
        int peer = -1;
        CHECK_OK(call(e, rank)); /* again: nothing happens */
        CHECK_EQ(e->pair.transport->connected(e->pair.endpoints[rank], &peer, &link),
                 RP_PENDING);
    }
}

static void either_side_calls(void) {
    manner m;
    for (int i = 0; manner_at(i, &m); i++) {
        if (!is_of_use(&m)) continue;
        for (int caller = 0; caller < 2; caller++) {
            ends e = {0};
            open_ends(&e, &m);
            CHECK_OK(call(&e, caller));
            await_both(&e);
            check_link(&e);
            link_pair_close(&e.pair);
        }
    }
}

static void both_call_at_once(void) {
    manner m;
    for (int i = 0; manner_at(i, &m); i++) {
        int rounds = m.tls ? CROSSINGS / 10 : CROSSINGS;
        for (int round = 0; is_of_use(&m) && round < rounds && !check_failures(); round++) {
            ends e = {0};
            open_ends(&e, &m);
            CHECK_OK(call(&e, round % 2));
            CHECK_OK(call(&e, !(round % 2)));
            await_both(&e);
            check_link(&e);
            link_pair_close(&e.pair);
        }
    }
}

/* The side that is called looks only later: what was sent waits for it. */
static void nobody_need_look(void) {
    manner m;
    for (int i = 0; manner_at(i, &m); i++) {
        ends e = {0};
        int peer = -1;
        if (!is_of_use(&m)) continue;
        open_ends(&e, &m);
        CHECK_OK(call(&e, 0));
        CHECK_OK(await(m.transport, e.pair.endpoints[0], &peer, &e.pair.links[0]));
        REQUIRE(e.pair.links[0]);
        CHECK_OK(link_send_wait(e.pair.links[0], 3, 200));
        int64_t deadline_ns = rpi_deadline_ns(20);
        while (m.transport->flushed(e.pair.endpoints[0]) == RP_PENDING &&
               rpi_now_ns() < deadline_ns)
            link_wait(e.pair.endpoints[0]);
        CHECK_OK(m.transport->flushed(e.pair.endpoints[0]));
        CHECK_OK(await(m.transport, e.pair.endpoints[1], &peer, &e.pair.links[1]));
        REQUIRE(e.pair.links[1]);
        CHECK_OK(link_receive_wait(e.pair.links[1], 3, 200));
        link_pair_close(&e.pair);
    }
}

static void who_has_ended_is_a_failure(void) {
    manner m;
    for (int i = 0; manner_at(i, &m); i++)
        for (int caller = 0; caller < 2 && is_of_use(&m); caller++) {
            ends e = {0};
            rpi_link *link = NULL;
            int peer = -1;
            open_ends(&e, &m);
            m.transport->close(e.pair.endpoints[!caller]);
            e.pair.endpoints[!caller] = NULL;
            rp_status status = call(&e, caller); /* inproc sees it at once */
            if (status == RP_OK)
                status = await(m.transport, e.pair.endpoints[caller], &peer, &link);
            CHECK_EQ(status, RP_PEER);
            CHECK(strstr(rp_last_error()->message, caller ? "rank 0" : "rank 1") != NULL);
            link_pair_close(&e.pair);
        }
}

/* ---- those who do not belong ---- */

static void another_secret_is_refused(void) {
    ends e = {0};
    manner m = {rpi_transport_at(2), false, false, 1};
    if (!rpi_secret_is_supported()) {
        check_skip("this build has no OpenSSL");
        return;
    }
    rpi_secret secrets[2] = {secret_of("the secret of this job", false),
                             secret_of("another secret, of another", false)};
    link_pair_options(&e.pair, m.transport, FRAME_BYTES);
    for (int rank = 0; rank < 2; rank++) {
        e.pair.options[rank].on_need = true;
        e.pair.options[rank].secret = &secrets[rank];
        REQUIRE_OK(m.transport->open(&e.pair.options[rank], &e.pair.endpoints[rank]));
        REQUIRE_OK(m.transport->address(e.pair.endpoints[rank], e.addresses[rank],
                                        sizeof e.addresses[rank]));
    }
    rpi_link *link = NULL;
    int peer = -1;
    CHECK_OK(call(&e, 1));
    CHECK_FAILS(await(m.transport, e.pair.endpoints[1], &peer, &link), MISMATCH,
                "another secret");
    CHECK_EQ(m.transport->connected(e.pair.endpoints[0], &peer, &link), RP_PENDING);
    link_pair_close(&e.pair);
}

static int port_of(const char *address) {
    return atoi(strrchr(address, ':') + 1);
}

/* Of one stream of so many. */
static void write_hello_of(unsigned char bytes[RPI_FRAME_HEADER_BYTES], uint64_t session,
                           int rank, int stream, int streams) {
    rpi_frame_header hello = {.kind = RPI_FRAME_HELLO,
                              .sequence = session,
                              .chunk = 0,
                              .part = rank,
                              .count = 2,
                              .communicator = (uint32_t)stream,
                              .epoch = (uint32_t)streams - 1,
                              .bucket = FRAME_BYTES};
    rpi_frame_seal(bytes, &hello, 0, false);
}

static void write_hello(unsigned char bytes[RPI_FRAME_HEADER_BYTES], uint64_t session,
                        int rank) {
    write_hello_of(bytes, session, rank, 0, 1);
}

static void send_hello(int fd, uint64_t session, int rank) {
    unsigned char bytes[RPI_FRAME_HEADER_BYTES];
    write_hello(bytes, session, rank);
    CHECK_OK(rpi_stream_write(fd, bytes, sizeof bytes, rpi_deadline_ns(2)));
}

/* Silent, of another job, as ranks that cannot be: all at once, and later the one that is. */
static void strangers_keep_nobody_out(void) {
    ends e = {0};
    int fds[STRANGERS];
    manner m = {rpi_transport_at(2), false, false, 1};
    open_ends(&e, &m);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = -1;
        REQUIRE_OK(rpi_stream_dial(NULL, port_of(e.addresses[0]), rpi_deadline_ns(5), &fds[i]));
        if (i % 4 == 1) send_hello(fds[i], SESSION + 1, 1);
        if (i % 4 == 2) send_hello(fds[i], SESSION, i % 3 - 1 + (i % 3 == 2));
        if (i % 4 == 3) CHECK_OK(rpi_stream_write(fds[i], "noise", 5, rpi_deadline_ns(2)));
    }
    CHECK_OK(call(&e, 1));
    await_both(&e);
    check_link(&e);
    for (int i = 0; i < STRANGERS; i++) close(fds[i]);
    link_pair_close(&e.pair);
}

/* In an open job who knows the session can say that he is any rank, once. */
static void who_comes_twice_changes_nothing(void) {
    ends e = {0};
    int fd = -1;
    manner m = {rpi_transport_at(2), false, false, 1};
    unsigned char answer[RPI_FRAME_HEADER_BYTES];
    rpi_frame_header header;
    open_ends(&e, &m);
    CHECK_OK(call(&e, 1));
    await_both(&e);
    REQUIRE_OK(rpi_stream_dial(NULL, port_of(e.addresses[0]), rpi_deadline_ns(5), &fd));
    send_hello(fd, SESSION, 1);
    CHECK_OK(rpi_stream_read(fd, answer, sizeof answer, rpi_deadline_ns(5)));
    CHECK_OK(rpi_frame_open(answer, sizeof answer, false, &header));
    CHECK_EQ(header.operation, 5); /* docs/wire.md: this rank has connected already */
    CHECK_EQ(header.sequence, 0);  /* and no session for who is turned away */
    check_link(&e);
    close(fd);
    link_pair_close(&e.pair);
}

/* What rank 0 answers to somebody who knows the session and says that he is a stream of rank 1;
 * -1: nothing. */
static int answer_to(const ends *e, int stream, int streams, int *out_fd) {
    unsigned char bytes[RPI_FRAME_HEADER_BYTES];
    rpi_frame_header header = {.operation = 0};
    int fd = -1;
    CHECK_OK(rpi_stream_dial(NULL, port_of(e->addresses[0]), rpi_deadline_ns(5), &fd));
    write_hello_of(bytes, SESSION, 1, stream, streams);
    CHECK_OK(rpi_stream_write(fd, bytes, sizeof bytes, rpi_deadline_ns(5)));
    rp_status status = rpi_stream_read(fd, bytes, sizeof bytes, rpi_deadline_ns(5));
    if (status == RP_OK) status = rpi_frame_open(bytes, sizeof bytes, false, &header);
    if (out_fd)
        *out_fd = fd;
    else
        close(fd);
    return status == RP_OK ? header.operation : -1;
}

/* Nobody becomes a stream of a link that is not being made, or twice, or of another number. */
static void a_link_takes_no_streams_but_its_own(void) {
    ends e = {0};
    manner m = {rpi_transport_at(2), false, false, 2};
    open_ends(&e, &m);
    CHECK_EQ(answer_to(&e, 1, 2, NULL), 5);
    CHECK_EQ(answer_to(&e, 0, 1, NULL), 8);
    CHECK_EQ(answer_to(&e, 2, 3, NULL), 8);
    CHECK_EQ(answer_to(&e, 2, 2, NULL), 8);
    CHECK_OK(call(&e, 1));
    await_both(&e);
    check_link(&e);
    for (int stream = 0; stream < 2; stream++) CHECK_EQ(answer_to(&e, stream, 2, NULL), 5);
    check_link(&e);
    link_pair_close(&e.pair);
}

/* Who has called and goes away before all of the link is there has failed, and nobody waits for
 * the rest. */
static void half_a_link_is_a_failure(void) {
    for (int made = 1; made < 3; made++) {
        ends e = {0};
        rpi_link *link = NULL;
        int peer = -1, fds[2] = {-1, -1};
        manner m = {rpi_transport_at(2), false, false, 3};
        open_ends(&e, &m);
        for (int stream = 0; stream < made; stream++)
            CHECK_EQ(answer_to(&e, stream, 3, &fds[stream]), 0);
        CHECK_EQ(m.transport->connected(e.pair.endpoints[0], &peer, &link), RP_PENDING);
        close(fds[made - 1]);
        CHECK_FAILS(await(m.transport, e.pair.endpoints[0], &peer, &link), PEER,
                    "rank 1 hung up before all 3 streams");
        if (made > 1) close(fds[0]);
        link_pair_close(&e.pair);
    }
}

/* Who has called may use what stands before the rest does: those bytes wait for the link. */
static void a_word_on_half_a_link_is_no_end(void) {
    ends e = {0};
    int peer = -1, fds[3] = {-1, -1, -1};
    manner m = {rpi_transport_at(2), false, false, 3};
    open_ends(&e, &m);
    CHECK_EQ(answer_to(&e, 0, 3, &fds[0]), 0);
    CHECK_OK(rpi_stream_write(fds[0], "RPLL", 4, rpi_deadline_ns(5)));
    for (int stream = 1; stream < 3; stream++)
        CHECK_EQ(answer_to(&e, stream, 3, &fds[stream]), 0);
    CHECK_OK(await(m.transport, e.pair.endpoints[0], &peer, &e.pair.links[0]));
    CHECK_EQ(peer, 1);
    for (int stream = 0; stream < 3; stream++) close(fds[stream]);
    link_pair_close(&e.pair);
}

/* Its hello is there, and so is its end: that is no link, and it may call again. */
static void who_has_given_up_may_call_again(void) {
    ends e = {0};
    int fd = -1;
    manner m = {rpi_transport_at(2), false, false, 1};
    unsigned char bytes[RPI_FRAME_HEADER_BYTES];
    open_ends(&e, &m);
    REQUIRE_OK(rpi_stream_dial(NULL, port_of(e.addresses[0]), rpi_deadline_ns(5), &fd));
    write_hello(bytes, SESSION, 1);
    /* In one segment with the end: what is to follow a hello keeps it back. */
    CHECK_EQ(send(fd, bytes, sizeof bytes, MSG_MORE), (long)sizeof bytes);
    CHECK_EQ(shutdown(fd, SHUT_WR), 0);
    CHECK_EQ(rpi_stream_read(fd, bytes, sizeof bytes, rpi_deadline_ns(5)), RP_PEER);
    close(fd);
    CHECK_OK(call(&e, 1));
    await_both(&e);
    check_link(&e);
    link_pair_close(&e.pair);
}

/* ---- peers that do not answer ---- */

static void open_one(ends *e, int port) {
    const rpi_transport *tcp = rpi_transport_at(2);
    link_pair_options(&e->pair, tcp, FRAME_BYTES);
    e->pair.options[1].on_need = true;
    REQUIRE_OK(tcp->open(&e->pair.options[1], &e->pair.endpoints[1]));
    snprintf(e->addresses[0], sizeof e->addresses[0], "tcp:127.0.0.1:%d", port);
}

static int accept_one(int listener) {
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    if (poll(&wait, 1, 20000) <= 0) return -1;
    return rpi_stream_accept(listener);
}

/* Of a host's addresses any may be the one that leads there. */
static void addresses_take_turns(void) {
    for (int gone = 0; gone < 2; gone++) {
        ends e = {0};
        rpi_link *link = NULL;
        int peer = -1;
        manner m = {rpi_transport_at(2), false, false, 1};
        open_ends(&e, &m);
        int port = port_of(e.addresses[0]); /* of 127.0.0.1 alone */
        snprintf(e.addresses[0], sizeof e.addresses[0], "tcp:127.0.0.9,127.0.0.1:%d", port);
        if (gone) m.transport->close(e.pair.endpoints[0]);
        if (gone) e.pair.endpoints[0] = NULL;
        CHECK_OK(call(&e, 1));
        rp_status status = await(m.transport, e.pair.endpoints[1], &peer, &link);
        CHECK_EQ(status, gone ? RP_PEER : RP_OK);
        link_pair_close(&e.pair);
    }
}

/* As one that has too many callers does: it is called again, and is no failure. */
static void who_hangs_up_is_called_again(void) {
    ends e = {0};
    rpi_link *link = NULL;
    int listener = -1, port = 0, peer = -1;
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
    open_one(&e, port);
    CHECK_OK(call(&e, 1));
    for (int i = 0; i < 5; i++) {
        int fd = accept_one(listener);
        CHECK(fd >= 0);
        close(fd);
    }
    CHECK_EQ(e.pair.transport->connected(e.pair.endpoints[1], &peer, &link), RP_PENDING);
    close(listener);
    CHECK_FAILS(await(e.pair.transport, e.pair.endpoints[1], &peer, &link), PEER,
                "nobody listens there any more");
    link_pair_close(&e.pair);
}

/* A peer that says what is no hello is none. */
static void noise_for_an_answer_is_an_error(void) {
    ends e = {0};
    rpi_link *link = NULL;
    int listener = -1, port = 0, peer = -1;
    char noise[RPI_FRAME_HEADER_BYTES] = "noise";
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
    open_one(&e, port);
    CHECK_OK(call(&e, 1));
    int fd = accept_one(listener);
    CHECK_OK(rpi_stream_write(fd, noise, sizeof noise, rpi_deadline_ns(5)));
    CHECK_FAILS(await(e.pair.transport, e.pair.endpoints[1], &peer, &link), CORRUPT, "rank 0");
    close(fd);
    close(listener);
    link_pair_close(&e.pair);
}

/* A call that has not said its hello cannot be the link: who calls meanwhile is welcome. */
static void a_call_that_gets_nowhere_keeps_nobody_out(void) {
    ends e = {0};
    int listener = -1, port = 0;
    manner m = {rpi_transport_at(2), true, false, 1};
    if (!rpi_secret_is_supported()) {
        check_skip("this build has no OpenSSL");
        return;
    }
    open_ends(&e, &m);
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
    char address[256];
    snprintf(address, sizeof address, "tcp:127.0.0.1:%d", port);
    CHECK_OK(m.transport->call(e.pair.endpoints[1], 0, address));
    int fd = accept_one(listener); /* which never answers its proof */
    CHECK(fd >= 0);
    CHECK_OK(call(&e, 0));
    await_both(&e);
    check_link(&e);
    close(fd);
    close(listener);
    link_pair_close(&e.pair);
}

/* Whatever a call waits for, close() does not. */
static void closing_waits_for_nobody(void) {
    ends e = {0};
    int listener = -1, port = 0;
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
    open_one(&e, port);
    CHECK_OK(call(&e, 1));
    int fd = accept_one(listener); /* which never answers */
    CHECK(fd >= 0);
    int descriptors = check_descriptors();
    link_pair_close(&e.pair);
    CHECK(check_descriptors() < descriptors);
    close(fd);
    close(listener);
}

/* What was made before memory ran out is given back, the listener among it. */
static void opening_may_run_out_of_memory(void) {
    const rpi_transport *tcp = rpi_transport_at(2);
    rp_status status = RP_NOMEM;
    int descriptors = check_descriptors(), threads = check_threads();
    for (long n = 1; n < 100 && status == RP_NOMEM; n++) {
        link_pair pair;
        link_pair_options(&pair, tcp, FRAME_BYTES);
        pair.options[0].on_need = true;
        rpi_memory_fail_after(n);
        status = tcp->open(&pair.options[0], &pair.endpoints[0]);
        rpi_memory_fail_after(0);
        CHECK(status == RP_OK || status == RP_NOMEM);
        link_pair_close(&pair);
        CHECK_EQ(check_descriptors(), descriptors);
        CHECK_EQ(check_settled_threads(threads), threads);
    }
    CHECK_OK(status);
}

/* ---- memory that runs out, in the connector's own thread ---- */

static atomic_bool runs_out;

/* The thread has its next allocation refused: that for the caller behind this one. */
static rp_status let_memory_run_out(void *context, rpi_call *call) {
    (void)context, (void)call;
    if (atomic_load(&runs_out)) (void)rpi_memory_fail_after(1);
    return RP_OK;
}

static rp_status dial_nobody(const char *address, unsigned attempt, int *out_fd,
                             int *out_ways) {
    (void)address, (void)attempt;
    *out_fd = -1;
    *out_ways = 1;
    return RP_FAIL(PEER, "connection refused: nobody listens there");
}

static int call_as(int port, int rank, rpi_channel *out_channel) {
    rpi_hello self = {
        .session = SESSION, .rank = rank, .world = 3, .frame_bytes = FRAME_BYTES, .streams = 1};
    *out_channel = (rpi_channel){.fd = -1};
    CHECK_OK(rpi_stream_dial("127.0.0.1", port, rpi_deadline_ns(20), &out_channel->fd));
    return rpi_hello_exchange(out_channel, &self, 0, rpi_deadline_ns(20));
}

static rpi_call *await_connected(rpi_connector *connector) {
    int64_t deadline_ns = rpi_deadline_ns(30);
    rpi_call *connected = NULL;
    while (!(connected = rpi_connector_connected(connector)) && rpi_now_ns() < deadline_ns)
        (void)poll(&(struct pollfd){.fd = rpi_connector_fd(connector), .events = POLLIN}, 1,
                   100);
    return connected;
}

/* A caller for whom there is no memory is gone; who needs that rank later hears that it is, and
 * does not wait for ever. */
static void a_caller_without_memory_is_a_failure(void) {
    static const rpi_call_kind kind = {.dial = dial_nobody, .send = let_memory_run_out};
    rpi_hello self = {
        .session = SESSION, .rank = 0, .world = 3, .frame_bytes = FRAME_BYTES, .streams = 1};
    rpi_connector *connector = NULL;
    rpi_channel first, second;
    int listener = -1, port = 0;
    char byte;
    REQUIRE_OK(rpi_stream_listen("127.0.0.1", 0, &listener, &port));
    REQUIRE_OK(rpi_connector_open(&self, listener, &kind, NULL, &connector));
    atomic_store(&runs_out, true);
    CHECK_EQ(call_as(port, 1, &first), RP_OK);
    rpi_call *connected = await_connected(connector);
    REQUIRE(connected && connected->peer == 1 && connected->status == RP_OK);
    CHECK_EQ(poll(&(struct pollfd){.fd = rpi_connector_fd(connector), .events = POLLIN}, 1, 0),
             0); /* it is news no longer */
    rpi_call_free(connected);
    CHECK_EQ(call_as(port, 2, &second), RP_OK);
    struct pollfd end = {.fd = second.fd, .events = POLLIN};
    CHECK_EQ(poll(&end, 1, 20000), 1); /* it was let in, and its connection closed */
    CHECK_EQ(recv(second.fd, &byte, 1, 0), 0);
    atomic_store(&runs_out, false);
    CHECK_OK(rpi_connector_request(connector, 2, "nowhere"));
    connected = await_connected(connector);
    CHECK_MSG(connected && connected->peer == 2 && connected->status == RP_PEER, "%s",
              connected ? connected->text : "nothing comes of it");
    rpi_call_free(connected);
    rpi_channel_close(&first);
    rpi_channel_close(&second);
    rpi_connector_close(connector);
}

/* ---- what is left of a secret ---- */

enum { MASK = 0x5a };

/* In all memory of this process that can be written, as far as it is there. */
static int copies_of(const unsigned char masked[RPI_MAC_BYTES]) {
    static unsigned char page[1 << 16];
    unsigned long long from, to;
    int found = 0, memory = open("/proc/self/mem", O_RDONLY);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], rights[8];
    while (maps && memory >= 0 && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%llx-%llx %7s", &from, &to, rights) != 3 || rights[1] != 'w')
            continue;
        if (to - from > UINT64_C(1) << 30) continue; /* a sanitizer's */
        for (unsigned long long at = from; at < to; at += sizeof page - RPI_MAC_BYTES) {
            size_t most = to - at < sizeof page ? (size_t)(to - at) : sizeof page;
            ssize_t got = pread(memory, page, most, (off_t)at);
            for (ssize_t i = 0; i + RPI_MAC_BYTES <= got; i++) {
                int same = 0;
                while (same < RPI_MAC_BYTES && page[i + same] == (masked[same] ^ MASK)) same++;
                found += same == RPI_MAC_BYTES;
            }
        }
    }
    if (maps) fclose(maps);
    if (memory >= 0) close(memory);
    memset(page, 0, sizeof page);
    return found;
}

static void nothing_is_left_of_a_secret(void) {
    unsigned char masked[RPI_MAC_BYTES];
    manner m;
#if defined(__SANITIZE_THREAD__)
    check_skip("a sanitizer of threads has more memory than can be looked through");
    return;
#endif
    for (int i = 0; manner_at(i, &m); i++) {
        if (!is_of_use(&m) || !m.secret) continue;
        ends e = {0};
        open_ends(&e, &m);
        for (int k = 0; k < RPI_MAC_BYTES; k++) masked[k] = e.secret.key[k] ^ MASK;
        CHECK(copies_of(masked) > 0);
        CHECK_OK(call(&e, 0));
        await_both(&e);
        check_link(&e);
        link_pair_close(&e.pair);
        rpi_secret_wipe(&e.secret);
        CHECK_MSG(copies_of(masked) == 0, "%s%s: %d copies are left", m.transport->name,
                  m.tls ? ", tls" : "", copies_of(masked));
    }
}

CASES({"a caller without memory is a failure", a_caller_without_memory_is_a_failure},
      {"nothing is left of a secret", nothing_is_left_of_a_secret},
      {"a link takes no streams but its own", a_link_takes_no_streams_but_its_own},
      {"half a link is a failure", half_a_link_is_a_failure},
      {"a word on half a link is no end", a_word_on_half_a_link_is_no_end},
      {"either side calls", either_side_calls}, {"both call at once", both_call_at_once},
      {"nobody need look", nobody_need_look},
      {"who has ended is a failure", who_has_ended_is_a_failure},
      {"another secret is refused", another_secret_is_refused},
      {"strangers keep nobody out", strangers_keep_nobody_out},
      {"who comes twice changes nothing", who_comes_twice_changes_nothing},
      {"who has given up may call again", who_has_given_up_may_call_again},
      {"addresses take turns", addresses_take_turns},
      {"who hangs up is called again", who_hangs_up_is_called_again},
      {"noise for an answer is an error", noise_for_an_answer_is_an_error},
      {"a call that gets nowhere keeps nobody out", a_call_that_gets_nowhere_keeps_nobody_out},
      {"closing waits for nobody", closing_waits_for_nobody},
      {"opening may run out of memory", opening_may_run_out_of_memory})
