/* How long a world of views takes to change: all members come, agree on the next view and make
 * its communicator; then one is exchanged for another. Members are threads, each with its own
 * connection to a store.
 *
 * usage: view_change [MEMBERS [CHANGES [TRANSPORT]]]     default 2 4 8 16 32 members, 20,
 * inproc */
#include "base/clock.h"
#include "redpoll/comm.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64 };

typedef struct member {
    pthread_t thread;
    rp_store store;
    rp_world *world;
    int rank;
} member;

static struct {
    int port, members, changes;
    const char *transport;
    pthread_barrier_t line;
    double next_ms[1000], make_ms[1000], end_ms[1000];
} bench;

static void must(rp_status status) {
    if (status == RP_OK) return;
    fprintf(stderr, "view_change: %s\n", rp_last_error()->message);
    exit(1);
}

static void come(member *m) {
    rp_world_options options =
        RP_WORLD_OPTIONS(.least = bench.members, .most = bench.members, .silence_s = 60);
    must(rp_store_connect(NULL, bench.port, 30, &m->store));
    must(rp_world_open(&m->store, &options, &m->world));
}

/* The time of the slowest member, since there is a barrier behind each part. */
static void note(double *out_ms, int change, int64_t *since_ns, bool notes) {
    pthread_barrier_wait(&bench.line);
    int64_t now_ns = rpi_now_ns();
    if (notes && change >= 0) out_ms[change] = (double)(now_ns - *since_ns) / 1e6;
    pthread_barrier_wait(&bench.line);
    *since_ns = rpi_now_ns();
}

static void *live(void *context) {
    member *m = context;
    const rp_view *view = NULL;
    rp_comm *comm = NULL;
    rp_comm_options options = RP_COMM_OPTIONS(.transport = bench.transport);
    bool notes = m->rank == 0;
    come(m);
    int64_t since_ns = 0;
    for (int change = -1; change < bench.changes; change++) {
        note(NULL, -1, &since_ns, false);
        must(rp_world_next(m->world, 60, &view));
        note(bench.next_ms, change, &since_ns, notes);
        must(rp_comm_create_in(m->world, &options, &comm));
        note(bench.make_ms, change, &since_ns, notes);
        must(rp_barrier(comm));
        note(NULL, -1, &since_ns, false);
        rp_comm_destroy(comm);
        note(bench.end_ms, change, &since_ns, notes);
        if (view->rank > 0) continue;
        rp_world_close(m->world); /* the first of each view is another one's first in none */
        rp_store_close(&m->store);
        come(m);
    }
    rp_world_close(m->world);
    rp_store_close(&m->store);
    return NULL;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double middle(double *ms) {
    qsort(ms, (size_t)bench.changes, sizeof *ms, compare);
    return ms[bench.changes / 2];
}

static void measure(int members) {
    static member all[MOST];
    rp_store_server *server = NULL;
    must(rp_store_serve(NULL, 0, &server, &bench.port));
    bench.members = members;
    pthread_barrier_init(&bench.line, NULL, (unsigned)members);
    for (int i = 0; i < members; i++) {
        all[i] = (member){.rank = i};
        if (pthread_create(&all[i].thread, NULL, live, &all[i]) != 0) exit(1);
    }
    for (int i = 0; i < members; i++) pthread_join(all[i].thread, NULL);
    rp_store_server_stop(server);
    pthread_barrier_destroy(&bench.line);
    double next = middle(bench.next_ms), worst = bench.next_ms[bench.changes - 1];
    double make = middle(bench.make_ms), end = middle(bench.end_ms);
    printf("%7d  %8.2f  %8.2f  %8.2f  %8.2f\n", members, next, worst, make, end);
    fflush(stdout);
}

int main(int argc, char **argv) {
    int members = argc > 1 ? atoi(argv[1]) : 0;
    bench.changes = argc > 2 ? atoi(argv[2]) : 20;
    bench.transport = argc > 3 ? argv[3] : "inproc";
    if (members < 0 || members > MOST || bench.changes < 1 || bench.changes > 1000) return 2;
    printf("median of %d changes, one member exchanged in each, %s; milliseconds\n",
           bench.changes, bench.transport);
    printf("members   agree on  (slowest)    make of   destroy\n");
    printf("            a view            its links          \n");
    if (members) measure(members);
    for (int each = 2; !members && each <= 32; each *= 2) measure(each);
    return 0;
}
