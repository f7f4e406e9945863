/* The two halves of scatter-reduce-allgather, which are algorithms of their own as well. Peers
 * are visited in the order rank + 1, rank + 2, ..., so that no two ranks send to one peer at
 * once and links fill evenly. */
#ifndef RPI_PLAN_DIRECT_H
#define RPI_PLAN_DIRECT_H

#include "plan/schedule_writer.h"

/* SUM of `part` becomes the sum of this rank's IN and of the encodings that come from all
 * others, added in rank order. */
void rpi_direct_sum(rpi_writer *writer, int part);

/* Rounds `round` and `round + 1`: part p of everybody's IN goes to rank p, encoded; SUM of part
 * `rank` becomes the sum of all, added in rank order. */
void rpi_direct_reduce(rpi_writer *writer, int round);

/* Rounds `round` and `round + 1`: the encoding of part `rank` in `wire` goes to all; all parts
 * of OUT are decoded, the own one from `wire`. */
void rpi_direct_gather(rpi_writer *writer, int wire, int round);

#endif
