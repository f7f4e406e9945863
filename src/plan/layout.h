/* Who is on which host, as algorithms that know hosts ask it. */
#ifndef RPI_PLAN_LAYOUT_H
#define RPI_PLAN_LAYOUT_H

#include "plan/plan.h"

/* Hosts are numbered by their lowest rank, and ranks have places on theirs: 0, 1, ..., rising.
 */
typedef struct rpi_host_layout {
    int world, hosts;
    int widest;   /* ranks of the host that has most */
    int *host_of; /* [world] */
    int *place;   /* [world] */
    int *first;   /* [hosts + 1]: into ranks */
    int *ranks;   /* [world]: of host 0, of host 1, ... */
} rpi_host_layout;

/* RP_NOMEM. */
rp_status rpi_layout_make(const rpi_plan_request *request, rpi_host_layout *out_layout);
void rpi_layout_free(rpi_host_layout *layout); /* zeros are fine */

int rpi_layout_size(const rpi_host_layout *layout, int host); /* its ranks */
/* The rank at a place of a host; the place is taken modulo the host's size. */
int rpi_layout_rank(const rpi_host_layout *layout, int host, int place);

#endif
