/* TLS over connections: nothing readable on the way, nobody without the key, every byte in
 * order whatever sockets do, and a clear word where only one side uses it. */
#include "link_pair.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"
#include "net/link/hello.h"
#include "net/store/dictionary.h"
#include "net/store/store_tcp.h"
#include "net/trust/handshake.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAYLOAD "what nobody on the way may read"
enum { BIG_BYTES = 3 * 1000 * 1000, FRAME_BYTES = 100000 };

static const rpi_proof_terms terms = {
    .purpose = RPI_PROOF_LINK, .caller = 1, .callee = 0, .world = 2, .session = 77};

static bool has_no_tls(void) {
    if (!rpi_tls_is_supported()) check_skip("this build has no TLS");
    return !rpi_tls_is_supported();
}

static rpi_secret secret_of(const char *text, bool tls) {
    rpi_secret secret = {0};
    CHECK_OK(rpi_secret_make("a test's secret", text, &secret));
    secret.tls = tls;
    return secret;
}

static rpi_secret ours(bool tls) {
    return secret_of("the secret of this job", tls);
}

/* ---- two ends ---- */

typedef struct end {
    rpi_channel channel;
    rpi_secret secret;
    rp_status status;
    char message[400];
    pthread_t thread;
} end;

static void *call(void *argument) {
    end *e = argument;
    e->status = rpi_channel_call(&e->channel, &e->secret, &terms, rpi_deadline_ns(10));
    snprintf(e->message, sizeof e->message, "%s", rp_last_error()->message);
    return NULL;
}

static rp_status hear(end *e) {
    int64_t deadline_ns = rpi_deadline_ns(10);
    rpi_proof proof = {0};
    while ((e->status = rpi_channel_receive_proof(&e->channel, &proof, &e->secret, &terms)) ==
               RP_PENDING &&
           rpi_now_ns() < deadline_ns) {
        struct pollfd wait = {.fd = e->channel.fd, .events = POLLIN};
        (void)poll(&wait, 1, 100);
    }
    snprintf(e->message, sizeof e->message, "%s", rp_last_error()->message);
    return e->status;
}

/* ends[0] calls, ends[1] answers. */
static void connect_ends(end ends[2], rpi_secret caller, rpi_secret called) {
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    ends[0] = (end){.channel = {.fd = pair[0]}, .secret = caller};
    ends[1] = (end){.channel = {.fd = pair[1]}, .secret = called};
    pthread_create(&ends[0].thread, NULL, call, &ends[0]);
    hear(&ends[1]);
    if (ends[1].status != RP_OK) shutdown(pair[1], SHUT_RDWR);
    pthread_join(ends[0].thread, NULL);
}

static void open_ends(end ends[2]) {
    connect_ends(ends, ours(true), ours(true));
    CHECK_MSG(ends[0].status == RP_OK, "the caller says: %s", ends[0].message);
    CHECK_MSG(ends[1].status == RP_OK, "the called says: %s", ends[1].message);
    CHECK(ends[0].channel.tls && ends[1].channel.tls);
}

static void close_ends(end ends[2]) {
    for (int i = 0; i < 2; i++) rpi_channel_close(&ends[i].channel);
}

/* ---- bytes ---- */

typedef struct pour {
    rpi_channel *from;
    unsigned char *bytes;
    bool renews;
    int renewals;
} pour;

/* In gathered pieces of all sizes, one of them empty, as fast as the other side takes them. */
static void *pour_out(void *argument) {
    pour *p = argument;
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 5);
    size_t sent = 0, sizes[3] = {1, 0, 1};
    while (sent < BIG_BYTES) {
        size_t left = BIG_BYTES - sent, first = left < sizes[0] ? left : sizes[0];
        size_t second = left - first < sizes[2] ? left - first : sizes[2];
        struct iovec pieces[3] = {
            {p->bytes + sent, first}, {p->bytes, 0}, {p->bytes + sent + first, second}};
        ssize_t now = rpi_channel_send_pieces(p->from, pieces, 3);
        if (now >= 0) {
            sent += (size_t)now;
            bool all = (size_t)now == first + second;
            if (all && p->renews && rpi_rng_below(&rng, 2) == 0)
                p->renewals += rpi_tls_renew_keys(p->from->tls);
            /* What did not leave comes next, at least as long as it was. */
            sizes[0] = all ? 1 + rpi_rng_below(&rng, 60000) : first + second - (size_t)now;
            sizes[2] = 1 + rpi_rng_below(&rng, 60000);
            continue;
        }
        if (errno != EAGAIN) break;
        struct pollfd wait = {.fd = p->from->fd,
                              .events = rpi_channel_awaits(p->from, POLLOUT)};
        (void)poll(&wait, 1, 1000);
    }
    return NULL;
}

static void carry(bool renews) {
    end ends[2];
    if (has_no_tls()) return;
    unsigned char *bytes = malloc(BIG_BYTES), *got = malloc(BIG_BYTES);
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 6);
    for (size_t i = 0; i < BIG_BYTES; i++) bytes[i] = (unsigned char)rpi_rng_below(&rng, 256);
    open_ends(ends);
    for (int from = 0; from < 2; from++) {
        pour p = {.from = &ends[from].channel, .bytes = bytes, .renews = renews};
        pthread_create(&ends[0].thread, NULL, pour_out, &p);
        memset(got, 0, BIG_BYTES);
        CHECK_OK(rpi_channel_read(&ends[!from].channel, got, BIG_BYTES, rpi_deadline_ns(20)));
        pthread_join(ends[0].thread, NULL);
        CHECK(memcmp(got, bytes, BIG_BYTES) == 0);
        CHECK((p.renewals > 3) == renews);
    }
    close_ends(ends);
    free(bytes), free(got);
}

static void bytes_come_as_they_were_sent(void) {
    carry(false);
}

static void keys_are_renewed_on_the_way(void) {
    carry(true);
}

/* The end of what one side says leaves the other way open. */
static void half_of_it_can_be_shut(void) {
    end ends[2];
    char bytes[8] = "";
    if (has_no_tls()) return;
    open_ends(ends);
    CHECK_OK(rpi_channel_write(&ends[0].channel, "question", 8, rpi_deadline_ns(10)));
    rpi_channel_shut(&ends[0].channel);
    rpi_channel_shut(&ends[0].channel);
    CHECK_OK(rpi_channel_read(&ends[1].channel, bytes, 8, rpi_deadline_ns(10)));
    CHECK(memcmp(bytes, "question", 8) == 0);
    CHECK_EQ(rpi_channel_receive(&ends[1].channel, bytes, 8), 0);
    CHECK_OK(rpi_channel_write(&ends[1].channel, "answered", 8, rpi_deadline_ns(10)));
    CHECK_OK(rpi_channel_read(&ends[0].channel, bytes, 8, rpi_deadline_ns(10)));
    CHECK(memcmp(bytes, "answered", 8) == 0);
    close_ends(ends);
}

/* A peer that dies says no goodbye; and no signal comes. */
static void a_dead_peer_is_an_end(void) {
    end ends[2];
    char byte = 0;
    if (has_no_tls()) return;
    open_ends(ends);
    CHECK_OK(rpi_channel_write(&ends[1].channel, "x", 1, rpi_deadline_ns(10)));
    close(ends[1].channel.fd);
    ends[1].channel.fd = -1;
    CHECK_OK(rpi_channel_read(&ends[0].channel, &byte, 1, rpi_deadline_ns(10)));
    CHECK_EQ(byte, 'x');
    CHECK_FAILS(rpi_channel_read(&ends[0].channel, &byte, 1, rpi_deadline_ns(10)), PEER,
                "connection closed by peer");
    CHECK_FAILS(rpi_channel_write(&ends[0].channel, &byte, 1, rpi_deadline_ns(10)), PEER,
                "connection closed by peer");
    close_ends(ends);
}

static void a_silent_peer_meets_the_deadline(void) {
    int pair[2];
    rpi_secret secret = ours(true);
    unsigned char call_bytes[RPI_PROOF_CALL_BYTES];
    if (has_no_tls()) return;
    /* Before it has proved anything, */
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    rpi_channel channel = {.fd = pair[0]};
    CHECK_EQ(rpi_channel_call(&channel, &secret, &terms, rpi_deadline_ns(0.1)), RP_TIMEOUT);
    rpi_channel_close(&channel);
    close(pair[1]);
    /* and after that, with TLS not begun. */
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    end e = {.channel = {.fd = pair[0]}, .secret = secret};
    pthread_create(&e.thread, NULL, call, &e);
    rpi_proof proof = {0};
    rp_status status;
    while ((status = rpi_proof_receive(&proof, pair[1], &secret, &terms)) == RP_PENDING)
        rpi_sleep_until_ns(rpi_now_ns() + 1000000);
    CHECK_OK(status);
    CHECK(proof.tls);
    CHECK_EQ(poll(&(struct pollfd){.fd = pair[1], .events = POLLIN}, 1, 10000), 1);
    CHECK_EQ(recv(pair[1], call_bytes, 1, MSG_PEEK), 1); /* TLS's first word */
    shutdown(pair[1], SHUT_RDWR);
    pthread_join(e.thread, NULL);
    CHECK_EQ(e.status, RP_PEER);
    rpi_channel_close(&e.channel);
    close(pair[1]);
}

/* ---- who gets in ---- */

static void both_sides_use_it_or_none(void) {
    end ends[2];
    if (has_no_tls()) return;
    connect_ends(ends, ours(true), ours(false));
    CHECK_EQ(ends[0].status, RP_MISMATCH);
    CHECK(strstr(ends[0].message, "this process uses TLS (--tls, REDPOLL_TLS) and the other"));
    CHECK_EQ(ends[1].status, RP_MISMATCH);
    CHECK(strstr(ends[1].message, "the other side uses TLS"));
    close_ends(ends);
    connect_ends(ends, ours(false), ours(true));
    CHECK_EQ(ends[0].status, RP_MISMATCH);
    CHECK(strstr(ends[0].message, "the other side uses TLS (--tls, REDPOLL_TLS) and this"));
    CHECK_EQ(ends[1].status, RP_MISMATCH);
    CHECK(strstr(ends[1].message, "this process uses TLS"));
    close_ends(ends);
}

static void another_secret_is_refused_before_tls(void) {
    end ends[2];
    if (has_no_tls()) return;
    connect_ends(ends, secret_of("the secret of that job", true), ours(true));
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(ends[i].status, RP_MISMATCH);
        CHECK(strstr(ends[i].message, "another secret"));
        CHECK(!ends[i].channel.tls);
    }
    close_ends(ends);
}

typedef struct shake {
    rpi_tls *tls;
    int fd;
    rp_status status;
} shake;

static void *shake_hands(void *argument) {
    shake *s = argument;
    int64_t deadline_ns = rpi_deadline_ns(10);
    while ((s->status = rpi_tls_shake_hands(s->tls)) == RP_PENDING &&
           rpi_now_ns() < deadline_ns) {
        struct pollfd wait = {.fd = s->fd, .events = rpi_tls_awaits(s->tls)};
        (void)poll(&wait, 1, 100);
    }
    if (s->status != RP_OK) shutdown(s->fd, SHUT_WR);
    return NULL;
}

/* Were somebody to carry a proof on to another connection, its key would not fit. */
static void another_key_is_refused(void) {
    unsigned char keys[2][RPI_TLS_KEY_BYTES] = {"one key", "another key"};
    shake shakes[2] = {{.status = RP_OK}};
    int pair[2];
    pthread_t thread;
    if (has_no_tls()) return;
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    for (int i = 0; i < 2; i++) {
        shakes[i].fd = pair[i];
        REQUIRE_OK(rpi_tls_open(pair[i], i == 0, keys[i], &shakes[i].tls));
    }
    pthread_create(&thread, NULL, shake_hands, &shakes[0]);
    shake_hands(&shakes[1]);
    pthread_join(thread, NULL);
    CHECK_EQ(shakes[1].status, RP_MISMATCH);
    CHECK(shakes[0].status < 0);
    for (int i = 0; i < 2; i++) {
        rpi_tls_close(shakes[i].tls);
        close(pair[i]);
    }
}

static void noise_after_the_proof_is_refused(void) {
    unsigned char key[RPI_TLS_KEY_BYTES] = "a key", noise[2000];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 7);
    if (has_no_tls()) return;
    for (int i = 0; i < 200; i++) {
        shake s = {.status = RP_OK};
        int pair[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
        size_t bytes = 1 + rpi_rng_below(&rng, sizeof noise - 1);
        for (size_t k = 0; k < bytes; k++) noise[k] = (unsigned char)rpi_rng_below(&rng, 256);
        CHECK_EQ(send(pair[0], noise, bytes, 0), (ssize_t)bytes);
        shutdown(pair[0], SHUT_WR);
        s.fd = pair[1];
        REQUIRE_OK(rpi_tls_open(pair[1], i % 2, key, &s.tls));
        shake_hands(&s);
        CHECK(s.status < 0);
        rpi_tls_close(s.tls);
        close(pair[0]), close(pair[1]);
    }
}

/* ---- on the way ---- */

/* A wire between two ends that somebody listens to, and may change a byte of. */
typedef struct tap {
    int fds[2];
    int64_t change_at; /* bit 0 of this byte of what the caller says; -1: none */
    unsigned char *heard;
    size_t bytes, capacity;
    pthread_t thread;
} tap;

static bool pass_on(tap *t, int from) {
    unsigned char piece[16384];
    ssize_t got = recv(t->fds[from], piece, sizeof piece, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return shutdown(t->fds[!from], SHUT_WR), false;
    for (ssize_t i = 0; i < got; i++, t->change_at -= from == 0)
        if (from == 0 && t->change_at == 0) piece[i] ^= 1;
    if (t->bytes + (size_t)got <= t->capacity) memcpy(t->heard + t->bytes, piece, (size_t)got);
    t->bytes += (size_t)got;
    for (ssize_t done = 0; done < got;) {
        struct pollfd wait = {.fd = t->fds[!from], .events = POLLOUT};
        (void)poll(&wait, 1, 1000);
        ssize_t sent = send(t->fds[!from], piece + done, (size_t)(got - done), MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) return false;
        done += sent > 0 ? sent : 0;
    }
    return true;
}

static void *listen_in(void *argument) {
    tap *t = argument;
    bool open[2] = {true, true};
    while (open[0] || open[1]) {
        struct pollfd waits[2] = {{.fd = open[0] ? t->fds[0] : -1, .events = POLLIN},
                                  {.fd = open[1] ? t->fds[1] : -1, .events = POLLIN}};
        if (poll(waits, 2, 10000) <= 0) break;
        for (int i = 0; i < 2; i++)
            if (waits[i].revents) open[i] = pass_on(t, i);
    }
    return NULL;
}

static void connect_through(tap *t, end ends[2], int64_t change_at) {
    int pairs[2][2];
    *t = (tap){.change_at = change_at, .capacity = 2 * BIG_BYTES};
    t->heard = calloc(1, t->capacity);
    for (int i = 0; i < 2; i++) {
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pairs[i]) ==
                0);
        t->fds[i] = pairs[i][1];
        ends[i] = (end){.channel = {.fd = pairs[i][0]}, .secret = ours(true)};
    }
    pthread_create(&t->thread, NULL, listen_in, t);
    pthread_create(&ends[0].thread, NULL, call, &ends[0]);
    hear(&ends[1]);
    if (ends[1].status != RP_OK) shutdown(ends[1].channel.fd, SHUT_RDWR);
    pthread_join(ends[0].thread, NULL);
}

static void take_off(tap *t, end ends[2]) {
    close_ends(ends);
    pthread_join(t->thread, NULL);
    close(t->fds[0]), close(t->fds[1]);
    free(t->heard);
}

static bool holds(const unsigned char *bytes, size_t count, const char *text) {
    return memmem(bytes, count, text, strlen(text)) != NULL;
}

static void a_recording_shows_nothing(void) {
    tap t;
    end ends[2];
    char got[sizeof PAYLOAD] = "";
    if (has_no_tls()) return;
    connect_through(&t, ends, -1);
    CHECK_MSG(ends[0].status == RP_OK && ends[1].status == RP_OK, "%s, %s", ends[0].message,
              ends[1].message);
    for (int i = 0; i < 100; i++) {
        int from = i % 2;
        CHECK_OK(rpi_channel_write(&ends[from].channel, PAYLOAD, sizeof PAYLOAD,
                                   rpi_deadline_ns(10)));
        CHECK_OK(rpi_channel_read(&ends[!from].channel, got, sizeof got, rpi_deadline_ns(10)));
        CHECK(memcmp(got, PAYLOAD, sizeof got) == 0);
    }
    CHECK(t.bytes > 100 * sizeof PAYLOAD && t.bytes <= t.capacity);
    CHECK(holds(t.heard, t.bytes, "RPPF")); /* it is this connection that was recorded */
    CHECK(!holds(t.heard, t.bytes, "nobody on"));
    CHECK(!holds(t.heard, t.bytes, "the secret of"));
    take_off(&t, ends);
}

/* Any bit that is changed on the way is noticed, and nothing made of it is handed out. */
static void a_changed_byte_is_noticed(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 8);
    if (has_no_tls()) return;
    for (int i = 0; i < 60; i++) {
        static char sent[40000], got[40000];
        tap t;
        end ends[2];
        int64_t at = i < 20 ? i * 40 : (int64_t)rpi_rng_below(&rng, 40000);
        memset(sent, 'p', sizeof sent);
        memset(got, 0, sizeof got);
        connect_through(&t, ends, at);
        rp_status status = ends[0].status < 0 ? ends[0].status : ends[1].status;
        if (status == RP_OK)
            CHECK_OK(
                rpi_channel_write(&ends[0].channel, sent, sizeof sent, rpi_deadline_ns(10)));
        if (status == RP_OK)
            status = rpi_channel_read(&ends[1].channel, got, sizeof got, rpi_deadline_ns(10));
        CHECK_MSG(status < 0, "byte %lld was changed, and nobody noticed", (long long)at);
        for (size_t k = 0; k < sizeof got; k++) REQUIRE(got[k] == 0 || got[k] == 'p');
        take_off(&t, ends);
    }
}

/* ---- stores and links ---- */

static void a_store_serves_callers_as_they_call(void) {
    rp_store_server *server = NULL;
    int port = 0, before = check_descriptors();
    if (has_no_tls()) return;
    static char value[RPI_STORE_VALUE_BYTES], got[RPI_STORE_VALUE_BYTES];
    memset(value, 'v', sizeof value);
    rpi_secret tls = ours(true), plain = ours(false),
               other = secret_of("of another job!!", true);
    rp_store stores[2], refused;
    size_t bytes = 0;
    REQUIRE_OK(rpi_store_serve(NULL, 0, &tls, &server, &port));
    REQUIRE_OK(rpi_store_connect(NULL, port, 10, &tls, &stores[0]));
    REQUIRE_OK(rpi_store_connect(NULL, port, 10, &plain, &stores[1]));
    CHECK_FAILS(rpi_store_connect(NULL, port, 10, &other, &refused), MISMATCH,
                "another secret");
    for (int i = 0; i < 2; i++) {
        CHECK_OK(stores[i].ops->set(stores[i].context, "key", value, sizeof value));
        CHECK_OK(stores[!i].ops->get(stores[!i].context, "key", 10, got, sizeof got, &bytes));
        CHECK_EQ(bytes, sizeof value);
        CHECK(memcmp(got, value, sizeof got) == 0);
        CHECK_EQ(stores[i].ops->get(stores[i].context, "none", 0.05, got, 1, &bytes),
                 RP_TIMEOUT);
    }
    for (int i = 0; i < 2; i++) rp_store_close(&stores[i]);
    rp_store_server_stop(server);
    CHECK_EQ(check_descriptors(), before);
}

static void a_pair_that_does_not_agree_does_not_connect(void) {
    if (has_no_tls()) return;
    for (int with = 0; with < 2; with++) {
        const rpi_transport *tcp = NULL;
        link_pair pair;
        rp_status status_of[2];
        rpi_secret secrets[2] = {ours(with == 0), ours(with == 1)};
        REQUIRE_OK(rpi_transport_find("tcp", &tcp));
        link_pair_options(&pair, tcp, FRAME_BYTES);
        for (int rank = 0; rank < 2; rank++) pair.options[rank].secret = &secrets[rank];
        pair.response_timeout_s[0] = 0.5; /* one who cannot come in is a stranger to it */
        CHECK_FAILS(link_pair_open_with(&pair, status_of), MISMATCH, "uses TLS");
        CHECK_EQ(status_of[0], RP_TIMEOUT);
        link_pair_close(&pair);
    }
}

/* ---- asking for it ---- */

typedef struct table {
    const char *secret, *tls;
} table;

static const char *look_up(const void *context, const char *name) {
    const table *t = context;
    if (strcmp(name, "REDPOLL_SECRET") == 0) return t->secret;
    return strcmp(name, "REDPOLL_TLS") == 0 ? t->tls : NULL;
}

static rp_status find(const char *secret, const char *tls, rpi_secret *out_secret) {
    table t = {secret, tls};
    return rpi_secret_find(&(rpi_environment){.get = look_up, .context = &t}, out_secret);
}

static void it_needs_a_secret(void) {
    rpi_secret secret;
    if (has_no_tls()) return;
    CHECK_OK(find("0123456789abcdef", "1", &secret));
    CHECK(secret.tls);
    CHECK_OK(find("0123456789abcdef", "off", &secret));
    CHECK(!secret.tls);
    CHECK_OK(find("0123456789abcdef", NULL, &secret));
    CHECK(!secret.tls);
    CHECK_OK(find(NULL, "", &secret));
    CHECK_FAILS(find(NULL, "true", &secret), INVALID,
                "start it with `redpoll run`, which draws");
    CHECK_FAILS(find("0123456789abcdef", "perhaps", &secret), INVALID,
                "REDPOLL_TLS is 'perhaps', neither on nor off");
}

static void without_it_the_reason_is_said(void) {
    rpi_secret secret = {.is_set = true};
    if (rpi_tls_is_supported()) {
        check_skip("this build has TLS");
        return;
    }
    CHECK_FAILS(rpi_secret_ask_for_tls(&secret), UNSUPPORTED, "install libssl-dev");
    CHECK(!rpi_tls_version());
}

/* ---- what is left of a key ---- */

enum { STACK_BYTES = 1 << 20, MASK = 0x5a };

/* The kernel reads it, as a sanitizer does not want the memory of frames to be read. */
static bool has_copy(const unsigned char *stack, const unsigned char masked[RPI_MAC_BYTES]) {
    static unsigned char bytes[STACK_BYTES];
    bool found = false;
    int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    CHECK_EQ(pread(memory, bytes, STACK_BYTES, (off_t)(uintptr_t)stack), STACK_BYTES);
    close(memory);
    for (size_t i = 0; i + RPI_MAC_BYTES <= STACK_BYTES && !found; i++) {
        int same = 0;
        while (same < RPI_MAC_BYTES && bytes[i + same] == (masked[same] ^ MASK)) same++;
        found = same == RPI_MAC_BYTES;
    }
    return found;
}

/* The answerer's side as far as the proof; then it hangs up. */
static void learn_key(int fd, unsigned char masked[RPI_MAC_BYTES]) {
    rpi_secret secret = ours(true);
    rpi_proof_terms self = {.purpose = RPI_PROOF_LINK, .world = 2};
    rpi_proof proof = {0};
    rp_status status;
    int64_t deadline_ns = rpi_deadline_ns(10);
    while ((status = rpi_proof_receive(&proof, fd, &secret, &self)) == RP_PENDING &&
           rpi_now_ns() < deadline_ns)
        (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 100);
    CHECK_OK(status);
    CHECK(proof.tls);
    for (int i = 0; i < RPI_MAC_BYTES; i++) masked[i] = proof.tls_key[i] ^ MASK;
    shutdown(fd, SHUT_RDWR);
}

/* Where the end of the thread writes over nothing. */
static void *call_deep_down(void *argument) {
    static const rpi_proof_terms link = {.purpose = RPI_PROOF_LINK, .caller = 1, .world = 2};
    volatile unsigned char above[STACK_BYTES / 4];
    end *e = argument;
    above[0] = 1;
    e->status = rpi_channel_call(&e->channel, &e->secret, &link, rpi_deadline_ns(10));
    above[STACK_BYTES / 4 - 1] = above[0];
    return NULL;
}

static void no_key_is_left_on_a_stack(void) {
    int pair[2];
    unsigned char masked[RPI_MAC_BYTES];
    pthread_attr_t attributes;
    if (has_no_tls()) return;
#if defined(__SANITIZE_THREAD__)
    check_skip("a sanitizer of threads wants more of a stack than a test gives");
    return;
#endif
    void *stack =
        mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(stack != MAP_FAILED);
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    end e = {.channel = {.fd = pair[0]}, .secret = ours(true)};
    pthread_attr_init(&attributes);
    CHECK_EQ(pthread_attr_setstack(&attributes, stack, STACK_BYTES), 0);
    CHECK_EQ(pthread_create(&e.thread, &attributes, call_deep_down, &e), 0);
    learn_key(pair[1], masked);
    pthread_join(e.thread, NULL);
    CHECK_EQ(e.status, RP_PEER);
    CHECK(!has_copy(stack, masked));
    pthread_attr_destroy(&attributes);
    munmap(stack, STACK_BYTES);
    rpi_channel_close(&e.channel);
    close(pair[1]);
}

CASES({"bytes_come_as_they_were_sent", bytes_come_as_they_were_sent},
      {"keys_are_renewed_on_the_way", keys_are_renewed_on_the_way},
      {"half_of_it_can_be_shut", half_of_it_can_be_shut},
      {"a_dead_peer_is_an_end", a_dead_peer_is_an_end},
      {"a_silent_peer_meets_the_deadline", a_silent_peer_meets_the_deadline},
      {"both_sides_use_it_or_none", both_sides_use_it_or_none},
      {"another_secret_is_refused_before_tls", another_secret_is_refused_before_tls},
      {"another_key_is_refused", another_key_is_refused},
      {"noise_after_the_proof_is_refused", noise_after_the_proof_is_refused},
      {"a_recording_shows_nothing", a_recording_shows_nothing},
      {"a_changed_byte_is_noticed", a_changed_byte_is_noticed},
      {"a_store_serves_callers_as_they_call", a_store_serves_callers_as_they_call},
      {"a_pair_that_does_not_agree_does_not_connect",
       a_pair_that_does_not_agree_does_not_connect},
      {"it_needs_a_secret", it_needs_a_secret},
      {"no_key_is_left_on_a_stack", no_key_is_left_on_a_stack},
      {"without_it_the_reason_is_said", without_it_the_reason_is_said})
