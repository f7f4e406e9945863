/* Which communicators of a context are open, and frames that come before theirs is. [progress]
 */
#ifndef RPI_COMM_OPEN_CLOSE_H
#define RPI_COMM_OPEN_CLOSE_H

#include "comm/core/context.h"

/* From now on it is part of the context, and if it has a number its frames are received. Early
 * frames are received now. */
rp_status rpi_context_add(rp_comm *comm);
/* The same of one that is part of it, once it has its number. */
rp_status rpi_context_open(rp_comm *comm);
/* Its frames are dropped from now on; true: it was the last. */
bool rpi_context_remove(rp_comm *comm);
rp_comm *rpi_context_find(const rpi_context *context, uint32_t id, uint32_t epoch);
/* A frame of no open communicator: kept, or released. RP_MISMATCH: impossible. */
rp_status rpi_context_take_unopened(rpi_context *context, int rank,
                                    const rpi_frame_header *header, const void *payload);

#endif
