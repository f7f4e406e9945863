#include "net/socket/unix_socket.h"

#include "base/clock.h"
#include "base/status.h"
#include "net/bytes/random_bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Between attempts to connect to a listener whose queue is full. */
enum { REDIAL_NS = 2 * 1000 * 1000 };

static socklen_t socket_address(const char *name, struct sockaddr_un *out_address) {
    size_t length = strlen(name);
    *out_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out_address->sun_path + 1, name, length); /* a leading NUL: abstract */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

rp_status rpi_unix_listen(char name[RPI_UNIX_NAME_BYTES], int *out_fd) {
    uint64_t number[2];
    struct sockaddr_un address;
    RP_TRY(rpi_random_bytes("a random name", number, sizeof number));
    snprintf(name, RPI_UNIX_NAME_BYTES, "redpoll-%016" PRIx64 "%016" PRIx64, number[0],
             number[1]);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return RP_FAIL_ERRNO(IO, "cannot make a Unix socket");
    socklen_t length = socket_address(name, &address);
    if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, SOMAXCONN) != 0) {
        rp_status status = RP_FAIL_ERRNO(IO, "cannot listen at Unix socket @%s", name);
        close(fd);
        return status;
    }
    *out_fd = fd;
    return RP_OK;
}

/* A listener with a full queue refuses for the moment a call that would otherwise block. */
static int connect_by(int fd, const struct sockaddr_un *address, socklen_t length,
                      int64_t deadline_ns) {
    int result;
    while ((result = connect(fd, (const struct sockaddr *)address, length)) != 0 &&
           (errno == EAGAIN || errno == EINTR) && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + REDIAL_NS);
    return result;
}

rp_status rpi_unix_dial(const char *name, int64_t deadline_ns, int *out_fd) {
    struct sockaddr_un address;
    if (strlen(name) + 1 > sizeof address.sun_path)
        return RP_FAIL(INVALID, "'%s' is too long for a socket", name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return RP_FAIL_ERRNO(IO, "cannot make a Unix socket");
    socklen_t length = socket_address(name, &address);
    if (connect_by(fd, &address, length, deadline_ns) != 0) {
        rp_status status =
            errno == ECONNREFUSED
                ? RP_FAIL(PEER, "connection closed by peer: nobody listens there any more")
            : errno == EAGAIN
                ? RP_FAIL(TIMEOUT,
                          "timed out: it did not take the connection before the deadline")
                : RP_FAIL_ERRNO(IO, "cannot connect to it");
        close(fd);
        return status;
    }
    *out_fd = fd;
    return RP_OK;
}
