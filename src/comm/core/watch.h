/* For methods on top of a communicator, not for everybody: to tell the other ranks for what
 * this one waits, and to use what they tell. */
#ifndef RPI_COMM_WATCH_H
#define RPI_COMM_WATCH_H

#include "redpoll/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* From now on the caller decides about receives for which no call waits; deadline.c leaves them
 * alone. */
void rpi_comm_watch(rp_comm *comm);
/* When something last moved. */
int64_t rpi_comm_moved_ns(const rp_comm *comm);
/* Of its options, in seconds. */
double rpi_comm_timeout_s(const rp_comm *comm);
double rpi_comm_warn_after_s(const rp_comm *comm);

/* The state that a rank reports in its heartbeats. */
typedef struct rpi_comm_status {
    bool waits;
    int from;         /* the rank for which it waits; -1: no particular one */
    uint64_t step;    /* in which that is */
    int64_t heard_ns; /* our clock, when it arrived; 0: not yet */
} rpi_comm_status;

/* Ranks of this communicator have heartbeats. */
bool rpi_comm_has_beats(const rp_comm *comm);
/* Report it in this rank's heartbeats while no operation of the communicator runs; heard_ns is
 * ignored. Does nothing without heartbeats. */
void rpi_comm_set_status(rp_comm *comm, const rpi_comm_status *own);
/* The last report of a rank; needs heartbeats. */
void rpi_comm_get_status(const rp_comm *comm, int rank, rpi_comm_status *out_word);

#endif
