/* A flag that poll() and epoll see: an eventfd, readable while it is set. */
#ifndef RPI_BASE_EVENT_H
#define RPI_BASE_EVENT_H

#include "redpoll/status.h"

/* *out_fd is -1 where it fails. */
rp_status rpi_event_open(int *out_fd);
/* An epoll instance, close-on-exec. *out_fd is -1 where it fails. */
rp_status rpi_epoll_open(int *out_fd);
/* From any thread, and from processes that hold the descriptor. */
void rpi_event_set(int fd);
/* Does nothing where it is not set. */
void rpi_event_clear(int fd);

#endif
