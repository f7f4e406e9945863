#include "net/connector.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/memory.h"
#include "net/forget.h"
#include "net/quiet_thread.h"

#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BREATHER_NS (RPI_SECOND_NS / 50)

typedef enum peer_state { NONE, CALLING, UP, FAILED } peer_state;

struct rpi_connector {
    rpi_hello self;
    rpi_call_maker maker;
    rpi_acceptor acceptor;
    int wake; /* eventfd: look at `wanted` and `closing` */
    int news; /* eventfd: `met` is not empty */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    unsigned char *states;    /* [lock] [world] of peer_state */
    rpi_call *wanted;         /* [lock] not seen by the thread */
    rpi_call *met, **met_end; /* [lock] in the order in which they came up */
    bool closing;             /* [lock] */
    atomic_bool any_met;

    rpi_call **calls;     /* [world] [thread] */
    atomic_int *fds;      /* [world] of the calls, for forget() */
    struct pollfd *polls; /* [1 + RPI_CALLERS + 1 + world] [thread] */
    int64_t deaf_ns;      /* [thread] the listener is left alone until then */
};

static void set_flag(int fd) {
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* full: it is readable anyway */
}

static void clear_flag(int fd) {
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got; /* nothing there is fine */
}

/* ---- the thread ---- */

/* It stands, or has failed as was recorded; the driver hears of it. */
static void hand_over(rpi_connector *connector, rpi_call *call, rp_status status) {
    call->status = status;
    if (status != RP_OK)
        snprintf(call->text, sizeof call->text, "%s", rp_last_error()->message);
    connector->calls[call->peer] = NULL;
    pthread_mutex_lock(&connector->lock);
    connector->states[call->peer] = status == RP_OK ? UP : FAILED;
    call->next = NULL;
    *connector->met_end = call;
    connector->met_end = &call->next;
    atomic_store(&connector->any_met, true);
    set_flag(connector->news); /* and cleared under the lock, too */
    pthread_mutex_unlock(&connector->lock);
}

static void go_on(rpi_connector *connector, rpi_call *call, bool is_ready) {
    rp_status status = is_ready ? rpi_call_go_on(&connector->maker, call)
                                : rpi_call_keep_time(&connector->maker, call);
    if (status != RP_PENDING) hand_over(connector, call, status);
}

/* The higher rank's call counts; while it has not said its hello it cannot have counted. */
static bool may_cross(const rpi_connector *connector, int rank) {
    const rpi_call *call = connector->calls[rank];
    return rank > connector->self.rank || !call || !rpi_call_has_greeted(call);
}

/* A rank calls, and fits. */
static rp_status admit(void *context, int rank) {
    rpi_connector *connector = context;
    pthread_mutex_lock(&connector->lock);
    peer_state state = connector->states[rank];
    bool welcome = state == NONE || (state == CALLING && may_cross(connector, rank));
    if (welcome) connector->states[rank] = UP;
    pthread_mutex_unlock(&connector->lock);
    if (welcome) return RP_OK;
    if (state == CALLING) return RP_PENDING;
    return RP_FAIL(STATE, "there is a link to rank %d, or was", rank);
}

static void take(void *context, int rank, rpi_channel channel) {
    rpi_connector *connector = context;
    rpi_call *call = NULL;
    rpi_call_free(connector->calls[rank]); /* of ours: theirs counts */
    connector->calls[rank] = NULL;
    rp_status status =
        rpi_call_answer(&connector->maker, rank, channel, &connector->fds[rank], &call);
    if (!call) return; /* no memory for it: it is a death for the other side */
    connector->calls[rank] = call;
    if (status == RP_OK)
        go_on(connector, call, true);
    else
        hand_over(connector, call, status);
}

static void begin_call(rpi_connector *connector, rpi_call *call) {
    pthread_mutex_lock(&connector->lock);
    bool is_due = connector->states[call->peer] == CALLING;
    pthread_mutex_unlock(&connector->lock);
    if (!is_due) { /* it has called meanwhile */
        rpi_call_free(call);
        return;
    }
    connector->calls[call->peer] = call;
    call->shown_fd = &connector->fds[call->peer];
    go_on(connector, call, true);
}

/* False: the connector is closed. */
static bool hear_wishes(rpi_connector *connector) {
    pthread_mutex_lock(&connector->lock);
    rpi_call *wanted = connector->wanted;
    bool closing = connector->closing;
    connector->wanted = NULL;
    pthread_mutex_unlock(&connector->lock);
    for (rpi_call *next; wanted; wanted = next) {
        next = wanted->next;
        begin_call(connector, wanted);
    }
    return !closing;
}

/* Fills `polls`: the wake, callers, then calls by peer. Returns how many. *out_callers: of them
 * what is the acceptor's. */
static int watch(rpi_connector *connector, int *out_callers, int64_t *wake_ns) {
    struct pollfd *polls = connector->polls;
    int count = 1;
    polls[0] = (struct pollfd){.fd = connector->wake, .events = POLLIN};
    *out_callers = rpi_acceptor_polls(&connector->acceptor, polls + 1, wake_ns);
    if (rpi_now_ns() < connector->deaf_ns) {
        polls[1].fd = -1;
        if (connector->deaf_ns < *wake_ns) *wake_ns = connector->deaf_ns;
    }
    count += *out_callers;
    for (int peer = 0; peer < connector->self.world; peer++) {
        const rpi_call *call = connector->calls[peer];
        if (!call) continue;
        polls[count++] = rpi_call_poll(call);
        if (rpi_call_due_ns(call) < *wake_ns) *wake_ns = rpi_call_due_ns(call);
    }
    return count;
}

static void attend_callers(rpi_connector *connector, int callers) {
    rp_status status = rpi_acceptor_attend(&connector->acceptor, connector->polls + 1, callers);
    /* Out of descriptors, the listener stays readable: rest, do not spin. */
    if (status == RP_IO) connector->deaf_ns = rpi_now_ns() + BREATHER_NS;
}

static void attend_calls(rpi_connector *connector, const struct pollfd *polls, int count) {
    for (int peer = 0; count > 0 && peer < connector->self.world; peer++) {
        rpi_call *call = connector->calls[peer];
        if (!call) continue;
        go_on(connector, call, polls->fd >= 0 && polls->revents);
        polls++;
        count--;
    }
}

static void *run(void *context) {
    rpi_connector *connector = context;
    rpi_fpenv_default();
    while (hear_wishes(connector)) {
        int64_t wake_ns = RPI_NEVER_NS;
        int callers, count = watch(connector, &callers, &wake_ns);
        if (poll(connector->polls, (nfds_t)count, rpi_poll_ms(wake_ns)) < 0) continue;
        if (connector->polls[0].revents) clear_flag(connector->wake);
        /* Calls first: callers may end some, and begin others. */
        attend_calls(connector, connector->polls + 1 + callers, count - 1 - callers);
        attend_callers(connector, callers);
    }
    return NULL;
}

/* ---- the driver's side ---- */

static rp_status fill(rpi_connector *connector, int listener) {
    size_t world = (size_t)connector->self.world;
    rpi_host host = {.context = connector, .admit = admit, .take = take};
    RP_TRY(rpi_acceptor_open(&connector->acceptor, &connector->self, listener, &host));
    RP_TRY(rpi_alloc_array(world, sizeof *connector->states, "links", &connector->states));
    RP_TRY(rpi_alloc_array(world, sizeof *connector->calls, "links", &connector->calls));
    RP_TRY(rpi_alloc_array(world, sizeof *connector->fds, "links", &connector->fds));
    for (size_t i = 0; i < world; i++) atomic_init(&connector->fds[i], -1);
    RP_TRY(rpi_alloc_array(2 + RPI_CALLERS + world, sizeof *connector->polls, "links",
                           &connector->polls));
    connector->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    connector->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (connector->wake < 0 || connector->news < 0)
        return RP_FAIL_ERRNO(IO, "cannot make an event descriptor");
    RP_TRY(rpi_quiet_thread("links that are made on need", run, connector, &connector->thread));
    connector->has_thread = true;
    return RP_OK;
}

rp_status rpi_connector_open(const rpi_hello *self, int listener, const rpi_call_kind *kind,
                             void *context, rpi_connector **out_connector) {
    rpi_connector *connector = NULL;
    rp_status status = rpi_alloc(sizeof *connector, "a connector", &connector);
    if (status != RP_OK) {
        close(listener);
        return status;
    }
    connector->self = *self;
    connector->maker = (rpi_call_maker){&connector->self, kind, context};
    connector->wake = connector->news = connector->acceptor.listener = -1;
    connector->met_end = &connector->met;
    pthread_mutex_init(&connector->lock, NULL); /* does not fail on Linux */
    status = fill(connector, listener);
    if (status != RP_OK)
        rpi_connector_close(connector);
    else
        *out_connector = connector;
    return status;
}

static void free_list(rpi_call *call) {
    for (rpi_call *next; call; call = next) {
        next = call->next;
        rpi_call_free(call);
    }
}

void rpi_connector_close(rpi_connector *connector) {
    if (!connector) return;
    if (connector->has_thread) {
        pthread_mutex_lock(&connector->lock);
        connector->closing = true;
        pthread_mutex_unlock(&connector->lock);
        set_flag(connector->wake);
        pthread_join(connector->thread, NULL);
    }
    rpi_acceptor_close(&connector->acceptor);
    for (int peer = 0; connector->calls && connector->fds && peer < connector->self.world;
         peer++)
        rpi_call_free(connector->calls[peer]);
    free_list(connector->wanted);
    free_list(connector->met);
    if (connector->wake >= 0) close(connector->wake);
    if (connector->news >= 0) close(connector->news);
    rpi_free(connector->states);
    rpi_free(connector->calls);
    rpi_free(connector->fds);
    rpi_free(connector->polls);
    pthread_mutex_destroy(&connector->lock);
    rpi_free(connector);
}

void rpi_connector_forget(rpi_connector *connector) {
    if (!connector) return;
    for (int peer = 0; peer < connector->self.world; peer++) {
        int fd = atomic_load(&connector->fds[peer]);
        rpi_fd_forget(&fd);
    }
    rpi_acceptor_forget(&connector->acceptor);
    rpi_fd_forget(&connector->wake);
    rpi_fd_forget(&connector->news);
}

rp_status rpi_connector_want(rpi_connector *connector, int peer, const char *address) {
    rpi_call *call = NULL;
    RP_TRY(rpi_call_new(peer, address, &call));
    pthread_mutex_lock(&connector->lock);
    bool is_new = connector->states[peer] == NONE;
    if (is_new) {
        connector->states[peer] = CALLING;
        call->next = connector->wanted;
        connector->wanted = call;
    }
    pthread_mutex_unlock(&connector->lock);
    if (is_new)
        set_flag(connector->wake);
    else
        rpi_call_free(call);
    return RP_OK;
}

rpi_call *rpi_connector_met(rpi_connector *connector) {
    if (!atomic_load(&connector->any_met)) return NULL;
    pthread_mutex_lock(&connector->lock);
    rpi_call *call = connector->met;
    if (call) connector->met = call->next;
    if (!connector->met) {
        clear_flag(connector->news);
        connector->met_end = &connector->met;
        atomic_store(&connector->any_met, false);
    }
    pthread_mutex_unlock(&connector->lock);
    if (call) {
        atomic_store(call->shown_fd, -1);
        call->shown_fd = NULL;
    }
    return call;
}

int rpi_connector_fd(const rpi_connector *connector) {
    return connector->news;
}
