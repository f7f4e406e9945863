#include "net/memory/sealed_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* A process that makes a longer file gets SIGXFSZ, which ends it. */
static rp_status check_limit(size_t bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        bytes <= limit.rlim_cur)
        return RP_OK;
    return RP_FAIL(NOMEM,
                   "%zu bytes of shared memory are a longer file than the limit allows "
                   "(ulimit -f, %llu bytes)",
                   bytes, (unsigned long long)limit.rlim_cur);
}

/* Old kernels and seccomp profiles have no memfd_create(). */
static int open_memory(void) {
    return memfd_create("redpoll", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_forbidden;

static void look(void) {
    int fd = open_memory();
    is_forbidden = fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EACCES);
    if (fd >= 0) close(fd);
}

static bool is_memfd_forbidden(void) {
    pthread_once(&once, look);
    return is_forbidden;
}

/* A memory file that nobody can open by its name; -1. */
static int open_unlinked(const char *folder) {
    char path[256];
    int length = snprintf(path, sizeof path, "%s/redpoll-XXXXXX", folder);
    if (length < 0 || (size_t)length >= sizeof path) return -1;
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    return fd;
}

/* 0, or the error. */
static int reserve(int fd, size_t bytes) {
    static const char zeros[65536];
    int error = posix_fallocate(fd, 0, (off_t)bytes);
    if (error != EPERM && error != ENOSYS && error != EOPNOTSUPP) return error;
    for (size_t at = 0; at < bytes;) { /* fallocate() is forbidden, too */
        size_t left = bytes - at;
        ssize_t put = pwrite(fd, zeros, left < sizeof zeros ? left : sizeof zeros, (off_t)at);
        if (put < 0 && errno != EINTR) return errno;
        if (put > 0) at += (size_t)put;
    }
    return 0;
}

/* Instead of it: all pages are allocated at once, because a write to memory of a full file
 * system ends the process (SIGBUS). */
static rp_status make_unlinked(size_t bytes, int *out_fd) {
    const char *session = getenv("XDG_RUNTIME_DIR"), *folder = "/dev/shm";
    int fd = open_unlinked(folder);
    if (fd < 0 && session && *session) fd = open_unlinked(folder = session);
    if (fd < 0)
        return RP_FAIL(
            UNSUPPORTED,
            "there is no shared memory here: memfd_create() is forbidden (an old "
            "kernel, or the container's seccomp profile), and no file can be made in "
            "/dev/shm or $XDG_RUNTIME_DIR; allow one of them, or take TCP: "
            "`--transport tcp`, REDPOLL_TRANSPORT=tcp");
    errno = reserve(fd, bytes);
    if (errno == 0) {
        *out_fd = fd;
        return RP_OK;
    }
    rp_status status = RP_FAIL_ERRNO(
        NOMEM,
        "cannot make %zu bytes of shared memory in %s, where memfd_create() is forbidden (make "
        "it larger, as by `docker run --shm-size`, or take TCP: `--transport tcp`)",
        bytes, folder);
    close(fd);
    return status;
}

rp_status rpi_sealed_make(size_t bytes, int *out_fd) {
    RP_TRY(check_limit(bytes));
    if (is_memfd_forbidden()) return make_unlinked(bytes, out_fd);
    int fd = open_memory();
    if (fd < 0) return RP_FAIL_ERRNO(IO, "cannot make shared memory");
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        rp_status status =
            RP_FAIL_ERRNO(NOMEM, "cannot make %zu bytes of shared memory", bytes);
        close(fd);
        return status;
    }
    *out_fd = fd;
    return RP_OK;
}

/* If nothing can be sealed, this user's own files without a name are used. */
static bool may_be_unsealed(const struct stat *info) {
    return is_memfd_forbidden() && S_ISREG(info->st_mode) && info->st_nlink == 0 &&
           info->st_uid == geteuid();
}

rp_status rpi_sealed_check(int fd, size_t bytes) {
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &info) != 0 || info.st_size != (off_t)bytes ||
        !((seals >= 0 && (seals & SEALS) == SEALS) || may_be_unsealed(&info)))
        return RP_FAIL(CORRUPT, "it passed no sealed memory of %zu bytes", bytes);
    return RP_OK;
}

rp_status rpi_sealed_map(int fd, size_t bytes, int protection, void **out_memory) {
    void *memory = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return RP_FAIL_ERRNO(NOMEM, "cannot map %zu bytes of shared memory", bytes);
    *out_memory = memory;
    return RP_OK;
}
