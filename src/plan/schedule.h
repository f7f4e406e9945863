/* What rpi_schedule_build does to what an algorithm wrote. Apart from it, for tests and for
 * schedules that come from elsewhere. */
#ifndef RPI_PLAN_SCHEDULE_H
#define RPI_PLAN_SCHEDULE_H

#include "plan/plan.h"

/* RP_INTERNAL, naming algorithm, world, rank and step, unless every step has slots that its
 * kind takes, a part and a peer that exist, and every encoded slot is written once, before it
 * is read, and holds one part. */
rp_status rpi_schedule_check_shape(const rpi_schedule *schedule);

/* (Re)compute waits, next_first and next from the steps. Needs a good shape. O(steps). */
rp_status rpi_schedule_order(rpi_schedule *schedule);

/* RP_INTERNAL with the place in front: "all-reduce by 'sra', world 4, rank 2, step 7 (add part
 * 1): " and the message. */
rp_status rpi_schedule_fail(const rpi_schedule *schedule, int step, const char *format, ...)
    RP_PRINTF(3, 4);

#endif
