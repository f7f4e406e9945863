/* A training that goes on while workers leave, die and come: a world of views.
 *
 *     cc views.c $(pkg-config --cflags --libs redpoll) -o views
 *     ./views                                  a store and four workers on this host
 *     ./views store 29700                      on any host: a store, until it is ended
 *     ./views work HOST:29700 NAME [leave|die] on any number of hosts: a worker
 *     redpoll run -n 3 --on-loss continue --restart 1 -- ./views join
 *                                              workers that are started again when they are
 *                                              killed, at the store of their launcher
 *
 * Three of four workers train, the fourth waits for a place. One of them leaves when it has
 * seen enough, and another one is killed; whoever waits comes in, gets the state from rank 0
 * and goes on at the step at which the others are. The store is a process of its own here, so
 * that every worker may die; under `redpoll run` it is the launcher.
 *
 * In a job with a secret set REDPOLL_SECRET for the store and all workers alike. */
#define _POSIX_C_SOURCE 200809L /* fork, kill, nanosleep */

#include <redpoll/redpoll.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 1000, STEPS = 1000, SOME_STEPS = 100, WORKERS = 4 };

/* What a newcomer needs to go on: all of it is the same on all members between two steps. */
typedef struct state {
    double step;
    double weights[COUNT];
} state;

static void must(rp_status status) {
    if (status == RP_OK) return;
    fprintf(stderr, "%s\n", rp_last_error()->message);
    exit(1);
}

static void pause_ms(long ms) {
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* One step of plain gradient descent to a vector of ones, by gradients that differ from rank to
 * rank. *changes: the world is to change behind this step, as all ranks know now. */
static rp_status train_step(rp_comm *comm, const rp_world *world, state *s, int *changes) {
    double gradient[COUNT], wishes = rp_world_changing(world) || *changes;
    rp_segment segments[2] = {{.data = gradient, .count = COUNT, .dtype = RP_F64},
                              {.data = &wishes, .count = 1, .dtype = RP_F64}};
    rp_collective_options average = RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG);
    for (int i = 0; i < COUNT; i++) gradient[i] = s->weights[i] - 1 + rp_comm_rank(comm) % 2;
    rp_status status = rp_all_reduce(comm, segments, 2, &average);
    if (status != RP_OK) return status; /* nothing has changed: the step is done again */
    for (int i = 0; i < COUNT; i++) s->weights[i] -= 0.05 * gradient[i];
    s->step++;
    *changes = wishes > 0;
    pause_ms(2); /* the computing */
    return RP_OK;
}

static void describe(const rp_view *view, const state *s) {
    static const char *const why[] = {"", "left", "fell silent", "was lost", "was late"};
    printf("step %4.0f, view %u:", s->step, view->number);
    for (int i = 0; i < view->count; i++)
        printf(" %s%s", view->members[i].name, view->members[i].previous < 0 ? " (new)" : "");
    for (int i = 0; i < view->left_count; i++)
        printf("; %s %s", view->left[i].name, why[view->left[i].departure]);
    printf("\n");
    fflush(stdout);
}

/* Train in one view; returns when the world has to change, or when all steps are done. */
static void train_in_view(rp_world *world, const rp_view *view, state *s, const char *role) {
    rp_comm *comm = NULL;
    rp_comm_options options = RP_COMM_OPTIONS(.timeout_s = 30);
    int changes = 0;
    rp_status status = rp_comm_create_in(world, &options, &comm);
    if (status == RP_OK)
        status = rp_broadcast(comm, s, sizeof *s / sizeof(double), RP_F64, NULL);
    if (status == RP_OK && view->rank == 0) describe(view, s);
    double until = s->step + SOME_STEPS;
    while (status == RP_OK && s->step < STEPS) {
        status = train_step(comm, world, s, &changes);
        if (status == RP_OK && changes) break;
        if (s->step < until || !role) continue;
        if (strcmp(role, "die") == 0) raise(SIGKILL);
        must(rp_world_leave(world));
        changes = 1; /* the others hear of it with the next step */
    }
    rp_comm_destroy(comm); /* before the next view: it tells the world whom it has lost */
}

/* store: of `views store`; NULL: the launcher's. done: where it is said that all steps are: a
 * connection of its own, since the world has the other one as long as it is open. */
static int work(const rp_store *store, const rp_store *done, const char *name,
                const char *role) {
    static state s;
    rp_world *world;
    const rp_view *view;
    rp_world_options options =
        RP_WORLD_OPTIONS(.member = name, .least = 2, .most = 3, .last_call_s = 10);
    must(store ? rp_world_open(store, &options, &world) : rp_world_join(&options, 30, &world));
    while (s.step < STEPS) {
        size_t bytes;
        rp_status status = rp_world_next(world, 10, &view);
        if (status == RP_STATE) break; /* this one has left; or it was away for too long */
        if (status == RP_OK) train_in_view(world, view, &s, role);
        if (status == RP_OK) continue;
        if (!done || done->ops->get(done->context, "done", 0, NULL, 0, &bytes) == RP_OK)
            break; /* the others were done before there was a place for this one */
    }
    printf("%s is done at step %.0f\n", name ? name : "a worker", s.step);
    rp_world_close(world);
    if (done && s.step >= STEPS) must(done->ops->set(done->context, "done", "1", 1));
    return 0;
}

static int work_at(const char *place, const char *name, const char *role) {
    char host[200];
    rp_store store, done;
    const char *colon = strrchr(place, ':');
    if (!colon) return 2;
    snprintf(host, sizeof host, "%.*s", (int)(colon - place), place);
    must(rp_store_connect(host, atoi(colon + 1), 30, &store));
    must(rp_store_connect(host, atoi(colon + 1), 30, &done));
    int code = work(&store, &done, name, role);
    rp_store_close(&done);
    rp_store_close(&store);
    return code;
}

/* A store and its workers, each a process. */
static int demonstrate(char *program) {
    static const struct {
        const char *name, *role;
    } workers[WORKERS] = {{"ann", NULL}, {"ben", "leave"}, {"cid", "die"}, {"dot", NULL}};
    rp_store_server *server;
    int port, failures = 0, killed = 0;
    char place[32];
    must(rp_store_serve(NULL, 0, &server, &port));
    snprintf(place, sizeof place, "127.0.0.1:%d", port);
    for (int i = 0; i < WORKERS; i++) {
        if (fork() != 0) continue;
        execl(program, program, "work", place, workers[i].name, workers[i].role, NULL);
        _exit(127);
    }
    for (int status; wait(&status) > 0;) {
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        failures += WIFEXITED(status) && WEXITSTATUS(status) != 0;
    }
    rp_store_server_stop(server);
    printf("%d worker was killed, %d failed\n", killed, failures);
    return failures != 0;
}

int main(int argc, char **argv) {
    if (argc == 1) return demonstrate(argv[0]);
    if (argc == 3 && strcmp(argv[1], "store") == 0) {
        rp_store_server *server;
        must(rp_store_serve("0.0.0.0", atoi(argv[2]), &server, NULL));
        pause();
        rp_store_server_stop(server);
        return 0;
    }
    if (argc >= 4 && strcmp(argv[1], "work") == 0)
        return work_at(argv[2], argv[3], argc > 4 ? argv[4] : NULL);
    if (argc >= 2 && strcmp(argv[1], "join") == 0)
        return work(NULL, NULL, NULL, argc > 2 ? argv[2] : NULL);
    fprintf(stderr, "usage: views | views store PORT | views work HOST:PORT NAME [leave|die] |"
                    " views join [leave|die]\n");
    return 2;
}
