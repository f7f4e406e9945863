/* Contributions that are not what the caller's memory holds: scaled by RP_PREMUL_SUM; and with
 * what error feedback held back of elements that are not encoded now. That joins them before
 * anybody reads, where all algorithms take it from: some never encode, or take a rank's own
 * values as they are. */
#ifndef RPI_COMM_CONTRIBUTIONS_H
#define RPI_COMM_CONTRIBUTIONS_H

#include "comm/core/communicator.h"

typedef struct rpi_change {
    bool scales;           /* by the factor */
    bool flushes_residual; /* what residuals of runs hold that are exact, or not encoded
                              (partition.h) */
    double factor;
} rpi_change;

/* rpi_request_post(), with the input so changed: where it lies when that is the call's to
 * overwrite, else in a copy that the request owns. Of elements in memory of a GPU it is their
 * copies on the host that are changed. */
rp_status rpi_contribution_post(rp_request *request, const rpi_change *change);

#endif
