/* What the files of a store's server share: store_server.c, its thread and who may come in;
 * store_client.c, the bytes of one client; store_requests.c, what clients ask for.
 *
 *     PROVING ---> RECEIVING -- its request is whole -----------------> REPLYING
 *                   ^    |                                             ^   |
 *                   |    '-- its key is not there yet --> WAITING -----'   |
 *                   '------------- the reply has left ---------------------'
 *
 * A client begins with PROVING where the job has a secret, else with RECEIVING, and may be
 * dropped in any state. */
#ifndef RPI_NET_STORE_SERVING_H
#define RPI_NET_STORE_SERVING_H

#include "net/store/dictionary.h"
#include "net/store/store_page.h"
#include "net/store/store_wire.h"
#include "net/trust/channel.h"
#include "net/trust/proof.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum rpi_store_client_state {
    RPI_STORE_CLIENT_PROVING,
    RPI_STORE_CLIENT_RECEIVING,
    RPI_STORE_CLIENT_WAITING,
    RPI_STORE_CLIENT_REPLYING,
} rpi_store_client_state;

typedef struct rpi_store_client {
    struct rpi_store_client *next;
    rpi_channel channel;
    rpi_store_client_state state;
    bool is_stranger;
    int64_t since_ns; /* when it came */
    rpi_proof proof;
    uint32_t watched; /* epoll's events */
    rpi_store_header request;
    char key[RPI_STORE_KEY_BYTES];    /* of the request; WAITING: the key that is missing */
    char prefix[RPI_STORE_KEY_BYTES]; /* of the page's keys */
    rpi_store_page page;              /* asked for; count 0: none */
    int64_t deadline_ns;              /* WAITING: reply with the values that are set by then */
    size_t done, bytes;               /* of `buffer`: received or sent so far, and in all */
    size_t capacity;
    unsigned char *buffer;
} rpi_store_client;

struct rp_store_server {
    pthread_t thread;
    int listener, epoll, stop;
    rpi_dictionary *dictionary;
    rpi_secret secret;
    rpi_store_client *clients; /* those that came last first */
    int stranger_count;
    unsigned refusals;
    bool has_said;            /* that it lacks descriptors or memory */
    int64_t resume_accept_ns; /* RPI_NEVER_NS: accepting */
    int64_t due_ns;           /* no client's time is over before */
};

/* ---- store_client.c ---- */

void rpi_store_client_drop(rp_store_server *server, rpi_store_client *gone);
/* These events of epoll are waited for. */
void rpi_store_client_watch(rp_store_server *server, rpi_store_client *each, uint32_t events);
/* Makes room for so many bytes in its buffer. */
rp_status rpi_store_client_reserve(rpi_store_client *each, size_t bytes);
/* It belongs to this job: from now on it is trusted, and may stay. */
void rpi_store_client_let_in(rp_store_server *server, rpi_store_client *each);
void rpi_store_client_begin_request(rpi_store_client *each);
/* Queue a reply whose value is in the client's buffer, after the header. */
void rpi_store_client_begin_reply(rpi_store_client *each, rp_status status, int64_t number,
                                  size_t value_bytes);
/* Queue a reply; `value` may not be in the client's own buffer. */
rp_status rpi_store_client_reply(rpi_store_client *each, rp_status status, int64_t number,
                                 const void *value, size_t value_bytes);
/* Queue a failure, with the recorded message. */
rp_status rpi_store_client_refuse(rpi_store_client *each, rp_status status);
/* Send queued bytes; the client's next request begins when all have left. */
rp_status rpi_store_client_flush(rp_store_server *server, rpi_store_client *each);

/* ---- store_requests.c ---- */

/* Do what a complete request asks for; the reply is queued, or the client waits. */
rp_status rpi_store_serve_request(rp_store_server *server, rpi_store_client *each);
/* For a client that waits for a page: reply with the values that are set now. */
rp_status rpi_store_answer_page(rp_store_server *server, rpi_store_client *each);

#endif
