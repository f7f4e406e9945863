/* The client of a TCP store: one connection, one request at a time. */
#include "net/store/store_tcp.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/memory.h"
#include "net/bytes/endian.h"
#include "net/socket/stream.h"
#include "net/store/response_timeout.h"
#include "net/store/store_close_after_fork.h"
#include "net/store/store_wire.h"
#include "net/trust/handshake.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define HELLO_KEY "redpoll/hello" /* which nobody sets */

typedef struct tcp_store {
    rpi_channel channel;
    bool broken;               /* a request got no reply: the stream is out of step */
    double response_timeout_s; /* the server keeps the time of waits; this much longer, and it
                                  is gone */
    char place[RPI_HOST_BYTES + 16]; /* "host:port", for messages */
    unsigned char
        buffer[RPI_STORE_HEADER_BYTES + RPI_STORE_KEY_BYTES + RPI_STORE_COMPARE_BYTES];
} tcp_store;

static rp_status ask(tcp_store *store, const rpi_store_header *request, const char *key,
                     const void *value, int64_t deadline_ns) {
    unsigned char *end = store->buffer;
    rpi_store_pack(request, end);
    end += RPI_STORE_HEADER_BYTES;
    memcpy(end, key, request->key_bytes);
    end += request->key_bytes;
    if (value) memcpy(end, value, request->value_bytes);
    end += request->value_bytes;
    return rpi_channel_write(&store->channel, store->buffer, (size_t)(end - store->buffer),
                             deadline_ns);
}

/* The reply's value, if any, is in store->buffer afterwards. */
static rp_status receive_reply(tcp_store *store, rpi_store_header *out_reply,
                               int64_t deadline_ns) {
    unsigned char header[RPI_STORE_HEADER_BYTES] = {0};
    RP_TRY(rpi_channel_read(&store->channel, header, sizeof header, deadline_ns));
    RP_TRY(rpi_store_unpack(header, out_reply));
    if (out_reply->operation != RPI_STORE_REPLY)
        return RP_FAIL(CORRUPT, "answered with operation %d", out_reply->operation);
    return rpi_channel_read(&store->channel, store->buffer, out_reply->value_bytes,
                            deadline_ns);
}

static rp_status exchange_by(tcp_store *store, rpi_store_header *request, const char *key,
                             const void *value, int64_t deadline_ns,
                             rpi_store_header *out_reply) {
    RP_TRY(rpi_store_check(key, 0));
    if (store->broken)
        return RP_FAIL(
            PEER, "the store at %s has failed before: connection closed by peer, or timed out",
            store->place);
    request->key_bytes = (uint16_t)strlen(key);
    rp_status status = ask(store, request, key, value, deadline_ns);
    if (status == RP_OK) status = receive_reply(store, out_reply, deadline_ns);
    if (status != RP_OK) {
        store->broken = true;
        return rpi_fail_context(status, "the store at %s: ", store->place);
    }
    return RP_OK;
}

static rp_status exchange(tcp_store *store, rpi_store_header *request, const char *key,
                          const void *value, double wait_s, rpi_store_header *out_reply) {
    RPI_FPENV_SCOPE;
    int64_t deadline_ns =
        wait_s < 0 ? RPI_NEVER_NS : rpi_deadline_ns(wait_s + store->response_timeout_s);
    rp_status status = exchange_by(store, request, key, value, deadline_ns, out_reply);
    if (status != RP_TIMEOUT) return status;
    return RP_FAIL(
        PEER,
        "timed out: the store at %s does not answer: the process that serves it is stopped, or "
        "the network to it is cut",
        store->place);
}

/* The server's refusal, with its message. */
static rp_status status_of(const tcp_store *store, const rpi_store_header *reply) {
    if (reply->status == RP_OK) return RP_OK;
    rp_status status = reply->status < 0 ? (rp_status)reply->status : RP_CORRUPT;
    return rpi_fail(status, __FILE__, __LINE__, "%.*s", (int)reply->value_bytes,
                    (const char *)store->buffer);
}

static rp_status tcp_set(void *context, const char *key, const void *value, size_t bytes) {
    RP_TRY(rpi_store_check(key, bytes));
    if (bytes && !value)
        return RP_FAIL(INVALID, "key '%s': a value of %zu bytes is NULL", key, bytes);
    rpi_store_header request = {.operation = RPI_STORE_SET, .value_bytes = (uint32_t)bytes};
    rpi_store_header reply = {0};
    RP_TRY(exchange(context, &request, key, value, 0, &reply));
    return status_of(context, &reply);
}

static rp_status tcp_get(void *context, const char *key, double timeout_s, void *value,
                         size_t capacity, size_t *bytes) {
    RPI_FPENV_SCOPE;
    RP_TRY(rpi_store_check(key, 0));
    if (!bytes) return RP_FAIL(INVALID, "bytes is NULL: where a value's size goes");
    tcp_store *store = context;
    bool forever = !(timeout_s >= 0) || timeout_s > 1e9;
    rpi_store_header request = {.operation = RPI_STORE_GET,
                                .number = forever ? -1 : (int64_t)(timeout_s * 1e3 + 0.999)};
    rpi_store_header reply = {0};
    RP_TRY(exchange(store, &request, key, NULL, forever ? -1 : timeout_s, &reply));
    RP_TRY(status_of(store, &reply));
    *bytes = reply.value_bytes;
    if (value)
        memcpy(value, store->buffer,
               reply.value_bytes < capacity ? reply.value_bytes : capacity);
    return RP_OK;
}

static rp_status tcp_get_page(void *context, const char *prefix, int first, int count,
                              double timeout_s, void *values, size_t capacity, size_t *sizes,
                              int *got) {
    RPI_FPENV_SCOPE;
    RP_TRY(rpi_store_page_check(prefix, first, count));
    tcp_store *store = context;
    unsigned char which[8];
    bool forever = !(timeout_s >= 0) || timeout_s > 1e9;
    rpi_store_header request = {.operation = RPI_STORE_GET_PAGE,
                                .value_bytes = sizeof which,
                                .number = forever ? -1 : (int64_t)(timeout_s * 1e3 + 0.999)};
    rpi_store_header reply = {0};
    rpi_put_u32(which, (uint32_t)first);
    rpi_put_u32(which + 4, (uint32_t)count);
    RP_TRY(exchange(store, &request, prefix, which, forever ? -1 : timeout_s, &reply));
    RP_TRY(status_of(store, &reply));
    rp_status status = rpi_store_page_read(store->buffer, reply.value_bytes, reply.number,
                                           count, values, capacity, sizes, got);
    return status == RP_OK ? RP_OK
                           : rpi_fail_context(status, "the store at %s: ", store->place);
}

static rp_status tcp_add(void *context, const char *key, int64_t amount, int64_t *result) {
    RP_TRY(rpi_store_check(key, 0));
    if (!result) return RP_FAIL(INVALID, "result is NULL: where the new value goes");
    rpi_store_header request = {.operation = RPI_STORE_ADD, .number = amount};
    rpi_store_header reply = {0};
    RP_TRY(exchange(context, &request, key, NULL, 0, &reply));
    RP_TRY(status_of(context, &reply));
    *result = reply.number;
    return RP_OK;
}

static rp_status tcp_compare_set(void *context, const char *key, const void *expected,
                                 size_t expected_bytes, const void *desired,
                                 size_t desired_bytes, void *value, size_t capacity,
                                 size_t *bytes) {
    tcp_store *store = context;
    unsigned char *both = NULL;
    RP_TRY(
        rpi_store_compare_check(key, expected, expected_bytes, desired, desired_bytes, bytes));
    size_t all = 4 + expected_bytes + desired_bytes;
    RP_TRY(rpi_alloc(all, "values to compare", &both));
    rpi_put_u32(both, (uint32_t)expected_bytes);
    if (expected_bytes) memcpy(both + 4, expected, expected_bytes);
    if (desired_bytes) memcpy(both + 4 + expected_bytes, desired, desired_bytes);
    rpi_store_header request = {.operation = RPI_STORE_COMPARE_SET,
                                .value_bytes = (uint32_t)all};
    rpi_store_header reply = {0};
    rp_status status = exchange(store, &request, key, both, 0, &reply);
    rpi_free(both);
    if (status == RP_OK) status = status_of(store, &reply);
    if (status != RP_OK) return status;
    *bytes = reply.value_bytes;
    if (value) memcpy(value, store->buffer, *bytes < capacity ? *bytes : capacity);
    return RP_OK;
}

static rp_status tcp_remove(void *context, const char *key) {
    RP_TRY(rpi_store_check(key, 0));
    rpi_store_header request = {.operation = RPI_STORE_REMOVE};
    rpi_store_header reply = {0};
    RP_TRY(exchange(context, &request, key, NULL, 0, &reply));
    return status_of(context, &reply);
}

static void tcp_close(void *context) {
    tcp_store *store = context;
    rpi_channel_close(&store->channel);
    rpi_free(store);
}

static const rp_store_ops tcp_ops = {.set = tcp_set,
                                     .get = tcp_get,
                                     .add = tcp_add,
                                     .remove = tcp_remove,
                                     .close = tcp_close,
                                     .get_page = tcp_get_page,
                                     .compare_set = tcp_compare_set};

/* Another program may listen there: make a request that changes nothing, while the time to
 * connect still counts. */
static rp_status prove_it_is_a_store(tcp_store *store, int64_t deadline_ns) {
    rpi_store_header request = {.operation = RPI_STORE_REMOVE}, reply = {0};
    rp_status status = exchange_by(store, &request, HELLO_KEY, NULL, deadline_ns, &reply);
    if (status == RP_OK && reply.status != RP_OK) {
        status = status_of(store, &reply);
        return rpi_fail_context(status,
                                "the store at %s turned this process away: ", store->place);
    }
    if (status == RP_OK) return RP_OK;
    return rpi_fail_context(status, "what listens there does not answer as a store does; ");
}

static rp_status prove_membership(tcp_store *store, const rpi_secret *secret,
                                  int64_t deadline_ns) {
    static const rpi_proof_terms terms = {
        .purpose = RPI_PROOF_STORE, .caller = -1, .callee = -1};
    rp_status status = rpi_channel_call(&store->channel, secret, &terms, deadline_ns);
    return status == RP_OK ? RP_OK
                           : rpi_fail_context(status, "the store at %s: ", store->place);
}

static rp_status dial(tcp_store *store, const char *host, int port, const rpi_secret *secret,
                      int64_t deadline_ns) {
    rpi_channel_close(&store->channel);
    RP_TRY(rpi_stream_dial(host, port, deadline_ns, &store->channel.fd));
    store->broken = false;
    rp_status status = prove_membership(store, secret, deadline_ns);
    return status == RP_OK ? prove_it_is_a_store(store, deadline_ns) : status;
}

rp_status rp_store_connect(const char *host, int port, double timeout_s, rp_store *store) {
    rpi_secret secret;
    if (!store) return RP_FAIL(INVALID, "store is NULL");
    RP_TRY(rpi_secret_find_own(&secret));
    rp_status status = rpi_store_connect(host, port, timeout_s, &secret, store);
    rpi_secret_wipe(&secret);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "cannot reach the store: ");
}

rp_status rpi_store_connect(const char *host, int port, double timeout_s,
                            const rpi_secret *secret, rp_store *store) {
    RPI_FPENV_SCOPE;
    if (port < 1 || port > 65535)
        return RP_FAIL(INVALID, "port %d of a store; 1 to 65535 are allowed", port);
    if (timeout_s != timeout_s) return RP_FAIL(INVALID, "timeout_s is not a number");
    tcp_store *fresh = NULL;
    RP_TRY(rpi_alloc(sizeof *fresh, "a store client", &fresh));
    snprintf(fresh->place, sizeof fresh->place, "%s:%d", host ? host : "127.0.0.1", port);
    fresh->channel.fd = -1;
    fresh->response_timeout_s = rpi_store_response_timeout(timeout_s);
    int64_t deadline_ns = rpi_deadline_ns(timeout_s);
    rp_status status;
    rpi_redials redials = {0};
    do status = dial(fresh, host, port, secret, deadline_ns);
    while (status == RP_PEER &&
           rpi_stream_dials_again(&redials, &fresh->channel.fd, deadline_ns));
    if (status != RP_OK) {
        rpi_channel_close(&fresh->channel);
        rpi_free(fresh);
        return status;
    }
    *store = (rp_store){.ops = &tcp_ops, .context = fresh};
    return RP_OK;
}

void rpi_store_set_response_timeout_tcp(const rp_store *store, double response_timeout_s) {
    if (store->ops == &tcp_ops)
        ((tcp_store *)store->context)->response_timeout_s = response_timeout_s;
}

void rpi_store_close_after_fork_tcp(const rp_store *store) {
    if (store->ops == &tcp_ops)
        rpi_fd_close_after_fork(&((tcp_store *)store->context)->channel.fd);
}
