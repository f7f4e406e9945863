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

/* window_agreement.c */
enum { RPI_WINDOW_NAME_BYTES = 200 };
/* Collective: all ranks describe their window, and what they say fits together. RP_MISMATCH:
 * it does not, or another rank refuses. window NULL: this rank refuses, for a reason that is
 * its last error. */
rp_status rpi_window_agree(rp_comm *comm, rp_window *window, rp_status refused);

/* window_waits.c */

/* What is waited for: the ranks of which something is missing. */
typedef struct rpi_window_wait {
    rp_window *window;
    const char *what;                                         /* in messages: "put ..." */
    bool (*lacks)(const struct rpi_window_wait *w, int rank); /* under the context's lock */
    rp_window_operation *operation;
    const int *ranks; /* of mutexes */
    size_t count;
    bool own;
} rpi_window_wait;

/* Until nothing is missing; timeout_s not above 0: the communicator's. RP_TIMEOUT and RP_PEER
 * name the ranks. */
rp_status rpi_window_wait_for(const rpi_window_wait *w, double timeout_s);
/* The caller's wait has ended, with this status, which is returned: what rp_window_waited() has
 * said belonged to it, and not to the next one. */
rp_status rpi_window_wait_over(rp_status status);

/* window_mutexes.c */
rp_status rpi_window_own_mutexes(rp_window *window, double timeout_s); /* for all sources */
void rpi_window_release_own_mutexes(rp_window *window);
void rpi_window_release_all(rp_window *window); /* releases mutexes of a rank that is about to
                                                 * free the window */

#endif
