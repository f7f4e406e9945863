/* Who drives, and sleeping: a caller who waits, and the progress thread when nobody does. */
#ifndef RPI_COMM_PROGRESS_LOOP_H
#define RPI_COMM_PROGRESS_LOOP_H

#include "comm/core/communicator.h"

/* ---- progress_loop.c ---- */

/* Drive or sleep until the request is done or the deadline has come; true: it is done. */
bool rpi_wait_until(rp_request *request, int64_t deadline_ns);
/* The same of its `enqueued`. */
bool rpi_wait_until_enqueued(rp_request *request, int64_t deadline_ns);
void rpi_drive_once(rp_comm *comm); /* a pass, when the drive is free; never blocks */
/* Under the lock, which it releases meanwhile, when nobody drives: until there is nothing more
 * to do, or somebody wants the drive. */
void rpi_drive_for_nobody(rpi_fabric *fabric);

/* ---- progress_thread.c ---- */

rp_status rpi_progress_thread_start(rpi_fabric *fabric);
void rpi_progress_thread_stop(rpi_fabric *fabric);

#endif
