/* The thread that accepts callers and calls peers. */
#include "net/link/connector_state.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/fpenv.h"
#include "base/log.h"
#include "base/states.h"
#include "net/socket/stream.h"

#include <stdio.h>

#define BREATHER_NS (RPI_SECOND_NS / 50)

enum { RESTS = -2 }; /* instead of its poll entry: the call only waits for a time */

static const rpi_states peer_next[] = {
    [RPI_PEER_NONE] = RPI_STATE(RPI_PEER_CALLING) | RPI_STATE(RPI_PEER_CALLED),
    [RPI_PEER_CALLING] = RPI_STATE(RPI_PEER_ADDING) | RPI_STATE(RPI_PEER_CALLED) |
                         RPI_STATE(RPI_PEER_UP) | RPI_STATE(RPI_PEER_FAILED),
    [RPI_PEER_ADDING] = RPI_STATE(RPI_PEER_UP) | RPI_STATE(RPI_PEER_FAILED),
    [RPI_PEER_CALLED] =
        RPI_STATE(RPI_PEER_UP) | RPI_STATE(RPI_PEER_FAILED) | RPI_STATE(RPI_PEER_NONE),
    [RPI_PEER_UP] = 0,
    [RPI_PEER_FAILED] = 0,
};

void rpi_connector_enter(rpi_connector *connector, int peer, rpi_peer_state next) {
    RPI_ENTER(peer_next, connector->states[peer], (unsigned char)next);
}

static int slot_of(const rpi_connector *connector, int peer, int stream) {
    return peer * connector->self.streams + stream;
}

static rpi_peer_state state_of(rpi_connector *connector, int peer) {
    pthread_mutex_lock(&connector->lock);
    rpi_peer_state state = connector->states[peer];
    pthread_mutex_unlock(&connector->lock);
    return state;
}

/* Nothing of this peer is under way any longer. NULL: no calls; else the first of its calls,
 * followed by the others in order. */
static rpi_call *take_calls(rpi_connector *connector, int peer) {
    rpi_call *first = NULL, **end = &first;
    for (int stream = 0; stream < connector->self.streams; stream++) {
        rpi_call **call = &connector->calls[slot_of(connector, peer, stream)];
        if (!*call) continue;
        *end = *call;
        end = &(*call)->beside;
        *call = NULL;
    }
    return first;
}

/* All connections of the link are made, or have failed; the progress owner is told. */
static void hand_over(rpi_connector *connector, rpi_call *call, rp_status status) {
    pthread_mutex_lock(&connector->lock);
    rpi_connector_enter(connector, call->peer, status == RP_OK ? RPI_PEER_UP : RPI_PEER_FAILED);
    call->next = NULL;
    *connector->connected_end = call;
    connector->connected_end = &call->next;
    atomic_store(&connector->any_connected, true);
    rpi_event_set(connector->connected_event); /* also written and cleared under the lock */
    pthread_mutex_unlock(&connector->lock);
}

/* The link has failed with the recorded message, whatever of it is made. */
static void give_up(rpi_connector *connector, rpi_call *call, rp_status status) {
    call->status = status;
    snprintf(call->text, sizeof call->text, "%s", rp_last_error()->message);
    connector->calls[slot_of(connector, call->peer, call->stream)] = NULL;
    rpi_call_free(take_calls(connector, call->peer));
    hand_over(connector, call, status);
}

static bool all_stand(const rpi_connector *connector, int peer) {
    for (int stream = 0; stream < connector->self.streams; stream++) {
        const rpi_call *call = connector->calls[slot_of(connector, peer, stream)];
        if (!call || call->stage != RPI_CALL_STANDING) return false;
    }
    return true;
}

static void go_on(rpi_connector *connector, rpi_call *call, bool is_ready);

/* Call the other streams after the first. Any of them may fail at once, and with it the link.
 */
static void call_others(rpi_connector *connector, int peer, const char *address) {
    pthread_mutex_lock(&connector->lock);
    rpi_connector_enter(connector, peer, RPI_PEER_ADDING);
    pthread_mutex_unlock(&connector->lock);
    for (int stream = 1; stream < connector->self.streams; stream++) {
        int slot = slot_of(connector, peer, stream);
        rpi_call *call = NULL;
        rp_status status = rpi_call_new(peer, stream, address, &call);
        if (status != RP_OK) {
            rpi_call *first = connector->calls[slot_of(connector, peer, 0)];
            give_up(connector, first, status);
            return;
        }
        connector->calls[slot] = call;
        call->shown_fd = &connector->fds[slot];
        go_on(connector, call, true);
        if (state_of(connector, peer) != RPI_PEER_ADDING) return;
    }
}

/* One connection stands. */
static void keep(rpi_connector *connector, rpi_call *call) {
    int peer = call->peer;
    call->poll = -1;
    if (call->is_caller && call->stream == 0 && connector->self.streams > 1)
        call_others(connector, peer, call->address);
    else if (all_stand(connector, peer))
        hand_over(connector, take_calls(connector, peer), RP_OK);
}

static void go_on(rpi_connector *connector, rpi_call *call, bool is_ready) {
    rp_status status = is_ready ? rpi_call_go_on(&connector->maker, call)
                                : rpi_call_keep_time(&connector->maker, call);
    if (status == RP_OK)
        keep(connector, call);
    else if (status != RP_PENDING)
        give_up(connector, call, status);
}

/* The higher rank's call counts; as long as it has not sent its hello it cannot have been
 * accepted. */
static bool may_cross(const rpi_connector *connector, int rank) {
    const rpi_call *call = connector->calls[slot_of(connector, rank, 0)];
    return rank > connector->self.rank || !call || !rpi_call_has_greeted(call);
}

/* Another connection of a link of which the rank has made the first. */
static bool is_awaited(const rpi_connector *connector, rpi_peer_state state, int rank,
                       int stream) {
    return state == RPI_PEER_CALLED && !connector->calls[slot_of(connector, rank, stream)];
}

/* A rank calls, and fits. */
rp_status rpi_connector_admit(void *context, int rank, int stream) {
    rpi_connector *connector = context;
    pthread_mutex_lock(&connector->lock);
    rpi_peer_state state = connector->states[rank];
    bool welcome = stream > 0 ? is_awaited(connector, state, rank, stream)
                              : state == RPI_PEER_NONE ||
                                    (state == RPI_PEER_CALLING && may_cross(connector, rank));
    if (welcome && stream == 0) rpi_connector_enter(connector, rank, RPI_PEER_CALLED);
    pthread_mutex_unlock(&connector->lock);
    if (welcome) return RP_OK;
    if (state == RPI_PEER_CALLING && stream == 0) return RP_PENDING;
    return RP_FAIL(STATE, "there is a link to rank %d, or was", rank);
}

/* There is no memory to answer a call, so its connection is closed, which the other side sees
 * as a failure of the link. If calls of that link are under way here the link fails here, too;
 * `kept` is the first of them. NULL: there are none. If this rank has requested the link, or
 * does so later, it learns of the failure from the other side. */
static void lose(rpi_connector *connector, int rank, rpi_call *kept, rp_status status) {
    if (kept) {
        give_up(connector, kept, status);
        return;
    }
    pthread_mutex_lock(&connector->lock);
    rpi_connector_enter(connector, rank, RPI_PEER_NONE);
    pthread_mutex_unlock(&connector->lock);
}

void rpi_connector_take(void *context, int rank, int stream, rpi_channel channel) {
    rpi_connector *connector = context;
    int slot = slot_of(connector, rank, stream);
    rpi_call *call = NULL, *ours = connector->calls[slot];
    if (ours) ours->shown_fd = NULL; /* theirs counts */
    rp_status status =
        rpi_call_answer(&connector->maker, rank, stream, channel, &connector->fds[slot], &call);
    if (!call) {
        lose(connector, rank, ours ? ours : connector->calls[slot_of(connector, rank, 0)],
             status);
        return;
    }
    rpi_call_free(ours);
    connector->calls[slot] = call;
    if (status == RP_OK)
        go_on(connector, call, true);
    else
        give_up(connector, call, status);
}

/* The request may be older than a call of the peer. Then the peer's call is the link, unless it
 * was lost. */
static void begin_call(rpi_connector *connector, rpi_call *call) {
    int slot = slot_of(connector, call->peer, 0);
    pthread_mutex_lock(&connector->lock);
    if (connector->states[call->peer] == RPI_PEER_NONE)
        rpi_connector_enter(connector, call->peer, RPI_PEER_CALLING);
    bool calls = connector->states[call->peer] == RPI_PEER_CALLING && !connector->calls[slot];
    pthread_mutex_unlock(&connector->lock);
    if (!calls) {
        rpi_call_free(call);
        return;
    }
    connector->calls[slot] = call;
    call->shown_fd = &connector->fds[slot];
    go_on(connector, call, true);
}

/* False: the connector is closed. */
static bool take_requests(rpi_connector *connector) {
    pthread_mutex_lock(&connector->lock);
    rpi_call *requested = connector->requested;
    bool closing = connector->closing;
    connector->requested = NULL;
    pthread_mutex_unlock(&connector->lock);
    for (rpi_call *next; requested; requested = next) {
        next = requested->next;
        begin_call(connector, requested);
    }
    return !closing;
}

/* Fills `polls`: the wake descriptor, callers, then calls. Returns their number. *out_callers:
 * how many of them belong to the acceptor. */
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
    for (int slot = 0; slot < connector->slots; slot++) {
        rpi_call *call = connector->calls[slot];
        if (!call || (call->is_caller && call->stage == RPI_CALL_STANDING)) continue;
        struct pollfd wait = rpi_call_poll(call);
        call->poll = wait.fd >= 0 ? count : RESTS;
        if (wait.fd >= 0)
            polls[count++] = wait; /* poll() takes no more entries than the limit
                                    * of open files */
        if (rpi_call_due_ns(call) < *wake_ns) *wake_ns = rpi_call_due_ns(call);
    }
    return count;
}

static void attend_callers(rpi_connector *connector, int callers) {
    rp_status status = rpi_acceptor_attend(&connector->acceptor, connector->polls + 1, callers);
    /* Without descriptors the listener stays readable: pause instead of spinning. */
    if (status != RP_IO) return;
    connector->deaf_ns = rpi_now_ns() + BREATHER_NS;
    if (!connector->has_said)
        rpi_log(RP_LOG_WARNING, "rank %d lets others wait: %s", connector->self.rank,
                rp_last_error()->message);
    connector->has_said = true;
}

/* Some calls end others, and begin new ones, which were not polled for. A caller closes its
 * connections if it cannot make all those of the link; nothing else is sent on them before all
 * are made. */
static void attend_calls(rpi_connector *connector) {
    for (int slot = 0; slot < connector->slots; slot++) {
        rpi_call *call = connector->calls[slot];
        if (!call || call->poll == -1) continue;
        bool is_ready = call->poll != RESTS && connector->polls[call->poll].revents;
        call->poll = -1;
        if (call->stage != RPI_CALL_STANDING)
            go_on(connector, call, is_ready);
        else if (is_ready)
            give_up(connector, call,
                    RP_FAIL(PEER,
                            "connection closed by peer: rank %d hung up before all %d streams "
                            "of its link stood",
                            call->peer, connector->self.streams));
    }
}

void *rpi_connector_run(void *context) {
    rpi_connector *connector = context;
    rpi_fpenv_default();
    while (take_requests(connector)) {
        int64_t wake_ns = RPI_NEVER_NS;
        int callers, count = watch(connector, &callers, &wake_ns);
        if (poll(connector->polls, (nfds_t)count, rpi_poll_ms(wake_ns)) < 0) continue;
        if (connector->polls[0].revents) rpi_event_clear(connector->wake);
        /* Calls first, since handling callers may end some and begin others. */
        attend_calls(connector);
        attend_callers(connector, callers);
    }
    return NULL;
}
