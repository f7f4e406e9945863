/* The time for a group of ranks to sum, or to gather, on two levels: inside hosts, and between
 * them over links that all ranks of a host share. */
#ifndef RPI_PLAN_GROUP_SUMS_H
#define RPI_PLAN_GROUP_SUMS_H

#include "plan/foresight/machine.h"

typedef struct rpi_group {
    int64_t ranks;
    int64_t inside; /* the group's ranks on one host */
    int64_t hosts;
} rpi_group;

/* A group of ranks whose numbers are `stride` apart: 1 for tensor-parallel ranks, the number of
 * tensor-parallel ranks for others. */
rpi_group rpi_group_of(const rpi_machine *machine, int64_t ranks, int64_t stride);

/* The time of a reduce-scatter, or an all-gather, of `bytes`, which are `between` bytes when
 * they are sent between hosts. It scatters inside hosts, then sends each rank's share over the
 * link, which the groups of a host share. Half of an all-reduce. */
double rpi_group_half_s(const rpi_machine *machine, const rpi_group *group, double bytes,
                        double between);

#endif
