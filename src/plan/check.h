/* Proof of a schedule without a network: runs the schedules of all ranks on sets of
 * contributions instead of numbers. */
#ifndef RPI_PLAN_CHECK_H
#define RPI_PLAN_CHECK_H

#include "plan/plan.h"

/* RP_OK when, for every order that the dependency rule and FIFO links allow: no rank waits for
 * ever, every SEND meets its RECV of the same part, no slot is read before it is written, IN is
 * never read after OUT of the same part was written, each part of each rank's OUT ends with
 * every contribution it must have, exactly once, and (all-reduce) every rank holds the result of
 * one and the same encoding, so replicas are bit-identical. Else RP_INTERNAL, naming world,
 * rank, step and part. */
rp_status rpi_plan_check(const rpi_algorithm *algorithm, int world, int root);

#endif
