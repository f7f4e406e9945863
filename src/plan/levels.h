/* What the two-level algorithms share: where this rank sits, and who carries what.
 *
 * On each host the rank at place s (modulo the ranks there) is the node leader of what belongs
 * to place s of the other hosts: it alone exchanges that between hosts, and the other ranks of
 * its host have it from it. */
#ifndef RPI_PLAN_LEVELS_H
#define RPI_PLAN_LEVELS_H

#include "plan/layout.h"
#include "plan/schedule_writer.h"

typedef struct rpi_levels {
    rpi_writer writer; /* to be started */
    rpi_host_layout layout;
    int host, place, size; /* of this rank; ranks on its host */
} rpi_levels;

/* RP_NOMEM. */
rp_status rpi_levels_open(const rpi_plan_request *request, rpi_levels *out_levels);
/* Frees the layout; what rpi_writer_finish says. */
rp_status rpi_levels_finish(rpi_levels *levels);

int rpi_levels_leader(const rpi_levels *levels, int host, int place);
/* The host at a distance from this rank's, both ways round. */
int rpi_levels_host_at(const rpi_levels *levels, int distance);

/* ---- sums: every rank gives, exactly, the node leaders of its host what they carry ---- */

/* To the node leader of `place`. */
void rpi_levels_give(rpi_levels *levels, int part, int place);
/* Of a part that this rank carries: the sum over its host, in the order of ranks, in SUM. */
void rpi_levels_collect(rpi_levels *levels, int part);
/* Where the sum of this host then is: IN of a rank that is alone on it. */
int rpi_levels_sum_slot(const rpi_levels *levels);
/* SUM becomes that over all hosts, in their order, of which the node leaders of `place` send us
 * theirs. */
void rpi_levels_add_hosts(rpi_levels *levels, int part, int place);

/* ---- copies: node leaders give the other local ranks what they have ---- */

void rpi_levels_pass_on(rpi_levels *levels, int part, int wire);
/* From the node leader of `place`; decodes into OUT. */
void rpi_levels_take(rpi_levels *levels, int part, int place);

#endif
