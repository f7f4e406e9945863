/* What every transport promises, for every row of the catalogue; ranks are threads. */
#include "link_pair.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"
#include "net/bytes/frame.h"
#include "net/link/endpoint.h"
#include "net/link/transport_kinds.h"
#include "net/trust/secret.h"
#include "net/trust/tls.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAME_BYTES = 8192, SHORT_BYTES = 100, HEADER = RPI_FRAME_HEADER_BYTES };

/* Ranks 0 and 1 of a world in which ranks of shm have doorbells. */
enum { LARGE_WORLD = 70 };

static void once(const rpi_transport *transport, const rpi_secret *secret, int world,
                 int streams, void (*run)(link_pair *pair)) {
    link_pair pair;
    rp_status status_of[2];
    int failures = check_failures(), before = check_descriptors();
    link_pair_options(&pair, transport, FRAME_BYTES);
    pair.options[0].secret = pair.options[1].secret = secret;
    pair.options[0].world = pair.options[1].world = world;
    pair.options[0].streams = pair.options[1].streams = streams;
    CHECK_OK(link_pair_open_with(&pair, status_of));
    if (pair.links[0] && pair.links[1]) run(&pair);
    link_pair_close(&pair);
    CHECK_EQ(check_descriptors(), before);
    CHECK_MSG(check_failures() == failures, "with %s%s in a world of %d, %d streams",
              transport->name, secret ? " and TLS" : "", world, streams);
}

/* Run a case for each kind on a fresh pair, and see that nothing of it remains. */
static void each(void (*run)(link_pair *pair)) {
    const rpi_transport *transport, *tcp = NULL, *shm = NULL;
    rpi_secret secret = {0};
    for (int i = 0; (transport = rpi_transport_at(i)) != NULL; i++)
        once(transport, NULL, 2, 0, run);
    REQUIRE_OK(rpi_transport_find("shm", &shm));
    once(shm, NULL, LARGE_WORLD, 1, run);
    REQUIRE_OK(rpi_transport_find("tcp", &tcp));
    once(tcp, NULL, 2, 2, run);
    once(tcp, NULL, 2, 3, run);
    if (!rpi_tls_is_supported()) return;
    REQUIRE_OK(rpi_secret_make("a test's secret", "the secret of this pair", &secret));
    REQUIRE_OK(rpi_secret_ask_for_tls(&secret));
    once(tcp, &secret, 2, 1, run);
    once(tcp, &secret, 2, 3, run);
}

static void frames_of_every_size(link_pair *pair) {
    static const size_t sizes[] = {HEADER, 65,   127,  128,  129,  1000,
                                   4096,   4097, 8000, 8191, 8192, HEADER};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int from = 0; from < 2; from++) {
            REQUIRE_OK(link_send_wait(pair->links[from], i, sizes[i]));
            REQUIRE_OK(link_receive_wait(pair->links[!from], i, sizes[i]));
        }
    CHECK(pair->links[0]->bytes_sent > 0);
    CHECK(pair->links[0]->bytes_received > 0);
}

static void carries_frames_of_every_size(void) {
    each(frames_of_every_size);
}

static void descriptor_0_serves_like_any(void) {
    check_without_stdin(carries_frames_of_every_size);
}

/* More than a kernel keeps for one connection. */
enum { FRAMES_EACH = 4096 };

/* Fill until there is no room, take some, go on: many laps of every buffer. */
static void buffers_fill_and_recover(link_pair *pair) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    static size_t sizes[FRAMES_EACH * 3];
    uint64_t sent = 0, received = 0, frames = FRAMES_EACH;
    int fulls = 0;
    if (pair->options[0].streams > 1) frames *= (uint64_t)pair->options[0].streams;
    REQUIRE(frames <= sizeof sizes / sizeof sizes[0]);
    for (uint64_t i = 0; i < frames; i++)
        sizes[i] = HEADER + rpi_rng_below(&rng, FRAME_BYTES - HEADER + 1);
    while (received < frames) {
        rp_status status = RP_PENDING;
        while (sent < frames &&
               (status = link_send(pair->links[0], sent, sizes[sent])) == RP_OK)
            sent++;
        REQUIRE(status == RP_OK || status == RP_PENDING);
        fulls += status == RP_PENDING && sent < frames;
        REQUIRE_OK(pair->transport->progress(pair->endpoints[0]));
        uint64_t take = 1 + rpi_rng_below(&rng, 50);
        for (; take > 0 && received < sent; take--, received++)
            REQUIRE_OK(link_receive_wait(pair->links[1], received, sizes[received]));
    }
    CHECK(fulls > 0);
}

static void pends_when_full_and_recovers(void) {
    each(buffers_fill_and_recover);
}

typedef struct stress {
    rpi_link *link;
    uint64_t count, seed;
    rp_status status;
} stress;

static size_t stress_bytes(uint64_t number) {
    return HEADER + (size_t)(number * 2654435761U % 600);
}

/* Echo: strict turns, so that each side sleeps and is woken all the time. */
static void *echo(void *argument) {
    stress *s = argument;
    rpi_rng rng = rpi_rng_make(s->seed, RPI_RNG_TEST, 9);
    for (uint64_t i = 0; i < s->count && s->status == RP_OK; i++) {
        s->status = link_receive_wait(s->link, i, stress_bytes(i));
        if (rpi_rng_below(&rng, 1000) == 0) rpi_sleep_until_ns(rpi_now_ns() + 100000);
        if (s->status == RP_OK) s->status = link_send_wait(s->link, i, stress_bytes(i));
    }
    return NULL;
}

static void no_wake_up_is_lost(link_pair *pair) {
    bool memory = strcmp(pair->transport->name, "inproc") == 0;
    stress other = {
        .link = pair->links[1], .count = memory ? 100000 : 5000, .seed = check_seed()};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 10);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, echo, &other) == 0);
    rp_status status = RP_OK;
    for (uint64_t i = 0; i < other.count && status == RP_OK; i++) {
        status = link_send_wait(pair->links[0], i, stress_bytes(i));
        if (rpi_rng_below(&rng, 1000) == 0) rpi_sleep_until_ns(rpi_now_ns() + 100000);
        if (status == RP_OK) status = link_receive_wait(pair->links[0], i, stress_bytes(i));
    }
    CHECK_OK(status);
    pthread_join(thread, NULL);
    CHECK_EQ(other.status, RP_OK);
}

static void ping_pong_loses_no_wake_up(void) {
    each(no_wake_up_is_lost);
}

static void *pour(void *argument) {
    stress *s = argument;
    for (uint64_t i = 0; i < s->count && s->status == RP_OK; i++)
        s->status = link_send_wait(s->link, i, HEADER + i % (FRAME_BYTES - HEADER + 1));
    while (s->status == RP_OK &&
           s->link->endpoint->transport->flushed(s->link->endpoint) == RP_PENDING)
        link_wait(s->link->endpoint);
    return NULL;
}

static void stream_with_pauses(link_pair *pair) {
    stress sender = {.link = pair->links[0], .count = 3000};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 11);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, pour, &sender) == 0);
    rp_status status = RP_OK;
    for (uint64_t i = 0; i < sender.count && status == RP_OK; i++) {
        if (rpi_rng_below(&rng, 200) == 0) rpi_sleep_until_ns(rpi_now_ns() + 300000);
        status = link_receive_wait(pair->links[1], i, HEADER + i % (FRAME_BYTES - HEADER + 1));
    }
    CHECK_OK(status);
    pthread_join(thread, NULL);
    CHECK_EQ(sender.status, RP_OK);
    CHECK_EQ(pair->links[0]->bytes_sent, pair->links[1]->bytes_received);
}

static void streams_through_a_slow_receiver(void) {
    each(stream_with_pauses);
}

static void flush(rpi_endpoint *endpoint) {
    rp_status status;
    while ((status = endpoint->transport->flushed(endpoint)) == RP_PENDING) link_wait(endpoint);
    CHECK_OK(status);
}

/* What had been flushed still comes; then the end has a name, again and again. */
static void closing_loses_nothing(link_pair *pair) {
    for (uint64_t i = 0; i < 10; i++) REQUIRE_OK(link_send_wait(pair->links[1], i, 1000));
    flush(pair->endpoints[1]);
    pair->transport->close(pair->endpoints[1]);
    pair->endpoints[1] = NULL;
    for (uint64_t i = 0; i < 10; i++) CHECK_OK(link_receive_wait(pair->links[0], i, 1000));
    for (int i = 0; i < 3; i++)
        CHECK_FAILS(link_receive_wait(pair->links[0], 10, 64), PEER, "rank 1");
    CHECK_FAILS(link_send(pair->links[0], 0, 64), PEER, "rank 1");
}

static void a_closed_peer_is_drained_then_named(void) {
    each(closing_loses_nothing);
}

static void *close_later(void *argument) {
    link_pair *pair = argument;
    rpi_sleep_until_ns(rpi_now_ns() + 5000000);
    pair->transport->close(pair->endpoints[1]);
    pair->endpoints[1] = NULL;
    return NULL;
}

static void sleeping_through_a_close(link_pair *pair) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, close_later, pair) == 0);
    CHECK_FAILS(link_receive_wait(pair->links[0], 0, 64), PEER, "rank 1");
    pthread_join(thread, NULL);
}

static void a_sleeper_learns_of_a_close(void) {
    each(sleeping_through_a_close);
}

static bool has_news(rpi_endpoint *endpoint) {
    int fd = -1;
    int64_t wake_at_ns = 0;
    CHECK_OK(endpoint->transport->progress(endpoint));
    bool news = endpoint->transport->arm(endpoint, &fd, &wake_at_ns);
    endpoint->transport->disarm(endpoint);
    return news;
}

/* It comes to be so, and stays. */
static bool settles(rpi_endpoint *endpoint, bool news) {
    int64_t deadline_ns = rpi_deadline_ns(20);
    int same = 0;
    while (same < 4 && rpi_now_ns() < deadline_ns) {
        same = has_news(endpoint) == news ? same + 1 : 0;
        sched_yield();
    }
    return same == 4;
}

/* It is news until it is told, and then no more: who has heard it may sleep. */
static void an_end(link_pair *pair) {
    const void *frame = NULL;
    size_t bytes = 0;
    CHECK(settles(pair->endpoints[1], false));
    pair->transport->close(pair->endpoints[0]);
    pair->endpoints[0] = NULL;
    REQUIRE(settles(pair->endpoints[1], true));
    for (int i = 0; i < 2; i++)
        CHECK_FAILS(pair->transport->peek(pair->links[1], &frame, &bytes), PEER, "closed");
    CHECK(settles(pair->endpoints[1], false));
}

static void an_end_is_news_once(void) {
    each(an_end);
}

/* Both have come by the time that the first is taken. */
static void second_frame(link_pair *pair) {
    for (uint64_t i = 0; i < 2; i++) REQUIRE_OK(link_send_wait(pair->links[0], i, SHORT_BYTES));
    CHECK_OK(link_receive_wait(pair->links[1], 0, SHORT_BYTES));
    for (int i = 0; i < 5; i++) {
        CHECK_OK(pair->transport->progress(pair->endpoints[0]));
        CHECK_OK(pair->transport->progress(pair->endpoints[1]));
    }
    CHECK(link_wait(pair->endpoints[1]));
    CHECK_OK(link_receive_wait(pair->links[1], 1, SHORT_BYTES));
}

static void nobody_sleeps_on_a_frame_that_is_there(void) {
    each(second_frame);
}

static void mistakes(link_pair *pair) {
    void *region, *again;
    CHECK_FAILS(pair->transport->reserve(pair->links[0], FRAME_BYTES + 1, &region), INVALID,
                "8192");
    REQUIRE_OK(pair->transport->reserve(pair->links[0], 100, &region));
    REQUIRE_OK(pair->transport->reserve(pair->links[0], 100, &again));
    CHECK(region == again);
    CHECK_FAILS(pair->transport->commit(pair->links[0], FRAME_BYTES + 1), STATE, "posted");
    CHECK_OK(link_send(pair->links[0], 0, 100));
    CHECK_OK(link_receive_wait(pair->links[1], 0, 100));
}

static void refuses_wrong_calls(void) {
    each(mistakes);
}

/* Nobody reads yet. */
static uint64_t send_while_there_is_room(rpi_link *link, size_t bytes) {
    enum { MOST = 100000 };
    uint64_t posted = 0;
    while (posted < MOST && link_send(link, posted, bytes) == RP_OK) posted++;
    CHECK(posted > 0 && posted < MOST);
    return posted;
}

/* Bytes of the next frame. */
static size_t await_frame(link_pair *pair) {
    const void *frame = NULL;
    size_t bytes = 0;
    int64_t deadline_ns = rpi_deadline_ns(60);
    while (pair->transport->peek(pair->links[1], &frame, &bytes) == RP_PENDING &&
           rpi_now_ns() < deadline_ns) {
        CHECK_OK(pair->transport->progress(pair->endpoints[0]));
        (void)link_wait(pair->endpoints[1]);
    }
    return bytes;
}

/* `others` long frames in order, and a short one: how many of the others come before it. */
static uint64_t receive_others(link_pair *pair, uint64_t others) {
    uint64_t next = 0, before = UINT64_MAX;
    while (next < others || before == UINT64_MAX) {
        bool is_short = await_frame(pair) == SHORT_BYTES;
        uint64_t number = is_short ? others : next;
        rp_status status =
            link_receive(pair->links[1], number, is_short ? SHORT_BYTES : FRAME_BYTES);
        CHECK_OK(status);
        if (status != RP_OK) return before;
        if (is_short) before = next;
        next += !is_short;
    }
    return before;
}

/* Of the wrapper bulk waits for the model's queue alone (traffic_test.c). */
static void bulk_then_others(link_pair *pair) {
    rpi_link *out = pair->links[0];
    if (pair->endpoints[0]->inner) return;
    out->traffic = RPI_TRAFFIC_BULK;
    uint64_t bulk = send_while_there_is_room(out, FRAME_BYTES);
    out->traffic = RPI_TRAFFIC_PLAIN;
    CHECK_OK(link_send(out, bulk, FRAME_BYTES));
    out->traffic = RPI_TRAFFIC_URGENT;
    uint64_t left = out->settled; /* nothing moves meanwhile */
    CHECK_OK(link_send(out, bulk + 1, SHORT_BYTES));
    out->traffic = RPI_TRAFFIC_BULK;
    CHECK_EQ(link_send(out, bulk + 2, FRAME_BYTES), RP_PENDING);
    CHECK(out->passable == 0 || out->passable == bulk + 1);
    uint64_t before = receive_others(pair, bulk + 1);
    CHECK_MSG(before <= (out->passable ? left + 1 : bulk + 1),
              "%llu frames went before an urgent one, of which %llu had left",
              (unsigned long long)before, (unsigned long long)left);
    CHECK_OK(link_send_wait(out, bulk + 2, FRAME_BYTES));
    CHECK_EQ(await_frame(pair), FRAME_BYTES);
    CHECK_OK(link_receive(pair->links[1], bulk + 2, FRAME_BYTES));
}

static void bulk_leaves_room_for_others(void) {
    each(bulk_then_others);
}

static void refuses_wrong_options(void) {
    static const struct {
        int rank, world, streams;
        size_t frame_bytes;
        const char *words;
    } bad[] = {{0, 0, 0, FRAME_BYTES, "rank 0 of a world of 0"},
               {-1, 2, 0, FRAME_BYTES, "rank -1"},
               {2, 2, 0, FRAME_BYTES, "rank 2 of"},
               {0, 2, 0, RPI_FRAME_HEADER_BYTES - 1, "frames of 63 bytes"},
               {0, 2, 0, ((size_t)1 << 30) + 1, "frames of 1073741825 bytes"},
               {0, 2, RPI_STREAMS_MAX + 1, FRAME_BYTES, "links of 17 streams"},
               {0, 2, -1, FRAME_BYTES, "links of -1 streams"}};
    const rpi_transport *transport;
    for (int i = 0; (transport = rpi_transport_at(i)) != NULL; i++)
        for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
            link_pair pair;
            rpi_endpoint *endpoint = NULL;
            link_pair_options(&pair, transport, bad[k].frame_bytes);
            pair.options[0].rank = bad[k].rank;
            pair.options[0].streams = bad[k].streams;
            pair.options[0].world = bad[k].world;
            CHECK_FAILS(transport->open(&pair.options[0], &endpoint), INVALID, bad[k].words);
            CHECK(!endpoint);
        }
}

static void takes_options_up_to_their_bounds(void) {
    static const rpi_endpoint_options good[] = {
        {.rank = 0, .world = 1, .frame_bytes = RPI_FRAME_HEADER_BYTES},
        {.rank = 1, .world = 2, .frame_bytes = (size_t)1 << 30, .streams = RPI_STREAMS_MAX}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        CHECK_OK(rpi_endpoint_check(&good[i]));
}

static void connections_of_a_link_are_read(void) {
    static const struct {
        const char *text;
        int streams; /* 0: refused */
    } texts[] = {{NULL, 1}, {"", 1},   {"1", 1},  {"16", 16},
                 {"0", 0},  {"17", 0}, {"-1", 0}, {"2x", 0}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        int streams = 0;
        if (texts[i].text)
            setenv("REDPOLL_STREAMS", texts[i].text, 1);
        else
            unsetenv("REDPOLL_STREAMS");
        if (!texts[i].streams) {
            CHECK_FAILS(rpi_streams_find(&streams), INVALID, "REDPOLL_STREAMS is");
            continue;
        }
        CHECK_OK(rpi_streams_find(&streams));
        CHECK_EQ(streams, texts[i].streams);
    }
    unsetenv("REDPOLL_STREAMS");
}

/* To the byte: what is too short for an address and its end is refused by its length. */
static void addresses_fit_or_are_refused(void) {
    const rpi_transport *transport;
    for (int i = 0; (transport = rpi_transport_at(i)) != NULL; i++) {
        link_pair pair;
        char whole[256] = "", text[256];
        link_pair_options(&pair, transport, FRAME_BYTES);
        REQUIRE_OK(transport->open(&pair.options[0], &pair.endpoints[0]));
        CHECK_OK(transport->address(pair.endpoints[0], whole, sizeof whole));
        size_t needed = strlen(whole) + 1;
        CHECK(needed > 1);
        CHECK_OK(transport->address(pair.endpoints[0], text, needed));
        CHECK_MSG(strcmp(text, whole) == 0, "%s: '%s' is not '%s'", transport->name, text,
                  whole);
        CHECK_FAILS(transport->address(pair.endpoints[0], text, needed - 1), INVALID, "bytes");
        link_pair_close(&pair);
    }
}

static void refuses_wrong_peers(void) {
    static const int wrong[] = {-1, 0, 2, 1000};
    const rpi_transport *transport;
    for (int i = 0; (transport = rpi_transport_at(i)) != NULL; i++) {
        link_pair pair;
        rpi_link *link = NULL;
        link_pair_options(&pair, transport, FRAME_BYTES);
        REQUIRE_OK(transport->open(&pair.options[0], &pair.endpoints[0]));
        for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++)
            CHECK_FAILS(
                transport->connect(pair.endpoints[0], wrong[k], "", rpi_now_ns(), &link),
                INVALID, "in a world of 2");
        CHECK(!link);
        link_pair_close(&pair);
    }
}

/* Room that the receiver makes lets in what has been waiting: it may not sleep on that, though
 * nothing comes any more that would wake it. */
static void room_for_what_waits(link_pair *pair) {
    uint64_t sent = 0, received = 0;
    for (int full = 0; full < 3; full++) {
        while (link_send(pair->links[0], sent, FRAME_BYTES) == RP_OK) sent++;
        REQUIRE_OK(pair->transport->progress(pair->endpoints[0]));
    }
    while (received < sent) {
        REQUIRE_OK(pair->transport->progress(pair->endpoints[1]));
        while (link_receive(pair->links[1], received, FRAME_BYTES) == RP_OK) received++;
        struct pollfd news = {.events = POLLIN};
        int64_t wake_at_ns = RPI_NEVER_NS;
        if (pair->transport->arm(pair->endpoints[1], &news.fd, &wake_at_ns) == false &&
            received < sent && wake_at_ns == RPI_NEVER_NS)
            CHECK_MSG(poll(&news, 1, 2000) == 1, "%s: asleep with %llu of %llu frames",
                      pair->transport->name, (unsigned long long)received,
                      (unsigned long long)sent);
        pair->transport->disarm(pair->endpoints[1]);
        if (check_failures()) return;
        REQUIRE_OK(pair->transport->progress(pair->endpoints[0]));
    }
}

static void nobody_sleeps_on_room_for_what_waits(void) {
    each(room_for_what_waits);
}

static void a_held_frame_is_no_news(link_pair *pair) {
    const void *frame = NULL, *again = NULL;
    size_t bytes = 0;
    int fd;
    int64_t wake_at_ns;
    for (uint64_t i = 0; i < 2; i++) REQUIRE_OK(link_send_wait(pair->links[0], i, 100));
    flush(pair->endpoints[0]);
    rp_status status;
    while ((status = pair->transport->peek(pair->links[1], &frame, &bytes)) == RP_PENDING)
        link_wait(pair->endpoints[1]);
    REQUIRE_OK(status);
    REQUIRE_OK(pair->transport->peek(pair->links[1], &again, &bytes));
    CHECK(again == frame);
    REQUIRE_OK(pair->transport->progress(pair->endpoints[1]));
    for (int i = 0; i < 3; i++) { /* at first bytes may still be coming in */
        pair->transport->arm(pair->endpoints[1], &fd, &wake_at_ns);
        pair->transport->disarm(pair->endpoints[1]);
        REQUIRE_OK(pair->transport->progress(pair->endpoints[1]));
    }
    CHECK(!pair->transport->arm(pair->endpoints[1], &fd, &wake_at_ns));
    pair->transport->disarm(pair->endpoints[1]);
    for (uint64_t i = 0; i < 2; i++) CHECK_OK(link_receive_wait(pair->links[1], i, 100));
}

static void lets_a_caller_sleep_on_a_held_frame(void) {
    each(a_held_frame_is_no_news);
}

/* A forked child gives all back, and the pair goes on as if it had never been. */
static void forget_in_a_child(link_pair *pair) {
    REQUIRE_OK(link_send_wait(pair->links[0], 0, 1000));
    pid_t child = fork();
    if (child == 0) {
        int held = check_descriptors();
        for (int side = 0; side < 2; side++)
            pair->transport->close_after_fork(pair->endpoints[side]);
        int forgotten = held - check_descriptors();
        for (int side = 0; side < 2; side++)
            pair->transport->close_after_fork(pair->endpoints[side]);
        _exit(held - check_descriptors() == forgotten ? forgotten : 255);
    }
    int status = 0, held = check_descriptors();
    CHECK_EQ(waitpid(child, &status, 0), child);
    for (uint64_t i = 1; i < 100; i++) {
        REQUIRE_OK(link_receive_wait(pair->links[1], i - 1, 1000));
        REQUIRE_OK(link_send_wait(pair->links[0], i, 1000));
    }
    for (int side = 0; side < 2; side++) {
        pair->transport->close(pair->endpoints[side]);
        pair->endpoints[side] = NULL;
    }
    CHECK_EQ(WEXITSTATUS(status), held - check_descriptors());
}

static void a_child_forgets_what_closing_would_close(void) {
    each(forget_in_a_child);
}

/* Rank 1 differs from what rank 0 waits for, which is nobody that will come. */
static rp_status stranger_hears(const rpi_transport *transport, int difference,
                                double response_timeout_s) {
    link_pair pair;
    rp_status status_of[2];
    link_pair_options(&pair, transport, FRAME_BYTES);
    pair.response_timeout_s[0] = response_timeout_s;
    pair.response_timeout_s[1] = response_timeout_s + 3;
    if (difference == 0) pair.options[1].session++;
    if (difference == 1) pair.options[1].world++;
    if (difference == 2) pair.options[1].frame_bytes += 64;
    if (difference == 3) pair.options[1].streams = 2;
    CHECK(link_pair_open_with(&pair, status_of) != RP_OK);
    link_pair_close(&pair);
    return status_of[1];
}

/* Where the machine is busy rank 0 may have gone by the time that the stranger comes. */
static void strangers_are_refused(void) {
    const rpi_transport *transport;
    for (int i = 0; (transport = rpi_transport_at(i)) != NULL; i++)
        for (int difference = 0; difference < 3 + transport->multistream; difference++) {
            rp_status heard = RP_TIMEOUT;
            for (double wait_s = 0.2; heard == RP_TIMEOUT && wait_s < 10; wait_s *= 4)
                heard = stranger_hears(transport, difference, wait_s);
            CHECK_MSG(heard == RP_MISMATCH, "%s, difference %d: %s", transport->name,
                      difference, rp_status_name(heard));
        }
}

static void running_out_of_memory_leaves_nothing(void) {
    const rpi_transport *transport;
    for (int i = 0; (transport = rpi_transport_at(i)) != NULL; i++) {
        int before = check_descriptors();
        rp_status status = RP_NOMEM;
        for (long n = 1; status != RP_OK && n < 100; n++) {
            rpi_endpoint *endpoint = NULL;
            link_pair pair;
            link_pair_options(&pair, transport, FRAME_BYTES);
            rpi_memory_fail_after(n);
            status = transport->open(&pair.options[0], &endpoint);
            rpi_memory_fail_after(0);
            CHECK(status == RP_OK || status == RP_NOMEM);
            if (status == RP_OK) transport->close(endpoint);
        }
        CHECK_EQ(status, RP_OK);
        CHECK_EQ(check_descriptors(), before);
    }
}

/* Where a connection is made without the other side's help. A rank that lacked memory may try
 * again. */
static void connecting_without_memory_leaves_nothing(void) {
    rp_status status = RP_NOMEM;
    for (long n = 1; status == RP_NOMEM && n < 20; n++) {
        link_pair pair;
        rpi_link *link = NULL;
        char address[64];
        link_pair_options(&pair, &rpi_transport_inproc, FRAME_BYTES);
        for (int rank = 0; rank < 2; rank++)
            REQUIRE_OK(pair.transport->open(&pair.options[rank], &pair.endpoints[rank]));
        REQUIRE_OK(pair.transport->address(pair.endpoints[1], address, sizeof address));
        rpi_memory_fail_after(n);
        status = pair.transport->connect(pair.endpoints[0], 1, address, RPI_NEVER_NS, &link);
        rpi_memory_fail_after(0);
        CHECK(status == RP_OK || !link);
        if (status == RP_NOMEM)
            CHECK_OK(
                pair.transport->connect(pair.endpoints[0], 1, address, RPI_NEVER_NS, &link));
        link_pair_close(&pair);
    }
    CHECK_OK(status);
}

/* Who has called is told that nothing comes of it, and others are answered as before. */
static void an_offer_that_cannot_be_taken_is_closed(void) {
    link_pair pair;
    int peer = -1;
    rpi_link *link = NULL, *called = NULL;
    const void *frame = NULL;
    size_t bytes = 0;
    char address[64];
    link_pair_options(&pair, &rpi_transport_inproc, FRAME_BYTES);
    for (int rank = 0; rank < 2; rank++) {
        pair.options[rank].on_need = true;
        REQUIRE_OK(pair.transport->open(&pair.options[rank], &pair.endpoints[rank]));
    }
    REQUIRE_OK(pair.transport->address(pair.endpoints[1], address, sizeof address));
    alarm(20); /* ends the test where a call does not return */
    CHECK_OK(pair.transport->call(pair.endpoints[0], 1, address));
    REQUIRE_OK(pair.transport->connected(pair.endpoints[0], &peer, &called));
    rpi_memory_fail_after(1);
    rp_status status = pair.transport->connected(pair.endpoints[1], &peer, &link);
    rpi_memory_fail_after(0);
    CHECK_EQ(status, RP_NOMEM);
    CHECK_EQ(pair.transport->connected(pair.endpoints[1], &peer, &link), RP_PENDING);
    CHECK_FAILS(pair.transport->peek(called, &frame, &bytes), PEER, "rank 1 closed its end");
    link_pair_close(&pair);
    alarm(0);
}

/* With one more each time, until there are all that are needed. */
static void running_out_of_descriptors_leaves_nothing(void) {
    const rpi_transport *transport;
    struct rlimit before;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    for (int i = 0; (transport = rpi_transport_at(i)) != NULL; i++) {
        int open = check_descriptors();
        rp_status status = RP_IO;
        for (rlim_t room = 0; status != RP_OK && room < 100; room++) {
            struct rlimit few = before;
            rpi_endpoint *endpoint = NULL;
            link_pair pair;
            link_pair_options(&pair, transport, FRAME_BYTES);
            few.rlim_cur = room;
            REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
            status = transport->open(&pair.options[0], &endpoint);
            REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
            if (status == RP_OK) transport->close(endpoint);
            CHECK_EQ(check_descriptors(), open);
        }
        CHECK_MSG(status == RP_OK, "%s: %s", transport->name, rp_last_error()->message);
    }
}

static void the_catalogue_finds_names(void) {
    const rpi_transport *transport = NULL;
    for (int i = 0; rpi_transport_at(i); i++) {
        CHECK_OK(rpi_transport_find(rpi_transport_at(i)->name, &transport));
        CHECK(transport == rpi_transport_at(i));
        CHECK(transport->summary[0]);
    }
    CHECK_FAILS(rpi_transport_find("inprok", &transport), NOT_FOUND, "did you mean 'inproc'");
    CHECK(!rpi_transport_at(-1));
}

/* What wraps another is asked for by a rate; no name at all leaves the choice. */
static void a_choice_is_of_what_stands_alone(void) {
    const rpi_transport *chosen = &rpi_transport_tcp;
    CHECK_OK(rpi_transport_choose(NULL, &chosen));
    CHECK(!chosen);
    chosen = &rpi_transport_tcp;
    CHECK_OK(rpi_transport_choose("auto", &chosen));
    CHECK(!chosen);
    for (int i = 0; rpi_transport_at(i); i++) {
        const rpi_transport *transport = rpi_transport_at(i);
        if (transport == &rpi_transport_shaped) {
            CHECK_FAILS(rpi_transport_choose(transport->name, &chosen), INVALID,
                        "wraps another");
            continue;
        }
        CHECK_OK(rpi_transport_choose(transport->name, &chosen));
        CHECK(chosen == transport);
    }
}

CASES({"carries_frames_of_every_size", carries_frames_of_every_size},
      {"descriptor_0_serves_like_any", descriptor_0_serves_like_any},
      {"pends_when_full_and_recovers", pends_when_full_and_recovers},
      {"ping_pong_loses_no_wake_up", ping_pong_loses_no_wake_up},
      {"streams_through_a_slow_receiver", streams_through_a_slow_receiver},
      {"a_closed_peer_is_drained_then_named", a_closed_peer_is_drained_then_named},
      {"a_sleeper_learns_of_a_close", a_sleeper_learns_of_a_close},
      {"an_end_is_news_once", an_end_is_news_once},
      {"nobody_sleeps_on_a_frame_that_is_there", nobody_sleeps_on_a_frame_that_is_there},
      {"refuses_wrong_calls", refuses_wrong_calls},
      {"bulk_leaves_room_for_others", bulk_leaves_room_for_others},
      {"refuses_wrong_options", refuses_wrong_options},
      {"takes_options_up_to_their_bounds", takes_options_up_to_their_bounds},
      {"connections_of_a_link_are_read", connections_of_a_link_are_read},
      {"addresses_fit_or_are_refused", addresses_fit_or_are_refused},
      {"refuses_wrong_peers", refuses_wrong_peers},
      {"nobody_sleeps_on_room_for_what_waits", nobody_sleeps_on_room_for_what_waits},
      {"lets_a_caller_sleep_on_a_held_frame", lets_a_caller_sleep_on_a_held_frame},
      {"a_child_forgets_what_closing_would_close", a_child_forgets_what_closing_would_close},
      {"strangers_are_refused", strangers_are_refused},
      {"running_out_of_memory_leaves_nothing", running_out_of_memory_leaves_nothing},
      {"connecting_without_memory_leaves_nothing", connecting_without_memory_leaves_nothing},
      {"an_offer_that_cannot_be_taken_is_closed", an_offer_that_cannot_be_taken_is_closed},
      {"running_out_of_descriptors_leaves_nothing", running_out_of_descriptors_leaves_nothing},
      {"the_catalogue_finds_names", the_catalogue_finds_names},
      {"a_choice_is_of_what_stands_alone", a_choice_is_of_what_stands_alone})
