#include "net/bytes/random_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

static ssize_t read_device(void *bytes, size_t count) {
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t got = read(fd, bytes, count);
    int error = errno;
    close(fd);
    errno = error;
    return got;
}

rp_status rpi_random_bytes(const char *what, void *out_bytes, size_t bytes) {
    ssize_t got;
    do got = getrandom(out_bytes, bytes, 0);
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)bytes) got = read_device(out_bytes, bytes);
    return got == (ssize_t)bytes ? RP_OK : RP_FAIL_ERRNO(IO, "cannot draw %s", what);
}
