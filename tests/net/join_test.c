/* What each launcher's variables mean, over tables of variables; then the stores behind them.
 */
#include "net/socket/stream.h"
#include "net/world/join.h"
#include "redpoll/place.h"
#include "redpoll/view.h"

#include "base/clock.h"
#include "harness/check.h"
#include "net/store/store_tcp.h"
#include "net/world/launch_watch.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_VARIABLES = 10 };

typedef struct setting {
    const char *name, *value;
} setting;

typedef struct found {
    const char *what;
    setting set[MAX_VARIABLES];
    int rank, world, local_rank, local_world;
    bool one_host;
    rpi_store_kind store;
    const char *host;
    int port;             /* 0: not compared */
    const char *found_by; /* or the job, which begins with it */
} found;

static const char *look_up(const void *context, const char *name) {
    const setting *set = context;
    for (int i = 0; i < MAX_VARIABLES && set[i].name; i++)
        if (strcmp(set[i].name, name) == 0) return set[i].value;
    return NULL;
}

static rp_status find(const setting *set, rpi_world_info *out_info) {
    return rpi_world_info_find(
        &(rpi_environment){.get = look_up, .context = set, .launcher = 77}, out_info);
}

/* clang-format off */
#define RANKS(r, w) {"RANK", r}, {"WORLD_SIZE", w}
#define LOCALS(r, w) {"LOCAL_RANK", r}, {"LOCAL_WORLD_SIZE", w}
#define MASTER {"MASTER_ADDR", "big"}, {"MASTER_PORT", "29500"}
#define ELASTIC {"TORCHELASTIC_RUN_ID", "job7"}
#define AGENT {"TORCHELASTIC_USE_AGENT_STORE", "True"}
#define OMPI(r, w, lr, lw) {"OMPI_COMM_WORLD_RANK", r}, {"OMPI_COMM_WORLD_SIZE", w}, \
    {"OMPI_COMM_WORLD_LOCAL_RANK", lr}, {"OMPI_COMM_WORLD_LOCAL_SIZE", lw}
#define STEP(id) {"SLURM_STEP_ID", id}, {"SLURM_JOB_ID", "4711"}
#define TASK(r, w) {"SLURM_PROCID", r}, {"SLURM_NTASKS", w}

static const found good[] = {
    {"nothing", {{0}}, 0, 1, 0, 1, false, RPI_STORE_NONE, "", 0, "no launcher"},
    {"empty is unset", {{"RANK", ""}, {"WORLD_SIZE", ""}},
     0, 1, 0, 1, false, RPI_STORE_NONE, "", 0, "no launcher"},
    {"a master alone means nothing", {MASTER}, 0, 1, 0, 1, false, RPI_STORE_NONE, "", 0, "no launcher"},
    {"redpoll run", {RANKS("2", "4"), LOCALS("2", "4"), {"REDPOLL_STORE", "127.0.0.1:4000"}},
     2, 4, 2, 4, true, RPI_STORE_CLIENT, "127.0.0.1", 4000, "redpoll run"},
    {"redpoll run under torchrun", {RANKS("0", "2"), {"REDPOLL_STORE", "h:4"}, ELASTIC, MASTER},
     0, 2, 0, 2, false, RPI_STORE_CLIENT, "h", 4, "redpoll run"},
    {"redpoll run -n 1", {RANKS("0", "1"), LOCALS("0", "1"), {"REDPOLL_STORE", "h:4"}},
     0, 1, 0, 1, true, RPI_STORE_NONE, "h", 4, "redpoll run"},
    {"an IPv6 store", {RANKS("0", "2"), {"REDPOLL_STORE", "::1:99"}},
     0, 2, 0, 2, false, RPI_STORE_CLIENT, "::1", 99, "redpoll run"},
    {"torchrun", {RANKS("5", "8"), LOCALS("1", "4"), MASTER, ELASTIC, AGENT},
     5, 8, 1, 4, false, RPI_STORE_TORCH, "big", 29500, "torchrun"},
    {"torchrun on one host", {RANKS("1", "2"), LOCALS("1", "2"), MASTER, ELASTIC, AGENT},
     1, 2, 1, 2, true, RPI_STORE_TORCH, "big", 29500, "torchrun"},
    {"torchrun without the agent's store", {RANKS("1", "2"), LOCALS("0", "1"), MASTER, ELASTIC},
     1, 2, 0, 1, false, RPI_STORE_RANK_0, "big", 29500, "torchrun"},
    {"torchrun with a port of ours", {RANKS("1", "2"), MASTER, ELASTIC, AGENT, {"REDPOLL_PORT", "5"}},
     1, 2, 1, 2, false, RPI_STORE_RANK_0, "big", 5, "torchrun"},
    {"torchrun of one", {RANKS("0", "1"), LOCALS("0", "1"), MASTER, ELASTIC, AGENT},
     0, 1, 0, 1, true, RPI_STORE_NONE, "big", 29500, "torchrun"},
    {"by hand", {RANKS("1", "2"), MASTER},
     1, 2, 1, 2, false, RPI_STORE_RANK_0, "big", 29500, "RANK and WORLD_SIZE"},
    {"by hand on the loopback", {RANKS("1", "2"), {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}},
     1, 2, 1, 2, true, RPI_STORE_RANK_0, "localhost", 1, "RANK and WORLD_SIZE"},
    {"by hand, at an address as in URLs", {RANKS("1", "2"), {"MASTER_ADDR", "[fd00::1]"}, {"MASTER_PORT", "1"}},
     1, 2, 1, 2, false, RPI_STORE_RANK_0, "fd00::1", 1, "RANK and WORLD_SIZE"},
    {"by hand, on one link", {RANKS("1", "2"), {"MASTER_ADDR", "[fe80::1%eth0]"}, {"MASTER_PORT", "1"}},
     1, 2, 1, 2, false, RPI_STORE_RANK_0, "fe80::1%eth0", 1, "RANK and WORLD_SIZE"},
    {"an IPv6 store as in URLs", {RANKS("0", "2"), {"REDPOLL_STORE", "[fd00::1]:99"}},
     0, 2, 0, 2, false, RPI_STORE_CLIENT, "fd00::1", 99, "redpoll run"},
    {"a Kubernetes Service named redpoll, torchrun", {RANKS("1", "2"), LOCALS("1", "2"), MASTER, ELASTIC, AGENT,
     {"REDPOLL_PORT", "tcp://10.0.0.1:80"}}, 1, 2, 1, 2, true, RPI_STORE_TORCH, "big", 29500, "torchrun"},
    {"a Kubernetes Service named redpoll, mpirun", {OMPI("3", "4", "1", "2"), MASTER,
     {"REDPOLL_PORT", "udp://10.0.0.1:53"}}, 3, 4, 1, 2, false, RPI_STORE_RANK_0, "big", 29500, "mpirun"},
    {"by hand, alone", {RANKS("0", "1")}, 0, 1, 0, 1, false, RPI_STORE_NONE, "", 0, "RANK and WORLD_SIZE"},
    {"mpirun", {OMPI("3", "4", "3", "4"), {"PMIX_NAMESPACE", "prterun-7@1"}},
     3, 4, 3, 4, true, RPI_STORE_RANK_0, "127.0.0.1", 0, "mpirun"},
    {"mpirun inside a Slurm step", {OMPI("3", "4", "3", "4"), STEP("0"), TASK("0", "1")},
     3, 4, 3, 4, true, RPI_STORE_RANK_0, "127.0.0.1", 0, "mpirun"},
    {"mpirun over hosts", {OMPI("3", "4", "1", "2"), MASTER},
     3, 4, 1, 2, false, RPI_STORE_RANK_0, "big", 29500, "mpirun"},
    {"mpirun over Slurm's hosts", {OMPI("2", "4", "0", "2"), {"PMIX_NAMESPACE", "9"},
     {"SLURM_JOB_NODELIST", "n[07-08]"}}, 2, 4, 0, 2, false, RPI_STORE_RANK_0, "n07", 0, "mpirun"},
    {"the same, in the step of another host", {OMPI("3", "4", "1", "2"), {"PMIX_NAMESPACE", "9"},
     {"SLURM_JOB_NODELIST", "n[07-08]"}, {"SLURM_STEP_NODELIST", "n08"}},
     3, 4, 1, 2, false, RPI_STORE_RANK_0, "n07", 0, "mpirun"},
    {"mpirun's port by REDPOLL_PORT", {OMPI("0", "2", "0", "2"), {"REDPOLL_PORT", "6000"}},
     0, 2, 0, 2, true, RPI_STORE_RANK_0, "127.0.0.1", 6000, "mpirun"},
    {"hydra", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
     1, 2, 1, 2, true, RPI_STORE_RANK_0, "127.0.0.1", 0, "mpirun (PMI)"},
    {"hydra that started its proxies with srun", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"},
     {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}, STEP("3"), TASK("1", "2")},
     1, 2, 1, 2, true, RPI_STORE_RANK_0, "127.0.0.1", 0, "mpirun (PMI), process 77"},
    {"srun --mpi=pmi2", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, STEP("3"), TASK("1", "2"),
     {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "2"}},
     1, 2, 1, 2, true, RPI_STORE_RANK_0, "127.0.0.1", 0, "srun 4711.3"},
    {"srun", {STEP("3"), TASK("5", "6"), {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"},
     {"SLURM_STEP_TASKS_PER_NODE", "4,2"}, {"SLURM_STEP_NODELIST", "gpu[012-013,20]-ib,x"}},
     5, 6, 1, 2, false, RPI_STORE_RANK_0, "gpu012-ib", 0, "srun"},
    {"srun on one host", {STEP("0"), TASK("1", "2"), {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "0"},
     {"SLURM_STEP_TASKS_PER_NODE", "2"}, {"SLURM_STEP_NODELIST", "a"}},
     1, 2, 1, 2, true, RPI_STORE_RANK_0, "127.0.0.1", 0, "srun"},
    {"srun, repeated", {STEP("0"), TASK("5", "6"), {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "2"},
     {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"}, {"SLURM_STEP_NODELIST", "a,b,c"}},
     5, 6, 0, 2, false, RPI_STORE_RANK_0, "a", 0, "srun"},
    {"srun -n 1", {STEP("0"), TASK("0", "1")}, 0, 1, 0, 1, false, RPI_STORE_NONE, "", 0, "srun"},
    {"a batch script is no step", {TASK("0", "4"), {"SLURM_JOB_ID", "4711"}},
     0, 1, 0, 1, false, RPI_STORE_NONE, "", 0, "no launcher"},
    {"nor is Slurm's own batch step", {STEP("4294967291"), TASK("0", "4")},
     0, 1, 0, 1, false, RPI_STORE_NONE, "", 0, "no launcher"},
};

static const struct { setting set[MAX_VARIABLES]; const char *words; } bad[] = {
    {{{"RANK", "1"}}, "WORLD_SIZE is not set"},
    {{{"WORLD_SIZE", "2"}, MASTER}, "variable RANK is not set"},
    {{RANKS("1", "2")}, "MASTER_ADDR is not set"},
    {{RANKS("1", "2"), {"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "1"}}, "fe80::1%eth0"},
    {{RANKS("1", "2"), {"MASTER_ADDR", "[febf::1]"}, {"MASTER_PORT", "1"}}, "one link only"},
    {{RANKS("1", "2"), {"MASTER_ADDR", "big"}, {"MASTER_PORT", "tcp://10.0.0.1:80"}}, "Kubernetes sets"},
    {{RANKS("0", "2"), {"REDPOLL_STORE", "[fe80::2]:99"}}, "one link only"},
    {{RANKS("0", "2"), {"MASTER_ADDR", "10.0.0.1:29500"}, {"MASTER_PORT", "1"}}, "has a port, and a host alone is wanted: '10.0.0.1'"},
    {{RANKS("0", "2"), {"MASTER_ADDR", "[fd00::1]:29500"}, {"MASTER_PORT", "1"}}, "has a port, and a host alone is wanted: '[fd00::1]'"},
    {{RANKS("0", "2"), {"MASTER_ADDR", "tcp://10.0.0.1:80"}, {"MASTER_PORT", "1"}}, "is a URL, and a host is wanted: '10.0.0.1'"},
    {{RANKS("0", "2"), {"MASTER_ADDR", "http://big/"}, {"MASTER_PORT", "1"}}, "is a URL, and a host is wanted: 'big'"},
    {{RANKS("0", "2"), {"MASTER_ADDR", " 10.0.0.1"}, {"MASTER_PORT", "1"}}, "it has a blank in it"},
    {{RANKS("0", "2"), {"MASTER_ADDR", "[::1"}, {"MASTER_PORT", "1"}}, "it has a bracket in it"},
    {{RANKS("1", "2"), {"MASTER_ADDR", "big"}}, "MASTER_PORT is not set"},
    {{RANKS("2", "2"), MASTER}, "ranks are 0 to 1"},
    {{RANKS("-1", "2"), MASTER}, "RANK is -1"},
    {{RANKS("one", "2"), MASTER}, "RANK is 'one', which is not a number"},
    {{RANKS("1", "0"), MASTER}, "WORLD_SIZE is 0"},
    {{RANKS("1", "99999999999"), MASTER}, "WORLD_SIZE is 99999999999; at most 2147483647"},
    {{RANKS("1", "2"), {"LOCAL_RANK", "1"}, MASTER}, "LOCAL_WORLD_SIZE is not set"},
    {{RANKS("1", "2"), LOCALS("3", "2"), MASTER}, "LOCAL_RANK=3"},
    {{RANKS("1", "2"), {"MASTER_ADDR", "big"}, {"MASTER_PORT", "70000"}}, "MASTER_PORT is 70000"},
    {{{"REDPOLL_STORE", "h:1"}}, "looks like redpoll run, but variable RANK"},
    {{RANKS("1", "2"), {"REDPOLL_STORE", "nonsense"}}, "not HOST:PORT"},
    {{RANKS("1", "2"), {"REDPOLL_STORE", ":7"}}, "not HOST:PORT"},
    {{RANKS("1", "2"), {"REDPOLL_STORE", "h:0"}}, "ports are 1 to 65535"},
    {{ELASTIC, MASTER}, "looks like torchrun, but variable RANK"},
    {{ELASTIC, RANKS("1", "2")}, "MASTER_ADDR is not set"},
    {{{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE is not set"},
    {{{"OMPI_COMM_WORLD_SIZE", "2"}}, "OMPI_COMM_WORLD_RANK is not set"},
    {{OMPI("3", "4", "1", "2")}, "set MASTER_ADDR"},
    {{OMPI("3", "4", "1", "2"), {"MASTER_ADDR", "big"}}, "set MASTER_PORT"},
    {{{"PMI_RANK", "0"}}, "PMI_SIZE is not set"},
    {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, "does not say that all ranks are on this host"},
    {{{"PMIX_RANK", "0"}}, "set RANK, WORLD_SIZE"},
    {{STEP("0"), {"SLURM_PROCID", "0"}}, "SLURM_NTASKS is not set"},
    {{STEP("0"), {"SLURM_NTASKS", "2"}}, "SLURM_PROCID is not set"},
    {{STEP("zero"), TASK("0", "2")}, "SLURM_STEP_ID is 'zero'"},
    {{STEP("0"), TASK("1", "2"), {"SLURM_STEP_NODELIST", "n[x]"}}, "first host of 'n[x]'"},
};
/* clang-format on */

static void launchers_are_understood(void) {
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const found *want = &good[i];
        rpi_world_info info = {0};
        rp_status status = find(want->set, &info);
        CHECK_MSG(status == RP_OK, "%s: %s", want->what, rp_last_error()->message);
        if (status != RP_OK) continue;
        CHECK_MSG(info.rank == want->rank && info.world == want->world &&
                      info.local_rank == want->local_rank &&
                      info.local_world == want->local_world,
                  "%s: rank %d of %d, local %d of %d", want->what, info.rank, info.world,
                  info.local_rank, info.local_world);
        CHECK_MSG(info.one_host == (want->one_host || want->world == 1), "%s: one host",
                  want->what);
        CHECK_MSG(info.store == want->store, "%s: store %d", want->what, info.store);
        CHECK_MSG(strcmp(info.host, want->host) == 0, "%s: '%s'", want->what, info.host);
        CHECK_MSG(!want->port || info.port == want->port, "%s: %d", want->what, info.port);
        CHECK_MSG(strncmp(info.found_by, want->found_by, strlen(want->found_by)) == 0 ||
                      strcmp(info.job, want->found_by) == 0,
                  "%s: '%s', job '%s'", want->what, info.found_by, info.job);
        if (info.port_is_derived) CHECK(info.port >= 20000 && info.port < 32768);
    }
}

/* A row for each way in which rank 0 is told where to serve a store of its own. */
static const struct {
    setting set[MAX_VARIABLES];
    const char *found_by, *host;
    int world, port; /* -1: it follows from the job */
    const char *job;
} masters[] = {
    {{{"REDPOLL_STORE", "run:7"}, RANKS("1", "2"), MASTER}, "redpoll run", "big", 2, 29500, ""},
    {{ELASTIC, AGENT, RANKS("1", "2"), MASTER}, "torchrun", "big", 2, 29500, ""},
    {{ELASTIC, RANKS("1", "2"), MASTER, {"REDPOLL_PORT", "9"}},
     "torchrun",
     "big",
     2,
     29500,
     ""},
    {{RANKS("1", "2"), MASTER}, "RANK and WORLD_SIZE", "big", 2, 29500, ""},
    {{RANKS("0", "1"), MASTER}, "RANK and WORLD_SIZE", "big", 1, 29500, ""},
    {{RANKS("0", "1")}, "RANK and WORLD_SIZE", "", 1, 0, ""},
    {{{"REDPOLL_STORE", "run:7"}, RANKS("0", "1")}, "redpoll run", "", 1, 0, ""},
    {{{0}}, "no launcher: a world of one", "", 1, 0, ""},
    {{OMPI("1", "2", "1", "2"), {"PMIX_NAMESPACE", "j"}},
     "mpirun",
     "127.0.0.1",
     2,
     -1,
     "mpirun j"},
    {{OMPI("1", "2", "1", "2"), {"MASTER_PORT", "9"}}, "mpirun", "127.0.0.1", 2, 9, ""},
};

static void a_store_of_rank_0_is_where_it_is_told(void) {
    for (size_t i = 0; i < sizeof masters / sizeof masters[0]; i++) {
        rp_place place;
        rp_status status = rp_place_find(look_up, masters[i].set, 77, &place);
        CHECK_MSG(status == RP_OK, "row %zu: %s", i, rp_last_error()->message);
        if (status != RP_OK) continue;
        CHECK_MSG(strcmp(place.found_by, masters[i].found_by) == 0, "row %zu: by %s", i,
                  place.found_by);
        CHECK_MSG(strcmp(place.host, masters[i].host) == 0, "row %zu: at %s", i, place.host);
        CHECK_MSG(strcmp(place.job, masters[i].job) == 0, "row %zu: of %s", i, place.job);
        CHECK_EQ(place.world, masters[i].world);
        CHECK(masters[i].port < 0 ? place.port >= 20000 : place.port == masters[i].port);
    }
}

static void half_set_variables_are_named(void) {
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rpi_world_info info = {.world = -5};
        CHECK_FAILS(find(bad[i].set, &info), INVALID, bad[i].words);
        CHECK_EQ(info.world, -5); /* untouched */
    }
}

static void ports_follow_from_jobs(void) {
    rpi_world_info a, again, b;
    setting job[] = {OMPI("0", "2", "0", "2"), {"PMIX_NAMESPACE", "1"}, {0}};
    REQUIRE_OK(find(job, &a));
    REQUIRE_OK(find(job, &again));
    job[4].value = "2";
    REQUIRE_OK(find(job, &b));
    CHECK(a.port_is_derived);
    CHECK_EQ(a.port, again.port);
    CHECK(a.port != b.port);
    CHECK(strcmp(a.job, b.job) != 0);
}

/* A shell that started with a rank's variables belongs to the rank; one that gave its child
 * others has launched it. The inner run of this case looks. */
static void a_shell_of_the_rank_is_not_its_launcher(void) {
    static const char *const scripts[] = {
        "\"$0\" a_shell_of_the_rank_is_not_its_launcher; exit $?",
        "PMI_RANK=4 LAUNCHER=$$ \"$0\" a_shell_of_the_rank_is_not_its_launcher; exit $?",
        "PMI_RANK=34 LAUNCHER=$$ \"$0\" a_shell_of_the_rank_is_not_its_launcher; exit $?",
    };
    const char *wanted = getenv("LAUNCHER");
    if (wanted) {
        CHECK_EQ(rpi_launcher_pid(), atoi(wanted));
        return;
    }
    char self[16], program[32];
    snprintf(self, sizeof self, "%d", (int)getpid());
    snprintf(program, sizeof program, "/proc/%s/exe", self);
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        int status = -1;
        pid_t shell = fork();
        if (shell == 0) {
            setenv("PMI_RANK", "3", 1);
            setenv("PMI_FD", "7", 1);
            setenv("LAUNCHER", self, 1);
            execl("/bin/sh", "sh", "-c", scripts[i], program, (char *)NULL);
            _exit(127);
        }
        CHECK_EQ(waitpid(shell, &status, 0), shell);
        CHECK_MSG(status == 0, "script %zu: status %d", i, status);
    }
}

/* Other scripts between the two: tests/python/test_launching.py. */
static void the_launcher_is_the_parent(void) {
    CHECK_EQ(rpi_launcher_pid(), getppid());
    setenv("PMI_RANK", "no-rank-of-the-parent", 1);
    CHECK_EQ(rpi_launcher_pid(), getppid());
    unsetenv("PMI_RANK");
}

static void ranks_out_of_sight_of_their_launcher_need_a_port(void) {
    static const setting hydra[MAX_VARIABLES] = {{"PMI_RANK", "0"},
                                                 {"PMI_SIZE", "2"},
                                                 {"MPI_LOCALRANKID", "0"},
                                                 {"MPI_LOCALNRANKS", "2"}};
    rpi_world_info info;
    CHECK_FAILS(
        rpi_world_info_find(&(rpi_environment){.get = look_up, .context = hydra}, &info),
        INVALID, "set MASTER_PORT");
}

/* ---- the stores behind ---- */

static void *join_and_leave(void *context) {
    const rpi_world_info *info = context;
    rpi_join *join = NULL;
    int64_t count = 0;
    size_t bytes = 0;
    rp_status status = rpi_join_open(info, 20, &join);
    CHECK_MSG(status == RP_OK, "rank %d: %s", info->rank, rp_last_error()->message);
    if (status != RP_OK) return NULL;
    rp_store *s = &join->store;
    CHECK_OK(s->ops->add(s->context, "here", 1, &count));
    if (count == info->world) CHECK_OK(s->ops->set(s->context, "all", "", 0));
    CHECK_OK(s->ops->get(s->context, "all", 20, NULL, 0, &bytes));
    rpi_join_close(join);
    return NULL;
}

/* One that nobody listens on, below those that the system hands out: no connection of another
 * test takes it meanwhile. */
static int some_free_port(void) {
    enum { FIRST = 10000, PORTS = 10000, STEP = 7919 };
    static int tries;
    int fd = -1;
    for (; tries < PORTS; tries++) {
        int port = FIRST + (int)(((long)getpid() + (long)tries * STEP) % PORTS);
        if (rpi_stream_listen(NULL, port, &fd, &port) != RP_OK) continue;
        close(fd);
        tries++;
        return port;
    }
    CHECK_MSG(false, "all ports are taken");
    return 0;
}

static void rank_0_serves(void) {
    for (int derived = 0; derived < 2; derived++) {
        enum { WORLD = 4 };
        rpi_world_info places[WORLD];
        pthread_t threads[WORLD];
        int port = some_free_port();
        for (int i = 0; i < WORLD; i++) {
            places[i] = (rpi_world_info){.rank = i,
                                         .world = WORLD,
                                         .local_world = WORLD,
                                         .one_host = true,
                                         .store = RPI_STORE_RANK_0,
                                         .host = "127.0.0.1",
                                         .port = port,
                                         .job = "mine",
                                         .port_is_derived = derived};
            pthread_create(&threads[i], NULL, join_and_leave, &places[i]);
        }
        for (int i = 0; i < WORLD; i++) pthread_join(threads[i], NULL);
    }
}

static void a_world_of_one_opens_nothing(void) {
    rpi_world_info info = {.world = 1, .local_world = 1, .one_host = true};
    rpi_join *join = NULL;
    REQUIRE_OK(rpi_join_open(&info, 1, &join));
    CHECK(!join->store.ops);
    CHECK(!join->bind_host);
    (void)RP_FAIL(IO, "why it is left");
    rpi_join_close(join);
    CHECK(strcmp(rp_last_error()->message, "why it is left") == 0);
    rpi_join_close(NULL);
}

/* The port of this job came out as that of another one, which has a secret. */
static void a_store_with_another_secret_may_be_another_jobs(void) {
    rp_store_server *server = NULL;
    rpi_secret theirs;
    rpi_join *join = NULL;
    rpi_world_info info = {.rank = 1,
                           .world = 2,
                           .local_world = 2,
                           .one_host = true,
                           .store = RPI_STORE_RANK_0,
                           .host = "127.0.0.1",
                           .job = "mine",
                           .port_is_derived = true};
    if (!rpi_secret_is_supported()) {
        check_skip("this build has no OpenSSL");
        return;
    }
    REQUIRE_OK(rpi_secret_make("theirs", "the secret of that job", &theirs));
    REQUIRE_OK(rpi_store_serve(NULL, 0, &theirs, &server, &info.port));
    CHECK_FAILS(rpi_join_open(&info, 10, &join), MISMATCH, "REDPOLL_PORT sets another port");
    CHECK(strstr(rp_last_error()->message, "proof of the job's secret"));
    rp_store_server_stop(server);
}

/* An address of this machine that is no loopback, or "". */
static void find_outer_address(char *text, size_t bytes) {
    struct ifaddrs *list = NULL;
    text[0] = '\0';
    if (getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *at = list; at && !text[0]; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET) continue;
        if (!(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK)) continue;
        const struct sockaddr_in *address = (const void *)at->ifa_addr;
        (void)inet_ntop(AF_INET, &address->sin_addr, text, (socklen_t)bytes);
    }
    freeifaddrs(list);
}

static bool answers(const char *host, int port) {
    int fd = -1;
    bool there = rpi_stream_dial(host, port, rpi_deadline_ns(1), &fd) == RP_OK;
    if (there) close(fd);
    return there;
}

/* Where the name of rank 0's host is one address, nobody comes by another. */
static void the_store_listens_where_it_is_called(void) {
    rpi_join *join = NULL;
    rpi_world_info info = {.world = 2, .local_world = 1, .store = RPI_STORE_RANK_0};
    find_outer_address(info.host, sizeof info.host);
    if (!info.host[0]) {
        check_skip("this machine has no interface but the loopback");
        return;
    }
    for (int known = 0; known < 2; known++) {
        info.port = some_free_port();
        if (!known) snprintf(info.host, sizeof info.host, "127.0.1.1"); /* as Debian has it */
        if (known) find_outer_address(info.host, sizeof info.host);
        REQUIRE_OK(rpi_join_open(&info, 10, &join));
        CHECK(answers(info.host, info.port));
        CHECK_EQ(answers("127.0.0.1", info.port), !known);
        rpi_join_abandon(join);
    }
}

static void wrong_stores_are_told(void) {
    rp_store_server *server = NULL;
    int port = 0;
    rp_store other = {0};
    rpi_join *join = NULL;
    REQUIRE_OK(rp_store_serve(NULL, 0, &server, &port));
    REQUIRE_OK(rp_store_connect(NULL, port, 10, &other));
    CHECK_OK(other.ops->set(other.context, "redpoll/job", "theirs", 6));
    rpi_world_info info = {.rank = 1,
                           .world = 2,
                           .local_world = 2,
                           .one_host = true,
                           .store = RPI_STORE_RANK_0,
                           .host = "127.0.0.1",
                           .port = port,
                           .job = "mine",
                           .port_is_derived = true};
    CHECK_FAILS(rpi_join_open(&info, 10, &join), MISMATCH, "another job (theirs)");
    info.rank = 0; /* the port is taken */
    CHECK_FAILS(rpi_join_open(&info, 10, &join), IO, "REDPOLL_PORT");
    rp_store_close(&other);
    rp_store_server_stop(server);
    info.rank = 1;
    CHECK_FAILS(rpi_join_open(&info, 0.1, &join), TIMEOUT, "reach the store of rank 0: ");
    info.store = RPI_STORE_CLIENT;
    CHECK_FAILS(rpi_join_open(&info, 0.1, &join), TIMEOUT, "reach the launcher's store: ");
    info.store = RPI_STORE_TORCH;
    CHECK_FAILS(rpi_join_open(&info, 0.1, &join), TIMEOUT, "torchrun");
    CHECK(!join);
}

/* Leaving fails, and is not what the caller wants to hear of. */
static void leaving_keeps_the_error_for_which_it_is_done(void) {
    rp_store_server *server = NULL;
    rpi_join *join = NULL;
    rpi_world_info info = {.rank = 1,
                           .world = 2,
                           .local_world = 2,
                           .one_host = true,
                           .store = RPI_STORE_RANK_0,
                           .host = "127.0.0.1"};
    REQUIRE_OK(rp_store_serve(NULL, 0, &server, &info.port));
    REQUIRE_OK(rpi_join_open(&info, 10, &join));
    rp_store_server_stop(server);
    (void)RP_FAIL(IO, "why it is left");
    rpi_join_close(join);
    CHECK_MSG(strcmp(rp_last_error()->message, "why it is left") == 0, "%s",
              rp_last_error()->message);
}

/* ---- a rank that ends before all have met ---- */

static void set_or_unset(const char *name, const char *value) {
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* Of rank 1 of 3, as `redpoll run` sets it. */
static void set_launch(const char *store, const char *elastic) {
    set_or_unset("RANK", store || elastic ? "1" : NULL);
    set_or_unset("WORLD_SIZE", store || elastic ? "3" : NULL);
    set_or_unset("REDPOLL_STORE", store);
    set_or_unset("TORCHELASTIC_RUN_ID", elastic);
}

static void only_ranks_of_the_launch_watch_it(void) {
    static const struct {
        int rank, world;
        const char *store, *elastic;
        bool is_on;
    } rows[] = {{1, 3, "127.0.0.1:4000", NULL, true},
                {1, 3, "", NULL, false},
                {1, 3, NULL, NULL, false},
                {1, 3, "127.0.0.1:4000", "job", false},
                {0, 3, "127.0.0.1:4000", NULL, false},
                {1, 2, "127.0.0.1:4000", NULL, false},
                {1, 1, "127.0.0.1:4000", NULL, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_launch_watch watch;
        set_launch(rows[i].store, rows[i].elastic);
        rpi_launch_watch_open(rows[i].rank, rows[i].world, NULL, false, &watch);
        CHECK_MSG(watch.is_on == rows[i].is_on, "row %zu", i);
        rpi_launch_watch_close(&watch);
        CHECK(!watch.is_on);
    }
    set_launch(NULL, NULL);
}

static void what_is_no_end_is_passed_over(void) {
    static const char *const words[] = {"", "x has ended", "-1 has ended", "3 has ended", "0"};
    rp_store store = {0};
    rpi_launch_watch watch;
    REQUIRE_OK(rp_store_open_local(&store));
    set_launch("127.0.0.1:4000", NULL);
    rpi_launch_watch_open(1, 3, &store, false, &watch);
    CHECK_OK(rpi_launch_watch_look(&watch)); /* nothing is said yet */
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        CHECK_OK(
            store.ops->set(store.context, "redpoll/launch/ended", words[i], strlen(words[i])));
        CHECK_OK(rpi_launch_watch_look(&watch));
        CHECK(watch.is_on);
    }
    rpi_launch_watch_close(&watch);
    CHECK_OK(rpi_launch_watch_look(&watch)); /* it looks no more */
    set_launch(NULL, NULL);
    rp_store_close(&store);
}

static void the_first_end_is_told(void) {
    rp_store store = {0};
    rpi_launch_watch watch;
    REQUIRE_OK(rp_store_open_local(&store));
    set_launch("127.0.0.1:4000", NULL);
    rpi_launch_watch_open(1, 3, &store, false, &watch);
    CHECK_OK(rpi_launch_note_end(&store, 0, "was killed"));
    CHECK_OK(rpi_launch_note_end(&store, 2, "has exited"));
    CHECK_FAILS(rpi_launch_watch_look(&watch), PEER,
                "rank 0 was killed, and the ranks cannot connect without it (connection closed "
                "by peer)");
    rpi_launch_watch_close(&watch);
    set_launch(NULL, NULL);
    rp_store_close(&store);
}

/* Without the launcher's store at hand one's own connection to it is opened by the first look,
 * and closed; what is too long is cut. */
static void the_store_is_called_when_somebody_looks(void) {
    char text[32], words[300] = "2 ";
    int before = check_descriptors(), port = 0;
    rp_store_server *server = NULL;
    rp_store store = {0};
    rpi_launch_watch watch;
    REQUIRE_OK(rp_store_serve(NULL, 0, &server, &port));
    REQUIRE_OK(rp_store_connect(NULL, port, 20, &store));
    snprintf(text, sizeof text, "127.0.0.1:%d", port);
    set_launch(text, NULL);
    rpi_launch_watch_open(1, 3, NULL, false, &watch);
    CHECK(!watch.own.ops);
    CHECK_OK(rpi_launch_watch_look(&watch));
    CHECK(watch.own.ops && watch.is_on);
    memset(words + 2, 'x', sizeof words - 3);
    CHECK_OK(store.ops->set(store.context, "redpoll/launch/ended", words, strlen(words)));
    CHECK_FAILS(rpi_launch_watch_look(&watch), PEER, "rank 2 xxxxxxxx");
    rpi_launch_watch_close(&watch);
    set_launch(NULL, NULL);
    rp_store_close(&store);
    rp_store_server_stop(server);
    CHECK_EQ(check_descriptors(), before);
}

static rp_status answer_nothing(void *context, const char *key, double timeout_s, void *value,
                                size_t capacity, size_t *out_bytes) {
    (void)context, (void)key, (void)timeout_s, (void)value, (void)capacity, (void)out_bytes;
    return RP_PEER;
}

static void a_store_that_has_failed_is_not_asked_again(void) {
    static const rp_store_ops gone = {.get = answer_nothing};
    const rp_store store = {.ops = &gone};
    rpi_launch_watch watch;
    set_launch("127.0.0.1:4000", NULL);
    rpi_launch_watch_open(1, 3, &store, false, &watch);
    CHECK(watch.is_on);
    CHECK_OK(rpi_launch_watch_look(&watch)); /* the meeting itself says what is wrong */
    CHECK(!watch.is_on);
    rpi_launch_watch_close(&watch);
    set_launch(NULL, NULL);
}

static void several_hosts_need_an_outer_address(void) {
    rp_store_server *server = NULL;
    rpi_join *join = NULL;
    rpi_world_info info = {
        .world = 2, .local_world = 1, .store = RPI_STORE_CLIENT, .host = "127.0.0.1"};
    REQUIRE_OK(rp_store_serve(NULL, 0, &server, &info.port));
    REQUIRE_OK(rpi_join_open(&info, 10, &join));
    /* Without any interface but the loopback there is none to bind to. */
    if (join->bind_host) CHECK(strncmp(join->bind_host, "127.", 4) != 0);
    rpi_join_close(join);
    rp_store_server_stop(server);
}

/* A world of views, where there is none to join. */
static void views_need_a_store_that_outlives_its_ranks(void) {
    static const double wrong[] = {-1, -1e-9, NAN};
    rp_world *world = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK_FAILS(rp_world_join(NULL, wrong[i], &world), INVALID, "timeout_s is");
    CHECK_FAILS(rp_world_join(NULL, 0, NULL), INVALID, "nowhere to put");
    for (int timeout_s = 0; timeout_s < 2; timeout_s++)
        CHECK_FAILS(rp_world_join(NULL, timeout_s, &world), UNSUPPORTED, "no launcher");
    static const setting ours[] = {RANKS("0", "2"), MASTER};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        setenv(ours[i].name, ours[i].value, 1);
    CHECK_FAILS(rp_world_join(NULL, 0, &world), UNSUPPORTED, "rank 0 would serve the store");
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) unsetenv(ours[i].name);
    CHECK(!world);
}

/* At the store of a launcher, which is left again where the world cannot be opened. */
static void who_opens_no_world_leaves_its_store(void) {
    rp_store_server *server = NULL;
    rp_world *world = NULL;
    rp_world_options options = RP_WORLD_OPTIONS();
    char place[32];
    int port = 0, before = check_descriptors();
    REQUIRE_OK(rp_store_serve("127.0.0.1", 0, &server, &port));
    snprintf(place, sizeof place, "127.0.0.1:%d", port);
    const setting ours[] = {RANKS("0", "2"), {"REDPOLL_STORE", place}};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        setenv(ours[i].name, ours[i].value, 1);
    options.least = -1;
    CHECK_FAILS(rp_world_join(&options, 20, &world), INVALID, "least");
    CHECK(!world);
    options.least = 1;
    CHECK_OK(rp_world_join(&options, 20, &world));
    rp_world_close(world);
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) unsetenv(ours[i].name);
    rp_store_server_stop(server);
    CHECK_EQ(check_descriptors(), before);
}

CASES({"launchers_are_understood", launchers_are_understood},
      {"a_store_of_rank_0_is_where_it_is_told", a_store_of_rank_0_is_where_it_is_told},
      {"half_set_variables_are_named", half_set_variables_are_named},
      {"ports_follow_from_jobs", ports_follow_from_jobs},
      {"a_shell_of_the_rank_is_not_its_launcher", a_shell_of_the_rank_is_not_its_launcher},
      {"the_launcher_is_the_parent", the_launcher_is_the_parent},
      {"ranks_out_of_sight_of_their_launcher_need_a_port",
       ranks_out_of_sight_of_their_launcher_need_a_port},
      {"views_need_a_store_that_outlives_its_ranks",
       views_need_a_store_that_outlives_its_ranks},
      {"who_opens_no_world_leaves_its_store", who_opens_no_world_leaves_its_store},
      {"rank_0_serves", rank_0_serves},
      {"a_world_of_one_opens_nothing", a_world_of_one_opens_nothing},
      {"a_store_with_another_secret_may_be_another_jobs",
       a_store_with_another_secret_may_be_another_jobs},
      {"the_store_listens_where_it_is_called", the_store_listens_where_it_is_called},
      {"wrong_stores_are_told", wrong_stores_are_told},
      {"leaving_keeps_the_error_for_which_it_is_done",
       leaving_keeps_the_error_for_which_it_is_done},
      {"only_ranks_of_the_launch_watch_it", only_ranks_of_the_launch_watch_it},
      {"what_is_no_end_is_passed_over", what_is_no_end_is_passed_over},
      {"the_first_end_is_told", the_first_end_is_told},
      {"the_store_is_called_when_somebody_looks", the_store_is_called_when_somebody_looks},
      {"a_store_that_has_failed_is_not_asked_again",
       a_store_that_has_failed_is_not_asked_again},
      {"several_hosts_need_an_outer_address", several_hosts_need_an_outer_address})
