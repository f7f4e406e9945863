/* What the calls of windows share. */
#ifndef RPI_COMM_WINDOW_CALLS_H
#define RPI_COMM_WINDOW_CALLS_H

#include "comm/protocol/window_table.h"

/* window_common.c */
void rpi_window_lock_values(rp_window *window);
void rpi_window_unlock_values(rp_window *window); /* calls the progress owner that missed it */
/* There is work: the progress owner is called, or one iteration made. */
void rpi_window_call(rp_window *window);
/* The communicator exists and has not failed. */
rp_status rpi_window_check(const rp_window *window);

/* window_waits.c */
rp_status rpi_window_own_mutexes(rp_window *window, double timeout_s); /* for all sources */
void rpi_window_release_own_mutexes(rp_window *window);
void rpi_window_release_all(rp_window *window); /* releases mutexes of a rank that is about to
                                                 * free the window */

#endif
