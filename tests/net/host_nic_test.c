/* A NIC that several share: what one sends keeps it busy for the others. */
#include "net/shaped/host_nic.h"

#include "base/clock.h"
#include "harness/check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const rpi_link_shape shape = {.bytes_per_s = 1e6};

static void what_one_sends_the_others_wait_for(void) {
    int before = check_descriptors();
    rpi_host_nic *first = NULL, *second = NULL;
    rpi_nic_queue queues[2] = {0};
    char address[64];
    REQUIRE_OK(rpi_host_nic_make(&shape, 4096, &first, address, sizeof address));
    REQUIRE_OK(rpi_host_nic_join(address, &second));
    rpi_host_nic_shut(first);
    rpi_host_nic_shut(first);
    CHECK_EQ(rpi_nic_send(rpi_host_nic_lock(first), &queues[0], 1000, 1000), 1000);
    rpi_host_nic_unlock(first);
    CHECK_EQ(rpi_nic_send(rpi_host_nic_lock(second), &queues[1], 1000, 1000), 1001000);
    rpi_host_nic_unlock(second);
    CHECK_EQ(rpi_nic_receive(rpi_host_nic_lock(second), 0, 1000), 1000000);
    rpi_host_nic_unlock(second);
    rpi_host_nic_close(first);
    CHECK_EQ(rpi_nic_receive(rpi_host_nic_lock(second), 0, 1000), 2000000);
    rpi_host_nic_unlock(second);
    rpi_host_nic_close(second);
    rpi_host_nic_close(NULL);
    CHECK_EQ(check_descriptors(), before);
}

enum { FRAMES = 2000, THREADS = 4 };
static char shared_address[64];

static void *send_many(void *context) {
    rpi_host_nic *nic = NULL;
    rpi_nic_queue queue = {0};
    (void)context;
    if (rpi_host_nic_join(shared_address, &nic) != RP_OK) return NULL;
    for (int i = 0; i < FRAMES; i++) {
        rpi_nic_send(rpi_host_nic_lock(nic), &queue, 0, 100);
        rpi_host_nic_unlock(nic);
    }
    rpi_host_nic_close(nic);
    return NULL;
}

static void nothing_is_lost_between_threads(void) {
    rpi_host_nic *nic = NULL;
    rpi_nic_queue queue = {0};
    pthread_t threads[THREADS];
    REQUIRE_OK(rpi_host_nic_make(&shape, 4096, &nic, shared_address, sizeof shared_address));
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, send_many, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(rpi_nic_send(rpi_host_nic_lock(nic), &queue, 0, 1),
             (int64_t)THREADS * FRAMES * 100 * 1000);
    rpi_host_nic_unlock(nic);
    rpi_host_nic_close(nic);
}

/* A child that takes the lock once, and gives it back or dies with it; it says before that it
 * begins. */
static pid_t take_in_a_child(const char *address, bool gives_back, int *out_begins) {
    int ends[2];
    char byte = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        rpi_host_nic *nic = NULL;
        if (rpi_host_nic_join(address, &nic) != RP_OK) _exit(9);
        if (write(ends[1], &byte, 1) != 1) _exit(8);
        (void)rpi_host_nic_lock(nic);
        if (gives_back) rpi_host_nic_unlock(nic);
        _exit(0);
    }
    close(ends[1]);
    *out_begins = ends[0];
    return child;
}

static bool ends_well(pid_t child) {
    int status = -1;
    int64_t deadline_ns = rpi_deadline_ns(20);
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (rpi_now_ns() > deadline_ns) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return false;
        }
        rpi_sleep_until_ns(rpi_now_ns() + 1000000);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Who sleeps for it in another process is woken. */
static void processes_wait_for_each_other(void) {
    rpi_host_nic *nic = NULL;
    char address[64], byte;
    int begins = -1;
    REQUIRE_OK(rpi_host_nic_make(&shape, 4096, &nic, address, sizeof address));
    (void)rpi_host_nic_lock(nic);
    pid_t child = take_in_a_child(address, true, &begins);
    REQUIRE(child > 0);
    CHECK(read(begins, &byte, 1) == 1);
    rpi_sleep_until_ns(rpi_now_ns() + 50000000); /* until it sleeps, most of the time */
    rpi_host_nic_unlock(nic);
    CHECK(ends_well(child));
    close(begins);
    rpi_host_nic_close(nic);
}

/* A process that dies with the lock takes it from nobody. */
static void who_dies_with_it_leaves_it_to_the_others(void) {
    rpi_host_nic *nic = NULL;
    char address[64];
    REQUIRE_OK(rpi_host_nic_make(&shape, 4096, &nic, address, sizeof address));
    for (int i = 0; i < 4; i++) { /* the first one and the third die */
        int begins = -1;
        pid_t child = take_in_a_child(address, i % 2, &begins);
        REQUIRE(child > 0);
        close(begins);
        REQUIRE(ends_well(child));
    }
    CHECK_EQ(rpi_nic_receive(rpi_host_nic_lock(nic), 0, 1000), 1000000);
    rpi_host_nic_unlock(nic);
    rpi_host_nic_close(nic);
}

static void descriptor_0_serves_like_any(void) {
    check_without_stdin(what_one_sends_the_others_wait_for);
}

static void other_addresses_are_refused(void) {
    rpi_host_nic *nic = NULL;
    char address[64];
    CHECK_FAILS(rpi_host_nic_join("", &nic), CORRUPT, "is not the address");
    CHECK_FAILS(rpi_host_nic_join("1 2 3", &nic), CORRUPT, "'1 2 3' is not the address");
    CHECK_FAILS(rpi_host_nic_join("../../etc 1", &nic), CORRUPT, "is not the address");
    snprintf(address, sizeof address, "%d 99999", (int)getpid());
    CHECK_FAILS(rpi_host_nic_join(address, &nic), IO, "cannot reach the network interface");
    char file[] = "/tmp/redpoll-nic-XXXXXX";
    int fd = mkstemp(file);
    REQUIRE(fd >= 0);
    unlink(file);
    snprintf(address, sizeof address, "%d %d", (int)getpid(), fd);
    CHECK_FAILS(rpi_host_nic_join(address, &nic), CORRUPT, "is not the network interface");
    REQUIRE(ftruncate(fd, 65536) == 0);
    CHECK_FAILS(rpi_host_nic_join(address, &nic), CORRUPT, "is not the network interface");
    close(fd);
    CHECK(!nic);
}

CASES({"what one sends the others wait for", what_one_sends_the_others_wait_for},
      {"nothing is lost between threads", nothing_is_lost_between_threads},
      {"processes wait for each other", processes_wait_for_each_other},
      {"who dies with it leaves it to the others", who_dies_with_it_leaves_it_to_the_others},
      {"descriptor 0 serves like any", descriptor_0_serves_like_any},
      {"other addresses are refused", other_addresses_are_refused})
