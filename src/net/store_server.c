/* The server of a TCP store: one thread asleep in epoll.
 *
 * Each client has one request under way. Bytes are taken only up to the end of that request and
 * the next one is begun when its reply has left, so that a client costs at most one request and
 * one reply of memory whatever it sends. A connection whose bytes are no request is closed. */
#include "redpoll/store.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/memory.h"
#include "net/forget.h"
#include "net/quiet_thread.h"
#include "net/store_wire.h"
#include "net/stream.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long no connection is taken after descriptors ran out. */
#define BREATHER_NS (RPI_SECOND_NS / 10)

typedef enum client_state { RECEIVING, WAITING, REPLYING } client_state;

typedef struct client {
    struct client *next, *previous;
    int fd;
    client_state state;
    uint32_t watched; /* epoll's events */
    rpi_store_header request;
    char key[RPI_STORE_KEY_BYTES];
    int64_t deadline_ns; /* WAITING: answer RP_TIMEOUT then */
    size_t done, bytes;  /* of `buffer`: taken in or sent, of how many */
    size_t capacity;
    unsigned char *buffer;
} client;

struct rp_store_server {
    pthread_t thread;
    int listener, epoll, stop;
    rpi_dictionary *dictionary;
    client *clients;
    int64_t resume_accept_ns; /* RPI_NEVER_NS: accepting */
};

static void drop(rp_store_server *server, client *gone) {
    if (gone->previous)
        gone->previous->next = gone->next;
    else
        server->clients = gone->next;
    if (gone->next) gone->next->previous = gone->previous;
    /* It would leave epoll by itself, but for a forked child that still has the connection. */
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, gone->fd, NULL);
    close(gone->fd);
    rpi_free(gone->buffer);
    rpi_free(gone);
}

static void watch(rp_store_server *server, client *each, uint32_t events) {
    if (each->watched == events) return;
    struct epoll_event event = {.events = events, .data.ptr = each};
    epoll_ctl(server->epoll, EPOLL_CTL_MOD, each->fd, &event);
    each->watched = events;
}

static rp_status reserve(client *each, size_t bytes) {
    if (bytes <= each->capacity) return RP_OK;
    RP_TRY(rpi_grow_array(each->capacity, bytes, 1, "a store client's buffer", &each->buffer));
    each->capacity = bytes;
    return RP_OK;
}

static void begin_request(client *each) {
    each->state = RECEIVING;
    each->done = 0;
    each->bytes = RPI_STORE_HEADER_BYTES;
}

/* Queue a reply; `value` may not lie in the client's own buffer. */
static rp_status reply(client *each, rp_status status, int64_t number, const void *value,
                       size_t value_bytes) {
    rpi_store_header header = {.operation = RPI_STORE_REPLY,
                               .status = status,
                               .value_bytes = (uint32_t)value_bytes,
                               .number = number};
    RP_TRY(reserve(each, RPI_STORE_HEADER_BYTES + value_bytes));
    rpi_store_pack(&header, each->buffer);
    if (value_bytes) memcpy(each->buffer + RPI_STORE_HEADER_BYTES, value, value_bytes);
    each->state = REPLYING;
    each->done = 0;
    each->bytes = RPI_STORE_HEADER_BYTES + value_bytes;
    return RP_OK;
}

static rp_status refuse(client *each, rp_status status) {
    const char *message = rp_last_error()->message;
    return reply(each, status, 0, message, strlen(message));
}

/* Push out what is queued; the client's next request begins when all has left. */
static rp_status flush(rp_store_server *server, client *each) {
    while (each->done < each->bytes) {
        ssize_t sent =
            send(each->fd, each->buffer + each->done, each->bytes - each->done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) {
            watch(server, each, EPOLLOUT);
            return RP_OK;
        }
        if (sent < 0) return RP_FAIL_ERRNO(PEER, "a store client");
        each->done += (size_t)sent;
    }
    begin_request(each);
    watch(server, each, EPOLLIN);
    return RP_OK;
}

static rp_status answer_get(client *each, const void *value, size_t bytes) {
    return reply(each, RP_OK, 0, value, bytes);
}

/* Answer everybody who waits for this key. A client that cannot be answered is dropped when its
 * deadline comes or its connection ends. */
static void wake_waiters(rp_store_server *server, const char *key) {
    size_t bytes = 0;
    const void *value = rpi_dictionary_get(server->dictionary, key, &bytes);
    for (client *each = server->clients, *next = NULL; each; each = next) {
        next = each->next;
        if (each->state != WAITING || strcmp(each->key, key) != 0) continue;
        if (answer_get(each, value, bytes) != RP_OK || flush(server, each) != RP_OK)
            drop(server, each);
    }
}

static rp_status start_get(rp_store_server *server, client *each) {
    size_t bytes = 0;
    const void *value = rpi_dictionary_get(server->dictionary, each->key, &bytes);
    if (value) return answer_get(each, value, bytes);
    int64_t wait_ms = each->request.number;
    each->state = WAITING;
    each->deadline_ns = wait_ms < 0 || wait_ms > INT64_C(1000000000000)
                            ? RPI_NEVER_NS
                            : rpi_now_ns() + wait_ms * 1000000;
    watch(server, each, EPOLLRDHUP); /* a client that dies while it waits is noticed */
    return RP_OK;
}

/* Do what a complete request asks; the reply is queued, or the client waits. */
static rp_status serve_request(rp_store_server *server, client *each) {
    const unsigned char *key = each->buffer + RPI_STORE_HEADER_BYTES;
    memcpy(each->key, key, each->request.key_bytes);
    each->key[each->request.key_bytes] = '\0';
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
        default: return RP_FAIL(CORRUPT, "a store client sent a reply");
        }
    if (status != RP_OK) return refuse(each, status);
    if (changed) wake_waiters(server, each->key);
    return reply(each, RP_OK, number, NULL, 0);
}

/* The header has come: learn how long the request is. */
static rp_status learn_length(client *each) {
    RP_TRY(rpi_store_unpack(each->buffer, &each->request));
    size_t bytes = RPI_STORE_HEADER_BYTES + each->request.key_bytes + each->request.value_bytes;
    RP_TRY(reserve(each, bytes));
    each->bytes = bytes;
    return RP_OK;
}

/* Take in bytes up to the end of one request and serve it. */
static rp_status receive(rp_store_server *server, client *each) {
    while (each->state == RECEIVING) {
        ssize_t got = recv(each->fd, each->buffer + each->done, each->bytes - each->done, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return RP_OK;
        if (got <= 0) return RP_FAIL(PEER, "a store client left");
        each->done += (size_t)got;
        if (each->done < each->bytes) continue;
        if (each->bytes == RPI_STORE_HEADER_BYTES) RP_TRY(learn_length(each));
        if (each->done < each->bytes) continue;
        RP_TRY(serve_request(server, each));
        if (each->state == REPLYING) RP_TRY(flush(server, each));
    }
    return RP_OK;
}

static void stop_accepting_for_a_while(rp_store_server *server) {
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, server->listener, NULL);
    server->resume_accept_ns = rpi_now_ns() + BREATHER_NS;
}

static void resume_accepting(rp_store_server *server) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &server->listener};
    epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->listener, &event);
    server->resume_accept_ns = RPI_NEVER_NS;
}

static rp_status welcome(rp_store_server *server, int fd) {
    client *fresh = NULL;
    RP_TRY(rpi_alloc(sizeof *fresh, "a store client", &fresh));
    fresh->fd = fd;
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
    fresh->next = server->clients;
    if (fresh->next) fresh->next->previous = fresh;
    server->clients = fresh;
    return RP_OK;
}

static void accept_clients(rp_store_server *server) {
    for (;;) {
        int fd = rpi_stream_accept(server->listener);
        if (fd < 0) {
            /* Out of descriptors the listener stays readable: rest instead of spinning. */
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                stop_accepting_for_a_while(server);
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
    if (status == RP_OK && each->state == RECEIVING) status = receive(server, each);
    if (status != RP_OK) drop(server, each);
}

/* Refuse the waits that are over; returns when the next one will be. */
static int64_t expire(rp_store_server *server) {
    int64_t now_ns = rpi_now_ns(), next_ns = server->resume_accept_ns;
    for (client *each = server->clients, *next = NULL; each; each = next) {
        next = each->next;
        if (each->state != WAITING) continue;
        if (each->deadline_ns > now_ns) {
            if (each->deadline_ns < next_ns) next_ns = each->deadline_ns;
            continue;
        }
        rp_status late = RP_FAIL(TIMEOUT, "nobody set store key '%s' within %g s", each->key,
                                 (double)each->request.number * 1e-3);
        if (refuse(each, late) != RP_OK || flush(server, each) != RP_OK) drop(server, each);
    }
    return next_ns;
}

static void *serve(void *context) {
    rp_store_server *server = context;
    struct epoll_event event;
    rpi_fpenv_default();
    for (;;) {
        int64_t next_ns = expire(server);
        if (next_ns == server->resume_accept_ns && next_ns <= rpi_now_ns()) {
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
    rpi_free(server);
}

static rp_status open_server(rp_store_server *server, const char *host, int port,
                             int *out_port) {
    RP_TRY(rpi_dictionary_create(&server->dictionary));
    RP_TRY(rpi_stream_listen(host, port, &server->listener, out_port));
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &server->stop};
    if (server->epoll < 0 || server->stop < 0 ||
        epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->stop, &event) != 0)
        return RP_FAIL_ERRNO(IO, "cannot start a store");
    resume_accepting(server);
    return rpi_quiet_thread("a store", serve, server, &server->thread);
}

rp_status rp_store_serve(const char *host, int port, rp_store_server **server,
                         int *bound_port) {
    if (!server) return RP_FAIL(INVALID, "server is NULL");
    rp_store_server *fresh = NULL;
    RP_TRY(rpi_alloc(sizeof *fresh, "a store server", &fresh));
    fresh->listener = fresh->epoll = fresh->stop = -1;
    int actual = 0;
    rp_status status = open_server(fresh, host, port, &actual);
    if (status != RP_OK) {
        destroy(fresh);
        return status;
    }
    if (bound_port) *bound_port = actual;
    *server = fresh;
    return RP_OK;
}

void rp_store_server_stop(rp_store_server *server) {
    if (!server) return;
    uint64_t one = 1;
    ssize_t written = write(server->stop, &one, sizeof one);
    (void)written; /* an eventfd takes a one */
    pthread_join(server->thread, NULL);
    destroy(server);
}

void rpi_store_server_forget(rp_store_server *server) {
    if (!server) return;
    for (client *each = server->clients; each; each = each->next) rpi_fd_forget(&each->fd);
    rpi_fd_forget(&server->listener);
    rpi_fd_forget(&server->epoll);
    rpi_fd_forget(&server->stop);
}
