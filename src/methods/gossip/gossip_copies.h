/* What gossip by copies (choco) does beside the lines of its rule: it decodes what neighbours
 * decode of what this rank sends, and finds how far a rank may move towards the copies with a
 * codec. */
#ifndef RPI_METHODS_GOSSIP_COPIES_H
#define RPI_METHODS_GOSSIP_COPIES_H

#include "redpoll/comm.h"

#include <stddef.h>

/* The gamma that fits the codecs of these segments. Given a vector, and then again and again
 * what it left of it, a codec takes at least the share d from the square. Gamma is d^2, but at
 * least 0.7 d, and up to 1.5 d for a codec that sends next to nothing. That is half or less of
 * what was found stable on rings, tori and exponential graphs of 4 and 16 ranks. d is that of
 * the codec that takes least, and 1 where nothing is lossy. RP_INVALID: a codec that adds more
 * than it takes, which is stable with no gamma. */
rp_status rpi_copies_gamma(const rp_segment *segments, size_t count, double *out_gamma);

/* The share d of rpi_copies_gamma(): what is taken from the square of a random vector, and of
 * what was left of it again and again. Below 0: the codec adds more than it takes. */
rp_status rpi_copies_taken(const rp_segment *segments, size_t count, double *out_taken);

/* Bytes of scratch that rpi_copies_decode() needs for these. */
size_t rpi_copies_scratch(const rp_segment *segments, size_t count);
/* The data of each segment becomes what the destinations of this rank's neighbour all-reduce of
 * that seed and step have decoded. */
rp_status rpi_copies_decode(const rp_segment *segments, size_t count, uint64_t seed,
                            uint64_t step, int rank, void *scratch);

#endif
