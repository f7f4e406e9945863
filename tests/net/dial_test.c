/* Dialling where nobody takes the call: the queue of a listener is full, so that a connection
 * is neither made nor refused. */
#include "base/clock.h"
#include "harness/check.h"
#include "harness/process.h"
#include "link_pair.h"
#include "net/socket/addresses.h"
#include "net/socket/interfaces.h"
#include "net/socket/pass_fd.h"
#include "net/socket/stream.h"
#include "net/socket/unix_socket.h"
#include "net/trust/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
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

/* ---- several lower ranks at once ---- */

enum { LOWER = 3, ALL };

typedef struct bootstrap_ranks {
    const rpi_transport *shm;
    rpi_endpoint *endpoints[ALL];
    char addresses[ALL][128];
    rp_status statuses[ALL];
} bootstrap_ranks;

static void open_all(bootstrap_ranks *m, const rpi_secret *secret) {
    *m = (bootstrap_ranks){.shm = NULL};
    REQUIRE_OK(rpi_transport_find("shm", &m->shm));
    for (int rank = 0; rank < ALL; rank++) {
        rpi_endpoint_options options = {
            .rank = rank, .world = ALL, .session = 7, .secret = secret, .frame_bytes = 4096};
        REQUIRE_OK(m->shm->open(&options, &m->endpoints[rank]));
        REQUIRE_OK(
            m->shm->address(m->endpoints[rank], m->addresses[rank], sizeof m->addresses[0]));
    }
}

static void close_all(bootstrap_ranks *m) {
    for (int rank = 0; rank < ALL; rank++)
        if (m->endpoints[rank]) m->shm->close(m->endpoints[rank]);
}

typedef struct lower_rank {
    bootstrap_ranks *m;
    int rank;
} lower_rank;

/* A frame to the highest rank, once there is a link. */
static void *let_in(void *argument) {
    lower_rank *self = argument;
    bootstrap_ranks *m = self->m;
    rpi_link *link = NULL;
    m->statuses[self->rank] =
        m->shm->connect(m->endpoints[self->rank], LOWER, "", rpi_deadline_ns(20), &link);
    if (m->statuses[self->rank] == RP_OK)
        m->statuses[self->rank] = link_send(link, (uint64_t)self->rank, 500);
    return NULL;
}

static void call_all(bootstrap_ranks *m, int *out_failed) {
    const char *addresses[LOWER] = {m->addresses[2], m->addresses[0], m->addresses[1]};
    static const int peers[LOWER] = {2, 0, 1};
    m->statuses[LOWER] = m->shm->dial(m->endpoints[LOWER], peers, addresses, LOWER,
                                      rpi_deadline_ns(20), out_failed);
}

static void hear_all(const bootstrap_ranks *m) {
    for (int rank = 0; rank < LOWER; rank++) {
        rpi_link *link = NULL;
        REQUIRE_OK(m->shm->connect(m->endpoints[LOWER], rank, m->addresses[rank],
                                   rpi_deadline_ns(20), &link));
        CHECK_OK(link_receive_wait(link, (uint64_t)rank, 500));
    }
}

static void several_ranks_are_called_at_once(void) {
    rpi_secret secret = {0};
    bootstrap_ranks m;
    int before = check_descriptors();
    if (rpi_secret_is_supported())
        REQUIRE_OK(rpi_secret_make("a test's secret", "the secret of these ranks", &secret));
    for (int with_secret = 0; with_secret < 1 + rpi_secret_is_supported(); with_secret++) {
        pthread_t threads[LOWER];
        lower_rank ranks[LOWER];
        int failed = -1;
        open_all(&m, with_secret ? &secret : NULL);
        if (!with_secret) call_all(&m, &failed); /* nobody has to be there for it */
        for (int rank = 0; rank < LOWER; rank++) {
            ranks[rank] = (lower_rank){&m, rank};
            REQUIRE(pthread_create(&threads[rank], NULL, let_in, &ranks[rank]) == 0);
        }
        if (with_secret) call_all(&m, &failed);
        CHECK_OK(m.statuses[LOWER]);
        hear_all(&m);
        for (int rank = 0; rank < LOWER; rank++) {
            pthread_join(threads[rank], NULL);
            CHECK_OK(m.statuses[rank]);
        }
        close_all(&m);
    }
    CHECK_EQ(check_descriptors(), before);
}

/* Whichever it is, and the others' calls leave nothing behind. */
static void the_rank_that_cannot_be_called_is_named(void) {
    bootstrap_ranks m;
    int failed = -1, before = check_descriptors();
    open_all(&m, NULL);
    m.shm->close(m.endpoints[0]);
    m.endpoints[0] = NULL;
    call_all(&m, &failed);
    CHECK_EQ(m.statuses[LOWER], RP_PEER);
    CHECK_EQ(failed, 0);
    CHECK(strstr(rp_last_error()->message, "connecting to rank 0") != NULL);
    CHECK(strstr(rp_last_error()->message, m.addresses[0]) != NULL);
    close_all(&m);
    CHECK_EQ(check_descriptors(), before);
}

typedef struct busy_rank {
    int listener, hellos;
    atomic_bool stop;
} busy_rank;

/* Hangs up on each caller, behind its hello, as one does that has too many. */
static void *hang_up_on_callers(void *argument) {
    busy_rank *self = argument;
    while (!atomic_load(&self->stop)) {
        unsigned char hello[64];
        struct pollfd calls = {.fd = self->listener, .events = POLLIN};
        if (poll(&calls, 1, 10) <= 0) continue;
        int fd = accept(self->listener, NULL, NULL);
        if (fd < 0) continue;
        self->hellos += recv(fd, hello, sizeof hello, MSG_WAITALL) == sizeof hello;
        close(fd);
    }
    return NULL;
}

static void who_was_hung_up_on_calls_again(void) {
    bootstrap_ranks m;
    busy_rank busy = {.listener = -1};
    rpi_link *link = NULL;
    pthread_t thread;
    char name[RPI_UNIX_NAME_BYTES], address[RPI_UNIX_NAME_BYTES + 8];
    int failed = -1, peer = 0, before = check_descriptors();
    open_all(&m, NULL);
    REQUIRE_OK(rpi_unix_listen(name, &busy.listener));
    snprintf(address, sizeof address, "shm:%s", name);
    REQUIRE(pthread_create(&thread, NULL, hang_up_on_callers, &busy) == 0);
    const char *text = address;
    CHECK_OK(m.shm->dial(m.endpoints[LOWER], &peer, &text, 1, rpi_deadline_ns(20), &failed));
    CHECK_FAILS(m.shm->connect(m.endpoints[LOWER], peer, address, rpi_deadline_ns(20), &link),
                PEER, "connecting to rank 0");
    atomic_store(&busy.stop, true);
    pthread_join(thread, NULL);
    CHECK_MSG(busy.hellos > 1, "%d hellos", busy.hellos);
    close(busy.listener);
    close_all(&m);
    CHECK_EQ(check_descriptors(), before);
}

/* A lower rank that refuses answers and hangs up, now and then before it has been told what
 * wakes the caller. */
static void who_was_refused_hears_why(void) {
    for (int turn = 0; turn < 100 && !check_failures(); turn++) {
        const rpi_transport *shm = NULL;
        link_pair pair;
        rp_status statuses[2];
        REQUIRE_OK(rpi_transport_find("shm", &shm));
        link_pair_options(&pair, shm, 4096);
        pair.options[1].frame_bytes += 64;
        CHECK_FAILS(link_pair_open_with(&pair, statuses), MISMATCH, "refused");
        CHECK_EQ(statuses[0], RP_MISMATCH);
        link_pair_close(&pair);
    }
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
    CHECK_OK(rpi_stream_dial_any(&first, "both", rpi_deadline_ns(20), NULL, &fd));
    CHECK(rpi_now_ns() < limit_ns); /* half of what the first could have used up */
    if (fd >= 0) close(fd);
    first.ai_next = NULL;
    CHECK_FAILS(rpi_stream_dial_any(&first, "the first", rpi_deadline_ns(0.2), NULL, &fd),
                TIMEOUT, "nobody answered at the first");
    close(listener);
    hang_up(&d);
}

static void one_listener_is_heard_at_all_its_addresses(void) {
    int listener = -1, fd = -1, port = 0;
    REQUIRE_OK(rpi_stream_listen("127.0.0.1,127.0.0.2", 0, &listener, &port));
    for (int i = 1; i <= 2; i++) {
        char host[16];
        snprintf(host, sizeof host, "127.0.0.%d", i);
        CHECK_OK(rpi_stream_dial(host, port, rpi_deadline_ns(5), &fd));
        close(fd);
    }
    close(listener);
}

static void any_address_of_a_list_may_be_the_one(void) {
    static const char *const lists[] = {"127.0.0.1,127.0.0.2", "127.0.0.2,127.0.0.1",
                                        "fe80::zz,127.0.0.2", "::1,127.0.0.2"};
    int listener = -1, fd = -1, port = 0;
    REQUIRE_OK(rpi_stream_listen("127.0.0.2", 0, &listener, &port));
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        CHECK_OK(rpi_stream_dial(lists[i], port, rpi_deadline_ns(10), &fd));
        close(fd);
    }
    CHECK_FAILS(rpi_stream_dial("fe80::zz,nor:this", port, rpi_deadline_ns(5), &fd), INVALID,
                "nor:this");
    CHECK_FAILS(rpi_stream_dial(",", port, rpi_deadline_ns(5), &fd), IO, "cannot find host");
    close(listener);
}

/* A listener on a port of the range; the descriptor, or -1. */
static int listen_in(const char *ports, int *out_port) {
    int fd = -1;
    setenv("REDPOLL_PORTS", ports, 1);
    rp_status status = rpi_stream_listen(NULL, 0, &fd, out_port);
    unsetenv("REDPOLL_PORTS");
    return status == RP_OK ? fd : -1;
}

static void ports_come_from_the_range(void) {
    char range[32];
    int any = -1, first = 0, port = 0, second_port = 0;
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &any, &first));
    first = first > 60000 ? first - 200 : first;
    snprintf(range, sizeof range, "%d-%d", first, first + 100);
    int one = listen_in(range, &port), two = listen_in(range, &second_port);
    CHECK(one >= 0 && two >= 0 && port != second_port);
    CHECK(port >= first && port <= first + 100 && second_port > port);
    snprintf(range, sizeof range, "%d-%d", port, port);
    CHECK_EQ(listen_in(range, &second_port), -1);
    CHECK_MSG(strstr(rp_last_error()->message, "all ports of REDPOLL_PORTS"), "%s",
              rp_last_error()->message);
    static const char *const wrong[] = {"0-5", "7-6", "1-65536", "a", "5-", "5-6x", "-5"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_EQ(listen_in(wrong[i], &second_port), -1);
        CHECK_MSG(strstr(rp_last_error()->message, "is no range of ports"), "%s: %s", wrong[i],
                  rp_last_error()->message);
    }
    close(any);
    close(one);
    close(two);
}

typedef struct port_trials {
    int port;
    int taken; /* so often it seemed so */
} port_trials;

static void *try_port(void *context) {
    port_trials *own = context;
    for (int i = 0; i < 20000; i++) own->taken += !rpi_stream_port_is_free(own->port);
    return NULL;
}

/* As by doctors of two hosts that are one machine. It is bound here, too, so that nobody else
 * gets it meanwhile. */
static void trials_of_a_port_do_not_take_it(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(held, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    REQUIRE(bind(held, (struct sockaddr *)&address, length) == 0);
    REQUIRE(getsockname(held, (struct sockaddr *)&address, &length) == 0);
    port_trials trials[2] = {{.port = ntohs(address.sin_port)},
                             {.port = ntohs(address.sin_port)}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, try_port, &trials[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(trials[0].taken + trials[1].taken, 0);
    CHECK(listen(held, 1) == 0);
    CHECK(!rpi_stream_port_is_free(trials[0].port));
    close(held);
}

/* The addresses of lo: 127.0.0.1, and ::1 where IPv6 is on. */
static int loopbacks(void) {
    struct ifaddrs *all = NULL;
    int count = 0;
    CHECK(getifaddrs(&all) == 0);
    for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
        int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;
        count += !strcmp(at->ifa_name, "lo") && (family == AF_INET || family == AF_INET6);
    }
    freeifaddrs(all);
    return count;
}

static void interfaces_match_as_nccl_has_them(void) {
    static const struct {
        const char *filter, *name;
        bool matches;
    } cases[] = {
        {NULL, "eth0", true},        {"", "eth0", true},
        {"eth", "eth0", true},       {"eth0", "eth01", true},
        {"=eth0", "eth01", false},   {"=eth0", "eth0", true},
        {"ib,eth", "eth0", true},    {"ib", "eth0", false},
        {"=ib0,eth0", "eth0", true}, {"^docker", "docker0", false},
        {"^docker", "eth0", true},   {"^=docker", "docker0", true},
        {"^docker,lo", "lo", false}, {"^=lo,docker0", "lo", false},
        {"=", "eth0", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_MSG(rpi_interface_matches(cases[i].filter, cases[i].name) == cases[i].matches,
                  "'%s' and %s", cases[i].filter ? cases[i].filter : "NULL", cases[i].name);
    rpi_interface list[RPI_INTERFACES_MAX];
    int count = 0;
    CHECK_OK(rpi_interfaces_list(NULL, list, &count));
    for (int i = 0; i < count; i++) CHECK(!rpi_is_loopback(list[i].address));
    CHECK_FAILS(rpi_interfaces_list("=nosuch0", list, &count), INVALID, "there are: ");
    REQUIRE_OK(rpi_interfaces_list("=lo", list, &count));
    CHECK(count >= 1 && strcmp(list[0].address, "127.0.0.1") == 0);
    CHECK_EQ(count, loopbacks());
    if (count > 1) CHECK(strcmp(list[count - 1].address, "::1") == 0);
}

/* Between which interfaces and addresses a connection goes, for people. */
static void a_way_is_named_by_both_its_ends(void) {
    int listener = -1, port = 0, fd = -1;
    char text[100] = "by ", begun[100] = "";
    REQUIRE_OK(rpi_stream_listen("127.0.0.1", 0, &listener, &port));
    CHECK_OK(rpi_stream_dial("127.0.0.1", port, rpi_deadline_ns(10), &fd));
    rpi_append_way(fd, text, sizeof text);
    CHECK_MSG(!strcmp(text, "by lo 127.0.0.1 - 127.0.0.1"), "'%s'", text);
    rpi_append_way(listener, begun, sizeof begun); /* nobody is at its other end */
    CHECK_MSG(!strcmp(begun, "lo 127.0.0.1"), "'%s'", begun);
    close(fd);
    close(listener);
    rpi_append_way(-1, begun, sizeof begun);
    CHECK(!strcmp(begun, "lo 127.0.0.1"));
}

/* TCP connects a socket to its own port where nobody listens there. */
static void a_connection_with_oneself_is_none(void) {
    int listener = -1, port = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
        other = -1;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    CHECK(bind(fd, (struct sockaddr *)&own, length) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&own, &length) == 0);
    REQUIRE(connect(fd, (struct sockaddr *)&own, length) == 0);
    CHECK_EQ(rpi_stream_dial_error(fd), ECONNREFUSED);
    close(fd);
    REQUIRE_OK(rpi_stream_listen("127.0.0.1", 0, &listener, &port));
    REQUIRE_OK(rpi_stream_dial("127.0.0.1", port, rpi_deadline_ns(10), &other));
    CHECK_EQ(rpi_stream_dial_error(other), 0);
    close(other);
    close(listener);
}

/* However long nobody has said anything: only what was sent and not acknowledged counts. */
static void silence_is_no_loss(void) {
    int listener = -1, port = 0, fd = -1;
    REQUIRE_OK(rpi_stream_listen("127.0.0.1", 0, &listener, &port));
    REQUIRE_OK(rpi_stream_dial("127.0.0.1", port, rpi_deadline_ns(10), &fd));
    CHECK(!rpi_stream_is_unanswered(fd, 0));
    CHECK_EQ(write(fd, "x", 1), 1); /* the kernel of the other side acknowledges it */
    CHECK(!rpi_stream_is_unanswered(fd, 0));
    CHECK(!rpi_stream_is_unanswered(-1, 0));
    close(fd);
    close(listener);
}

/* ---- what every descriptor promises ---- */

static void check_promises(int fd, const char *what) {
    CHECK_MSG(fd >= 0, "%s: no descriptor", what);
    CHECK_MSG(fcntl(fd, F_GETFD) & FD_CLOEXEC, "%s: is handed on to children", what);
    CHECK_MSG(fcntl(fd, F_GETFL) & O_NONBLOCK, "%s: blocks", what);
}

static void check_hurries(int fd, const char *what) {
    int one = 0;
    socklen_t length = sizeof one;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, &length) == 0);
    CHECK_MSG(one, "%s: Nagle's delay", what);
}

/* What has been dialled is accepted at once, or soon. */
static int accept_soon(int listener) {
    (void)rpi_stream_wait(listener, POLLIN, rpi_deadline_ns(20));
    return rpi_stream_accept(listener);
}

static void descriptors_neither_block_nor_go_to_children(void) {
    int before = check_descriptors(), port = 0, listener = -1, began = -1, fds[4];
    char name[RPI_UNIX_NAME_BYTES];
    rpi_addresses addresses;
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
    check_promises(listener, "a listener");
    CHECK_EQ(rpi_stream_accept(listener), -1); /* nobody has come */
    REQUIRE_OK(rpi_stream_dial(NULL, port, rpi_deadline_ns(20), &fds[0]));
    fds[1] = accept_soon(listener);
    REQUIRE_OK(rpi_addresses_find(NULL, port, 0, &addresses));
    CHECK_EQ(rpi_stream_begin_dial(addresses.first, &began), RP_PENDING);
    fds[2] = began;
    fds[3] = accept_soon(listener);
    rpi_addresses_free(&addresses);
    static const char *const names[] = {"dialled", "accepted", "begun", "accepted later"};
    for (int i = 0; i < 4; i++) {
        check_promises(fds[i], names[i]);
        check_hurries(fds[i], names[i]);
        close(fds[i]);
    }
    close(listener);
    REQUIRE_OK(rpi_unix_listen(name, &listener));
    check_promises(listener, "a Unix listener");
    REQUIRE_OK(rpi_unix_dial(name, rpi_deadline_ns(20), &fds[0]));
    check_promises(fds[0], "a Unix connection");
    close(fds[0]);
    close(listener);
    CHECK_FAILS(rpi_unix_dial(name, rpi_deadline_ns(20), &fds[0]), PEER, "nobody listens");
    CHECK_EQ(check_descriptors(), before);
}

/* In a child: 0 where the caller is taken with all that is promised. */
static int accept_without_accept4(int listener, unsigned error) {
    if (!process_forbid(SYS_accept4, error) ||
        accept4(listener, NULL, NULL, SOCK_NONBLOCK) >= 0)
        return PROCESS_CANNOT_FORBID;
    if (error == EPERM) close(STDIN_FILENO); /* descriptor 0 serves like any */
    int fd = rpi_stream_accept(listener), one = 0;
    socklen_t length = sizeof one;
    if (fd < 0) return error == EPERM || error == ENOSYS ? 1 : 0;
    bool good = fcntl(fd, F_GETFD) & FD_CLOEXEC && fcntl(fd, F_GETFL) & O_NONBLOCK &&
                getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, &length) == 0 && one;
    return good && (error == EPERM || error == ENOSYS) ? 0 : 2;
}

static void callers_are_taken_in_old_containers(void) {
    static const unsigned errors[] = {ENOSYS, EPERM, EMFILE};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        int listener = -1, port = 0, fd = -1, status = 0;
        REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
        REQUIRE_OK(rpi_stream_dial(NULL, port, rpi_deadline_ns(20), &fd));
        REQUIRE_OK(rpi_stream_wait(listener, POLLIN, rpi_deadline_ns(20)));
        pid_t child = fork();
        if (child == 0) _exit(accept_without_accept4(listener, errors[i]));
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
        close(fd);
        close(listener);
        if (WIFEXITED(status) && WEXITSTATUS(status) == PROCESS_CANNOT_FORBID) {
            check_skip("no system call can be forbidden here");
            return;
        }
        CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "errno %u: status %x",
                  errors[i], (unsigned)status);
    }
}

/* It is a listener's here, and a Unix listener's. */
static void descriptor_0_serves_like_any(void) {
    check_without_stdin(descriptors_neither_block_nor_go_to_children);
}

static void names_of_unix_sockets_have_bounds(void) {
    char name[sizeof((struct sockaddr_un *)0)->sun_path + 1];
    int fd = -1;
    memset(name, 'n', sizeof name);
    name[sizeof name - 2] = '\0'; /* one byte is for the NUL in front of it */
    CHECK_FAILS(rpi_unix_dial(name, rpi_deadline_ns(20), &fd), PEER, "nobody listens");
    name[sizeof name - 2] = 'n';
    name[sizeof name - 1] = '\0';
    CHECK_FAILS(rpi_unix_dial(name, rpi_deadline_ns(20), &fd), INVALID, "too long");
}

static void spans_of_poll_are_rounded_up(void) {
    CHECK_EQ(rpi_poll_ms(RPI_NEVER_NS), -1);
    CHECK_EQ(rpi_poll_ms(rpi_now_ns()), 0);
    CHECK_EQ(rpi_poll_ms(rpi_now_ns() - RPI_SECOND_NS), 0);
    int ms = rpi_poll_ms(rpi_now_ns() + 100 * RPI_SECOND_NS);
    CHECK_MSG(ms > 0 && ms <= 100000, "%d ms", ms);
    CHECK_EQ(rpi_poll_ms(rpi_now_ns() + (INT64_C(1) << 60)), 1000000000);
}

static void who_was_hung_up_on_dials_for_a_while(void) {
    rpi_redials redials = {0};
    int fds[2];
    REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
    int before = check_descriptors(), fd = fds[0];
    CHECK(!rpi_stream_dials_again(&redials, &fd, rpi_now_ns())); /* no time is left */
    CHECK_EQ(fd, fds[0]);
    CHECK(rpi_stream_dials_again(&redials, &fd, rpi_deadline_ns(60)));
    CHECK_EQ(fd, -1);
    CHECK_EQ(check_descriptors(), before - 1);
    CHECK(rpi_stream_dials_again(&redials, &fd, rpi_deadline_ns(60)));
    redials.first_ns -= 60 * RPI_SECOND_NS;
    CHECK(!rpi_stream_dials_again(&redials, &fd, rpi_deadline_ns(60)));
    close(fds[1]);
}

/* ---- descriptors that are passed ---- */

static bool are_one_file(int a, int b) {
    struct stat one, other;
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

static void so_many_descriptors_as_are_awaited(void) {
    int pair[2], given[RPI_PASS_FDS], taken[RPI_PASS_FDS];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    for (int i = 0; i < RPI_PASS_FDS; i++) given[i] = pair[i % 2];
    int before = check_descriptors();
    for (int count = 1; count <= RPI_PASS_FDS; count++) {
        CHECK_OK(rpi_fds_send(pair[0], given, count, rpi_deadline_ns(20)));
        REQUIRE_OK(rpi_fds_receive(pair[1], taken, count, rpi_deadline_ns(20)));
        for (int i = 0; i < count; i++) {
            CHECK(fcntl(taken[i], F_GETFD) & FD_CLOEXEC);
            CHECK(are_one_file(taken[i], given[i]));
            close(taken[i]);
        }
        for (int other = 1; other <= RPI_PASS_FDS; other++) {
            if (other == count) continue;
            CHECK_OK(rpi_fds_send(pair[0], given, count, rpi_deadline_ns(20)));
            CHECK_FAILS(rpi_fds_receive(pair[1], taken, other, rpi_deadline_ns(20)), CORRUPT,
                        "it did not pass");
        }
    }
    CHECK_EQ(check_descriptors(), before);
    CHECK_FAILS(rpi_fds_receive(pair[1], taken, 1, rpi_deadline_ns(0.01)), TIMEOUT,
                "no descriptors passed");
    close(pair[0]);
    CHECK_FAILS(rpi_fds_receive(pair[1], taken, 1, rpi_deadline_ns(20)), PEER, "closed");
    CHECK_FAILS(rpi_fds_send(pair[1], given + 1, 1, rpi_deadline_ns(20)), PEER, "closed");
    close(pair[1]);
}

static void notes_come_whole_or_not_at_all(void) {
    int pair[2], fd = 77;
    char note[8] = "notes", heard[8];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    int before = check_descriptors();
    CHECK_EQ(rpi_note_receive(pair[1], heard, sizeof heard, &fd), RP_PENDING);
    CHECK_OK(rpi_note_send(pair[0], note, sizeof note, -1));
    CHECK_OK(rpi_note_receive(pair[1], heard, sizeof heard, &fd));
    CHECK(fd == -1 && strcmp(heard, "notes") == 0);
    CHECK_OK(rpi_note_send(pair[0], note, sizeof note, pair[0]));
    CHECK_OK(rpi_note_receive(pair[1], heard, sizeof heard, &fd));
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK(are_one_file(fd, pair[0]));
    close(fd);
    CHECK_OK(rpi_note_send(pair[0], note, sizeof note - 1, pair[0])); /* too short */
    CHECK_FAILS(rpi_note_receive(pair[1], heard, sizeof heard, &fd), CORRUPT,
                "in 7 bytes on the socket, not in 8");
    CHECK_OK(rpi_fds_send(pair[0], (int[]){pair[0], pair[1]}, 2, rpi_deadline_ns(20)));
    CHECK_FAILS(rpi_note_receive(pair[1], heard, 1, &fd), CORRUPT, "on the socket");
    CHECK_EQ(check_descriptors(), before);
    while (rpi_note_send(pair[0], note, sizeof note, -1) == RP_OK) {
    } /* until it is full */
    CHECK_EQ(rpi_note_send(pair[0], note, sizeof note, -1), RP_PENDING);
    close(pair[1]);
    CHECK_FAILS(rpi_note_send(pair[0], note, sizeof note, -1), PEER, "closed");
    close(pair[0]);
}

CASES({"shared_memory_has_a_deadline", shared_memory_has_a_deadline},
      {"several_ranks_are_called_at_once", several_ranks_are_called_at_once},
      {"the_rank_that_cannot_be_called_is_named", the_rank_that_cannot_be_called_is_named},
      {"who_was_hung_up_on_calls_again", who_was_hung_up_on_calls_again},
      {"who_was_refused_hears_why", who_was_refused_hears_why},
      {"the_first_address_leaves_time_for_the_second",
       the_first_address_leaves_time_for_the_second},
      {"one_listener_is_heard_at_all_its_addresses",
       one_listener_is_heard_at_all_its_addresses},
      {"any_address_of_a_list_may_be_the_one", any_address_of_a_list_may_be_the_one},
      {"ports_come_from_the_range", ports_come_from_the_range},
      {"trials_of_a_port_do_not_take_it", trials_of_a_port_do_not_take_it},
      {"interfaces_match_as_nccl_has_them", interfaces_match_as_nccl_has_them},
      {"a_connection_with_oneself_is_none", a_connection_with_oneself_is_none},
      {"silence_is_no_loss", silence_is_no_loss},
      {"a_way_is_named_by_both_its_ends", a_way_is_named_by_both_its_ends},
      {"descriptors_neither_block_nor_go_to_children",
       descriptors_neither_block_nor_go_to_children},
      {"descriptor_0_serves_like_any", descriptor_0_serves_like_any},
      {"callers_are_taken_in_old_containers", callers_are_taken_in_old_containers},
      {"names_of_unix_sockets_have_bounds", names_of_unix_sockets_have_bounds},
      {"spans_of_poll_are_rounded_up", spans_of_poll_are_rounded_up},
      {"who_was_hung_up_on_dials_for_a_while", who_was_hung_up_on_dials_for_a_while},
      {"so_many_descriptors_as_are_awaited", so_many_descriptors_as_are_awaited},
      {"notes_come_whole_or_not_at_all", notes_come_whole_or_not_at_all})
