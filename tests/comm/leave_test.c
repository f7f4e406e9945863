/* The way out after rank 0, which serves the store, has stopped: survivors say so and end by
 * themselves, long before anybody would give up waiting for an answer of the store. */
#include "redpoll/comm.h"

#include "harness/process.h"
#include "harness/ranks.h"
#include "net/socket/stream.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { WORLD = 3, COUNT = 1000 };
#define TIMEOUT_S 1.5
/* The error comes after TIMEOUT_S; this is far above what leaving takes then, and far below
 * the half minute for which a store is waited for elsewhere. */
#define END_S     15.0

static rp_comm *join(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = ranks_argument(), .connect_timeout_s = 30,
                        .warn_after_s = TIMEOUT_S, .timeout_s = TIMEOUT_S);
    rp_comm *comm = NULL;
    if (rp_comm_join(&options, &comm) != RP_OK) ranks_die();
    return comm;
}

static rp_status reduce(rp_comm *comm) {
    float data[COUNT] = {0};
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    return rp_all_reduce(comm, &segment, 1, NULL);
}

static _Noreturn void leave(rp_comm *comm) {
    fprintf(stderr, "%s\n", rp_last_error()->message);
    rp_comm_destroy(comm);
    exit(1);
}

static void reduce_for_ever(void) {
    rp_comm *comm = join();
    for (long round = 0;; round++) {
        if (reduce(comm) != RP_OK) leave(comm);
        if (round == 3) ranks_mark("going");
    }
}

/* A program with communicators for groups of its ranks: all are left, one has failed. */
static void leave_several(void) {
    enum { GROUPS = 6 };
    rp_comm *world = join(), *groups[GROUPS];
    rp_store store = {0};
    if (ranks_store(&store) != RP_OK) ranks_die();
    for (int i = 0; i < GROUPS; i++) {
        char name[16];
        snprintf(name, sizeof name, "group %d", i);
        rp_comm_options options = RP_COMM_OPTIONS(.name = name, .connect_timeout_s = 30);
        if (rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &groups[i]) != RP_OK)
            ranks_die();
    }
    CHECK_OK(reduce(world));
    ranks_mark("going");
    while (reduce(world) == RP_OK) continue;
    fprintf(stderr, "%s\n", rp_last_error()->message);
    for (int i = 0; i < GROUPS; i++) rp_comm_destroy(groups[i]);
    rp_comm_destroy(world);
    rp_store_close(&store);
    exit(1);
}

static bool is_stopped(int64_t pid) {
    process_look look;
    return process_look_at((pid_t)pid, &look) && look.state == 'T';
}

/* Nothing has failed: rank 0 stops when all work is done, and the others say goodbye. */
static void leave_in_peace(void) {
    rp_comm *comm = join();
    int64_t pid = getpid(), pids[WORLD];
    CHECK_OK(rp_all_gather(comm, &pid, pids, 1, RP_I64, NULL, NULL));
    ranks_mark("going");
    if (ranks_rank() == 0)
        for (;;) pause();
    while (!is_stopped(pids[0])) usleep(10000);
    clock_t start = clock();
    rp_comm_destroy(comm);
    CHECK(clock() - start < CLOCKS_PER_SEC / 4); /* it sleeps meanwhile */
}

/* Rank 3 waits for 2, 2 for 1, and 1 for nobody. */
static void wait_in_line(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = ranks_argument(), .connect_timeout_s = 30);
    rp_comm *comm = NULL;
    float data[COUNT];
    if (rp_comm_join(&options, &comm) != RP_OK) ranks_die();
    CHECK_OK(rp_barrier(comm));
    ranks_mark("going");
    if (ranks_rank() < 2)
        for (;;) pause();
    CHECK(rp_recv(comm, data, COUNT, RP_F32, ranks_rank() - 1, 0) != RP_OK);
    leave(comm);
}

/* Rank 2 never comes, and rank 0 stops while the others wait for it. */
static void join_in_vain(void) {
    rp_comm_options options = RP_COMM_OPTIONS(.connect_timeout_s = 3);
    rp_comm *comm = NULL;
    ranks_mark("joining");
    CHECK(rp_comm_join(&options, &comm) != RP_OK);
    ranks_die();
}

/* Ranks that no launcher serves a store for: rank 0 does, at a port of their own. */
static ranks *start(const char *function, const char *transport) {
    static char port_text[32];
    int fd = -1, port = 0;
    CHECK_OK(rpi_stream_listen(NULL, 0, &fd, &port));
    close(fd);
    snprintf(port_text, sizeof port_text, "MASTER_PORT=%d", port);
    const char *environment[] = {"REDPOLL_STORE=", port_text, NULL};
    return ranks_start(function, WORLD,
                       &(ranks_options){.argument = transport, .environment = environment});
}

static void lose_rank_0(const char *function, const char *transport, int code,
                        const char *words) {
    ranks *world = start(function, transport);
    for (int rank = 0; rank < WORLD; rank++)
        if (!ranks_wait_for(world, rank, "going", 30)) break;
    ranks_signal(world, 0, SIGSTOP);
    CHECK(ranks_finish(world, END_S));
    for (int rank = 1; rank < WORLD; rank++) ranks_check_exit(world, rank, code, words);
    ranks_free(world);
}

static void a_stopped_server_holds_nobody_up(void) {
    lose_rank_0("reduce_for_ever", "shm", 1, "rank 0 ");
    lose_rank_0("reduce_for_ever", "tcp", 1, "rank 0 ");
}

static void nor_many_communicators(void) {
    lose_rank_0("leave_several", "auto", 1, "rank 0 ");
}

static void nor_those_whose_work_is_done(void) {
    lose_rank_0("leave_in_peace", "auto", 0, NULL);
}

/* Who fails since rank 1 has died takes the next one along: that one hears why. */
static void lose_rank_1(const char *transport) {
    enum { RANKS = 4 };
    ranks *world = ranks_start("wait_in_line", RANKS, &(ranks_options){.argument = transport});
    for (int rank = 0; rank < RANKS; rank++)
        if (!ranks_wait_for(world, rank, "going", 30)) break;
    ranks_signal(world, 0, SIGSTOP);
    ranks_signal(world, 1, SIGKILL);
    CHECK(ranks_finish(world, END_S));
    for (int rank = 2; rank < RANKS; rank++) ranks_check_exit(world, rank, 1, "rank 1 ");
    ranks_free(world);
}

static void nobody_but_the_dead_is_blamed(void) {
    lose_rank_1("shm");
    lose_rank_1("tcp");
}

static void nor_those_who_are_joining(void) {
    ranks *world = start("join_in_vain", "");
    ranks_signal(world, 2, SIGKILL);
    ranks_wait_for(world, 0, "joining", 30);
    ranks_wait_for(world, 1, "joining", 30);
    usleep(500000);
    ranks_signal(world, 0, SIGSTOP);
    CHECK(ranks_finish(world, END_S));
    ranks_check_exit(world, 1, 1, "store");
    ranks_free(world);
}

static const ranks_function functions[] = {{"reduce_for_ever", reduce_for_ever},
                                           {"leave_several", leave_several},
                                           {"leave_in_peace", leave_in_peace},
                                           {"wait_in_line", wait_in_line},
                                           {"join_in_vain", join_in_vain}};
static const check_case cases[] = {
    {"a stopped server holds nobody up", a_stopped_server_holds_nobody_up},
    {"nor many communicators", nor_many_communicators},
    {"nor those whose work is done", nor_those_whose_work_is_done},
    {"nor those who are joining", nor_those_who_are_joining},
    {"nobody but the dead is blamed", nobody_but_the_dead_is_blamed}};
RANKS_MAIN(functions, cases)
