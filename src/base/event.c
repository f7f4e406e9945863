#include "base/event.h"

#include "base/lacking.h"
#include "base/status.h"

#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

rp_status rpi_event_open(int *out_fd) {
    *out_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return *out_fd < 0 ? RP_FAIL_ERRNO(IO, "cannot make an event descriptor (eventfd2%s)",
                                       rpi_lacking_call(errno))
                       : RP_OK;
}

rp_status rpi_epoll_open(int *out_fd) {
    *out_fd = epoll_create1(EPOLL_CLOEXEC);
    return *out_fd < 0 ? RP_FAIL_ERRNO(IO, "cannot make an epoll descriptor (epoll_create1%s)",
                                       rpi_lacking_call(errno))
                       : RP_OK;
}

void rpi_event_set(int fd) {
    const uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* its counter is full: it is readable anyway */
}

void rpi_event_clear(int fd) {
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got;
}
