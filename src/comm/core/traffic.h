/* How urgent operations, control frames and windows are (urgency.h), and how their frames
 * leave. */
#ifndef RPI_COMM_TRAFFIC_H
#define RPI_COMM_TRAFFIC_H

#include "comm/core/urgency.h"
#include "redpoll/comm.h"

/* For an operation whose elements are known. */
rpi_urgency rpi_urgency_of(const rp_request *request);
/* Control frames of a communicator, which are headers only, and frames of its windows. */
rpi_urgency rpi_urgency_of_control(const rp_comm *comm);
rpi_urgency rpi_urgency_of_windows(const rp_comm *comm);
/* How the next frame to this rank, whose link exists, is to leave: before reserve(). [progress]
 */
void rpi_traffic_prepare(rp_comm *comm, int rank, rpi_urgency urgency);
/* That frame was posted. [progress] */
void rpi_traffic_posted(rp_comm *comm, int rank);

#endif
