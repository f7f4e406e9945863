/* One client of a store's server: its bytes in and out, one request at a time. */
#include "net/store/store_serving.h"

#include "base/memory.h"
#include "net/socket/lost.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

void rpi_store_client_drop(rp_store_server *server, rpi_store_client *gone) {
    rpi_store_client **at = &server->clients;
    while (*at && *at != gone) at = &(*at)->next;
    if (*at) *at = gone->next;
    server->stranger_count -= gone->is_stranger;
    /* It would leave epoll by itself, were it not for a forked child that has the connection,
     * too. */
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, gone->channel.fd, NULL);
    rpi_channel_close(&gone->channel);
    rpi_free(gone->buffer);
    rpi_free(gone);
}

void rpi_store_client_watch(rp_store_server *server, rpi_store_client *each, uint32_t events) {
    if (each->watched == events) return;
    struct epoll_event event = {.events = events, .data.ptr = each};
    epoll_ctl(server->epoll, EPOLL_CTL_MOD, each->channel.fd, &event);
    each->watched = events;
}

rp_status rpi_store_client_reserve(rpi_store_client *each, size_t bytes) {
    if (bytes <= each->capacity) return RP_OK;
    RP_TRY(rpi_grow_array(each->capacity, bytes, 1, "a store client's buffer", &each->buffer));
    each->capacity = bytes;
    return RP_OK;
}

void rpi_store_client_let_in(rp_store_server *server, rpi_store_client *each) {
    server->stranger_count -= each->is_stranger;
    each->is_stranger = false;
}

void rpi_store_client_begin_request(rpi_store_client *each) {
    each->state = RPI_STORE_CLIENT_RECEIVING;
    each->done = 0;
    each->bytes = RPI_STORE_HEADER_BYTES;
}

void rpi_store_client_begin_reply(rpi_store_client *each, rp_status status, int64_t number,
                                  size_t value_bytes) {
    rpi_store_header header = {.operation = RPI_STORE_REPLY,
                               .status = status,
                               .value_bytes = (uint32_t)value_bytes,
                               .number = number};
    rpi_store_pack(&header, each->buffer);
    each->state = RPI_STORE_CLIENT_REPLYING;
    each->done = 0;
    each->bytes = RPI_STORE_HEADER_BYTES + value_bytes;
}

rp_status rpi_store_client_reply(rpi_store_client *each, rp_status status, int64_t number,
                                 const void *value, size_t value_bytes) {
    RP_TRY(rpi_store_client_reserve(each, RPI_STORE_HEADER_BYTES + value_bytes));
    if (value_bytes) memcpy(each->buffer + RPI_STORE_HEADER_BYTES, value, value_bytes);
    rpi_store_client_begin_reply(each, status, number, value_bytes);
    return RP_OK;
}

rp_status rpi_store_client_refuse(rpi_store_client *each, rp_status status) {
    const char *message = rp_last_error()->message;
    return rpi_store_client_reply(each, status, 0, message, strlen(message));
}

rp_status rpi_store_client_flush(rp_store_server *server, rpi_store_client *each) {
    while (each->done < each->bytes) {
        ssize_t sent = rpi_channel_send(&each->channel, each->buffer + each->done,
                                        each->bytes - each->done);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) {
            rpi_store_client_watch(server, each, EPOLLOUT);
            return RP_OK;
        }
        if (sent < 0) return RP_FAIL(PEER, "%s: a store client left", rpi_lost_text(errno));
        each->done += (size_t)sent;
    }
    rpi_store_client_begin_request(each);
    rpi_store_client_watch(server, each, EPOLLIN);
    return RP_OK;
}
