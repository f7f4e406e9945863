#include "net/shaped/host_nic.h"

#include "base/memory.h"
#include "base/status.h"
#include "net/memory/sealed_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is shared. */
typedef struct shared {
    uint64_t magic; /* set last */
    pthread_mutex_t lock;
    rpi_nic nic;
} shared;

#define MAGIC UINT64_C(0x64726163746e6573)

struct rpi_host_nic {
    shared *memory;
    int fd; /* of who made it; -1 */
};

static rp_status make_lock(shared *memory) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    int failed = pthread_mutex_init(&memory->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    if (failed) return RP_FAIL(IO, "cannot share a lock between processes");
    return RP_OK;
}

static rp_status map(rpi_host_nic *nic, int fd) {
    void *memory = mmap(NULL, sizeof *nic->memory, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return RP_FAIL_ERRNO(IO, "cannot map the network interface of a host");
    nic->memory = memory;
    return RP_OK;
}

static rp_status fill(rpi_host_nic *nic, const rpi_link_shape *shape, size_t frame_bytes,
                      char *address, size_t bytes) {
    rp_status made = rpi_sealed_make(sizeof *nic->memory, &nic->fd);
    if (made != RP_OK) return rpi_fail_context(made, "the network interface of a host: ");
    RP_TRY(map(nic, nic->fd));
    RP_TRY(make_lock(nic->memory));
    rpi_nic_init(&nic->memory->nic, shape, frame_bytes);
    nic->memory->magic = MAGIC;
    snprintf(address, bytes, "%d %d", (int)getpid(), nic->fd);
    return RP_OK;
}

rp_status rpi_host_nic_make(const rpi_link_shape *shape, size_t frame_bytes,
                            rpi_host_nic **out_nic, char *address, size_t bytes) {
    rpi_host_nic *nic = NULL;
    RP_TRY(rpi_alloc(sizeof *nic, "the network interface of a host", &nic));
    nic->fd = -1;
    rp_status status = fill(nic, shape, frame_bytes, address, bytes);
    if (status != RP_OK)
        rpi_host_nic_close(nic);
    else
        *out_nic = nic;
    return status;
}

static rp_status join(rpi_host_nic *nic, const char *address) {
    int pid, number, end = 0;
    struct stat about;
    char path[64];
    if (sscanf(address, "%d %d%n", &pid, &number, &end) != 2 || address[end])
        return RP_FAIL(CORRUPT, "'%s' is not the address of a host's network interface",
                       address);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return RP_FAIL_ERRNO(IO, "cannot reach the network interface of this rank's host at %s",
                             path);
    rp_status status = RP_OK;
    if (fstat(fd, &about) != 0 || (size_t)about.st_size < sizeof *nic->memory)
        status = RP_FAIL(CORRUPT, "%s is not the network interface of a host", path);
    if (status == RP_OK) status = map(nic, fd);
    close(fd);
    if (status == RP_OK && nic->memory->magic != MAGIC)
        status = RP_FAIL(CORRUPT, "%s is not the network interface of a host", path);
    return status;
}

rp_status rpi_host_nic_join(const char *address, rpi_host_nic **out_nic) {
    rpi_host_nic *nic = NULL;
    RP_TRY(rpi_alloc(sizeof *nic, "the network interface of a host", &nic));
    nic->fd = -1;
    rp_status status = join(nic, address);
    if (status != RP_OK)
        rpi_host_nic_close(nic);
    else
        *out_nic = nic;
    return status;
}

void rpi_host_nic_shut(rpi_host_nic *nic) {
    if (!nic || nic->fd < 0) return;
    close(nic->fd);
    nic->fd = -1;
}

void rpi_host_nic_close(rpi_host_nic *nic) {
    if (!nic) return;
    rpi_host_nic_shut(nic);
    if (nic->memory) munmap(nic->memory, sizeof *nic->memory);
    rpi_free(nic);
}

rpi_nic *rpi_host_nic_lock(rpi_host_nic *nic) {
    if (pthread_mutex_lock(&nic->memory->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&nic->memory->lock); /* at worst a frame took no time */
    return &nic->memory->nic;
}

void rpi_host_nic_unlock(rpi_host_nic *nic) {
    pthread_mutex_unlock(&nic->memory->lock);
}
