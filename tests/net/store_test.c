/* Both kinds of store keep the same promises; the TCP one also survives strangers. */
#include "redpoll/store.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"
#include "net/socket/stream.h"
#include "net/store/response_timeout.h"
#include "net/store/store_page.h"
#include "net/store/store_shared.h"
#include "net/store/store_torch.h"
#include "net/store/store_wire.h"
#include "net/trust/channel.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* One store under test, and how another thread gets at it. */
typedef struct fixture {
    rp_store_server *server;
    int port;
    rp_store store;
    rp_store_server *inner_server; /* of a store that several threads share */
    rp_store inner;
} fixture;

static bool open_local(fixture *f) {
    return rp_store_open_local(&f->store) == RP_OK;
}

static bool open_tcp(fixture *f) {
    return rp_store_serve(NULL, 0, &f->server, &f->port) == RP_OK &&
           rp_store_connect(NULL, f->port, 10, &f->store) == RP_OK;
}

/* One connection for all threads. */
static bool open_shared(fixture *f) {
    int port = 0;
    return rp_store_serve(NULL, 0, &f->inner_server, &port) == RP_OK &&
           rp_store_connect(NULL, port, 10, &f->inner) == RP_OK &&
           rpi_store_share(&f->inner, &f->store) == RP_OK;
}

static bool (*const kinds[])(fixture *) = {open_local, open_tcp, open_shared};
enum { KINDS = sizeof kinds / sizeof kinds[0], THREADS = 4, ADDS = 200 };

static rp_store another(const fixture *f) {
    rp_store store = f->store;
    if (f->server) CHECK_OK(rp_store_connect("127.0.0.1", f->port, 10, &store));
    return store;
}

static void done_with(const fixture *f, rp_store *store) {
    if (f->server) rp_store_close(store);
}

static void close_fixture(fixture *f) {
    rp_store_close(&f->store);
    rp_store_server_stop(f->server);
    rp_store_close(&f->inner);
    rp_store_server_stop(f->inner_server);
}

static void keeps_values(rp_store *s) {
    char value[8] = "";
    size_t bytes = 0;
    CHECK_OK(s->ops->set(s->context, "name", "redpoll", 7));
    CHECK_OK(s->ops->get(s->context, "name", 0, value, sizeof value, &bytes));
    CHECK_EQ(bytes, 7);
    CHECK(memcmp(value, "redpoll", 7) == 0);
    CHECK_OK(s->ops->set(s->context, "name", "a\0b", 3));
    CHECK_OK(s->ops->get(s->context, "name", 0, value, 2, &bytes));
    CHECK_EQ(bytes, 3); /* the full size; two bytes were copied */
    CHECK(memcmp(value, "a\0dpoll", 7) == 0);
    CHECK_OK(s->ops->set(s->context, "empty", NULL, 0));
    CHECK_OK(s->ops->get(s->context, "empty", 0, NULL, 0, &bytes));
    CHECK_EQ(bytes, 0);
    CHECK_OK(s->ops->remove(s->context, "name"));
    CHECK_OK(s->ops->remove(s->context, "name"));
    CHECK_FAILS(s->ops->get(s->context, "name", 0.02, value, 8, &bytes), TIMEOUT, "'name'");
}

static void counts(rp_store *s) {
    int64_t value = 0;
    CHECK_OK(s->ops->add(s->context, "n", 0, &value));
    CHECK_EQ(value, 0);
    CHECK_OK(s->ops->add(s->context, "n", -7, &value));
    CHECK_EQ(value, -7);
    CHECK_OK(s->ops->add(s->context, "n", INT64_C(1) << 40, &value));
    CHECK_EQ(value, (INT64_C(1) << 40) - 7);
    CHECK_OK(s->ops->set(s->context, "text", "five", 4));
    CHECK_FAILS(s->ops->add(s->context, "text", 1, &value), INVALID, "not a number");
}

/* What the key holds after an attempt, as text. */
static const char *exchange(rp_store *s, const char *key, const char *expected,
                            const char *desired) {
    static char held[64];
    size_t bytes = 0;
    CHECK_OK(s->ops->compare_set(s->context, key, expected, strlen(expected), desired,
                                 strlen(desired), held, sizeof held - 1, &bytes));
    held[bytes < sizeof held ? bytes : sizeof held - 1] = '\0';
    return held;
}

static void compares(rp_store *s) {
    size_t bytes = 9;
    char two[2] = "";
    CHECK(strcmp(exchange(s, "view", "old", "new"), "") == 0); /* absent: nothing is set */
    CHECK_FAILS(s->ops->get(s->context, "view", 0, two, 2, &bytes), TIMEOUT, "'view'");
    CHECK(strcmp(exchange(s, "view", "", "one"), "one") == 0);
    CHECK(strcmp(exchange(s, "view", "", "two"), "one") == 0);
    CHECK(strcmp(exchange(s, "view", "on", "two"), "one") == 0);
    CHECK(strcmp(exchange(s, "view", "ones", "two"), "one") == 0);
    CHECK(strcmp(exchange(s, "view", "one", "two"), "two") == 0);
    CHECK(strcmp(exchange(s, "view", "two", ""), "") == 0);
    CHECK(strcmp(exchange(s, "view", "", "three"), "three") == 0); /* empty is absent */
    CHECK_OK(s->ops->compare_set(s->context, "view", "three", 5, "a\0c", 3, two, 2, &bytes));
    CHECK(bytes == 3 && memcmp(two, "a", 2) == 0);
    CHECK_OK(s->ops->compare_set(s->context, "view", "a\0d", 3, "x", 1, NULL, 0, &bytes));
    CHECK_EQ(bytes, 3);
    CHECK_FAILS(s->ops->compare_set(s->context, "", "", 0, "x", 1, NULL, 0, &bytes), INVALID,
                "empty");
    CHECK_FAILS(s->ops->compare_set(s->context, "k", NULL, 1, "x", 1, NULL, 0, &bytes), INVALID,
                "NULL");
    CHECK_FAILS(s->ops->compare_set(s->context, "k", "", 0, "x", 1, NULL, 0, NULL), INVALID,
                "bytes is NULL");
}

/* Both values may be as long as any. */
static void compares_long_values(rp_store *s) {
    size_t bytes = 0, most = RPI_STORE_VALUE_BYTES;
    char *old = calloc(1, most + 1), *desired = calloc(1, most + 1);
    memset(old, 'o', most);
    memset(desired, 'd', most);
    CHECK_OK(s->ops->set(s->context, "long", old, most));
    CHECK_FAILS(s->ops->compare_set(s->context, "long", old, most + 1, "", 0, NULL, 0, &bytes),
                INVALID, "at most 65536");
    CHECK_FAILS(s->ops->compare_set(s->context, "long", "", 0, old, most + 1, NULL, 0, &bytes),
                INVALID, "at most 65536");
    CHECK_OK(
        s->ops->compare_set(s->context, "long", old, most, desired, most, old, most, &bytes));
    CHECK(bytes == most && memcmp(old, desired, most) == 0);
    free(old);
    free(desired);
}

static void keeps_limits(rp_store *s) {
    size_t bytes = 0;
    char *big = calloc(1, RPI_STORE_VALUE_BYTES + 1), key[RPI_STORE_KEY_BYTES + 1];
    memset(key, 'k', sizeof key);
    memset(big, 'v', RPI_STORE_VALUE_BYTES);
    key[sizeof key - 1] = '\0';
    CHECK_FAILS(s->ops->set(s->context, key, "v", 1), INVALID, "longer than");
    CHECK_FAILS(s->ops->set(s->context, "", "v", 1), INVALID, "empty");
    CHECK_FAILS(s->ops->set(s->context, "big", big, RPI_STORE_VALUE_BYTES + 1), INVALID,
                "at most 65536");
    CHECK_OK(s->ops->set(s->context, "big", big, RPI_STORE_VALUE_BYTES));
    key[RPI_STORE_KEY_BYTES - 1] = '\0';
    CHECK_OK(s->ops->set(s->context, key, "v", 1));
    memset(big, 0, RPI_STORE_VALUE_BYTES);
    CHECK_OK(s->ops->get(s->context, "big", 0, big, RPI_STORE_VALUE_BYTES, &bytes));
    CHECK_EQ(bytes, RPI_STORE_VALUE_BYTES);
    CHECK(big[0] == 'v' && big[RPI_STORE_VALUE_BYTES - 1] == 'v');
    free(big);
}

static void holds_many_keys(rp_store *s) {
    char key[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "key/%d", i);
        CHECK_OK(s->ops->set(s->context, key, &i, sizeof i));
    }
    for (int i = 0; i < 1000; i += 2) {
        snprintf(key, sizeof key, "key/%d", i);
        CHECK_OK(s->ops->remove(s->context, key));
    }
    for (int i = 0; i < 1000; i++) {
        int value = -1;
        size_t bytes = 0;
        snprintf(key, sizeof key, "key/%d", i);
        rp_status status = s->ops->get(s->context, key, 0, &value, sizeof value, &bytes);
        CHECK_EQ(status, i % 2 ? RP_OK : RP_TIMEOUT);
        if (i % 2) CHECK_EQ(value, i);
    }
}

enum { PAGED = 700 };

/* The value of key "page/<i>": of many lengths, none among them. */
static size_t value_of(int i, char value[RPI_STORE_VALUE_BYTES]) {
    size_t bytes = i % 7 == 0 ? 0 : (size_t)(i * 37 % 400);
    memset(value, 'a' + i % 26, bytes);
    return bytes;
}

/* All keys from the first on, by as many pages as it takes. */
static int read_pages(rp_store *s, int count) {
    char values[RPI_STORE_VALUE_BYTES], value[RPI_STORE_VALUE_BYTES];
    size_t sizes[PAGED];
    int pages = 0;
    for (int first = 0, got = 0; first < count; first += got, pages++) {
        CHECK_OK(rpi_store_get_page(s, "page/", first, count - first, 10, values, sizeof values,
                                    sizes, &got));
        CHECK(got >= 1 && got <= count - first);
        if (got < 1) return -1;
        const char *next = values;
        for (int i = 0; i < got; i++) {
            size_t bytes = value_of(first + i, value);
            CHECK_EQ(sizes[i], bytes);
            CHECK(memcmp(next, value, bytes) == 0);
            next += bytes;
        }
    }
    return pages;
}

static void reads_pages(rp_store *s) {
    static char value[RPI_STORE_VALUE_BYTES];
    size_t sizes[4];
    char key[32];
    int got = 0;
    for (int i = 0; i < PAGED; i++) {
        snprintf(key, sizeof key, "page/%d", i);
        CHECK_OK(s->ops->set(s->context, key, value, value_of(i, value)));
    }
    int pages =
        read_pages(s, PAGED); /* of 700 values in 120 KB: not one each, nor one for all */
    CHECK_MSG(pages >= 2 && pages <= 8, "%d pages", pages);
    /* What is missing is waited for; then there is what is there. */
    CHECK_OK(s->ops->remove(s->context, "page/2"));
    CHECK_OK(rpi_store_get_page(s, "page/", 0, 4, 0.02, value, sizeof value, sizes, &got));
    CHECK_EQ(got, 2);
    CHECK_FAILS(rpi_store_get_page(s, "page/", 2, 2, 0.02, value, sizeof value, sizes, &got),
                TIMEOUT, "'page/2'");
    CHECK_FAILS(rpi_store_get_page(s, "page/", 2, 0, 0, value, sizeof value, sizes, &got),
                INVALID, "0 store keys");
    CHECK_FAILS(rpi_store_get_page(s, "page/", -1, 1, 0, value, sizeof value, sizes, &got),
                INVALID, "number -1");
    CHECK_FAILS(rpi_store_get_page(s, "page/", 0, 1, 0, value, 100, sizes, &got), INVALID,
                "100 bytes for a page");
    /* One value of the greatest length is a page, too. */
    memset(value, 'w', sizeof value);
    CHECK_OK(s->ops->set(s->context, "wide/0", value, sizeof value));
    CHECK_OK(s->ops->set(s->context, "wide/1", value, sizeof value));
    memset(value, 0, sizeof value);
    CHECK_OK(rpi_store_get_page(s, "wide/", 0, 2, 1, value, sizeof value, sizes, &got));
    CHECK_EQ(got, 1);
    CHECK_EQ(sizes[0], sizeof value);
    CHECK(value[0] == 'w' && value[sizeof value - 1] == 'w');
}

static void each_kind_keeps_its_promises(void) {
    static void (*const promises[])(rp_store *) = {
        keeps_values, counts,   keeps_limits,        holds_many_keys,
        reads_pages,  compares, compares_long_values};
    for (int kind = 0; kind < KINDS; kind++) {
        fixture f = {0};
        REQUIRE(kinds[kind](&f));
        for (size_t i = 0; i < sizeof promises / sizeof promises[0]; i++) promises[i](&f.store);
        close_fixture(&f);
    }
}

static void descriptor_0_serves_like_any(void) {
    check_without_stdin(each_kind_keeps_its_promises);
}

static void *add_many(void *context) {
    fixture *f = context;
    rp_store s = another(f);
    int64_t value = 0;
    for (int i = 0; i < ADDS; i++) CHECK_OK(s.ops->add(s.context, "sum", 3, &value));
    done_with(f, &s);
    return NULL;
}

static void adds_are_atomic(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        fixture f = {0};
        REQUIRE(kinds[kind](&f));
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, add_many, &f);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        int64_t sum = 0;
        CHECK_OK(f.store.ops->add(f.store.context, "sum", 0, &sum));
        CHECK_EQ(sum, 3 * THREADS * ADDS);
        close_fixture(&f);
    }
}

enum { TURNS = 50 };

/* Each turn is one caller's: what it holds afterwards names whose. */
static void *take_turns(void *context) {
    fixture *f = context;
    rp_store s = another(f);
    char before[64] = "", mine[64];
    static int callers;
    int me = __atomic_add_fetch(&callers, 1, __ATOMIC_RELAXED);
    for (int64_t won = 0, turn = 0; turn < TURNS; turn++) {
        size_t bytes = 0;
        snprintf(mine, sizeof mine, "%lld %d", (long long)turn, me);
        CHECK_OK(s.ops->compare_set(s.context, "turn", before, strlen(before), mine,
                                    strlen(mine), before, sizeof before - 1, &bytes));
        before[bytes] = '\0';
        if (strcmp(before, mine) == 0) CHECK_OK(s.ops->add(s.context, "won", 1, &won));
        turn = atoll(before);
    }
    done_with(f, &s);
    return NULL;
}

static void one_of_those_that_compare_wins(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        fixture f = {0};
        REQUIRE(kinds[kind](&f));
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, take_turns, &f);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        int64_t won = 0;
        CHECK_OK(f.store.ops->add(f.store.context, "won", 0, &won));
        CHECK_EQ(won, TURNS);
        close_fixture(&f);
    }
}

static void *wait_for_comparison(void *context) {
    fixture *f = context;
    rp_store s = another(f);
    size_t bytes = 0;
    CHECK_OK(s.ops->get(s.context, "compared", 30, NULL, 0, &bytes));
    CHECK_EQ(bytes, 2);
    done_with(f, &s);
    return NULL;
}

static void waits_end_when_a_comparison_sets_the_key(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        fixture f = {0};
        REQUIRE(kinds[kind](&f));
        pthread_t waiter;
        pthread_create(&waiter, NULL, wait_for_comparison, &f);
        rpi_sleep_until_ns(rpi_now_ns() + 20000000);
        CHECK(strcmp(exchange(&f.store, "compared", "no", "go"), "") == 0);
        CHECK(strcmp(exchange(&f.store, "compared", "", "go"), "go") == 0);
        pthread_join(waiter, NULL);
        close_fixture(&f);
    }
}

static void *wait_for_word(void *context) {
    fixture *f = context;
    rp_store s = another(f);
    char value[16] = "";
    size_t bytes = 0;
    CHECK_OK(s.ops->get(s.context, "word", 30, value, sizeof value, &bytes));
    CHECK(strcmp(value, "go") == 0);
    /* The connection goes on after a wait. */
    CHECK_OK(s.ops->set(s.context, "word", "go", 3));
    done_with(f, &s);
    return NULL;
}

static void waits_end_when_a_key_comes(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        fixture f = {0};
        REQUIRE(kinds[kind](&f));
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, wait_for_word, &f);
        rpi_sleep_until_ns(rpi_now_ns() + 20000000);
        CHECK_OK(f.store.ops->set(f.store.context, "word", "go", 3));
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        close_fixture(&f);
    }
}

static void *wait_for_page(void *context) {
    fixture *f = context;
    rp_store s = another(f);
    CHECK_EQ(read_pages(&s, 100), 1);
    CHECK_EQ(read_pages(&s, 100), 1); /* the connection goes on after a wait */
    done_with(f, &s);
    return NULL;
}

/* Whatever the order in which they are set, the last one completes the page. */
static void waits_end_when_a_page_is_complete(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        fixture f = {0};
        REQUIRE(kinds[kind](&f));
        pthread_t threads[THREADS];
        char key[32], value[RPI_STORE_VALUE_BYTES];
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, wait_for_page, &f);
        for (int i = 0; i < 100; i++) {
            int number = i * 37 % 100;
            snprintf(key, sizeof key, "page/%d", number);
            CHECK_OK(f.store.ops->set(f.store.context, key, value, value_of(number, value)));
            if (i % 20 == 0) rpi_sleep_until_ns(rpi_now_ns() + 5000000);
        }
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        close_fixture(&f);
    }
}

enum { CROWD = 256 };

typedef struct guest {
    const fixture *of;
    int rank;
} guest;

/* As a rank does that joins: says who it is, and reads who the others are. */
static void *come_and_read(void *context) {
    const guest *self = context;
    char key[32], values[RPI_STORE_VALUE_BYTES];
    size_t sizes[CROWD];
    int got = 0, first = 0;
    rp_store s = {0};
    CHECK_OK(rp_store_connect("127.0.0.1", self->of->port, 60, &s));
    if (!s.ops) return NULL;
    snprintf(key, sizeof key, "come/%d", self->rank);
    CHECK_OK(s.ops->set(s.context, key, &self->rank, sizeof self->rank));
    for (; first < CROWD; first += got) {
        rp_status status = rpi_store_get_page(&s, "come/", first, CROWD - first, 60, values,
                                              sizeof values, sizes, &got);
        CHECK_OK(status);
        if (status != RP_OK) break;
        for (int i = 0; i < got; i++)
            CHECK(memcmp(values + (size_t)i * sizeof i, &(int){first + i}, sizeof i) == 0);
    }
    CHECK_EQ(first, CROWD);
    rp_store_close(&s);
    return NULL;
}

static void many_come_at_once(void) {
    static guest guests[CROWD];
    pthread_t threads[CROWD];
    fixture f = {0};
    REQUIRE(open_tcp(&f));
    for (int i = 0; i < CROWD; i++) {
        guests[i] = (guest){.of = &f, .rank = i};
        CHECK_EQ(pthread_create(&threads[i], NULL, come_and_read, &guests[i]), 0);
    }
    for (int i = 0; i < CROWD; i++) pthread_join(threads[i], NULL);
    close_fixture(&f);
}

static void a_taken_port_is_named(void) {
    fixture f = {0};
    REQUIRE(open_tcp(&f));
    rp_store_server *second = NULL;
    char port[16];
    snprintf(port, sizeof port, "port %d", f.port);
    CHECK_FAILS(rp_store_serve(NULL, f.port, &second, NULL), IO, port);
    CHECK(strstr(rp_last_error()->message, "choose another port"));
    CHECK_FAILS(rp_store_serve(NULL, 65536, &second, NULL), INVALID, "65536");
    int free_port = f.port;
    close_fixture(&f);
    /* The port of a stopped server can be served again at once. */
    CHECK_OK(rp_store_serve(NULL, free_port, &second, NULL));
    rp_store_server_stop(second);
}

static void nobody_there(void) {
    int fd = -1, port = 0;
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &fd, &port));
    close(fd);
    rp_store store = {0};
    char place[32];
    snprintf(place, sizeof place, "127.0.0.1:%d", port);
    CHECK_FAILS(rp_store_connect(NULL, port, 0.1, &store), TIMEOUT, place);
    CHECK_FAILS(rp_store_connect(NULL, port, 0.1, &store), TIMEOUT, "reach the store: ");
    CHECK_FAILS(rp_store_connect(NULL, 0, 0.1, &store), INVALID, "port 0");
    CHECK_FAILS(rp_store_connect(NULL, 65536, 0.1, &store), INVALID, "port 65536");
    for (int allowed = 1; allowed <= 65535; allowed += 65534)
        CHECK(rp_store_connect(NULL, allowed, 0, &store) != RP_INVALID);
    CHECK_FAILS(rp_store_connect("no.such.host.invalid", 1, 0.1, &store), IO, "no.such.host");
    CHECK(!store.ops);
    rp_store_close(&store);
    rp_store_close(NULL);
    rp_store_server_stop(NULL);
}

static void the_server_dies(void) {
    fixture f = {0};
    REQUIRE(open_tcp(&f));
    rp_store_server_stop(f.server);
    f.server = NULL;
    char place[32];
    snprintf(place, sizeof place, "127.0.0.1:%d", f.port);
    CHECK_FAILS(f.store.ops->set(f.store.context, "k", "v", 1), PEER, place);
    CHECK_FAILS(f.store.ops->set(f.store.context, "k", "v", 1), PEER, place);
    close_fixture(&f);
}

/* ---- strangers ---- */

static int dial(int port) {
    int fd = -1;
    CHECK_OK(rpi_stream_dial(NULL, port, rpi_deadline_ns(10), &fd));
    return fd;
}

static bool is_closed_by_peer(int fd) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&wait, 1, 10000) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

static void still_serves(fixture *f) {
    size_t bytes = 0;
    CHECK_OK(f->store.ops->set(f->store.context, "alive", "yes", 3));
    CHECK_OK(f->store.ops->get(f->store.context, "alive", 0, NULL, 0, &bytes));
    CHECK_EQ(bytes, 3);
}

static void strangers_are_shown_out(void) {
    fixture f = {0};
    REQUIRE(open_tcp(&f));
    unsigned char header[RPI_STORE_HEADER_BYTES];
    rpi_store_header good = {.operation = RPI_STORE_SET, .key_bytes = 1, .value_bytes = 1};
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    rpi_store_pack(&good, header);
    /* Each byte of a good header spoiled in turn; a spoiled length may be a good one. */
    static const int fatal[] = {0, 1, 2, 3, 4, 5, 7, 15};
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++) {
        unsigned char bad[RPI_STORE_HEADER_BYTES];
        memcpy(bad, header, sizeof bad);
        bad[fatal[i]] ^= 0x80;
        int fd = dial(f.port);
        CHECK_OK(rpi_stream_write(fd, bad, sizeof bad, rpi_deadline_ns(10)));
        CHECK_MSG(is_closed_by_peer(fd), "header with byte %d spoiled", fatal[i]);
        close(fd);
    }
    int fd = dial(f.port);
    CHECK_OK(rpi_stream_write(fd, http, sizeof http, rpi_deadline_ns(10)));
    CHECK(is_closed_by_peer(fd));
    close(fd);
    still_serves(&f);
    close_fixture(&f);
}

static void noise_does_no_harm(void) {
    fixture f = {0};
    REQUIRE(open_tcp(&f));
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < 200; i++) {
        unsigned char noise[512];
        for (size_t k = 0; k < sizeof noise; k++) noise[k] = (unsigned char)rpi_rng_u32(&rng);
        rpi_store_header header = {.operation = (uint8_t)(1 + rpi_rng_below(&rng, 5)),
                                   .key_bytes = (uint16_t)rpi_rng_below(&rng, 300),
                                   .value_bytes = rpi_rng_below(&rng, 1000),
                                   .number = (int64_t)rpi_rng_below(&rng, 5)};
        if (i % 2) rpi_store_pack(&header, noise);
        int fd = dial(f.port);
        /* It may be closed on us in mid-write; that is fine. */
        (void)rpi_stream_write(fd, noise, 1 + rpi_rng_below(&rng, sizeof noise),
                               rpi_deadline_ns(10));
        close(fd);
    }
    still_serves(&f);
    close_fixture(&f);
}

static void clients_that_die_leave_nothing(void) {
    fixture f = {0};
    REQUIRE(open_tcp(&f));
    still_serves(&f);
    int before = check_descriptors();
    unsigned char wait[RPI_STORE_HEADER_BYTES + 5] = {0};
    rpi_store_header get = {.operation = RPI_STORE_GET, .key_bytes = 5, .number = -1};
    rpi_store_pack(&get, wait);
    memcpy(wait + RPI_STORE_HEADER_BYTES, "never", 5);
    for (size_t cut = 0; cut <= sizeof wait; cut++) {
        int fd = dial(f.port);
        if (cut) CHECK_OK(rpi_stream_write(fd, wait, cut, rpi_deadline_ns(10)));
        close(fd);
    }
    still_serves(&f); /* who came before has been let in by then */
    int64_t deadline_ns = rpi_deadline_ns(20);
    while (check_descriptors() > before && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + 5000000);
    CHECK_EQ(check_descriptors(), before);
    still_serves(&f);
    close_fixture(&f);
}

static void several_questions_in_one_packet(void) {
    fixture f = {0};
    REQUIRE(open_tcp(&f));
    unsigned char bytes[3 * (RPI_STORE_HEADER_BYTES + 1)], reply[RPI_STORE_HEADER_BYTES];
    rpi_store_header add = {.operation = RPI_STORE_ADD, .key_bytes = 1, .number = 5};
    for (int i = 0; i < 3; i++) {
        rpi_store_pack(&add, bytes + i * (RPI_STORE_HEADER_BYTES + 1));
        bytes[i * (RPI_STORE_HEADER_BYTES + 1) + RPI_STORE_HEADER_BYTES] = 'n';
    }
    int fd = dial(f.port);
    CHECK_OK(rpi_stream_write(fd, bytes, sizeof bytes, rpi_deadline_ns(10)));
    for (int i = 0; i < 3; i++) {
        rpi_store_header answer = {0};
        CHECK_OK(rpi_stream_read(fd, reply, sizeof reply, rpi_deadline_ns(10)));
        CHECK_OK(rpi_store_unpack(reply, &answer));
        CHECK_EQ(answer.number, 5 * (i + 1));
    }
    close(fd);
    close_fixture(&f);
}

/* A forked child holds the server's side of a connection that then ends. */
static void a_fork_keeps_no_client_alive(void) {
    fixture f = {0};
    REQUIRE(open_tcp(&f));
    rp_store early = {0}, late = {0};
    REQUIRE_OK(rp_store_connect(NULL, f.port, 10, &early));
    CHECK_OK(early.ops->set(early.context, "key", "1", 1));
    pid_t child = fork();
    if (child == 0) {
        rp_store_close(&early);
        alarm(20); /* should the parent die */
        pause();
        _exit(0);
    }
    rp_store_close(&early);
    for (int i = 0; i < 20; i++) { /* the memory of the one that has left is used again */
        int64_t sum = 0;
        CHECK_OK(rp_store_connect(NULL, f.port, 10, &late));
        CHECK_OK(late.ops->add(late.context, "sum", 1, &sum));
        CHECK_EQ(sum, i + 1);
        rp_store_close(&late);
    }
    kill(child, SIGKILL);
    CHECK_EQ(waitpid(child, NULL, 0), child);
    close_fixture(&f);
}

static void nothing_is_left_behind(void) {
    int descriptors = check_descriptors(), threads = check_threads();
    for (int round = 0; round < 3; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            fixture f = {0};
            REQUIRE(kinds[kind](&f));
            close_fixture(&f);
        }
    CHECK_EQ(check_descriptors(), descriptors);
    CHECK_EQ(check_settled_threads(threads), threads);
}

static void memory_runs_out(void) {
    int descriptors = check_descriptors();
    for (long n = 1;; n++) {
        fixture f = {0};
        rpi_memory_fail_after(n);
        bool opened = rp_store_serve(NULL, 0, &f.server, &f.port) == RP_OK &&
                      rp_store_connect(NULL, f.port, 10, &f.store) == RP_OK;
        rpi_memory_fail_after(0);
        if (!opened) CHECK_EQ(rp_last_error()->status, RP_NOMEM);
        close_fixture(&f);
        CHECK_EQ(check_descriptors(), descriptors);
        if (opened) break;
        REQUIRE(n < 100);
    }
    fixture f = {0};
    REQUIRE(open_local(&f));
    bool stored = false;
    for (long n = 1; n < 100 && !stored; n++) {
        size_t bytes = 0;
        rpi_memory_fail_after(n);
        stored = f.store.ops->set(f.store.context, "key", "value", 5) == RP_OK;
        rpi_memory_fail_after(0);
        CHECK_EQ(f.store.ops->get(f.store.context, "key", 0, NULL, 0, &bytes),
                 stored ? RP_OK : RP_TIMEOUT);
    }
    CHECK(stored);
    close_fixture(&f);
}

/* ---- what is said to PyTorch's store, byte by byte ---- */

#define U64(low)     low "\0\0\0\0\0\0\0"
#define ASK_FOR(key) "\x05" U64("\x01") key
#define PHRASE(text) text, sizeof(text) - 1

static const struct {
    const char *query;
    size_t bytes;
    const char *answer;
    size_t answer_bytes;
} torch_talk[] = {
    {PHRASE("\0\xce\xf7\x85\x3c" ASK_FOR(U64("\x07") "p/hello")), PHRASE("\1")},
    {PHRASE("\x01" U64("\x03") "p/k" U64("\x03") "a\0c"), PHRASE("")},
    {PHRASE(ASK_FOR(U64("\x03") "p/k")), PHRASE("\0")},
    {PHRASE("\x03" U64("\x03") "p/k"), PHRASE(U64("\x03") "a\0c")},
    {PHRASE("\x04" U64("\x03") "p/n" U64("\x05")), PHRASE(U64("\x0c"))},
    {PHRASE("\x08" U64("\x03") "p/k"), PHRASE(U64("\x01"))},
    {PHRASE("\x05" U64("\x02") U64("\x04") "p/g0" U64("\x04") "p/g1"), PHRASE("\0")},
    {PHRASE("\x0a" U64("\x02") U64("\x04") "p/g0" U64("\x04") "p/g1"),
     PHRASE(U64("\x01") "x" U64("\x02") "yz")},
    {PHRASE("\x05" U64("\x02") U64("\x04") "p/g0" U64("\x04") "p/g1"), PHRASE("\1")},
    {PHRASE("\x05" U64("\x01") U64("\x04") "p/g0"), PHRASE("\0")}, /* so far, it has */
    {PHRASE("\x0a" U64("\x01") U64("\x04") "p/g0"), PHRASE(U64("\x01") "x")},
    {PHRASE("\x02" U64("\x03") "p/v" U64("\x00") U64("\x03") "one"), PHRASE(U64("\x03") "one")},
    {PHRASE("\x02" U64("\x03") "p/v" U64("\x02") "no" U64("\x01") "x"),
     PHRASE(U64("\x03") "one")},
    {PHRASE(ASK_FOR(U64("\x03") "p/k")), PHRASE("\0")},
    {PHRASE("\x03" U64("\x03") "p/k"), PHRASE("\0\0\0\0\0\0\0\x7f")}, /* no such length */
};

static void *serve_torch(void *context) {
    int listener = *(int *)context, fd = -1;
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    if (poll(&wait, 1, 10000) == 1) fd = rpi_stream_accept(listener);
    for (size_t i = 0; fd >= 0 && i < sizeof torch_talk / sizeof torch_talk[0]; i++) {
        char got[64];
        rp_status status = rpi_stream_read(fd, got, torch_talk[i].bytes, rpi_deadline_ns(10));
        CHECK_MSG(status == RP_OK && !memcmp(got, torch_talk[i].query, torch_talk[i].bytes),
                  "query %zu: %s", i, rp_status_name(status));
        if (status != RP_OK) break;
        CHECK_OK(rpi_stream_write(fd, torch_talk[i].answer, torch_talk[i].answer_bytes,
                                  rpi_deadline_ns(10)));
    }
    close(fd);
    return NULL;
}

static void torch_is_spoken_to_as_it_expects(void) {
    int listener = -1, port = 0;
    pthread_t server;
    rp_store store = {0};
    char value[8] = "";
    size_t bytes = 0;
    int64_t result = 0;
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
    pthread_create(&server, NULL, serve_torch, &listener);
    CHECK_OK(rpi_store_connect_torch("127.0.0.1", port, "p", 10, &store));
    if (store.ops) {
        CHECK_OK(store.ops->set(store.context, "k", "a\0c", 3));
        CHECK_OK(store.ops->get(store.context, "k", 10, value, sizeof value, &bytes));
        CHECK(bytes == 3 && memcmp(value, "a\0c", 3) == 0);
        CHECK_OK(store.ops->add(store.context, "n", 5, &result));
        CHECK_EQ(result, 12);
        CHECK_OK(store.ops->remove(store.context, "k"));
        static char page[RPI_STORE_VALUE_BYTES];
        size_t sizes[2];
        int got = 0;
        CHECK_OK(rpi_store_get_page(&store, "g", 0, 2, 10, page, sizeof page, sizes, &got));
        CHECK(got == 2 && sizes[0] == 1 && sizes[1] == 2 && memcmp(page, "xyz", 3) == 0);
        CHECK_OK(rpi_store_get_page(&store, "g", 0, 2, 0, page, sizeof page, sizes, &got));
        CHECK(got == 1 && sizes[0] == 1 && page[0] == 'x');
        CHECK(strcmp(exchange(&store, "v", "", "one"), "one") == 0);
        CHECK(strcmp(exchange(&store, "v", "no", "x"), "one") == 0);
        CHECK_FAILS(store.ops->get(store.context, "k", 10, value, sizeof value, &bytes),
                    CORRUPT, "key 'k' has");
        CHECK_FAILS(store.ops->add(store.context, "n", 5, &result), PEER,
                    "has failed before: connection closed by peer");
    }
    pthread_join(server, NULL);
    rp_store_close(&store);
    close(listener);
}

enum {
    LONGEST_PREFIX = 191,
    LONGEST_KEY = RPI_STORE_KEY_BYTES - 1,
    LONGEST_QUERY = 1 + 3 * 8 + LONGEST_PREFIX + 1 + LONGEST_KEY + 2 * RPI_STORE_VALUE_BYTES
};

/* Takes a hello, and the longest comparison. */
static void *serve_the_longest(void *context) {
    static char query[LONGEST_QUERY];
    const size_t hello = torch_talk[0].bytes - 1 + LONGEST_PREFIX;
    int listener = *(int *)context, fd = -1;
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    if (poll(&wait, 1, 10000) == 1) fd = rpi_stream_accept(listener);
    CHECK_OK(rpi_stream_read(fd, query, hello, rpi_deadline_ns(10)));
    CHECK_OK(rpi_stream_write(fd, "\1", 1, rpi_deadline_ns(10)));
    CHECK_OK(rpi_stream_read(fd, query, sizeof query, rpi_deadline_ns(10)));
    CHECK(query[0] == 2 && query[sizeof query - 1] == 'd');
    CHECK_OK(rpi_stream_write(fd, U64("\x01") "d", 9, rpi_deadline_ns(10)));
    close(fd);
    return NULL;
}

static void the_longest_question_has_room(void) {
    static char expected[RPI_STORE_VALUE_BYTES], desired[RPI_STORE_VALUE_BYTES];
    char prefix[LONGEST_PREFIX + 1] = "", key[RPI_STORE_KEY_BYTES] = "", value[4] = "";
    int listener = -1, port = 0;
    size_t bytes = 0;
    pthread_t server;
    rp_store store = {0};
    memset(prefix, 'p', LONGEST_PREFIX);
    memset(key, 'k', LONGEST_KEY);
    memset(expected, 'e', sizeof expected);
    memset(desired, 'd', sizeof desired);
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
    pthread_create(&server, NULL, serve_the_longest, &listener);
    CHECK_OK(rpi_store_connect_torch("127.0.0.1", port, prefix, 10, &store));
    if (store.ops)
        CHECK_OK(store.ops->compare_set(store.context, key, expected, sizeof expected, desired,
                                        sizeof desired, value, sizeof value, &bytes));
    CHECK(bytes == 1 && value[0] == 'd');
    pthread_join(server, NULL);
    rp_store_close(&store);
    close(listener);
}

/* How long a store that says nothing is waited for, whatever it is asked. */
static void patience_is_bounded(void) {
    static const double spans[][2] = {{0, 2},   {1.5, 2},    {5, 5},   {9.5, 9.5}, {10, 10},
                                      {11, 10}, {1e300, 10}, {-1, 10}, {-1e9, 10}};
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++)
        CHECK_NEAR(rpi_store_response_timeout(spans[i][0]), spans[i][1], 0);
    CHECK_NEAR(rpi_store_response_timeout(INFINITY), 10, 0);
    CHECK_NEAR(rpi_store_response_timeout(NAN), 10, 0);
}

/* ---- what comes from the other side, to the byte ---- */

/* Add a row: a header, and whether it may come. */
static const struct {
    uint8_t operation;
    uint32_t key_bytes, value_bytes;
    bool good;
} headers[] = {
    {0, 1, 0, false},
    {RPI_STORE_SET, 0, 0, true},
    {RPI_STORE_SET, RPI_STORE_KEY_BYTES - 1, RPI_STORE_VALUE_BYTES, true},
    {RPI_STORE_SET, RPI_STORE_KEY_BYTES, 0, false},
    {RPI_STORE_SET, 1, RPI_STORE_VALUE_BYTES + 1, false},
    {RPI_STORE_GET_PAGE, 1, RPI_STORE_VALUE_BYTES + 1, false},
    {RPI_STORE_REPLY, 0, RPI_PAGE_BYTES, true},
    {RPI_STORE_REPLY, 0, RPI_PAGE_BYTES + 1, false},
    {RPI_STORE_COMPARE_SET, 1, RPI_STORE_COMPARE_BYTES, true},
    {RPI_STORE_COMPARE_SET, 1, RPI_STORE_COMPARE_BYTES + 1, false},
    {RPI_STORE_COMPARE_SET + 1, 1, 0, false},
};

static void headers_have_bounds(void) {
    unsigned char bytes[RPI_STORE_HEADER_BYTES];
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        rpi_store_header header = {.operation = headers[i].operation,
                                   .key_bytes = (uint16_t)headers[i].key_bytes,
                                   .status = -3,
                                   .value_bytes = headers[i].value_bytes,
                                   .number = -5},
                         read = {.operation = 77};
        rpi_store_pack(&header, bytes);
        rp_status status = rpi_store_unpack(bytes, &read);
        CHECK_MSG(status == (headers[i].good ? RP_OK : RP_CORRUPT), "row %zu: %s", i,
                  rp_status_name(status));
        CHECK_EQ(read.operation, headers[i].good ? header.operation : 77);
        if (!headers[i].good) continue;
        CHECK(read.key_bytes == header.key_bytes && read.value_bytes == header.value_bytes);
        CHECK(read.status == -3 && read.number == -5);
    }
    rpi_store_header read, get = {.operation = RPI_STORE_GET};
    rpi_store_pack(&get, bytes);
    bytes[4]++;
    CHECK_FAILS(rpi_store_unpack(bytes, &read), MISMATCH, "version 2");
    bytes[0]++;
    CHECK_FAILS(rpi_store_unpack(bytes, &read), CORRUPT, "not a redpoll store's");
}

/* Two values, "ab" and "c", as they come; add a row for what else may be made of them. */
static const struct {
    size_t length, capacity;
    int64_t have;
    int count, got; /* got -1: refused */
} pages[] = {
    {11, 9, 2, 2, 2},  {11, 9, 2, 7, 2},  {11, 3, 2, 2, 2},  {11, 2, 2, 2, 1},
    {11, 1, 2, 2, 0},  {12, 9, 2, 2, 2},  {10, 9, 2, 2, -1}, {9, 9, 2, 2, -1},
    {8, 9, 2, 2, -1},  {7, 9, 2, 2, -1},  {11, 9, 0, 2, -1}, {11, 9, -1, 2, -1},
    {11, 9, 3, 2, -1}, {11, 9, 2, 1, -1}, {11, 9, 1, 2, 1},  {11, 9, INT64_MAX, 2, -1},
};

static void pages_have_bounds(void) {
    static const unsigned char bytes[] = {2, 0, 0, 0, 1, 0, 0, 0, 'a', 'b', 'c', 'x'};
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        char values[10] = "---------";
        size_t sizes[2] = {7, 7};
        int got = -1;
        rp_status status =
            rpi_store_page_read(bytes, pages[i].length, pages[i].have, pages[i].count, values,
                                pages[i].capacity, sizes, &got);
        CHECK_MSG(status == (pages[i].got < 0 ? RP_CORRUPT : RP_OK), "row %zu: %s", i,
                  rp_status_name(status));
        CHECK_MSG(got == pages[i].got, "row %zu: %d values", i, got);
        if (pages[i].have == 1) continue; /* "ab" lies elsewhere then */
        if (got >= 1) CHECK(sizes[0] == 2 && memcmp(values, "ab", 2) == 0);
        if (got == 2) CHECK(sizes[1] == 1 && memcmp(values, "abc------", 9) == 0);
        if (got == 1) CHECK(sizes[1] == 7 && values[2] == '-');
    }
}

static void numbered_keys_have_bounds(void) {
    char prefix[RPI_STORE_KEY_BYTES];
    memset(prefix, 'k', sizeof prefix);
    prefix[RPI_STORE_KEY_BYTES - 11] = '\0'; /* ten digits and the end fit */
    CHECK_OK(rpi_store_page_check(prefix, 0, 1));
    CHECK_OK(rpi_store_page_check(prefix, INT_MAX - 1, 1));
    CHECK_FAILS(rpi_store_page_check(prefix, INT_MAX, 1), INVALID, "1 store keys");
    CHECK_FAILS(rpi_store_page_check(prefix, INT_MAX - 1, 2), INVALID, "2 store keys");
    CHECK_FAILS(rpi_store_page_check("", 0, 1), INVALID, "empty");
    prefix[RPI_STORE_KEY_BYTES - 11] = 'k';
    prefix[RPI_STORE_KEY_BYTES - 10] = '\0';
    CHECK_FAILS(rpi_store_page_check(prefix, 0, 1), INVALID, "too long to be numbered");
}

CASES({"torch_is_spoken_to_as_it_expects", torch_is_spoken_to_as_it_expects},
      {"patience_is_bounded", patience_is_bounded},
      {"headers_have_bounds", headers_have_bounds}, {"pages_have_bounds", pages_have_bounds},
      {"numbered_keys_have_bounds", numbered_keys_have_bounds},
      {"each_kind_keeps_its_promises", each_kind_keeps_its_promises},
      {"descriptor_0_serves_like_any", descriptor_0_serves_like_any},
      {"adds_are_atomic", adds_are_atomic},
      {"one_of_those_that_compare_wins", one_of_those_that_compare_wins},
      {"waits_end_when_a_comparison_sets_the_key", waits_end_when_a_comparison_sets_the_key},
      {"waits_end_when_a_key_comes", waits_end_when_a_key_comes},
      {"waits_end_when_a_page_is_complete", waits_end_when_a_page_is_complete},
      {"many_come_at_once", many_come_at_once},
      {"the_longest_question_has_room", the_longest_question_has_room},
      {"a_taken_port_is_named", a_taken_port_is_named}, {"nobody_there", nobody_there},
      {"the_server_dies", the_server_dies},
      {"strangers_are_shown_out", strangers_are_shown_out},
      {"noise_does_no_harm", noise_does_no_harm},
      {"clients_that_die_leave_nothing", clients_that_die_leave_nothing},
      {"several_questions_in_one_packet", several_questions_in_one_packet},
      {"a_fork_keeps_no_client_alive", a_fork_keeps_no_client_alive},
      {"nothing_is_left_behind", nothing_is_left_behind}, {"memory_runs_out", memory_runs_out})
