/* The server of a TCP store: one thread asleep in epoll.
 *
 * A caller is a stranger until it has proved that it has the job's secret (proof.h) or, in a
 * job without one, until its first request is whole. Strangers are few, and none stays long;
 * they are refused by the log and by an answer in the store's protocol.
 *
 * Each client has one request under way. Bytes are taken only up to the end of that request and
 * the next one is begun when its reply has left, so that a client costs at most one request and
 * one reply of memory whatever it sends. A connection whose bytes are no request is closed. */
#include "net/store/store_tcp.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/fpenv.h"
#include "base/log.h"
#include "base/memory.h"
#include "net/bytes/endian.h"
#include "net/bytes/signal_masked_thread.h"
#include "net/socket/lost.h"
#include "net/socket/stream.h"
#include "net/store/store_close_after_fork.h"
#include "net/store/store_wire.h"
#include "net/trust/handshake.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long no connection is taken after descriptors ran out. */
#define BREATHER_NS (RPI_SECOND_NS / 10)

enum { STRANGERS = 256 };

typedef enum client_state { PROVING, RECEIVING, WAITING, REPLYING } client_state;

typedef struct client {
    struct client *next;
    rpi_channel channel;
    client_state state;
    bool is_stranger;
    int64_t since_ns; /* when it came */
    rpi_proof proof;
    uint32_t watched; /* epoll's events */
    rpi_store_header request;
    char key[RPI_STORE_KEY_BYTES];    /* of the request; WAITING: the one that is missing */
    char prefix[RPI_STORE_KEY_BYTES]; /* of the page's keys */
    rpi_store_page page;              /* asked for; count 0: none */
    int64_t deadline_ns;              /* WAITING: answer with what there is then */
    size_t done, bytes;               /* of `buffer`: taken in or sent, of how many */
    size_t capacity;
    unsigned char *buffer;
} client;

struct rp_store_server {
    pthread_t thread;
    int listener, epoll, stop;
    rpi_dictionary *dictionary;
    rpi_secret secret;
    client *clients; /* those that came last first */
    int stranger_count;
    unsigned refusals;
    bool has_said;            /* that it lacks descriptors or memory */
    int64_t resume_accept_ns; /* RPI_NEVER_NS: accepting */
    int64_t due_ns;           /* nothing of a client's ends before */
};

static void drop(rp_store_server *server, client *gone) {
    client **at = &server->clients;
    while (*at && *at != gone) at = &(*at)->next;
    if (*at) *at = gone->next;
    server->stranger_count -= gone->is_stranger;
    /* It would leave epoll by itself, but for a forked child that still has the connection. */
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, gone->channel.fd, NULL);
    rpi_channel_close(&gone->channel);
    rpi_free(gone->buffer);
    rpi_free(gone);
}

static void watch(rp_store_server *server, client *each, uint32_t events) {
    if (each->watched == events) return;
    struct epoll_event event = {.events = events, .data.ptr = each};
    epoll_ctl(server->epoll, EPOLL_CTL_MOD, each->channel.fd, &event);
    each->watched = events;
}

static rp_status reserve(client *each, size_t bytes) {
    if (bytes <= each->capacity) return RP_OK;
    RP_TRY(rpi_grow_array(each->capacity, bytes, 1, "a store client's buffer", &each->buffer));
    each->capacity = bytes;
    return RP_OK;
}

/* It is one of ours: from here on it is believed, and stays as long as it likes. */
static void let_in(rp_store_server *server, client *each) {
    server->stranger_count -= each->is_stranger;
    each->is_stranger = false;
}

/* When what this one does is over; RPI_NEVER_NS: it may stay as it is. */
static int64_t end_of(const client *each) {
    if (each->is_stranger) return each->since_ns + RPI_STRANGER_MOST_NS;
    return each->state == WAITING ? each->deadline_ns : RPI_NEVER_NS;
}

static void begin_request(client *each) {
    each->state = RECEIVING;
    each->done = 0;
    each->bytes = RPI_STORE_HEADER_BYTES;
}

/* Queue a reply whose value lies in the client's buffer, behind the header. */
static void begin_reply(client *each, rp_status status, int64_t number, size_t value_bytes) {
    rpi_store_header header = {.operation = RPI_STORE_REPLY,
                               .status = status,
                               .value_bytes = (uint32_t)value_bytes,
                               .number = number};
    rpi_store_pack(&header, each->buffer);
    each->state = REPLYING;
    each->done = 0;
    each->bytes = RPI_STORE_HEADER_BYTES + value_bytes;
}

/* Queue a reply; `value` may not lie in the client's own buffer. */
static rp_status reply(client *each, rp_status status, int64_t number, const void *value,
                       size_t value_bytes) {
    RP_TRY(reserve(each, RPI_STORE_HEADER_BYTES + value_bytes));
    if (value_bytes) memcpy(each->buffer + RPI_STORE_HEADER_BYTES, value, value_bytes);
    begin_reply(each, status, number, value_bytes);
    return RP_OK;
}

static rp_status refuse(client *each, rp_status status) {
    const char *message = rp_last_error()->message;
    return reply(each, status, 0, message, strlen(message));
}

/* Push out what is queued; the client's next request begins when all has left. */
static rp_status flush(rp_store_server *server, client *each) {
    while (each->done < each->bytes) {
        ssize_t sent = rpi_channel_send(&each->channel, each->buffer + each->done,
                                        each->bytes - each->done);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) {
            watch(server, each, EPOLLOUT);
            return RP_OK;
        }
        if (sent < 0) return RP_FAIL(PEER, "%s: a store client left", rpi_lost_text(errno));
        each->done += (size_t)sent;
    }
    begin_request(each);
    watch(server, each, EPOLLIN);
    return RP_OK;
}

static rp_status answer_get(client *each, const void *value, size_t bytes) {
    return reply(each, RP_OK, 0, value, bytes);
}

/* With what is set now, whatever was while it waited. */
static rp_status answer_page(rp_store_server *server, client *each) {
    rpi_store_page *page = &each->page;
    page->have = 0;
    page->bytes = 0;
    (void)rpi_store_page_look(page, server->dictionary);
    if (page->have == 0)
        return refuse(each, RP_FAIL(TIMEOUT, "timed out: store key '%s%u' was removed",
                                    page->prefix, page->first));
    RP_TRY(reserve(each, RPI_STORE_HEADER_BYTES + page->bytes));
    rpi_store_page_write(page, server->dictionary, each->buffer + RPI_STORE_HEADER_BYTES);
    begin_reply(each, RP_OK, page->have, page->bytes);
    return RP_OK;
}

/* The key that it waits for has come; true when that was the last one of its page. */
static bool has_page(rp_store_server *server, client *each) {
    if (rpi_store_page_look(&each->page, server->dictionary)) return true;
    rpi_store_page_key(&each->page, each->page.have, each->key);
    return false;
}

/* Answer everybody who waits for this key. A client that cannot be answered is dropped when its
 * deadline comes or its connection ends. */
static void wake_waiters(rp_store_server *server, const char *key) {
    size_t bytes = 0;
    const void *value = rpi_dictionary_get(server->dictionary, key, &bytes);
    for (client *each = server->clients, *next = NULL; each; each = next) {
        next = each->next;
        if (each->state != WAITING || strcmp(each->key, key) != 0) continue;
        if (each->page.count && !has_page(server, each)) continue;
        rp_status status =
            each->page.count ? answer_page(server, each) : answer_get(each, value, bytes);
        if (status != RP_OK || flush(server, each) != RP_OK) drop(server, each);
    }
}

static void begin_wait(rp_store_server *server, client *each) {
    int64_t wait_ms = each->request.number;
    each->state = WAITING;
    each->deadline_ns = wait_ms < 0 || wait_ms > INT64_C(1000000000000)
                            ? RPI_NEVER_NS
                            : rpi_now_ns() + wait_ms * 1000000;
    if (each->deadline_ns < server->due_ns) server->due_ns = each->deadline_ns;
    watch(server, each, EPOLLRDHUP); /* a client that dies while it waits is noticed */
}

static rp_status start_get(rp_store_server *server, client *each) {
    size_t bytes = 0;
    const void *value = rpi_dictionary_get(server->dictionary, each->key, &bytes);
    if (value) return answer_get(each, value, bytes);
    begin_wait(server, each);
    return RP_OK;
}

static rp_status start_get_page(rp_store_server *server, client *each) {
    const unsigned char *which =
        each->buffer + RPI_STORE_HEADER_BYTES + each->request.key_bytes;
    if (each->request.value_bytes != 8)
        return refuse(each, RP_FAIL(INVALID, "a page is asked for by a number and a count"));
    uint32_t first = rpi_get_u32(which), count = rpi_get_u32(which + 4);
    rp_status status = rpi_store_page_check(each->key, first, count);
    if (status != RP_OK) return refuse(each, status);
    memcpy(each->prefix, each->key, sizeof each->prefix);
    each->page = (rpi_store_page){.prefix = each->prefix, .first = first, .count = count};
    if (has_page(server, each)) return answer_page(server, each);
    begin_wait(server, each);
    return RP_OK;
}

/* The request holds both values: how long the first one is, that one, the other. */
static rp_status compare_set(rp_store_server *server, client *each) {
    const unsigned char *value =
        each->buffer + RPI_STORE_HEADER_BYTES + each->request.key_bytes;
    size_t all = each->request.value_bytes, bytes = 0;
    size_t expected = all < 4 ? SIZE_MAX : rpi_get_u32(value);
    if (all < 4 || expected > all - 4)
        return refuse(each, RP_FAIL(INVALID, "a value to compare ends behind its request"));
    rp_status status =
        rpi_dictionary_compare_set(server->dictionary, each->key, value + 4, expected,
                                   value + 4 + expected, all - 4 - expected);
    if (status != RP_OK) return refuse(each, status);
    const void *now = rpi_dictionary_get(server->dictionary, each->key, &bytes);
    if (now) wake_waiters(server, each->key);
    return reply(each, RP_OK, 0, now, bytes);
}

/* Do what a complete request asks; the reply is queued, or the client waits. */
static rp_status serve_request(rp_store_server *server, client *each) {
    const unsigned char *key = each->buffer + RPI_STORE_HEADER_BYTES;
    memcpy(each->key, key, each->request.key_bytes);
    each->key[each->request.key_bytes] = '\0';
    each->page.count = 0;
    int64_t number = 0;
    rp_status status = rpi_store_check(each->key, 0);
    bool changed = false;
    if (status == RP_OK) switch (each->request.operation) {
        case RPI_STORE_SET:
            status =
                rpi_dictionary_set(server->dictionary, each->key, key + each->request.key_bytes,
                                   each->request.value_bytes);
            changed = true;
            break;
        case RPI_STORE_ADD:
            status = rpi_dictionary_add(server->dictionary, each->key, each->request.number,
                                        &number);
            changed = true;
            break;
        case RPI_STORE_REMOVE: rpi_dictionary_remove(server->dictionary, each->key); break;
        case RPI_STORE_GET: return start_get(server, each);
        case RPI_STORE_GET_PAGE: return start_get_page(server, each);
        case RPI_STORE_COMPARE_SET: return compare_set(server, each);
        default: return RP_FAIL(CORRUPT, "a store client sent a reply");
        }
    if (status != RP_OK) return refuse(each, status);
    if (changed) wake_waiters(server, each->key);
    return reply(each, RP_OK, number, NULL, 0);
}

/* Who gives no proof is told in the store's own protocol what it lacks. */
static rp_status turn_away(rp_store_server *server, client *each, rp_status status) {
    rpi_kept_error reason;
    rpi_error_keep(&reason);
    rpi_proof_log_refusal(each->channel.fd, "the store", &server->refusals);
    if (!each->proof.answered && refuse(each, status) == RP_OK) (void)flush(server, each);
    rpi_error_put_back(&reason);
    return status;
}

static rp_status decline_proof(rp_store_server *server, client *each) {
    rpi_proof_decline(each->channel.fd, RPI_PROOF_STORE);
    rp_status status =
        RP_FAIL(MISMATCH, "it has a secret (REDPOLL_SECRET), and this job has none: set it on "
                          "all ranks of the job, or on none");
    rpi_proof_log_refusal(each->channel.fd, "the store", &server->refusals);
    return status;
}

static rp_status hear_proof(rp_store_server *server, client *each) {
    static const rpi_proof_terms terms = {
        .purpose = RPI_PROOF_STORE, .caller = -1, .callee = -1};
    rp_status status = rpi_channel_hear(&each->channel, &each->proof, &server->secret, &terms);
    if (status == RP_MISMATCH) return turn_away(server, each, status);
    if (status != RP_OK) return status;
    let_in(server, each);
    begin_request(each);
    return RP_OK;
}

/* The header has come: learn how long the request is. */
static rp_status learn_length(rp_store_server *server, client *each) {
    if (each->is_stranger && rpi_proof_is_call(each->buffer))
        return decline_proof(server, each);
    RP_TRY(rpi_store_unpack(each->buffer, &each->request));
    size_t bytes = RPI_STORE_HEADER_BYTES + each->request.key_bytes + each->request.value_bytes;
    RP_TRY(reserve(each, bytes));
    each->bytes = bytes;
    return RP_OK;
}

/* Take in bytes up to the end of one request and serve it. */
static rp_status receive(rp_store_server *server, client *each) {
    while (each->state == RECEIVING) {
        ssize_t got = rpi_channel_receive(&each->channel, each->buffer + each->done,
                                          each->bytes - each->done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return RP_OK;
        if (got <= 0) return RP_FAIL(PEER, "connection closed by peer: a store client left");
        each->done += (size_t)got;
        if (each->done < each->bytes) continue;
        if (each->bytes == RPI_STORE_HEADER_BYTES) RP_TRY(learn_length(server, each));
        if (each->done < each->bytes) continue;
        let_in(server, each);
        RP_TRY(serve_request(server, each));
        if (each->state == REPLYING) RP_TRY(flush(server, each));
    }
    return RP_OK;
}

static void stop_accepting_until(rp_store_server *server, int64_t time_ns) {
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, server->listener, NULL);
    server->resume_accept_ns = time_ns;
}

static void resume_accepting(rp_store_server *server) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &server->listener};
    epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->listener, &event);
    server->resume_accept_ns = RPI_NEVER_NS;
}

static rp_status welcome(rp_store_server *server, int fd) {
    client *fresh = NULL;
    RP_TRY(rpi_alloc(sizeof *fresh, "a store client", &fresh));
    fresh->channel.fd = fd;
    fresh->is_stranger = true;
    fresh->since_ns = rpi_now_ns();
    fresh->watched = EPOLLIN;
    rp_status status = reserve(fresh, RPI_STORE_HEADER_BYTES + RPI_STORE_KEY_BYTES);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = fresh};
    if (status == RP_OK && epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        status = RP_FAIL_ERRNO(IO, "cannot watch a store client");
    if (status != RP_OK) {
        rpi_free(fresh->buffer);
        rpi_free(fresh);
        return status;
    }
    begin_request(fresh);
    if (server->secret.is_set) fresh->state = PROVING;
    fresh->next = server->clients;
    server->clients = fresh;
    server->stranger_count++;
    int64_t end_ns = end_of(fresh);
    if (end_ns < server->due_ns) server->due_ns = end_ns;
    return RP_OK;
}

/* Is there place for one more stranger? The oldest makes it, unless all have just come: then
 * the next ones wait where the kernel keeps them. */
static bool make_place(rp_store_server *server) {
    if (server->stranger_count < STRANGERS) return true;
    client *oldest = NULL;
    for (client *each = server->clients; each; each = each->next)
        if (each->is_stranger) oldest = each;
    int64_t due_ns = oldest ? oldest->since_ns + RPI_STRANGER_LEAST_NS : 0;
    if (due_ns > rpi_now_ns()) {
        stop_accepting_until(server, due_ns);
        return false;
    }
    if (oldest) drop(server, oldest);
    return true;
}

/* Once: strangers may have taken what is lacking, for a moment. */
static void say_lack(rp_store_server *server, int error) {
    if (server->has_said) return;
    server->has_said = true;
    errno = error;
    (void)RP_FAIL_ERRNO(IO, "the store lets ranks wait: it cannot accept a connection");
    rpi_log(RP_LOG_WARNING, "%s", rp_last_error()->message);
}

static void accept_clients(rp_store_server *server) {
    while (make_place(server)) {
        int fd = rpi_stream_accept(server->listener);
        if (fd < 0) {
            /* Out of descriptors the listener stays readable: rest instead of spinning. */
            int error = errno;
            if (error != EAGAIN && error != EINTR && error != ECONNABORTED) {
                say_lack(server, error);
                stop_accepting_until(server, rpi_now_ns() + BREATHER_NS);
            }
            errno = error;
            if (errno != EINTR && errno != ECONNABORTED) return;
        } else if (welcome(server, fd) != RP_OK) {
            close(fd);
        }
    }
}

static void handle(rp_store_server *server, client *each, uint32_t events) {
    rp_status status = RP_OK;
    if (each->state == WAITING && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
        status = RP_PEER;
    else if (each->state == REPLYING)
        status = flush(server, each);
    if (status == RP_OK && each->state == PROVING) status = hear_proof(server, each);
    if (status == RP_OK && each->state == RECEIVING) status = receive(server, each);
    if (status < 0) drop(server, each);
}

static void end(rp_store_server *server, client *each) {
    if (each->is_stranger) {
        drop(server, each);
        return;
    }
    rp_status late = RP_FAIL(TIMEOUT, "timed out: nobody set store key '%s' within %g s",
                             each->key, (double)each->request.number * 1e-3);
    bool some = each->page.count && each->page.have > 0;
    rp_status status = some ? answer_page(server, each) : refuse(each, late);
    if (status != RP_OK || flush(server, each) != RP_OK) drop(server, each);
}

/* Refuse the waits that are over, and strangers for whom it is time; returns when the next will
 * be. All clients are looked at only when there may be such a one: a wait that was answered
 * leaves its time behind, which costs one look in vain. */
static int64_t expire(rp_store_server *server) {
    int64_t now_ns = rpi_now_ns(), next_ns = RPI_NEVER_NS;
    if (now_ns < server->due_ns) return server->due_ns;
    for (client *each = server->clients, *next = NULL; each; each = next) {
        next = each->next;
        int64_t end_ns = end_of(each);
        if (end_ns <= now_ns)
            end(server, each);
        else if (end_ns < next_ns)
            next_ns = end_ns;
    }
    server->due_ns = next_ns;
    return next_ns;
}

static void *serve(void *context) {
    rp_store_server *server = context;
    struct epoll_event event;
    rpi_fpenv_default();
    for (;;) {
        int64_t next_ns = expire(server);
        if (server->resume_accept_ns < next_ns) next_ns = server->resume_accept_ns;
        if (server->resume_accept_ns <= rpi_now_ns()) {
            resume_accepting(server);
            continue;
        }
        /* One event a turn: serving a client may drop another whose event would come next. */
        int count = epoll_wait(server->epoll, &event, 1, rpi_poll_ms(next_ns));
        if (count <= 0) continue;
        if (event.data.ptr == &server->stop) return NULL;
        if (event.data.ptr == &server->listener)
            accept_clients(server);
        else
            handle(server, event.data.ptr, event.events);
    }
}

static void destroy(rp_store_server *server) {
    for (client *each = server->clients, *next = NULL; each; each = next) {
        next = each->next;
        drop(server, each);
    }
    if (server->listener >= 0) close(server->listener);
    if (server->epoll >= 0) close(server->epoll);
    if (server->stop >= 0) close(server->stop);
    rpi_dictionary_destroy(server->dictionary);
    rpi_secret_wipe(&server->secret);
    rpi_free(server);
}

static rp_status open_server(rp_store_server *server, const char *host, int port,
                             int *out_port) {
    RP_TRY(rpi_dictionary_create(&server->dictionary));
    RP_TRY(rpi_stream_listen(host, port, &server->listener, out_port));
    RP_TRY(rpi_event_open(&server->stop));
    RP_TRY(rpi_epoll_open(&server->epoll));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &server->stop};
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->stop, &event) != 0)
        return RP_FAIL_ERRNO(IO, "cannot start a store");
    resume_accepting(server);
    return rpi_signal_masked_thread("a store", serve, server, &server->thread);
}

rp_status rp_store_serve(const char *host, int port, rp_store_server **server,
                         int *bound_port) {
    rpi_secret secret;
    if (!server) return RP_FAIL(INVALID, "server is NULL");
    RP_TRY(rpi_secret_find_own(&secret));
    rp_status status = rpi_store_serve(host, port, &secret, server, bound_port);
    rpi_secret_wipe(&secret);
    return status;
}

rp_status rpi_store_serve(const char *host, int port, const rpi_secret *secret,
                          rp_store_server **out_server, int *out_port) {
    rp_store_server *fresh = NULL;
    RP_TRY(rpi_alloc(sizeof *fresh, "a store server", &fresh));
    fresh->secret = *secret;
    fresh->listener = fresh->epoll = fresh->stop = -1;
    fresh->due_ns = RPI_NEVER_NS;
    int actual = 0;
    rp_status status = open_server(fresh, host, port, &actual);
    if (status != RP_OK) {
        destroy(fresh);
        return status;
    }
    if (out_port) *out_port = actual;
    *out_server = fresh;
    return RP_OK;
}

void rp_store_server_stop(rp_store_server *server) {
    if (!server) return;
    rpi_event_set(server->stop);
    pthread_join(server->thread, NULL);
    destroy(server);
}

void rpi_store_server_close_after_fork(rp_store_server *server) {
    if (!server) return;
    for (client *each = server->clients; each; each = each->next)
        rpi_fd_close_after_fork(&each->channel.fd);
    rpi_fd_close_after_fork(&server->listener);
    rpi_fd_close_after_fork(&server->epoll);
    rpi_fd_close_after_fork(&server->stop);
}
