/* Making and ending communicators and the context that they share. */
#ifndef RPI_COMM_CREATE_H
#define RPI_COMM_CREATE_H

#include "comm/core/communicator.h"
#include "net/world/launch_watch.h"

#define RPI_COMM_NAME "world" /* where options name none */

/* What the first communicator of a context needs. */
typedef struct rpi_bootstrap_place {
    const rp_store *store;
    const rp_store *launchers; /* the same store, if it is the launcher's; else NULL */
    rp_world *world;           /* of views, whose members connect; else NULL */
    char prefix[256];          /* of keys */
    rpi_launch_watch watch;
} rpi_bootstrap_place;

/* ---- context_open.c ---- */

/* A context without links yet; rpi_context_close() takes it. */
rp_status rpi_context_new(int rank, int world, rpi_context **out_context);
/* Says goodbye; no communicator is left. NULL is fine. */
void rpi_context_close(rpi_context *context);
void rpi_context_close_after_fork(rpi_context *context); /* in a forked child: transport.h */

/* ---- create.c ---- */

/* Of some ranks of a context (NULL: of all), not open yet. */
rp_status rpi_comm_new(rpi_context *context, int rank, int world, const int *members,
                       rp_comm **out_comm);
rp_status rpi_comm_set_options(rp_comm *comm, const rp_comm_options *options);
/* It has its name and id, and the context its links: frames arrive from now on. */
rp_status rpi_comm_begin(rp_comm *comm);
void rpi_comm_free(rp_comm *comm); /* no part of a context any more; NULL is fine */

/* Shared by the public calls that make the first communicator of a context. */
rp_status rpi_comm_make(const rpi_bootstrap_place *place, int rank, int world,
                        const rp_comm_options *options, rp_comm **out_comm);

/* ---- destroy.c ---- */

/* For a communicator that has failed by a death: all members learn on their links which rank is
 * dead, as the control connection says while rank 0 is alive. [progress] */
void rpi_comm_send_death(rp_comm *comm);

/* ---- connect_world.c ---- */

#define RPI_CONNECT_S 60.0 /* for all ranks to connect, if options have no other time */

/* Of options: seconds, or 0 for the fallback. */
static inline double rpi_time_or(double value, double fallback) {
    return value > 0 ? value : fallback;
}

/* The name under which the ranks of a communicator find each other in a store. */
void rpi_bootstrap_name(const char *name, uint32_t epoch, char *text, size_t bytes);
/* All ranks have connected, with the same options; the communicator has its name and epoch. */
rp_status rpi_comm_connect_world(rp_comm *comm, rpi_bootstrap_place *place,
                                 const rp_comm_options *options);

/* ---- revoke.c ---- */

/* It has failed: until none of its requests is in flight. [progress] */
void rpi_comm_end_requests(rp_comm *comm);

/* ---- comm_options.c ---- */

/* given: the caller's, or NULL for defaults; *out_own: in the form of this library. */
rp_status rpi_comm_options_read(const rp_comm_options *given, rp_comm_options *out_own);
rp_status rpi_comm_options_check(const rp_comm_options *options, int world);

/* ---- groups.c ---- */

/* As rp_comm_group(); *out_lost: which of the ranks has died, if that is why it failed, else
 * unchanged. */
rp_status rpi_group_try(rp_comm *parent, const int *ranks, int count,
                        const rp_comm_options *options, rp_comm **out_comm, int *out_lost);

#endif
