/* Who rings is heard, whoever else rings, and whatever stands in the page. */
#include "net/memory/doorbell.h"

#include "base/clock.h"
#include "base/rng.h"
#include "harness/check.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { WORLD = 130 };

static int wake_fd_make(void) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(fd >= 0);
    return fd;
}

/* How often it was written since; 0: not. */
static uint64_t written(int fd) {
    uint64_t count = 0;
    return read(fd, &count, sizeof count) == sizeof count ? count : 0;
}

/* docs/wire.md, so that two builds may share a page. */
static void the_layout_is_the_documented_one(void) {
    rpi_doorbell bell;
    REQUIRE_OK(rpi_doorbell_open(WORLD, &bell));
    unsigned char *page = (unsigned char *)bell.page;
    CHECK_EQ(rpi_doorbell_bytes(17), 16);
    CHECK_EQ(rpi_doorbell_bytes(64), 16);
    CHECK_EQ(rpi_doorbell_bytes(WORLD), 32);
    CHECK((unsigned char *)&bell.page->asleep == page);
    CHECK((unsigned char *)&bell.page->rung[2] == page + 24);
    rpi_doorbell_ring(bell.page, 129, -1);
    CHECK_EQ(page[24], 2);
    rpi_doorbell_close(&bell);
}

static void links_are_named_once(void) {
    rpi_doorbell bell;
    int fd = wake_fd_make();
    REQUIRE_OK(rpi_doorbell_open(WORLD, &bell));
    for (int rank = 0; rank < WORLD; rank += 3) rpi_doorbell_admit(&bell, rank);
    CHECK_EQ(rpi_rank_set_next(&bell.links, 1), 3); /* they may have rung before */
    memset(bell.links.bits, 0, (size_t)bell.links.words * sizeof *bell.links.bits);
    rpi_doorbell_ring(bell.page, 66, fd);
    rpi_doorbell_ring(bell.page, 66, fd);
    rpi_doorbell_ring(bell.page, 129, fd);
    CHECK_EQ(written(fd), 0); /* nobody sleeps */
    CHECK_EQ(rpi_rank_set_next(&bell.links, 0), -1);
    rpi_doorbell_take(&bell);
    CHECK_EQ(rpi_rank_set_next(&bell.links, 0), 66);
    CHECK_EQ(rpi_rank_set_next(&bell.links, 67), 129);
    CHECK_EQ(rpi_rank_set_next(&bell.links, 130), -1);
    rpi_rank_set_remove(&bell.links, 66);
    rpi_doorbell_take(&bell);
    CHECK_EQ(rpi_rank_set_next(&bell.links, 0), 129);
    rpi_doorbell_close(&bell);
    close(fd);
}

static void a_sleeper_is_woken_once(void) {
    rpi_doorbell bell;
    int fd = wake_fd_make();
    REQUIRE_OK(rpi_doorbell_open(WORLD, &bell));
    rpi_doorbell_arm(&bell);
    for (int rank = 0; rank < WORLD; rank++) rpi_doorbell_ring(bell.page, rank, fd);
    CHECK_EQ(written(fd), 1);
    rpi_doorbell_arm(&bell);
    rpi_doorbell_disarm(&bell);
    rpi_doorbell_ring(bell.page, 7, fd);
    CHECK_EQ(written(fd), 0);
    rpi_doorbell_close(&bell);
    close(fd);
}

static void open_and_close(void) {
    rpi_doorbell bell;
    REQUIRE_OK(rpi_doorbell_open(WORLD, &bell));
    CHECK_EQ(bell.fd, 0);
    rpi_doorbell_close(&bell);
    rpi_doorbell_close(&bell); /* it has none any more */
}

static void descriptor_0_serves_like_any(void) {
    check_without_stdin(open_and_close);
}

/* A peer can write anything there: ranks without a link are none. */
static void noise_names_only_links(void) {
    rpi_doorbell bell;
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    REQUIRE_OK(rpi_doorbell_open(WORLD, &bell));
    for (int rank = 5; rank < WORLD; rank += 7) rpi_doorbell_admit(&bell, rank);
    for (int turn = 0; turn < 1000; turn++) {
        for (int word = 0; word < bell.links.words; word++)
            atomic_store(&bell.page->rung[word],
                         (uint64_t)rpi_rng_u32(&rng) << 32 | rpi_rng_u32(&rng));
        atomic_store(&bell.page->asleep, rpi_rng_u32(&rng));
        rpi_doorbell_arm(&bell);
        for (int rank = rpi_rank_set_next(&bell.links, 0); rank >= 0;
             rank = rpi_rank_set_next(&bell.links, rank + 1))
            CHECK(rank < WORLD && rank % 7 == 5);
    }
    rpi_doorbell_close(&bell);
}

enum { CALLERS = 3, ROUNDS = 500 };

typedef struct caller {
    rpi_doorbell_page *page;
    int rank, fd;
    atomic_int *news; /* [CALLERS] */
} caller;

/* Rings once the owner has taken what it left before. */
static void *call(void *argument) {
    caller *self = argument;
    int64_t deadline_ns = rpi_deadline_ns(60);
    for (int i = 0; i < ROUNDS; i++) {
        while (atomic_load(&self->news[self->rank]) && rpi_now_ns() < deadline_ns)
            sched_yield();
        atomic_store(&self->news[self->rank], 1);
        rpi_doorbell_ring(self->page, self->rank, self->fd);
    }
    return NULL;
}

/* Strict: the owner sleeps whenever it has found nothing, and looks only where it was rung. */
static void no_ring_is_lost(void) {
    rpi_doorbell bell;
    caller callers[CALLERS];
    pthread_t threads[CALLERS];
    atomic_int news[CALLERS] = {0};
    int fd = wake_fd_make(), taken = 0, lost = 0;
    REQUIRE_OK(rpi_doorbell_open(WORLD, &bell));
    for (int rank = 0; rank < CALLERS; rank++) {
        rpi_doorbell_admit(&bell, rank);
        callers[rank] = (caller){.page = bell.page, .rank = rank, .fd = fd, .news = news};
        REQUIRE(pthread_create(&threads[rank], NULL, call, &callers[rank]) == 0);
    }
    while (taken < CALLERS * ROUNDS && !lost) {
        int before = taken;
        rpi_doorbell_arm(&bell);
        for (int rank = rpi_rank_set_next(&bell.links, 0); rank >= 0;
             rank = rpi_rank_set_next(&bell.links, rank + 1)) {
            rpi_rank_set_remove(&bell.links, rank);
            taken += atomic_exchange(&news[rank], 0);
        }
        struct pollfd sleeps = {.fd = fd, .events = POLLIN};
        if (taken == before) lost = poll(&sleeps, 1, 10000) == 0;
        rpi_doorbell_disarm(&bell);
        (void)written(fd);
    }
    CHECK_MSG(!lost, "asleep after %d of %d", taken, CALLERS * ROUNDS);
    for (int rank = 0; rank < CALLERS; rank++) atomic_store(&news[rank], 0);
    for (int rank = 0; rank < CALLERS; rank++) pthread_join(threads[rank], NULL);
    rpi_doorbell_close(&bell);
    close(fd);
}

CASES({"the_layout_is_the_documented_one", the_layout_is_the_documented_one},
      {"links_are_named_once", links_are_named_once},
      {"a_sleeper_is_woken_once", a_sleeper_is_woken_once},
      {"descriptor_0_serves_like_any", descriptor_0_serves_like_any},
      {"noise_names_only_links", noise_names_only_links}, {"no_ring_is_lost", no_ring_is_lost})
