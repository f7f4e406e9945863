/* Bytes that a rank of a run sends in a step, by tensor: small ones and vectors travel exact.
 */
#ifndef RPI_CLI_RUN_TRAFFIC_H
#define RPI_CLI_RUN_TRAFFIC_H

#include "cli/plan_scaling.h"
#include "cli/run_record.h"

/* Of all-reduces of gradients; `job` is priced with its codec for all. */
rp_status rpi_run_traffic(const rpi_run_record *record, const rpi_scaling_job *job,
                          double *out_bytes);

#endif
