/* Contributions that differ from the caller's memory: scaled by RP_PREMUL_SUM, or with
 * residuals of error feedback for elements that are not encoded now. Residuals are added before
 * any instruction reads, because algorithms differ: some never encode, or use a rank's own
 * values unencoded. */
#ifndef RPI_COMM_CONTRIBUTIONS_H
#define RPI_COMM_CONTRIBUTIONS_H

#include "comm/core/communicator.h"

typedef struct rpi_change {
    bool scales;           /* by the factor */
    bool flushes_residual; /* what residuals of runs hold that are exact, or not encoded
                              (partition.h) */
    double factor;
} rpi_change;

/* Changes the input so, then posts the request as rpi_request_post() does. The input is changed
 * in place if the call may overwrite it, else in a copy that the request owns. Of elements in
 * memory of a GPU the copies on the host are changed. */
rp_status rpi_contribution_post(rp_request *request, const rpi_change *change);

#endif
