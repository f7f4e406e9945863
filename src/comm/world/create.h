/* The making and ending of communicators and of the fabric that they share. */
#ifndef RPI_COMM_CREATE_H
#define RPI_COMM_CREATE_H

#include "comm/core/communicator.h"

#define RPI_COMM_NAME "world" /* where options name none */

/* ---- fabric_open.c ---- */

/* A fabric of no links yet; rpi_fabric_close() takes it as it is. */
rp_status rpi_fabric_new(int rank, int world, rpi_fabric **out_fabric);
/* Says goodbye; no communicator is left. NULL is fine. */
void rpi_fabric_close(rpi_fabric *fabric);
void rpi_fabric_forget(rpi_fabric *fabric); /* in a forked child: transport.h */

/* ---- create.c ---- */

/* Of some ranks of a fabric (NULL: of all), not open yet. */
rp_status rpi_comm_new(rpi_fabric *fabric, int rank, int world, const int *members,
                       rp_comm **out_comm);
rp_status rpi_comm_set_options(rp_comm *comm, const rp_comm_options *options);
/* It has its name and id, and the fabric its links: frames come from here on. */
rp_status rpi_comm_begin(rp_comm *comm);
void rpi_comm_free(rp_comm *comm); /* no part of a fabric any more; NULL is fine */
/* Of a communicator that has failed by a death: all members hear by their links who is dead, as
 * the control connection tells it while rank 0 lives. [driver] */
void rpi_comm_tell_death(rp_comm *comm);

/* ---- revoke.c ---- */

/* It has failed: until none of its requests is in flight. [driver] */
void rpi_comm_end_requests(rp_comm *comm);

/* ---- comm_options.c ---- */

/* given: the caller's, or NULL for defaults; *out_own: as this library knows them. */
rp_status rpi_comm_options_read(const rp_comm_options *given, rp_comm_options *out_own);
rp_status rpi_comm_options_check(const rp_comm_options *options, int world);

/* ---- groups.c ---- */

/* As rp_comm_group(); *out_lost: which of the ranks has died, where that is why it failed, else
 * as it was. */
rp_status rpi_group_try(rp_comm *parent, const int *ranks, int count,
                        const rp_comm_options *options, rp_comm **out_comm, int *out_lost);

#endif
