/* What gossip by copies (choco) does beside its lines: what neighbours decode of what is sent,
 * and how far a rank may move towards their copies with a codec. */
#ifndef RPI_COMM_GOSSIP_COPIES_H
#define RPI_COMM_GOSSIP_COPIES_H

#include "redpoll/comm.h"

#include <stddef.h>

/* A codec takes at least the share d from the square of what it is given, again and again what
 * it left. A gamma of d^2, or of 0.4 d where that is more, is about half of what was found
 * stable on rings and exponential graphs, and about as fast as any; d is of the codec that
 * takes least, 1 where nothing is lossy. RP_INVALID: a codec that adds more than it takes. */
rp_status rpi_copies_gamma(const rp_segment *segments, size_t count, double *out_gamma);

/* Bytes of scratch that rpi_copies_decode() needs for these. */
size_t rpi_copies_scratch(const rp_segment *segments, size_t count);
/* The data of each segment becomes what the destinations of this rank's neighbour all-reduce of
 * that seed and step have decoded. */
rp_status rpi_copies_decode(const rp_segment *segments, size_t count, uint64_t seed,
                            uint64_t step, int rank, void *scratch);

#endif
