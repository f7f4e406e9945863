/* In which world was this process started, and how does it reach the others?
 *
 * Launchers say it in environment variables; docs/launching.md lists them. In order of trust:
 * `redpoll run`, torchrun (or the same variables set by hand), mpirun, srun; else this process
 * is a world of one. If only some variables of a launcher are set, this is an error. */
#ifndef RPI_NET_JOIN_H
#define RPI_NET_JOIN_H

#include "base/status.h"
#include "net/bytes/environment.h"
#include "net/socket/addresses.h"
#include "redpoll/store.h"

#include <stdbool.h>

typedef enum rpi_store_kind {
    RPI_STORE_NONE,   /* a world of one needs no store */
    RPI_STORE_CLIENT, /* the launcher serves it */
    RPI_STORE_RANK_0, /* rank 0 serves it, the others connect */
    RPI_STORE_TORCH,  /* a torchrun agent serves one in PyTorch's protocol */
} rpi_store_kind;

/* The place that the environment describes; nothing is opened. */
typedef struct rpi_world_info {
    int rank, world;
    int local_rank, local_world; /* among the ranks of this host, as far as is known */
    bool one_host;               /* it is known that all ranks are on this host */
    bool alone;                  /* no launcher was found, so no other rank is expected */
    char found_by[64];           /* "redpoll run", "torchrun", "mpirun", "srun", ... */
    rpi_store_kind store;
    char host[RPI_HOST_BYTES]; /* of the store */
    int port;
    char job[192]; /* prefix of keys in a shared store, and the owner of a derived port */
    bool port_is_derived; /* from the job: another job may have taken it */
    bool tls;             /* the caller asks for it, whatever the environment has (secret.h) */
} rpi_world_info;

/* Pure. RP_INVALID names the variable that is missing or wrong. */
rp_status rpi_world_info_find(const rpi_environment *environment, rpi_world_info *out_info);
/* The same with this process's own environment. */
rp_status rpi_world_info_find_own(rpi_world_info *out_info);
/* The same for a store that rank 0 serves by itself (PyTorch's): MASTER_ADDR and MASTER_PORT
 * count if launchers set them, whatever store a launcher serves itself. */
rp_status rpi_world_info_find_master(const rpi_environment *environment,
                                     rpi_world_info *out_info);
rp_status rpi_world_info_find_own_master(rpi_world_info *out_info);
/* The process that started this rank: its parent, or the process that started the scripts,
 * numactl and the like in between, which have the rank's own variables. Reads /proc; 0 if it
 * cannot be seen. */
int64_t rpi_launcher_pid(void);
/* The cores that all ranks of this host have together, at least 1, as far as one of them can
 * see: those of its launcher, which may have bound each rank to a part of them, or its own if
 * these are more. */
int rpi_host_cores(void);

typedef struct rpi_join {
    rpi_world_info info;
    rp_store store;        /* zeros in a world of one */
    const char *bind_host; /* for rp_comm_options: the interface that faces the other hosts;
                              NULL (loopback) when all ranks are on this one */
    char address[RPI_HOST_BYTES];
    rp_store_server *server; /* rank 0 of RPI_STORE_RANK_0 */
} rpi_join;

/* Open the place's store. Rank 0 starts the server if one is needed. Blocks up to timeout_s.
 * RP_IO: the port is taken (the message says what to do); RP_TIMEOUT: nobody serves it;
 * RP_MISMATCH: the store at that port is another job's. */
rp_status rpi_join_open(const rpi_world_info *info, double timeout_s, rpi_join **out_join);
/* Says goodbye: a serving rank 0 waits for the others to leave, and they for its reply, a
 * second at most. NULL is fine. */
void rpi_join_close(rpi_join *join);
/* After a failure: without goodbye and without waiting. NULL is fine. */
void rpi_join_abandon(rpi_join *join);
/* In a child made by fork(): closes its copies of the descriptors (transport.h). */
void rpi_join_close_after_fork(rpi_join *join);

#endif
