/* Dialling where nobody takes the call: the queue of a listener is full, so that a connection
 * is neither made nor refused. */
#include "base/clock.h"
#include "harness/check.h"
#include "link_pair.h"
#include "net/stream.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CALLS = 4 };

/* A listener that accepts nobody, and callers that fill its queue. */
typedef struct deaf {
    int listener, callers[CALLS];
} deaf;

static deaf be_deaf(int family, const void *address, socklen_t length) {
    deaf d = {.listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_storage bound;
    socklen_t bound_length = sizeof bound;
    CHECK(bind(d.listener, address, length) == 0 && listen(d.listener, 0) == 0);
    CHECK(getsockname(d.listener, (struct sockaddr *)&bound, &bound_length) == 0);
    for (int i = 0; i < CALLS; i++) {
        d.callers[i] = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(d.callers[i], (struct sockaddr *)&bound, bound_length);
    }
    return d;
}

static void hang_up(deaf *d) {
    close(d->listener);
    for (int i = 0; i < CALLS; i++) close(d->callers[i]);
}

static void shared_memory_has_a_deadline(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const rpi_transport *shm = NULL;
    link_pair pair;
    rpi_link *link = NULL;
    char text[sizeof address.sun_path + 8];
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1,
                          "redpoll-dial-test-%d", (int)getpid());
    deaf d = be_deaf(AF_UNIX, &address,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length));
    snprintf(text, sizeof text, "shm:%s", address.sun_path + 1);
    REQUIRE_OK(rpi_transport_find("shm", &shm));
    link_pair_options(&pair, shm, 4096);
    REQUIRE_OK(shm->open(&pair.options[1], &pair.endpoints[1]));
    CHECK_FAILS(shm->connect(pair.endpoints[1], 0, text, rpi_deadline_ns(0.2), &link), TIMEOUT,
                "did not take the connection");
    link_pair_close(&pair);
    hang_up(&d);
}

static struct addrinfo entry(int fd, struct sockaddr_in *address) {
    socklen_t length = sizeof *address;
    CHECK(getsockname(fd, (struct sockaddr *)address, &length) == 0);
    return (struct addrinfo){.ai_family = AF_INET,
                             .ai_socktype = SOCK_STREAM,
                             .ai_addr = (struct sockaddr *)address,
                             .ai_addrlen = sizeof *address};
}

/* A host may have addresses that lead nowhere from here: they do not use up the time of others.
 */
static void the_first_address_leaves_time_for_the_second(void) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in addresses[2];
    int listener = -1, port = 0, fd = -1;
    deaf d = be_deaf(AF_INET, &any, sizeof any);
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
    struct addrinfo second = entry(listener, &addresses[1]);
    struct addrinfo first = entry(d.listener, &addresses[0]);
    first.ai_next = &second;
    int64_t limit_ns = rpi_deadline_ns(10);
    CHECK_OK(rpi_stream_dial_any(&first, "both", rpi_deadline_ns(20), &fd));
    CHECK(rpi_now_ns() < limit_ns); /* half of what the first could have used up */
    if (fd >= 0) close(fd);
    first.ai_next = NULL;
    CHECK_FAILS(rpi_stream_dial_any(&first, "the first", rpi_deadline_ns(0.2), &fd), TIMEOUT,
                "nobody answered at the first");
    close(listener);
    hang_up(&d);
}

CASES({"shared_memory_has_a_deadline", shared_memory_has_a_deadline},
      {"the_first_address_leaves_time_for_the_second",
       the_first_address_leaves_time_for_the_second})
