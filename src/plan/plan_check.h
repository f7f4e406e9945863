/* Proof of a schedule without a network: runs the schedules of all ranks on combinations of
 * contributions (who is in a value, and with which coefficient) instead of numbers.
 *
 * The run is the least lucky one: each rank does one step at a time in the order of its
 * schedule, and a link holds one frame, so that a SEND waits until the frame before it has been
 * received. Every wait in any run that plan.h allows (more at once, more frames on a link) is a
 * wait in this one too, so where this one ends, all end. And since steps that touch one place
 * are ordered by plan.h's rule, all those runs compute what this one computes. */
#ifndef RPI_PLAN_PLAN_CHECK_H
#define RPI_PLAN_PLAN_CHECK_H

#include "plan/plan.h"

enum { RPI_PLAN_CHECK_WORLD = 1024 }; /* largest world: a link takes some 100 bytes */

/* RP_OK when all of this holds, for one world, root and layout of hosts:
 *  - no rank waits for ever; the k-th SEND of every link meets a RECV of the same part (or both
 *    are of TOKEN), and no frame is left over;
 *  - no slot is read before it is written; IN and OUT are touched only where the collective has
 *    them on this rank; IN is not read after OUT of the same part was written; no sum is
 *    written that nobody reads;
 *  - each part of OUT that a rank must have ends with every contribution that belongs in it,
 *    each with the coefficient 1, or 1/world where a mean was asked for, or that of the
 *    request's mixing; the owner's own entered the sum without passing a lossy codec; where the
 *    algorithm says so, they were added one by one in rank order;
 *  - what is encoded for everybody is finished: coefficients do not change behind that;
 *  - a rank encodes a part lossily at most once (there is one residual an element);
 *  - replicas are bit-identical: after an all-reduce or all-gather all ranks, after a broadcast
 *    all but the root, hold what the same operations in the same order made of the same inputs;
 *  - no element is encoded lossily more often than algorithm->quantisations says, and some as
 *    often where each rank is on a host of its own;
 *  - bytes of level HOST stay on their host, and both ends of a frame know its level;
 *  - blocks (plan.h): a rank handles only parts that it gives or gets;
 *  - barrier: no rank ends before all have begun; send/recv: no data before the token.
 * Else RP_INTERNAL, naming algorithm, world, root, rank, step and part. RP_NOMEM.
 * RP_UNSUPPORTED: the world is too large, or the algorithm does not fit it. The rank of the
 * request does not matter. */
rp_status rpi_plan_check(const rpi_algorithm *algorithm, const rpi_plan_request *request);

/* The same for schedules at hand, schedules[rank] for each rank of the request's world, of one
 * algorithm; their shape is checked too, and waits and next must be those of the steps. */
rp_status rpi_plan_check_schedules(const rpi_schedule *schedules,
                                   const rpi_plan_request *request);

#endif
