/* How long a group of ranks takes to sum, or to gather, over two levels: inside hosts, and
 * between them over links that all ranks of a host share. */
#ifndef RPI_PLAN_GROUP_SUMS_H
#define RPI_PLAN_GROUP_SUMS_H

#include "plan/foresight/machine.h"

typedef struct rpi_group {
    int64_t ranks;
    int64_t inside; /* of them on one host */
    int64_t hosts;
} rpi_group;

/* A group of ranks that lie `stride` apart: tensor-parallel 1, others as many as are
 * tensor-parallel. */
rpi_group rpi_group_of(const rpi_machine *machine, int64_t ranks, int64_t stride);

/* A reduce-scatter, or an all-gather, of `bytes`, of which `between` stand for all of them on
 * the way between hosts: scattered inside hosts, each rank's share over the link, which the
 * groups of a host share. Half of an all-reduce. */
double rpi_group_half_s(const rpi_machine *machine, const rpi_group *group, double bytes,
                        double between);

#endif
