#include "net/host_card.h"

#include "base/memory.h"
#include "base/status.h"

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
    rpi_card card;
} shared;

#define MAGIC UINT64_C(0x64726163746e6573)

struct rpi_host_card {
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

static rp_status map(rpi_host_card *card, int fd) {
    void *memory = mmap(NULL, sizeof *card->memory, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return RP_FAIL_ERRNO(IO, "cannot map the card of a host");
    card->memory = memory;
    return RP_OK;
}

static rp_status fill(rpi_host_card *card, const rpi_link_shape *shape, size_t frame_bytes,
                      char *address, size_t bytes) {
    card->fd = memfd_create("redpoll-card", MFD_CLOEXEC);
    if (card->fd < 0 || ftruncate(card->fd, sizeof *card->memory) != 0)
        return RP_FAIL_ERRNO(IO, "cannot make the card of a host");
    RP_TRY(map(card, card->fd));
    RP_TRY(make_lock(card->memory));
    rpi_card_init(&card->memory->card, shape, frame_bytes);
    card->memory->magic = MAGIC;
    snprintf(address, bytes, "%d %d", (int)getpid(), card->fd);
    return RP_OK;
}

rp_status rpi_host_card_make(const rpi_link_shape *shape, size_t frame_bytes,
                             rpi_host_card **out_card, char *address, size_t bytes) {
    rpi_host_card *card = NULL;
    RP_TRY(rpi_alloc(sizeof *card, "the card of a host", &card));
    card->fd = -1;
    rp_status status = fill(card, shape, frame_bytes, address, bytes);
    if (status != RP_OK)
        rpi_host_card_close(card);
    else
        *out_card = card;
    return status;
}

static rp_status join(rpi_host_card *card, const char *address) {
    int pid, number, end = 0;
    struct stat about;
    char path[64];
    if (sscanf(address, "%d %d%n", &pid, &number, &end) != 2 || address[end])
        return RP_FAIL(CORRUPT, "'%s' is not the address of a host's card", address);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return RP_FAIL_ERRNO(IO, "cannot reach the card of this rank's host at %s", path);
    rp_status status = RP_OK;
    if (fstat(fd, &about) != 0 || (size_t)about.st_size < sizeof *card->memory)
        status = RP_FAIL(CORRUPT, "%s is not the card of a host", path);
    if (status == RP_OK) status = map(card, fd);
    close(fd);
    if (status == RP_OK && card->memory->magic != MAGIC)
        status = RP_FAIL(CORRUPT, "%s is not the card of a host", path);
    return status;
}

rp_status rpi_host_card_join(const char *address, rpi_host_card **out_card) {
    rpi_host_card *card = NULL;
    RP_TRY(rpi_alloc(sizeof *card, "the card of a host", &card));
    card->fd = -1;
    rp_status status = join(card, address);
    if (status != RP_OK)
        rpi_host_card_close(card);
    else
        *out_card = card;
    return status;
}

void rpi_host_card_shut(rpi_host_card *card) {
    if (!card || card->fd < 0) return;
    close(card->fd);
    card->fd = -1;
}

void rpi_host_card_close(rpi_host_card *card) {
    if (!card) return;
    rpi_host_card_shut(card);
    if (card->memory) munmap(card->memory, sizeof *card->memory);
    rpi_free(card);
}

rpi_card *rpi_host_card_lock(rpi_host_card *card) {
    if (pthread_mutex_lock(&card->memory->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&card->memory->lock); /* at worst a frame took no time */
    return &card->memory->card;
}

void rpi_host_card_unlock(rpi_host_card *card) {
    pthread_mutex_unlock(&card->memory->lock);
}
