/* The server of a TCP store: one thread asleep in epoll.
 *
 * A caller is a stranger until it has proved that it has the job's secret (proof.h) or, in a
 * job without one, until its first request is complete. The number of strangers is limited, and
 * so is their time; they are refused with a line in the log and a reply in the store's
 * protocol.
 *
 * Each client has one request at a time. Bytes are read only up to the end of that request, and
 * the next one is begun when its reply has left, so that a client costs at most the memory of
 * one request and one reply whatever it sends. A connection whose bytes are not a request is
 * closed. */
#include "net/store/store_serving.h"
#include "net/store/store_tcp.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/fpenv.h"
#include "base/log.h"
#include "base/memory.h"
#include "net/bytes/signal_masked_thread.h"
#include "net/socket/stream.h"
#include "net/store/store_close_after_fork.h"
#include "net/trust/handshake.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

/* How long no connection is accepted after descriptors ran out. */
#define BREATHER_NS (RPI_SECOND_NS / 10)

enum { STRANGERS = 256 };

/* When this client's time is over; RPI_NEVER_NS: it may stay. */
static int64_t end_of(const rpi_store_client *each) {
    if (each->is_stranger) return each->since_ns + RPI_STRANGER_MOST_NS;
    return each->state == RPI_STORE_CLIENT_WAITING ? each->deadline_ns : RPI_NEVER_NS;
}

/* A caller without a proof gets a reply in the store's own protocol that says what it lacks. */
static rp_status turn_away(rp_store_server *server, rpi_store_client *each, rp_status status) {
    rpi_kept_error reason;
    rpi_error_keep(&reason);
    rpi_proof_log_refusal(each->channel.fd, "the store", &server->refusals);
    if (!each->proof.answered && rpi_store_client_refuse(each, status) == RP_OK)
        (void)rpi_store_client_flush(server, each);
    rpi_error_put_back(&reason);
    return status;
}

static rp_status decline_proof(rp_store_server *server, rpi_store_client *each) {
    rpi_proof_decline(each->channel.fd, RPI_PROOF_STORE);
    rp_status status =
        RP_FAIL(MISMATCH, "it has a secret (REDPOLL_SECRET), and this job has none: set it on "
                          "all ranks of the job, or on none");
    rpi_proof_log_refusal(each->channel.fd, "the store", &server->refusals);
    return status;
}

static rp_status receive_proof(rp_store_server *server, rpi_store_client *each) {
    static const rpi_proof_terms terms = {
        .purpose = RPI_PROOF_STORE, .caller = -1, .callee = -1};
    rp_status status =
        rpi_channel_receive_proof(&each->channel, &each->proof, &server->secret, &terms);
    if (status == RP_MISMATCH) return turn_away(server, each, status);
    if (status != RP_OK) return status;
    rpi_store_client_let_in(server, each);
    rpi_store_client_begin_request(each);
    return RP_OK;
}

/* The header is complete: learn how long the request is. */
static rp_status learn_length(rp_store_server *server, rpi_store_client *each) {
    if (each->is_stranger && rpi_proof_is_call(each->buffer))
        return decline_proof(server, each);
    RP_TRY(rpi_store_unpack(each->buffer, &each->request));
    size_t bytes = RPI_STORE_HEADER_BYTES + each->request.key_bytes + each->request.value_bytes;
    RP_TRY(rpi_store_client_reserve(each, bytes));
    each->bytes = bytes;
    return RP_OK;
}

/* Read bytes up to the end of one request and serve it. */
static rp_status receive(rp_store_server *server, rpi_store_client *each) {
    while (each->state == RPI_STORE_CLIENT_RECEIVING) {
        ssize_t got = rpi_channel_receive(&each->channel, each->buffer + each->done,
                                          each->bytes - each->done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return RP_OK;
        if (got <= 0) return RP_FAIL(PEER, "connection closed by peer: a store client left");
        each->done += (size_t)got;
        if (each->done < each->bytes) continue;
        if (each->bytes == RPI_STORE_HEADER_BYTES) RP_TRY(learn_length(server, each));
        if (each->done < each->bytes) continue;
        rpi_store_client_let_in(server, each);
        RP_TRY(rpi_store_serve_request(server, each));
        if (each->state == RPI_STORE_CLIENT_REPLYING)
            RP_TRY(rpi_store_client_flush(server, each));
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
    rpi_store_client *fresh = NULL;
    RP_TRY(rpi_alloc(sizeof *fresh, "a store client", &fresh));
    fresh->channel.fd = fd;
    fresh->is_stranger = true;
    fresh->since_ns = rpi_now_ns();
    fresh->watched = EPOLLIN;
    rp_status status =
        rpi_store_client_reserve(fresh, RPI_STORE_HEADER_BYTES + RPI_STORE_KEY_BYTES);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = fresh};
    if (status == RP_OK && epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        status = RP_FAIL_ERRNO(IO, "cannot watch a store client");
    if (status != RP_OK) {
        rpi_free(fresh->buffer);
        rpi_free(fresh);
        return status;
    }
    rpi_store_client_begin_request(fresh);
    if (server->secret.is_set) fresh->state = RPI_STORE_CLIENT_PROVING;
    fresh->next = server->clients;
    server->clients = fresh;
    server->stranger_count++;
    int64_t end_ns = end_of(fresh);
    if (end_ns < server->due_ns) server->due_ns = end_ns;
    return RP_OK;
}

/* Whether there is room for one more stranger. The oldest makes room, unless all have just
 * connected: then the next ones wait in the kernel. */
static bool make_place(rp_store_server *server) {
    if (server->stranger_count < STRANGERS) return true;
    rpi_store_client *oldest = NULL;
    for (rpi_store_client *each = server->clients; each; each = each->next)
        if (each->is_stranger) oldest = each;
    int64_t due_ns = oldest ? oldest->since_ns + RPI_STRANGER_LEAST_NS : 0;
    if (due_ns > rpi_now_ns()) {
        stop_accepting_until(server, due_ns);
        return false;
    }
    if (oldest) rpi_store_client_drop(server, oldest);
    return true;
}

/* Logged once, because strangers may have taken descriptors or memory for a moment. */
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
            /* Without descriptors the listener stays readable: pause instead of spinning. */
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

static void handle(rp_store_server *server, rpi_store_client *each, uint32_t events) {
    rp_status status = RP_OK;
    if (each->state == RPI_STORE_CLIENT_WAITING &&
        (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
        status = RP_PEER;
    else if (each->state == RPI_STORE_CLIENT_REPLYING)
        status = rpi_store_client_flush(server, each);
    if (status == RP_OK && each->state == RPI_STORE_CLIENT_PROVING)
        status = receive_proof(server, each);
    if (status == RP_OK && each->state == RPI_STORE_CLIENT_RECEIVING)
        status = receive(server, each);
    if (status < 0) rpi_store_client_drop(server, each);
}

static void end(rp_store_server *server, rpi_store_client *each) {
    if (each->is_stranger) {
        rpi_store_client_drop(server, each);
        return;
    }
    rp_status late = RP_FAIL(TIMEOUT, "timed out: nobody set store key '%s' within %g s",
                             each->key, (double)each->request.number * 1e-3);
    bool some = each->page.count && each->page.have > 0;
    rp_status status =
        some ? rpi_store_answer_page(server, each) : rpi_store_client_refuse(each, late);
    if (status != RP_OK || rpi_store_client_flush(server, each) != RP_OK)
        rpi_store_client_drop(server, each);
}

/* Refuse waits that are over, and strangers whose time is over; returns when the next will be.
 * All clients are examined only when there may be one: an answered wait leaves its time behind,
 * which costs one search in vain. */
static int64_t expire(rp_store_server *server) {
    int64_t now_ns = rpi_now_ns(), next_ns = RPI_NEVER_NS;
    if (now_ns < server->due_ns) return server->due_ns;
    for (rpi_store_client *each = server->clients, *next = NULL; each; each = next) {
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
        /* One event in each iteration: serving a client may drop another whose event would come
         * next. */
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
    for (rpi_store_client *each = server->clients, *next = NULL; each; each = next) {
        next = each->next;
        rpi_store_client_drop(server, each);
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
    for (rpi_store_client *each = server->clients; each; each = each->next)
        rpi_fd_close_after_fork(&each->channel.fd);
    rpi_fd_close_after_fork(&server->listener);
    rpi_fd_close_after_fork(&server->epoll);
    rpi_fd_close_after_fork(&server->stop);
}
