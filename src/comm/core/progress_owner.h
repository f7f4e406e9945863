/* Which thread makes progress: one at a time runs the iterations. */
#ifndef RPI_COMM_PROGRESS_OWNER_H
#define RPI_COMM_PROGRESS_OWNER_H

#include "comm/core/context.h"

void rpi_progress_acquire(rpi_context *context); /* waits for it; also takes it from a progress
                                                  * thread */
/* Under the lock. False: another thread owns it. */
bool rpi_progress_take_locked(rpi_context *context, rpi_progress_owner owner);
void rpi_progress_release(rpi_context *context);
void rpi_progress_release_locked(rpi_context *context); /* the same under the lock */
void rpi_progress_wake(rpi_context *context);
/* Under the lock, when the progress thread may have become the owner. */
void rpi_progress_thread_notify(rpi_context *context);
bool rpi_progress_has_work(const rpi_context *context); /* under the lock */

#endif
