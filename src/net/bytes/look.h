/* A check that a thread makes from time to time while it waits for another rank: if ask()
 * returns something other than RP_OK, the wait ends with it. */
#ifndef RPI_NET_LOOK_H
#define RPI_NET_LOOK_H

#include "base/clock.h"
#include "base/status.h"

#define RPI_LOOK_S 0.2 /* between two of them */

typedef struct rpi_look {
    rp_status (*ask)(void *context); /* called by the thread that waits; NULL: no check */
    void *context;
    int64_t next_ns; /* 0 at the beginning of a wait */
} rpi_look;

/* Sleep no longer than until the next check. look: NULL is fine. */
static inline int64_t rpi_look_wake_ns(rpi_look *look, int64_t deadline_ns) {
    if (!look || !look->ask) return deadline_ns;
    if (!look->next_ns) look->next_ns = rpi_deadline_ns(RPI_LOOK_S);
    return look->next_ns < deadline_ns ? look->next_ns : deadline_ns;
}

/* Ask, where it is time to. */
static inline rp_status rpi_look_in_time(rpi_look *look) {
    if (!look || !look->ask || !look->next_ns || rpi_now_ns() < look->next_ns) return RP_OK;
    rp_status status = look->ask(look->context);
    look->next_ns = rpi_deadline_ns(RPI_LOOK_S);
    return status;
}

#endif
