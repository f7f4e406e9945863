/* What groups.c and group_lists.c share: communicators made from another, one or many. */
#ifndef RPI_COMM_GROUPS_H
#define RPI_COMM_GROUPS_H

#include "comm/core/communicator.h"

/* Settings that the parent has decided cannot be requested again. */
rp_status rpi_group_check_options(const rp_comm_options *options);
/* *out_place: the caller's among them; -1: it is no member. */
rp_status rpi_group_check_ranks(const rp_comm *parent, const int *ranks, int count,
                                int *out_place);
/* Of these ranks of the parent, the caller at `place`; not open yet. */
rp_status rpi_group_new(const rp_comm *parent, const int *ranks, int count, int place,
                        const rp_comm_options *options, rp_comm **out_comm);
/* Destroyed, or freed if it was not opened; this thread's error stays. */
void rpi_group_undo(rp_comm *comm);
/* "world/split 3", for those that callers gave no name: the same on all members. */
void rpi_group_default_name(const rp_comm *parent, const char *kind, uint64_t number,
                            char *name, size_t bytes);

#endif
