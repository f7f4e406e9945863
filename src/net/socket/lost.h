/* How a connection was lost, in the words by which programs and schedulers know it. */
#ifndef RPI_NET_LOST_H
#define RPI_NET_LOST_H

#include <errno.h>

/* Of what a call that sends or receives has left in errno; 0: it read the end. */
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
