/* Links among the ranks of a store, made for all of them at the start or for each when it is
 * first needed. */
#ifndef RPI_NET_MESH_H
#define RPI_NET_MESH_H

#include "net/link/transport.h"
#include "redpoll/store.h"

/* Up to this many ranks links are made at the start: they cost little there, and a cut network
 * is noticed before the work begins. Above it a ring or a tree needs only some of them, and the
 * others would cost descriptors and time. */
enum { RPI_MESH_START_WORLD = 16 };

typedef enum rpi_mesh_when { RPI_MESH_AUTO, RPI_MESH_START, RPI_MESH_NEED } rpi_mesh_when;

typedef struct rpi_mesh_options {
    const char *prefix; /* of every key in the store: one communicator, one prefix */
    const char
        *transport;       /* NULL or "auto": the first of the catalogue that reaches the peer */
    rpi_link_shape shape; /* wraps the chosen transport if bytes_per_s or latency_s is set */
    const char *host; /* what this rank's host is called; NULL: what it is. Named hosts of one
                         machine are shaped between each other, and not inside */
    const char *bind_host;
    const struct rpi_secret *secret; /* of the job; NULL: none. Borrowed */
    size_t frame_bytes;
    rpi_mesh_when when; /* links are made; the same on all ranks */
    int streams; /* of each link that leaves the kernel (transport.h); 0: one. The same on all
                  */
    bool zero_copy;   /* the user of the links calls rpi_zero_copy (transport.h) for payloads in
                       * buffers */
    double timeout_s; /* for everybody to arrive */
    rpi_look look;    /* a check for waits for other ranks; zeros: none */
} rpi_mesh_options;

typedef struct rpi_mesh {
    int rank, world;
    uint64_t session;
    rpi_peer_info *peers; /* [world] */
    int *host_of;         /* [world], numbered by first appearance */
    rpi_link **links;     /* [world]; links[rank] is NULL, and with on_need all are NULL at
                           * first */
    bool on_need;
    char **addresses;           /* [world] what each rank publishes of its endpoints */
    int *kind_of;               /* [world] the endpoint by which it is reached */
    struct rpi_host_nic *nic;   /* of a named host with shaped links; else NULL */
    rpi_endpoint *endpoints[5]; /* one for each transport in use; NULL after the last */
} rpi_mesh;

/* Collective: returns on every rank or fails on every rank by the deadline. The failure names
 * the ranks that did not arrive, a world size (or transport, shape, frame length) on which
 * ranks disagree (RP_MISMATCH), or a rank that came twice. Ranks that give up before the
 * timeout leave a reason in the store for the others. The prefix may be used again after a mesh
 * that was made, not after one that failed. */
rp_status rpi_mesh_connect(const rp_store *store, int rank, int world,
                           const rpi_mesh_options *options, rpi_mesh **out_mesh);
/* From its text, "start" or "need"; NULL and "auto" are RPI_MESH_AUTO. RP_INVALID. */
rp_status rpi_mesh_when_parse(const char *text, rpi_mesh_when *out_when);
/* With on_need; both as call() and connected() of a transport (transport.h): a link to this
 * peer is needed, and the next one that was made, which is also in `links`. */
rp_status rpi_mesh_call(rpi_mesh *mesh, int peer);
rp_status rpi_mesh_connected(rpi_mesh *mesh, int *out_peer);
void rpi_mesh_close(rpi_mesh *mesh);
/* In a child made by fork(): closes its copies of the descriptors (transport.h). */
void rpi_mesh_close_after_fork(rpi_mesh *mesh);

#endif
