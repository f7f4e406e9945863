#include "base/event.h"

#include "harness/check.h"

#include <poll.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

static bool is_set(int fd) {
    struct pollfd waits = {.fd = fd, .events = POLLIN};
    return poll(&waits, 1, 0) == 1;
}

static void an_event_stays_set_until_it_is_cleared(void) {
    int fd = -1;
    REQUIRE_OK(rpi_event_open(&fd));
    CHECK(!is_set(fd));
    rpi_event_clear(fd);
    for (int i = 0; i < 3; i++) rpi_event_set(fd);
    CHECK(is_set(fd) && is_set(fd));
    rpi_event_clear(fd);
    CHECK(!is_set(fd));
    close(fd);
}

static void a_process_without_descriptors_is_told(void) {
    struct rlimit limit, none;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    int fd = 7;
    CHECK_FAILS(rpi_event_open(&fd), IO, "event descriptor");
    CHECK_EQ(fd, -1);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

CASES({"an event stays set until it is cleared", an_event_stays_set_until_it_is_cleared},
      {"a process without descriptors is told", a_process_without_descriptors_is_told})
