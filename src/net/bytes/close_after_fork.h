/* For children that fork() made: their copies of descriptors are closed, and nothing else is
 * done. No shutdown(), no goodbye, no epoll_ctl(): what is behind them is the parent's. */
#ifndef RPI_NET_CLOSE_AFTER_FORK_H
#define RPI_NET_CLOSE_AFTER_FORK_H

#include <unistd.h>

static inline void rpi_fd_close_after_fork(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

#endif
