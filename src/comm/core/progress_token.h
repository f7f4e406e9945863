/* Whose turn it is to drive the fabric: one thread at a time runs its passes. */
#ifndef RPI_COMM_PROGRESS_TOKEN_H
#define RPI_COMM_PROGRESS_TOKEN_H

#include "comm/core/fabric.h"

void rpi_drive_take(rpi_fabric *fabric); /* waits for it; also from a progress thread */
void rpi_drive_give(rpi_fabric *fabric);
void rpi_drive_hand_on(rpi_fabric *fabric); /* the same under the lock */
void rpi_drive_wake(rpi_fabric *fabric);
/* Under the lock, when the drive may have become the progress thread's. */
void rpi_progress_thread_offer(rpi_fabric *fabric);
bool rpi_fabric_has_work(const rpi_fabric *fabric); /* under the lock */

#endif
