/* What a method on top of a communicator needs of it, which is not for everybody: to tell the
 * other ranks what this one waits for, and to judge by what they tell. */
#ifndef RPI_COMM_WATCH_H
#define RPI_COMM_WATCH_H

#include "redpoll/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* From now on the caller judges what nobody waits for in a call: deadline.c leaves it. */
void rpi_comm_watch(rp_comm *comm);
/* When something last moved. */
int64_t rpi_comm_moved_ns(const rp_comm *comm);
/* Of its options, in seconds. */
double rpi_comm_timeout_s(const rp_comm *comm);
double rpi_comm_warn_after_s(const rp_comm *comm);

/* What a rank says in its heartbeats. */
typedef struct rpi_comm_status {
    bool waits;
    int from;         /* the rank that it waits for; -1: none in particular */
    uint64_t step;    /* in which that is */
    int64_t heard_ns; /* our clock, when it said so; 0: not yet */
} rpi_comm_status;

/* Ranks of this communicator have heartbeats. */
bool rpi_comm_has_beats(const rp_comm *comm);
/* Say it in this rank's, while no operation of the communicator's runs; heard_ns is ignored.
 * Nothing without heartbeats. */
void rpi_comm_set_status(rp_comm *comm, const rpi_comm_status *word);
/* What a rank said last; with heartbeats. */
void rpi_comm_get_status(const rp_comm *comm, int rank, rpi_comm_status *out_word);

#endif
