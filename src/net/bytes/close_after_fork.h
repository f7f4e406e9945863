/* For children made by fork(): closes their copies of descriptors and does nothing else. No
 * shutdown(), no goodbye, no epoll_ctl(), because the connections belong to the parent. */
#ifndef RPI_NET_CLOSE_AFTER_FORK_H
#define RPI_NET_CLOSE_AFTER_FORK_H

#include <unistd.h>

static inline void rpi_fd_close_after_fork(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

#endif
