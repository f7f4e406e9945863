/* Does a rank sleep, and which of its links are ready? One page of memory that it shares with
 * its peers of one host, for worlds in which to look at every link costs more than what has
 * come.
 *
 *     page:  | asleep | a bit for each rank, set by that rank |
 *
 *      who has written                        the owner, before it sleeps
 *      A1 leaves it in the link               B1 asleep = 1
 *      A2 sets its bit, unless it is set      B2 takes the bits that are set, and clears them
 *      A3 asleep? makes it 0, and             B3 looks at the links of these
 *         writes the eventfd                  B4 found nothing: sleeps on the eventfd
 *
 * Every access is a sequentially consistent atomic, so there is one order of all of them. Where
 * A2, or its look that finds the bit set, comes before B2 has cleared it, A1 comes before B3,
 * which finds the link ready. Where it comes behind B2, A3 comes behind B1: it finds 1, unless
 * another caller has made it 0 since, and that one writes the eventfd. Who polls does B2 and B3
 * alone.
 *
 * All peers can write the whole page, and what stands there is a hint: bits of ranks that have
 * no link here are passed over, those that are not ready cost a look. A peer that clears what
 * others have set delays the owner, which sleeps no longer than its deadlines; it can send
 * nothing in their name. */
#ifndef RPI_NET_DOORBELL_H
#define RPI_NET_DOORBELL_H

#include "base/rank_set.h"

#include <stdatomic.h>
#include <stddef.h>

typedef struct rpi_doorbell_page {
    atomic_uint asleep; /* also cleared by the rank that wakes the owner */
    atomic_uint_fast64_t rung[];
} rpi_doorbell_page;

/* The owner's. */
typedef struct rpi_doorbell {
    rpi_doorbell_page *page; /* NULL: there is none */
    size_t bytes;
    int fd;             /* of the page, for peers to map */
    rpi_rank_set known; /* ranks that have a link here */
    rpi_rank_set links; /* to be examined: rung since the last time, or noted */
} rpi_doorbell;

rp_status rpi_doorbell_open(int world, rpi_doorbell *out_doorbell);
void rpi_doorbell_close(rpi_doorbell *doorbell); /* fd -1 and zeros are fine */
/* A link to this rank is made; it may have rung before. */
void rpi_doorbell_admit(rpi_doorbell *doorbell, int rank);
/* Examine it although it has not rung. */
void rpi_doorbell_note(rpi_doorbell *doorbell, int rank);
/* Ranks that have rung are in `links` after this. */
void rpi_doorbell_take(rpi_doorbell *doorbell);
/* The owner is about to sleep: from now on a rank that rings writes the eventfd. Also takes the
 * rings. */
void rpi_doorbell_arm(rpi_doorbell *doorbell);
void rpi_doorbell_disarm(rpi_doorbell *doorbell);

/* ---- the peers' side ---- */

size_t rpi_doorbell_bytes(int world);
/* rank: this rank. wake_fd: the owner's eventfd. */
void rpi_doorbell_ring(rpi_doorbell_page *page, int rank, int wake_fd);

#endif
