/* Ranks as processes that die, stop, compute for long or wait for each other: every survivor
 * ends in time and names the cause. */
#include "comm/core/communicator.h"

#include "base/clock.h"
#include "base/memory.h"
#include "harness/faulty.h"
#include "harness/ranks.h"
#include "net/socket/stream.h"
#include "net/trust/tls.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { COUNT = 400000 };

static float data[COUNT];
static rp_store store;

static int strict; /* what the next communicator is to be */

/* The argument of a rank: "transport[,link]". */
static rp_comm *open_comm(double warn_after_s, double timeout_s) {
    static char transport[64];
    snprintf(transport, sizeof transport, "%s", ranks_argument());
    char *link = strchr(transport, ',');
    if (link) *link++ = '\0';
    if (strcmp(transport, "tls") == 0) snprintf(transport, sizeof transport, "tcp");
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = transport, .link = link, .connect_timeout_s = 30,
                        .warn_after_s = warn_after_s, .timeout_s = timeout_s,
                        .strict_timeout = strict);
    rp_comm *comm = NULL;
    if (ranks_store(&store) != RP_OK ||
        rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    return comm;
}

static void close_comm(rp_comm *comm) {
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

static rp_status reduce(rp_comm *comm) {
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    if (rp_codec_parse("q4", &segment.codec) != RP_OK) return RP_INTERNAL;
    return rp_all_reduce(comm, &segment, 1,
                         &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG));
}

/* As a command does: say why, leave, end with 1. */
static _Noreturn void give_up(rp_comm *comm) {
    fprintf(stderr, "%s\n", rp_last_error()->message);
    close_comm(comm);
    exit(1);
}

static void reduce_for_ever(rp_comm *comm) {
    for (long round = 0;; round++) {
        if (reduce(comm) != RP_OK) give_up(comm);
        if (round == 3) ranks_mark("going");
    }
}

/* Rank 0 owns most of it, rank 1 nothing. */
static rp_status move_owned(rp_comm *comm, bool gathers) {
    rp_owned_segment segments[] = {
        {.segment = {.data = data, .count = COUNT - 1000, .dtype = RP_F32}},
        {.segment = {.data = data + COUNT - 1000, .count = 1000, .dtype = RP_F32, .tensor = 1},
         .owner = 2}};
    if (rp_codec_parse("q4", &segments[0].segment.codec) != RP_OK) return RP_INTERNAL;
    return gathers ? rp_all_gather_segments(comm, segments, 2, NULL)
                   : rp_reduce_scatter_segments(comm, segments, 2, NULL);
}

static void move_for_ever(rp_comm *comm, bool gathers) {
    for (long round = 0;; round++) {
        if (move_owned(comm, gathers) != RP_OK) give_up(comm);
        if (round == 3) ranks_mark("going");
    }
}

static void scatterer(void) {
    move_for_ever(open_comm(20, 60), false);
}

static void gatherer(void) {
    move_for_ever(open_comm(20, 60), true);
}

static void patient(void) {
    reduce_for_ever(open_comm(20, 60));
}

static void impatient(void) {
    reduce_for_ever(open_comm(0.4, 1.5));
}

/* Rank 1 is away for longer than the timeout, twice. */
static void thinker(void) {
    rp_comm *comm = open_comm(0.3, 0.8);
    for (int round = 0; round < 3; round++) {
        CHECK_OK(reduce(comm));
        if (ranks_rank() == 1 && round < 2)
            rpi_sleep_until_ns(rpi_now_ns() + 2 * RPI_SECOND_NS);
    }
    close_comm(comm);
}

/* As above, but nobody has patience with rank 1. */
static void strict_thinker(void) {
    strict = 1;
    rp_comm *comm = open_comm(0.3, 0.8);
    if (ranks_rank() == 1) rpi_sleep_until_ns(rpi_now_ns() + 2 * RPI_SECOND_NS);
    CHECK_EQ(reduce(comm), RP_TIMEOUT);
    give_up(comm);
}

/* Receives from whoever sends, and nobody does. */
static void listener(void) {
    rp_comm *comm = open_comm(20, 60);
    rp_request *requests[2] = {0};
    CHECK_OK(rp_barrier(comm));
    for (int r = 0; r < 2; r++)
        CHECK_OK(rp_recv_any_start(comm, data, 10, RP_F32, r, &requests[r]));
    ranks_mark("going");
    CHECK(rp_request_wait(&requests[1]) < 0);
    CHECK(rp_request_wait(&requests[0]) < 0);
    give_up(comm);
}

/* The others leave rank 0 alone, properly, without having sent what it waits for. */
static void lonely(void) {
    rp_comm *comm = open_comm(20, 60);
    CHECK_OK(rp_barrier(comm));
    if (ranks_rank() == 0) {
        rp_request *request = NULL;
        CHECK_OK(rp_recv_any_start(comm, data, 10, RP_F32, 3, &request));
        CHECK_EQ(rp_request_wait(&request), RP_PEER);
        give_up(comm);
    }
    close_comm(comm);
}

/* Everybody waits for everybody's message and nobody sends one. */
static void knot(void) {
    rp_comm *comm = open_comm(0.3, 1);
    int peer = (ranks_rank() + 1) % ranks_world();
    if (ranks_rank() == 2)
        (void)rp_barrier(comm);
    else
        (void)rp_recv(comm, data, 10, RP_F32, peer, 0);
    give_up(comm);
}

static void works(void) {
    rp_comm *comm = open_comm(10, 30);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < COUNT; i++) data[i] = (float)(i % 1000 + ranks_rank());
        rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
        CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
        int world = ranks_world(), wrong = 0;
        for (int i = 0; i < COUNT; i++)
            wrong += data[i] != (float)(i % 1000 * world + world * (world - 1) / 2);
        CHECK_EQ(wrong, 0);
    }
    CHECK_OK(rp_barrier(comm));
    close_comm(comm);
}

static const char *const transports[] = {"shm", "tcp", "tls", "auto,10Gbit,20us"};
enum { TRANSPORTS = sizeof transports / sizeof transports[0] };

/* "tls" is tcp with TLS, which the environment asks for; without it plain tcp once more. */
static ranks *start_over(const char *function, int world, const char *transport) {
    bool tls = strcmp(transport, "tls") == 0 && rpi_tls_is_supported();
    if (tls) setenv("REDPOLL_SECRET", "the secret of these ranks", 1);
    if (tls) setenv("REDPOLL_TLS", "1", 1);
    ranks *started = ranks_start(function, world, &(ranks_options){.argument = transport});
    unsetenv("REDPOLL_SECRET");
    unsetenv("REDPOLL_TLS");
    return started;
}

static bool wait_until_all_go(ranks *world, int count) {
    for (int rank = 0; rank < count; rank++)
        if (!ranks_wait_for(world, rank, "going", 30)) return false;
    return true;
}

static void lose(const char *function, const char *transport, int victim, int signal,
                 const char *words) {
    ranks *world = start_over(function, 3, transport);
    if (wait_until_all_go(world, 3)) ranks_signal(world, victim, signal);
    CHECK(ranks_finish(world, 20));
    char name[32];
    snprintf(name, sizeof name, "rank %d", victim);
    for (int rank = 0; rank < 3; rank++) {
        if (rank == victim) continue;
        ranks_check_exit(world, rank, 1, name);
        ranks_check_exit(world, rank, 1, words);
    }
    ranks_free(world);
}

static void a_killed_rank_is_named_by_all(void) {
    for (int t = 0; t < TRANSPORTS; t++)
        for (int victim = 0; victim < 3; victim++)
            lose("patient", transports[t], victim, SIGKILL, "all-reduce");
}

static void a_killed_rank_is_named_by_owners_of_segments(void) {
    for (int t = 0; t < TRANSPORTS; t++)
        for (int victim = 0; victim < 3; victim++)
            if ((t + victim) % 2)
                lose("scatterer", transports[t], victim, SIGKILL, "reduce-scatter");
            else
                lose("gatherer", transports[t], victim, SIGKILL, "all-gather");
}

static void a_stopped_rank_is_named_then_given_up(void) {
    for (int victim = 0; victim < 3; victim++) {
        lose("impatient", "shm", victim, SIGSTOP, "is stopped, or cut off from rank");
        lose("impatient", "tcp", victim, SIGSTOP, "no progress for");
    }
}

static void a_rank_that_computes_is_left_in_peace(void) {
    ranks *world = ranks_start("thinker", 3, &(ranks_options){.argument = "shm"});
    CHECK(ranks_finish(world, 30));
    ranks_check_passed(world);
    ranks_check_exit(world, 0, 0, "rank 1 has not come (it is alive and computes)");
    ranks_free(world);
}

static void a_strict_timeout_ends_the_patience(void) {
    ranks *world = ranks_start("strict_thinker", 3, &(ranks_options){.argument = "shm"});
    CHECK(ranks_finish(world, 30));
    for (int rank = 0; rank < 3; rank++)
        ranks_check_exit(world, rank, 1, "rank 1 has not come (it is alive and computes)");
    ranks_free(world);
}

static void a_receive_from_any_rank_fails_too(void) {
    for (int t = 0; t < TRANSPORTS; t++) {
        lose("listener", transports[t], 1, SIGKILL, "receive from any rank");
        ranks *world = start_over("lonely", 3, transports[t]);
        CHECK(ranks_finish(world, 30));
        ranks_check_exit(world, 0, 1, "receive from any rank with tag 3");
        ranks_check_exit(world, 1, 0, NULL);
        ranks_check_exit(world, 2, 0, NULL);
        ranks_free(world);
    }
}

static void a_knot_is_cut_at_the_timeout(void) {
    ranks *world = ranks_start("knot", 3, &(ranks_options){.argument = "tcp"});
    CHECK(ranks_finish(world, 20));
    for (int rank = 0; rank < 3; rank++) ranks_check_exit(world, rank, 1, "no progress for");
    ranks_free(world);
}

static void every_transport_works(void) {
    static const char *const all[] = {
        "shm", "tcp", "tls", "auto", "auto,1Gbit,50us", "tcp,500Mbit,1ms"};
    for (size_t t = 0; t < sizeof all / sizeof all[0]; t++)
        for (int count = 2; count <= 4; count += 2) {
            ranks *world = start_over("works", count, all[t]);
            CHECK(ranks_finish(world, 60));
            ranks_check_passed(world);
            ranks_free(world);
        }
}

/* ---- frames that go wrong on the way ---- */

static faulty_kind kind_of(const char *name) {
    static const struct {
        const char *name;
        faulty_kind kind;
    } kinds[] = {{"drop", FAULTY_DROP},
                 {"twice", FAULTY_TWICE},
                 {"header", FAULTY_CORRUPT_HEADER},
                 {"payload", FAULTY_CORRUPT_PAYLOAD},
                 {"cut", FAULTY_CUT},
                 {"close", FAULTY_CLOSE},
                 {"stall", FAULTY_STALL}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, name) == 0) return kinds[i].kind;
    return FAULTY_NOT;
}

/* Links that are to be wrapped must be there. */
static void connect_at_the_start(void) {
    setenv("REDPOLL_CONNECT", "start", 1);
}

/* What rank 0 sends to rank 1 goes wrong at its 9th frame. */
static void faulty_sender(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "tcp", .connect_timeout_s = 30, .warn_after_s = 0.5,
                        .timeout_s = 1.5, .chunk_bytes = 768 * 1024);
    rp_comm *comm = NULL;
    faulty_plan plan = {kind_of(ranks_argument()), 9};
    connect_at_the_start();
    if (ranks_store(&store) != RP_OK ||
        rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    if (ranks_rank() == 0)
        REQUIRE_OK(faulty_wrap(comm->context->connections[1].link, &plan,
                               &comm->context->connections[1].link));
    reduce_for_ever(comm);
}

/* The argument: algorithm. From their 9th frame on nothing gets from rank 1 to rank 2, nor
 * back; the others hear both. */
static void cut_pair(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "tcp", .connect_timeout_s = 30, .warn_after_s = 0.5,
                        .timeout_s = 1.5, .chunk_bytes = 256 * 1024);
    rp_collective_options how = RP_COLLECTIVE_OPTIONS(.algorithm = ranks_argument());
    rp_comm *comm = NULL;
    faulty_plan plan = {FAULTY_STALL, 9};
    connect_at_the_start();
    if (ranks_store(&store) != RP_OK ||
        rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    int other = 3 - ranks_rank();
    if (other == 1 || other == 2)
        REQUIRE_OK(faulty_wrap(comm->context->connections[other].link, &plan,
                               &comm->context->connections[other].link));
    for (;;) {
        rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
        if (rp_all_reduce(comm, &segment, 1, &how) != RP_OK) give_up(comm);
    }
}

/* ---- before there is a link ---- */

static char state_of(int64_t pid) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *file = fopen(path, "r");
    const char *line = file ? fgets(text, sizeof text, file) : NULL;
    const char *name_end = line ? strrchr(line, ')') : NULL;
    if (file) fclose(file);
    return name_end ? name_end[2] : 'X';
}

/* Rank 2 is killed, or stopped, before anybody has had anything to do with it. */
static void early(void) {
    rp_comm *comm = open_comm(0.4, 1.5);
    int64_t pid = getpid(), deadline_ns = rpi_deadline_ns(20);
    if (ranks_rank() == 2) CHECK_OK(store.ops->set(store.context, "victim", &pid, sizeof pid));
    size_t bytes = 0;
    CHECK_OK(store.ops->get(store.context, "victim", 20, &pid, sizeof pid, &bytes));
    ranks_mark("going");
    while (ranks_rank() == 2) pause();
    while (!strchr("TXZ", state_of(pid)) && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 200);
    reduce_for_ever(comm);
}

/* The ways between ranks 1 and 2 lead to where nobody answers. */
static void cut_early(void) {
    rp_comm *comm = open_comm(0.5, 1.5);
    int other = 3 - ranks_rank(), listener = -1, port = 0;
    if (other == 1 || other == 2) {
        char address[64];
        char **there = &comm->context->mesh->addresses[other];
        REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
        snprintf(address, sizeof address, "tcp:127.0.0.1:%d", port);
        rpi_free(*there);
        REQUIRE_OK(rpi_strdup(address, there));
    }
    reduce_for_ever(comm);
}

static void who_is_gone_before_there_is_a_link_is_named(void) {
    setenv("REDPOLL_CONNECT", "need", 1);
    for (int t = 0; t < TRANSPORTS; t++) lose("early", transports[t], 2, SIGKILL, "rank 2");
    for (int t = 0; t < 2; t++)
        lose("early", transports[t], 2, SIGSTOP, "is stopped, or cut off from rank");
    unsetenv("REDPOLL_CONNECT");
}

static void the_pair_that_never_connects_is_named_by_all(void) {
    setenv("REDPOLL_CONNECT", "need", 1);
    ranks *world = ranks_start("cut_early", 4, &(ranks_options){.argument = "tcp"});
    CHECK(ranks_finish(world, 20));
    for (int rank = 0; rank < 4; rank++) {
        const char *said = ranks_output(world, rank);
        ranks_check_exit(world, rank, 1, "no progress for");
        CHECK_MSG(strstr(said, "rank 1 has heard nothing from rank 2") ||
                      strstr(said, "rank 2 has heard nothing from rank 1"),
                  "rank %d says: %s", rank, said);
    }
    ranks_free(world);
    unsetenv("REDPOLL_CONNECT");
}

/* Ranks 0 and 3 have lost nobody: they wait for what the pair would send them. */
static void the_pair_that_is_cut_is_named_by_all(void) {
    static const char *const algorithms[] = {"sra", "ring"};
    for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; a++) {
        ranks *world = ranks_start("cut_pair", 4, &(ranks_options){.argument = algorithms[a]});
        CHECK(ranks_finish(world, 20));
        for (int rank = 0; rank < 4; rank++) {
            const char *said = ranks_output(world, rank);
            ranks_check_exit(world, rank, 1, "no progress for");
            CHECK_MSG(strstr(said, "rank 1 has heard nothing from rank 2") ||
                          strstr(said, "rank 2 has heard nothing from rank 1"),
                      "%s: rank %d says: %s", algorithms[a], rank, said);
            CHECK_MSG(!strstr(said, "from rank 0") && !strstr(said, "from rank 3"),
                      "%s: rank %d says: %s", algorithms[a], rank, said);
        }
        ranks_free(world);
    }
}

static void check_fault(const char *fault, const char *words) {
    ranks *world = ranks_start("faulty_sender", 3, &(ranks_options){.argument = fault});
    CHECK(ranks_finish(world, 20));
    for (int rank = 0; rank < 3; rank++) {
        ranks_check_exit(world, rank, 1, "rank");
        ranks_check_exit(world, rank, 1, words);
    }
    ranks_free(world);
}

static void frames_that_go_wrong_fail_every_rank(void) {
    check_fault("payload", "rank 0");
    check_fault("header", "rank 0");
    check_fault("cut", "rank 0");
    check_fault("twice", "rank 0");
    check_fault("drop", "no progress for");
    check_fault("close", "rank 0's link to rank 1 failed");
    check_fault("stall", "rank 1 has heard nothing from rank 0");
}

static const ranks_function functions[] = {
    {"patient", patient},   {"impatient", impatient}, {"scatterer", scatterer},
    {"gatherer", gatherer}, {"thinker", thinker},     {"strict_thinker", strict_thinker},
    {"listener", listener}, {"lonely", lonely},       {"knot", knot},
    {"works", works},       {"cut_pair", cut_pair},   {"faulty_sender", faulty_sender},
    {"early", early},       {"cut_early", cut_early}};
static const check_case cases[] = {
    {"every transport works", every_transport_works},
    {"a killed rank is named by all", a_killed_rank_is_named_by_all},
    {"a killed rank is named by owners of segments",
     a_killed_rank_is_named_by_owners_of_segments},
    {"a stopped rank is named, then given up", a_stopped_rank_is_named_then_given_up},
    {"a rank that computes is left in peace", a_rank_that_computes_is_left_in_peace},
    {"a strict timeout ends the patience", a_strict_timeout_ends_the_patience},
    {"a receive from any rank fails too", a_receive_from_any_rank_fails_too},
    {"a knot is cut at the timeout", a_knot_is_cut_at_the_timeout},
    {"the pair that is cut is named by all", the_pair_that_is_cut_is_named_by_all},
    {"who is gone before there is a link is named",
     who_is_gone_before_there_is_a_link_is_named},
    {"the pair that never connects is named by all",
     the_pair_that_never_connects_is_named_by_all},
    {"frames that go wrong fail every rank", frames_that_go_wrong_fail_every_rank}};
RANKS_MAIN(functions, cases)
