/* Sums of two that need no accumulator. */
#ifndef RPI_COMM_ROUTINE_FOLD_H
#define RPI_COMM_ROUTINE_FOLD_H

#include "comm/routine.h"

/* Where a part's sum begins with this rank's own values and one frame, the two steps become one
 * ADD that reads both (rpi_action.first). Where that is all of the sum, which is then sent and
 * kept, the ADD also takes over its mean and its way into OUT: `into` is then OUT, and what is
 * sent is read from there; only in requests whose bytes are their values: exact codecs, no
 * error feedback (rpi_routine.plain). stands_for[i]: the action that took step i over, or i
 * itself. */
rp_status rpi_routine_fold(rpi_routine *routine, int32_t *stands_for);

#endif
