/* The yardstick: plain sockets that move the bytes of an all-reduce and do nothing else.
 *
 *     plain_exchange RANK PATTERN BYTES ITERS RATE ADDRESS:PORT...     (one address a rank)
 *
 * PATTERN ring: 2 BYTES (P-1)/P to the next rank, as much from the previous one.
 * PATTERN sra:  2 BYTES / P to each other rank, as much from each.
 * BYTES is the encoded size of the whole vector. There is no sum, no frame, no order between
 * the two phases: it is at least as fast as any all-reduce of that pattern can be. RATE (bytes
 * a second, 0 none) paces each rank's sending in this program, for links that the kernel does
 * not shape. Rank 0 prints one line: the seconds of each repeat of its slowest rank. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 64, PIECE = 256 * 1024 };

typedef struct exchange {
    int rank, ranks;
    double rate;
    int sockets[MAX_RANKS];
    size_t to_send[MAX_RANKS], to_receive[MAX_RANKS];
    double started, sent; /* of this repeat: seconds, bytes, for pacing */
} exchange;

static char buffer[PIECE];

static void die(const char *what) {
    fprintf(stderr, "plain_exchange: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct sockaddr_in parse_address(const char *text) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[64];
    int port;
    if (sscanf(text, "%63[^:]:%d", host, &port) != 2 ||
        inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "plain_exchange: '%s' is not ADDRESS:PORT\n", text);
        exit(2);
    }
    address.sin_port = htons((uint16_t)port);
    return address;
}

static int listen_at(const char *text) {
    struct sockaddr_in address = parse_address(text);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, MAX_RANKS) != 0)
        die(text);
    return listener;
}

static int dial(const char *text) {
    struct sockaddr_in address = parse_address(text);
    for (int attempt = 0; attempt < 1000; attempt++) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (struct sockaddr *)&address, sizeof address) == 0) return s;
        close(s);
        usleep(10000);
    }
    die(text);
    return -1;
}

/* Lower ranks listen, higher ones dial and say who they are. */
static void connect_all(exchange *x, char **addresses) {
    int listener = listen_at(addresses[x->rank]);
    for (int peer = 0; peer < x->rank; peer++) {
        x->sockets[peer] = dial(addresses[peer]);
        if (write(x->sockets[peer], &x->rank, sizeof x->rank) != sizeof x->rank) die("hello");
    }
    for (int i = x->rank + 1; i < x->ranks; i++) {
        int peer, s = accept(listener, NULL, NULL);
        if (s < 0 || recv(s, &peer, sizeof peer, MSG_WAITALL) != sizeof peer) die("accept");
        x->sockets[peer] = s;
    }
    close(listener);
    for (int peer = 0; peer < x->ranks; peer++) {
        if (peer == x->rank) continue;
        int one = 1;
        setsockopt(x->sockets[peer], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(x->sockets[peer], F_SETFL, O_NONBLOCK);
    }
}

static void set_work(exchange *x, const char *pattern, size_t bytes) {
    size_t part = bytes / (size_t)x->ranks;
    memset(x->to_send, 0, sizeof x->to_send);
    memset(x->to_receive, 0, sizeof x->to_receive);
    if (strcmp(pattern, "ring") == 0) {
        x->to_send[(x->rank + 1) % x->ranks] = 2 * part * (size_t)(x->ranks - 1);
        x->to_receive[(x->rank + x->ranks - 1) % x->ranks] = 2 * part * (size_t)(x->ranks - 1);
        return;
    }
    for (int peer = 0; peer < x->ranks; peer++)
        if (peer != x->rank) x->to_send[peer] = x->to_receive[peer] = 2 * part;
}

static size_t allowed(const exchange *x) {
    if (x->rate <= 0) return PIECE;
    double credit = (now() - x->started) * x->rate + PIECE - x->sent;
    return credit <= 0 ? 0 : credit < PIECE ? (size_t)credit : PIECE;
}

static void send_some(exchange *x, int peer) {
    size_t piece = x->to_send[peer] < PIECE ? x->to_send[peer] : PIECE;
    size_t limit = allowed(x);
    if (piece > limit) piece = limit;
    if (piece == 0) return;
    ssize_t n = send(x->sockets[peer], buffer, piece, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) die("send");
    if (n > 0) x->to_send[peer] -= (size_t)n, x->sent += (double)n;
}

static void receive_some(exchange *x, int peer) {
    static char into[PIECE];
    size_t piece = x->to_receive[peer] < PIECE ? x->to_receive[peer] : PIECE;
    ssize_t n = recv(x->sockets[peer], into, piece, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) die("recv");
    if (n > 0) x->to_receive[peer] -= (size_t)n;
}

static void run(exchange *x) {
    x->started = now();
    x->sent = 0;
    for (;;) {
        struct pollfd fds[MAX_RANKS];
        int peers[MAX_RANKS], count = 0, paced = x->rate > 0 && allowed(x) < 4096;
        for (int peer = 0; peer < x->ranks; peer++) {
            short events = (short)((x->to_receive[peer] ? POLLIN : 0) |
                                   (x->to_send[peer] && !paced ? POLLOUT : 0));
            if (!x->to_receive[peer] && !x->to_send[peer]) continue;
            peers[count] = peer;
            fds[count++] = (struct pollfd){.fd = x->sockets[peer], .events = events};
        }
        if (count == 0) return;
        if (poll(fds, (nfds_t)count, paced ? 1 : -1) < 0) die("poll");
        for (int i = 0; i < count; i++) {
            if (fds[i].revents & (POLLIN | POLLHUP | POLLERR)) receive_some(x, peers[i]);
            if (fds[i].revents & POLLOUT) send_some(x, peers[i]);
        }
    }
}

static void transfer(int s, void *data, size_t bytes, int sending) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = sending ? send(s, (char *)data + done, bytes - done, MSG_NOSIGNAL)
                            : recv(s, (char *)data + done, bytes - done, 0);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EAGAIN)
            die("barrier");
        else
            usleep(20);
    }
}

/* Rank 0 collects everybody's seconds, answers with the largest: a barrier and a maximum. */
static double slowest(exchange *x, double seconds) {
    if (x->rank != 0) {
        transfer(x->sockets[0], &seconds, sizeof seconds, 1);
        transfer(x->sockets[0], &seconds, sizeof seconds, 0);
        return seconds;
    }
    for (int peer = 1; peer < x->ranks; peer++) {
        double theirs;
        transfer(x->sockets[peer], &theirs, sizeof theirs, 0);
        if (theirs > seconds) seconds = theirs;
    }
    for (int peer = 1; peer < x->ranks; peer++)
        transfer(x->sockets[peer], &seconds, sizeof seconds, 1);
    return seconds;
}

int main(int argc, char **argv) {
    if (argc < 8 || argc - 6 > MAX_RANKS) {
        fprintf(stderr, "usage: plain_exchange RANK ring|sra BYTES ITERS RATE ADDRESS:PORT "
                        "ADDRESS:PORT...\n");
        return 2;
    }
    exchange x = {.rank = atoi(argv[1]), .ranks = argc - 6, .rate = atof(argv[5])};
    size_t bytes = strtoull(argv[3], NULL, 10);
    connect_all(&x, argv + 6);
    int iters = atoi(argv[4]);
    for (int i = 0; i <= iters; i++) { /* the first is a warm-up */
        (void)slowest(&x, 0);
        set_work(&x, argv[2], bytes);
        double start = now();
        run(&x);
        double seconds = slowest(&x, now() - start);
        if (x.rank == 0 && i > 0) printf("%.6f%s", seconds, i == iters ? "\n" : " ");
    }
    return 0;
}
