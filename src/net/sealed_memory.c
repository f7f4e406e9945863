#include "net/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* Who makes a longer file is sent SIGXFSZ, which ends the process. */
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

rp_status rpi_sealed_make(size_t bytes, int *out_fd) {
    RP_TRY(check_limit(bytes));
    int fd = memfd_create("redpoll", MFD_CLOEXEC | MFD_ALLOW_SEALING);
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

rp_status rpi_sealed_check(int fd, size_t bytes) {
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &info) != 0 ||
        info.st_size != (off_t)bytes)
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
