#include "net/link/connector.h"
#include "net/link/connector_state.h"

#include "base/event.h"
#include "base/memory.h"
#include "net/bytes/close_after_fork.h"
#include "net/bytes/signal_masked_thread.h"

#include <unistd.h>

static rp_status fill(rpi_connector *connector, int listener) {
    size_t world = (size_t)connector->self.world, slots = (size_t)connector->slots;
    rpi_acceptor_callbacks host = {
        .context = connector, .admit = rpi_connector_admit, .take = rpi_connector_take};
    RP_TRY(rpi_acceptor_open(&connector->acceptor, &connector->self, listener, &host));
    RP_TRY(rpi_alloc_array(world, sizeof *connector->states, "links", &connector->states));
    RP_TRY(rpi_alloc_array(slots, sizeof *connector->calls, "links", &connector->calls));
    RP_TRY(rpi_alloc_array(slots, sizeof *connector->fds, "links", &connector->fds));
    for (size_t i = 0; i < slots; i++) atomic_init(&connector->fds[i], -1);
    RP_TRY(rpi_alloc_array(2 + RPI_CALLERS + slots, sizeof *connector->polls, "links",
                           &connector->polls));
    RP_TRY(rpi_event_open(&connector->wake));
    RP_TRY(rpi_event_open(&connector->connected_event));
    RP_TRY(rpi_signal_masked_thread("links that are made on need", rpi_connector_run, connector,
                                    &connector->thread));
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
    connector->slots = self->world * self->streams;
    connector->maker = (rpi_call_maker){&connector->self, kind, context};
    connector->wake = connector->connected_event = connector->acceptor.listener = -1;
    connector->connected_end = &connector->connected;
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
        rpi_event_set(connector->wake);
        pthread_join(connector->thread, NULL);
    }
    rpi_acceptor_close(&connector->acceptor);
    for (int slot = 0; connector->calls && connector->fds && slot < connector->slots; slot++)
        rpi_call_free(connector->calls[slot]);
    free_list(connector->requested);
    free_list(connector->connected);
    if (connector->wake >= 0) close(connector->wake);
    if (connector->connected_event >= 0) close(connector->connected_event);
    rpi_free(connector->states);
    rpi_free(connector->calls);
    rpi_free(connector->fds);
    rpi_free(connector->polls);
    pthread_mutex_destroy(&connector->lock);
    rpi_secret_wipe(&connector->self.secret);
    rpi_free(connector);
}

void rpi_connector_close_after_fork(rpi_connector *connector) {
    if (!connector) return;
    for (int slot = 0; slot < connector->slots; slot++) {
        int fd = atomic_load(&connector->fds[slot]);
        rpi_fd_close_after_fork(&fd);
    }
    rpi_acceptor_close_after_fork(&connector->acceptor);
    rpi_fd_close_after_fork(&connector->wake);
    rpi_fd_close_after_fork(&connector->connected_event);
}

rp_status rpi_connector_request(rpi_connector *connector, int peer, const char *address) {
    rpi_call *call = NULL;
    RP_TRY(rpi_call_new(peer, 0, address, &call));
    pthread_mutex_lock(&connector->lock);
    bool is_new = connector->states[peer] == RPI_PEER_NONE;
    bool counts =
        is_new || connector->states[peer] == RPI_PEER_CALLED; /* which may still be lost */
    if (is_new) rpi_connector_enter(connector, peer, RPI_PEER_CALLING);
    if (counts) {
        call->next = connector->requested;
        connector->requested = call;
    }
    pthread_mutex_unlock(&connector->lock);
    if (counts)
        rpi_event_set(connector->wake);
    else
        rpi_call_free(call);
    return RP_OK;
}

rpi_call *rpi_connector_connected(rpi_connector *connector) {
    if (!atomic_load(&connector->any_connected)) return NULL;
    pthread_mutex_lock(&connector->lock);
    rpi_call *call = connector->connected;
    if (call) connector->connected = call->next;
    if (!connector->connected) {
        rpi_event_clear(connector->connected_event);
        connector->connected_end = &connector->connected;
        atomic_store(&connector->any_connected, false);
    }
    pthread_mutex_unlock(&connector->lock);
    for (rpi_call *each = call; each; each = each->beside) {
        if (each->shown_fd) atomic_store(each->shown_fd, -1);
        each->shown_fd = NULL;
    }
    return call;
}

int rpi_connector_fd(const rpi_connector *connector) {
    return connector->connected_event;
}
