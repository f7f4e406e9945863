#include "net/store/store_torch.h"

#include "base/clock.h"
#include "base/memory.h"
#include "net/bytes/endian.h"
#include "net/socket/stream.h"
#include "net/store/response_timeout.h"
#include "net/store/store_close_after_fork.h"
#include "net/store/store_page.h"
#include "net/trust/channel.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Queries as PyTorch numbers them; lengths and numbers are 8 bytes in the hosts' byte order,
 * which is little-endian wherever both run. A text is its length and its bytes. */
enum {
    VALIDATE = 0,
    SET = 1,
    COMPARE_SET = 2,
    GET = 3,
    ADD = 4,
    CHECK = 5,
    DELETE_KEY = 8,
    MULTI_GET = 10
};
enum { READY = 0 };
#define VALIDATION UINT32_C(0x3c85f7ce)

enum {
    PREFIX_BYTES = 192,
    KEY_BYTES = PREFIX_BYTES + RPI_STORE_KEY_BYTES,
    QUERY_BYTES = 32 + KEY_BYTES + 2 * RPI_STORE_VALUE_BYTES,
    PAGE_KEYS = 128, /* in one query: 128 keys of the greatest length and their lengths fit */
    FIRST_PAUSE_NS = 1000000,
    LONGEST_PAUSE_NS = 20000000,
};

typedef struct torch_store {
    int fd;
    bool broken; /* the stream is out of step */
    double response_timeout_s;
    char place[RPI_HOST_BYTES + 16];
    char prefix[PREFIX_BYTES];
    size_t bytes; /* of the query under construction */
    unsigned char query[QUERY_BYTES];
} torch_store;

/* ---- queries ---- */

static void put_number(torch_store *store, uint64_t number) {
    rpi_put_u64(store->query + store->bytes, number);
    store->bytes += 8;
}

static void put_bytes(torch_store *store, const void *bytes, size_t count) {
    put_number(store, count);
    if (count) memcpy(store->query + store->bytes, bytes, count);
    store->bytes += count;
}

static void begin(torch_store *store, int query) {
    store->query[0] = (unsigned char)query;
    store->bytes = 1;
}

static void put_key(torch_store *store, const char *key) {
    char whole[KEY_BYTES];
    int length = snprintf(whole, sizeof whole, "%s/%s", store->prefix, key);
    put_bytes(store, whole, (size_t)length);
}

static rp_status broke(torch_store *store, rp_status status) {
    store->broken = true;
    if (status == RP_TIMEOUT)
        return RP_FAIL(PEER,
                       "timed out: the torchrun agent's store at %s does not answer: the agent "
                       "is stopped, "
                       "or the network to it is cut",
                       store->place);
    return rpi_fail_context(status, "the torchrun agent's store at %s: ", store->place);
}

/* Send the query and read an answer of fixed length (0: there is none). */
static rp_status ask(torch_store *store, void *answer, size_t bytes) {
    int64_t deadline_ns = rpi_deadline_ns(store->response_timeout_s);
    if (store->broken)
        return RP_FAIL(PEER,
                       "the torchrun agent's store at %s has failed before: connection closed "
                       "by peer, or timed out",
                       store->place);
    rp_status status = rpi_stream_write(store->fd, store->query, store->bytes, deadline_ns);
    if (status == RP_OK) status = rpi_stream_read(store->fd, answer, bytes, deadline_ns);
    return status == RP_OK ? RP_OK : broke(store, status);
}

/* ---- the store's contract ---- */

static rp_status torch_set(void *context, const char *key, const void *value, size_t bytes) {
    torch_store *store = context;
    RP_TRY(rpi_store_check(key, bytes));
    begin(store, SET);
    put_key(store, key);
    put_bytes(store, value, bytes);
    return ask(store, NULL, 0);
}

/* One key by its name, or the first `count` keys of a page. */
typedef struct torch_keys {
    const char *name;
    rpi_store_page page;
    uint32_t count;
} torch_keys;

static void put_keys(torch_store *store, const torch_keys *keys) {
    char key[RPI_STORE_KEY_BYTES];
    put_number(store, keys->name ? 1 : keys->count);
    if (keys->name) put_key(store, keys->name);
    for (uint32_t i = 0; i < keys->count && !keys->name; i++)
        put_key(store, rpi_store_page_key(&keys->page, i, key));
}

static rp_status are_set(torch_store *store, const torch_keys *keys, bool *out_set) {
    unsigned char answer = 0;
    begin(store, CHECK);
    put_keys(store, keys);
    RP_TRY(ask(store, &answer, 1));
    *out_set = answer == READY;
    return RP_OK;
}

static rp_status wait_until_set(torch_store *store, const torch_keys *keys, double timeout_s) {
    int64_t deadline_ns = rpi_deadline_ns(timeout_s), pause_ns = FIRST_PAUSE_NS;
    for (;;) {
        bool set = false;
        RP_TRY(are_set(store, keys, &set));
        if (set) return RP_OK;
        int64_t now_ns = rpi_now_ns();
        if (now_ns >= deadline_ns)
            return RP_FAIL(TIMEOUT, "timed out: nobody set store key '%s' within %g s",
                           keys->name ? keys->name : keys->page.prefix, timeout_s);
        rpi_sleep_until_ns(deadline_ns - now_ns < pause_ns ? deadline_ns : now_ns + pause_ns);
        if (pause_ns < LONGEST_PAUSE_NS) pause_ns *= 2;
    }
}

/* The value after its length, into the store's buffer. */
static rp_status receive_value(torch_store *store, const char *key,
                               const unsigned char length[8], size_t *out_bytes) {
    uint64_t count = rpi_get_u64(length);
    if (count > RPI_STORE_VALUE_BYTES)
        return broke(
            store, RP_FAIL(CORRUPT, "key '%s' has %llu bytes", key, (unsigned long long)count));
    rp_status status = rpi_stream_read(store->fd, store->query, (size_t)count,
                                       rpi_deadline_ns(store->response_timeout_s));
    if (status != RP_OK) return broke(store, status);
    *out_bytes = (size_t)count;
    return RP_OK;
}

static rp_status torch_get(void *context, const char *key, double timeout_s, void *value,
                           size_t capacity, size_t *bytes) {
    torch_store *store = context;
    unsigned char length[8] = {0};
    RP_TRY(rpi_store_check(key, 0));
    /* Asking for an absent key ends the connection, so check first. */
    RP_TRY(wait_until_set(store, &(torch_keys){.name = key}, timeout_s));
    begin(store, GET);
    put_key(store, key);
    RP_TRY(ask(store, length, sizeof length));
    RP_TRY(receive_value(store, key, length, bytes));
    if (value) memcpy(value, store->query, *bytes < capacity ? *bytes : capacity);
    return RP_OK;
}

/* How many of the first keys are set, if not all: found by bisection, since the store says of
 * several keys only whether all are. */
static rp_status count_set(torch_store *store, torch_keys *keys) {
    uint32_t least = 0, most = keys->count - 1;
    while (least < most) {
        bool set = false;
        keys->count = (least + most + 1) / 2;
        RP_TRY(are_set(store, keys, &set));
        if (set)
            least = keys->count;
        else
            most = keys->count - 1;
    }
    keys->count = least;
    return RP_OK;
}

/* All values are read and the first that fit are kept; the rest is asked for again. */
static rp_status receive_page(torch_store *store, const torch_keys *keys, void *values,
                              size_t capacity, size_t *sizes, int *out_got) {
    size_t used = 0;
    int got = 0;
    for (uint32_t i = 0; i < keys->count; i++) {
        unsigned char length[8] = {0};
        size_t bytes = 0;
        rp_status status = rpi_stream_read(store->fd, length, sizeof length,
                                           rpi_deadline_ns(store->response_timeout_s));
        if (status != RP_OK) return broke(store, status);
        RP_TRY(receive_value(store, keys->page.prefix, length, &bytes));
        if ((uint32_t)got < i || bytes > capacity - used) continue;
        memcpy((unsigned char *)values + used, store->query, bytes);
        sizes[got++] = bytes;
        used += bytes;
    }
    *out_got = got;
    return RP_OK;
}

static rp_status torch_get_page(void *context, const char *prefix, int first, int count,
                                double timeout_s, void *values, size_t capacity, size_t *sizes,
                                int *got) {
    torch_store *store = context;
    RP_TRY(rpi_store_page_check(prefix, first, count));
    torch_keys keys = {.page = {.prefix = prefix, .first = (uint32_t)first},
                       .count = (uint32_t)(count < PAGE_KEYS ? count : PAGE_KEYS)};
    rp_status status = wait_until_set(store, &keys, timeout_s);
    if (status == RP_TIMEOUT && !store->broken) {
        RP_TRY(count_set(store, &keys));
        if (keys.count == 0)
            return RP_FAIL(TIMEOUT, "timed out: nobody set store key '%s%d' within %g s",
                           prefix, first, timeout_s);
    } else {
        RP_TRY(status);
    }
    begin(store, MULTI_GET);
    put_keys(store, &keys);
    RP_TRY(ask(store, NULL, 0));
    return receive_page(store, &keys, values, capacity, sizes, got);
}

static rp_status torch_add(void *context, const char *key, int64_t amount, int64_t *result) {
    torch_store *store = context;
    unsigned char answer[8] = {0};
    RP_TRY(rpi_store_check(key, 0));
    begin(store, ADD);
    put_key(store, key);
    put_number(store, (uint64_t)amount);
    RP_TRY(ask(store, answer, sizeof answer));
    *result = (int64_t)rpi_get_u64(answer);
    return RP_OK;
}

/* For an absent key PyTorch's store returns the expected value, as if it were set; for a
 * removed key, too. */
static rp_status torch_compare_set(void *context, const char *key, const void *expected,
                                   size_t expected_bytes, const void *desired,
                                   size_t desired_bytes, void *value, size_t capacity,
                                   size_t *bytes) {
    torch_store *store = context;
    unsigned char length[8] = {0};
    RP_TRY(
        rpi_store_compare_check(key, expected, expected_bytes, desired, desired_bytes, bytes));
    begin(store, COMPARE_SET);
    put_key(store, key);
    put_bytes(store, expected, expected_bytes);
    put_bytes(store, desired, desired_bytes);
    RP_TRY(ask(store, length, sizeof length));
    RP_TRY(receive_value(store, key, length, bytes));
    if (value) memcpy(value, store->query, *bytes < capacity ? *bytes : capacity);
    return RP_OK;
}

static rp_status torch_remove(void *context, const char *key) {
    torch_store *store = context;
    unsigned char removed[8] = {0};
    RP_TRY(rpi_store_check(key, 0));
    begin(store, DELETE_KEY);
    put_key(store, key);
    return ask(store, removed, sizeof removed);
}

static void torch_close(void *context) {
    torch_store *store = context;
    close(store->fd);
    rpi_free(store);
}

static const rp_store_ops torch_ops = {.set = torch_set,
                                       .get = torch_get,
                                       .add = torch_add,
                                       .remove = torch_remove,
                                       .close = torch_close,
                                       .get_page = torch_get_page,
                                       .compare_set = torch_compare_set};

/* Send the first message that PyTorch's store expects, and check its answer. */
static rp_status introduce(torch_store *store) {
    bool set = false;
    begin(store, VALIDATE);
    rpi_put_u32(store->query + store->bytes, VALIDATION);
    store->bytes += 4;
    RP_TRY(ask(store, NULL, 0));
    return are_set(store, &(torch_keys){.name = "hello"}, &set);
}

rp_status rpi_store_connect_torch(const char *host, int port, const char *prefix,
                                  double timeout_s, rp_store *out_store) {
    torch_store *store = NULL;
    RP_TRY(rpi_alloc(sizeof *store, "a store client", &store));
    snprintf(store->place, sizeof store->place, "%s:%d", host, port);
    snprintf(store->prefix, sizeof store->prefix, "%s", prefix);
    store->response_timeout_s = rpi_store_response_timeout(timeout_s);
    rp_status status = rpi_stream_dial(host, port, rpi_deadline_ns(timeout_s), &store->fd);
    if (status != RP_OK) {
        rpi_free(store);
        return rpi_fail_context(status, "cannot reach the torchrun agent's store: ");
    }
    status = introduce(store);
    if (status != RP_OK) {
        torch_close(store);
        return status;
    }
    *out_store = (rp_store){.ops = &torch_ops, .context = store};
    return RP_OK;
}

void rpi_store_set_response_timeout_torch(const rp_store *store, double response_timeout_s) {
    if (store->ops == &torch_ops)
        ((torch_store *)store->context)->response_timeout_s = response_timeout_s;
}

void rpi_store_close_after_fork_torch(const rp_store *store) {
    if (store->ops == &torch_ops) rpi_fd_close_after_fork(&((torch_store *)store->context)->fd);
}
