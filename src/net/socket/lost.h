/* How a connection was lost, in words that programs and schedulers recognise. */
#ifndef RPI_NET_LOST_H
#define RPI_NET_LOST_H

#include <errno.h>

/* By the errno of a failed send or receive; 0: it read the end. */
static inline const char *rpi_lost_text(int error) {
    switch (error) {
    case ECONNRESET: return "connection reset by peer";
    case ETIMEDOUT: return "connection timed out";
    case 0:
    case EPIPE: return "connection closed by peer";
    default: return "connection lost";
    }
}

#endif
