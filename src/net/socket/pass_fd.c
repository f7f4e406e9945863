#include "net/socket/pass_fd.h"

#include "net/socket/lost.h"
#include "net/socket/stream.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Aligned as its header needs to be. */
typedef union control_bytes {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(RPI_PASS_FDS * sizeof(int))];
} control_bytes;

static rp_status wait_for(int socket, short events, int64_t deadline_ns) {
    struct pollfd wait = {.fd = socket, .events = events};
    int ready;
    do ready = poll(&wait, 1, rpi_poll_ms(deadline_ns));
    while (ready < 0 && errno == EINTR);
    if (ready < 0) return RP_FAIL_ERRNO(IO, "cannot wait for a socket");
    if (ready == 0)
        return RP_FAIL(TIMEOUT, "timed out: no descriptors passed before the deadline");
    return RP_OK;
}

rp_status rpi_fds_send(int socket, const int *fds, int count, int64_t deadline_ns) {
    char byte = 0;
    control_bytes control = {.bytes = {0}};
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, (size_t)count * sizeof(int));
    while (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EPIPE || errno == ECONNRESET)
            return RP_FAIL(PEER, "%s", rpi_lost_text(errno));
        if (errno != EAGAIN && errno != EINTR)
            return RP_FAIL_ERRNO(IO, "cannot pass descriptors");
        RP_TRY(wait_for(socket, POLLOUT, deadline_ns));
    }
    return RP_OK;
}

/* All descriptors of a message, at most RPI_PASS_FDS by the size of its control bytes. */
static int take_fds(struct msghdr *message, int fds[RPI_PASS_FDS]) {
    int count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(header), (size_t)count * sizeof(int));
    }
    return count;
}

rp_status rpi_fds_receive(int socket, int *fds, int count, int64_t deadline_ns) {
    char byte;
    int taken[RPI_PASS_FDS] = {0};
    control_bytes control;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes};
    ssize_t got;
    for (;;) {
        message.msg_controllen = sizeof control.bytes;
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (got >= 0) break;
        if (errno == ECONNRESET) return RP_FAIL(PEER, "%s", rpi_lost_text(errno));
        if (errno != EAGAIN && errno != EINTR)
            return RP_FAIL_ERRNO(IO, "cannot receive descriptors");
        RP_TRY(wait_for(socket, POLLIN, deadline_ns));
    }
    if (got == 0) return RP_FAIL(PEER, "%s", rpi_lost_text(0));
    int came = take_fds(&message, taken);
    if (came != count) {
        while (came > 0) close(taken[--came]);
        return RP_FAIL(CORRUPT, "it did not pass the %d descriptors it should", count);
    }
    memcpy(fds, taken, (size_t)count * sizeof(int));
    return RP_OK;
}

rp_status rpi_note_send(int socket, const void *note, size_t bytes, int fd) {
    control_bytes control = {.bytes = {0}};
    struct iovec piece = {(void *)(uintptr_t)note, bytes};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(int));
    }
    ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == (ssize_t)bytes) return RP_OK;
    if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)) return RP_PENDING;
    return RP_FAIL(PEER, "%s", rpi_lost_text(sent < 0 ? errno : 0));
}

rp_status rpi_note_receive(int socket, void *note, size_t bytes, int *out_fd) {
    int taken[RPI_PASS_FDS] = {0};
    control_bytes control;
    struct iovec piece = {note, bytes};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return RP_PENDING;
    if (got <= 0) return RP_FAIL(PEER, "%s", rpi_lost_text(got < 0 ? errno : 0));
    int came = take_fds(&message, taken);
    if ((size_t)got == bytes && came <= 1) {
        *out_fd = came ? taken[0] : -1;
        return RP_OK;
    }
    while (came > 0) close(taken[--came]);
    return RP_FAIL(CORRUPT, "it said something in %zd bytes on the socket, not in %zu", got,
                   bytes);
}
