/* A NIC that several share: what one sends keeps it busy for the others. */
#include "net/shaped/host_nic.h"

#include "harness/check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
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
      {"other addresses are refused", other_addresses_are_refused})
