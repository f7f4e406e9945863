/* What gossip by copies (choco) does beside its lines: what neighbours decode of what is sent,
 * and how far a rank may move towards their copies with a codec. */
#ifndef RPI_METHODS_GOSSIP_COPIES_H
#define RPI_METHODS_GOSSIP_COPIES_H

#include "redpoll/comm.h"

#include <stddef.h>

/* A codec takes at least the share d from the square of what it is given, again and again what
 * it left. Gamma is d^2, or 0.7 d where that is more, up to 1.5 d where a codec sends next to
 * nothing: half or less of what was found stable on rings, tori and exponential graphs of 4 and
 * 16 ranks; d is of the codec that takes least, 1 where nothing is lossy. RP_INVALID: a codec
 * that adds more than it takes, which no gamma bears. */
rp_status rpi_copies_gamma(const rp_segment *segments, size_t count, double *out_gamma);

/* That d: of the square of a random vector, and of what was left of it again and again. Below
 * 0: the codec adds more than it takes. */
rp_status rpi_copies_taken(const rp_segment *segments, size_t count, double *out_taken);

/* Bytes of scratch that rpi_copies_decode() needs for these. */
size_t rpi_copies_scratch(const rp_segment *segments, size_t count);
/* The data of each segment becomes what the destinations of this rank's neighbour all-reduce of
 * that seed and step have decoded. */
rp_status rpi_copies_decode(const rp_segment *segments, size_t count, uint64_t seed,
                            uint64_t step, int rank, void *scratch);

#endif
