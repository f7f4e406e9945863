/* What the fuzz targets share. A target is one function that libFuzzer calls with bytes of its
 * own making; `make fuzz` does so, and a plain build calls it with the files of corpus/NAME. */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A file of these bytes without a name in a file system; close(*fd) when done. */
static inline void fuzz_file(const uint8_t *data, size_t bytes, char path[64], int *fd) {
    *fd = memfd_create("fuzz", MFD_CLOEXEC);
    ssize_t written = bytes ? write(*fd, data, bytes) : 0;
    (void)written; /* short: another input */
    snprintf(path, 64, "/proc/self/fd/%d", *fd);
}

/* A connection on which these bytes have come, and no more will; close both. */
static inline void fuzz_stream(const uint8_t *data, size_t bytes, int pair[2]) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) return;
    ssize_t sent = send(pair[1], data, bytes, MSG_NOSIGNAL);
    (void)sent;
    shutdown(pair[1], SHUT_WR);
}

#endif
