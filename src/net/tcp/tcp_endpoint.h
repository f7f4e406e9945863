/* What the files of the TCP transport share: tcp.c, its endpoint and frames, and tcp_connect.c,
 * which makes links. */
#ifndef RPI_NET_TCP_ENDPOINT_H
#define RPI_NET_TCP_ENDPOINT_H

#include "net/link/acceptor.h"
#include "net/link/connector.h"
#include "net/link/transport.h"
#include "net/socket/addresses.h"
#include "net/tcp/tcp_multistream.h"

typedef struct rpi_tcp_link {
    rpi_link base;
    rpi_tcp_multistream multistream;
} rpi_tcp_link;

typedef struct rpi_tcp_endpoint {
    rpi_endpoint base;
    rpi_acceptor acceptor;
    rpi_connector *connector; /* instead of it if links are made on need */
    rpi_hello hello;
    char host[RPI_HOST_BYTES];
    int port;
    int epoll_fd;
    rpi_tcp_link **links; /* [world] */
} rpi_tcp_endpoint;

/* ---- tcp_connect.c: as the contract of a transport has it (transport.h) ---- */

rp_status rpi_tcp_connect(rpi_endpoint *endpoint, int peer, const char *address,
                          int64_t deadline_ns, rpi_link **out_link);
/* For an endpoint whose links are made on need. */
rp_status rpi_tcp_call(rpi_endpoint *endpoint, int peer, const char *address);
rp_status rpi_tcp_connected(rpi_endpoint *endpoint, int *out_peer, rpi_link **out_link);
extern const rpi_call_kind rpi_tcp_connecting;

#endif
