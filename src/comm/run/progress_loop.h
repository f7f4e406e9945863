/* Which thread makes progress, and sleeping: a caller that waits, and the progress thread if
 * none does. */
#ifndef RPI_COMM_PROGRESS_LOOP_H
#define RPI_COMM_PROGRESS_LOOP_H

#include "comm/core/communicator.h"

/* ---- progress_loop.c ---- */

/* Make progress or sleep until the request is done or the deadline has come; true: it is done.
 */
bool rpi_wait_until(rp_request *request, int64_t deadline_ns);
/* The same of its `enqueued`. */
bool rpi_wait_until_enqueued(rp_request *request, int64_t deadline_ns);
void rpi_progress_once(
    rp_comm *comm); /* an iteration, when progress has no owner; never blocks */
/* Under the lock, which it releases meanwhile, when no thread makes progress: until there is no
 * work left, or another thread wants to own progress. */
void rpi_progress_unattended(rpi_context *context);

/* ---- progress_thread.c ---- */

rp_status rpi_progress_thread_start(rpi_context *context);
void rpi_progress_thread_stop(rpi_context *context);

#endif
