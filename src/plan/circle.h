/* The two halves of the ring, which are algorithms of their own as well: every rank sends to
 * rank + 1 and receives from rank - 1 only. */
#ifndef RPI_PLAN_CIRCLE_H
#define RPI_PLAN_CIRCLE_H

#include "plan/schedule_writer.h"

/* World - 1 rounds from `round`: the partial sum of each part travels once round the ring and
 * ends as SUM of part `rank`, encoded anew at each hop. */
void rpi_circle_reduce(rpi_writer *writer, int round);

/* World - 1 rounds from `round`: the encoding of part `rank` in `wire` travels round the ring
 * as it is; all parts of OUT are decoded, the own one from `wire`. */
void rpi_circle_gather(rpi_writer *writer, int wire, int round);

#endif
