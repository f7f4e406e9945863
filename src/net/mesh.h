/* A full mesh of links among the ranks of a store: who am I, who are you, connect. */
#ifndef RPI_NET_MESH_H
#define RPI_NET_MESH_H

#include "net/transport.h"
#include "redpoll/store.h"

typedef struct rpi_mesh_options {
    const char *prefix;    /* of every key in the store: one communicator, one prefix */
    const char *transport; /* NULL or "auto": the first of the catalogue that reaches */
    rpi_link_shape shape;  /* wraps the chosen transport when bytes_per_s or latency_s is set */
    const char *host; /* what this rank's host is called; NULL: what it is. Named hosts of one
                         machine are shaped between each other, and not inside */
    const char *bind_host;
    const struct rpi_secret *secret; /* of the job; NULL: none. Borrowed */
    size_t frame_bytes;
    bool shares;      /* who uses the links asks rpi_sharing (transport.h) where payloads lie */
    double timeout_s; /* for everybody to arrive */
} rpi_mesh_options;

typedef struct rpi_mesh {
    int rank, world;
    uint64_t session;
    rpi_peer_info *peers;       /* [world] */
    int *host_of;               /* [world], numbered by first appearance */
    rpi_link **links;           /* [world]; links[rank] is NULL */
    struct rpi_host_nic *nic;   /* of a named host whose links are shaped; else NULL */
    rpi_endpoint *endpoints[5]; /* one for each transport in use; NULL after the last */
} rpi_mesh;

/* Collective: returns on every rank or fails on every rank by the deadline, naming the ranks
 * that did not arrive, a world size (or transport, shape, frame length) on which ranks disagree
 * (RP_MISMATCH), or a rank that came twice. Ranks that give up before the timeout leave a
 * reason in the store for the others. The prefix may be used again after a mesh that came up,
 * not after one that failed. */
rp_status rpi_mesh_connect(const rp_store *store, int rank, int world,
                           const rpi_mesh_options *options, rpi_mesh **out_mesh);
void rpi_mesh_close(rpi_mesh *mesh);
/* In a child that fork() made: close its copies of the descriptors (transport.h). */
void rpi_mesh_forget(rpi_mesh *mesh);

#endif
