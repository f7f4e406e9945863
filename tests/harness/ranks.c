#include "harness/ranks.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "harness/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define RANK_FLAG "--rank-function"

enum { MAX_RANKS = 256, ENVIRONMENT = 32, READ_BYTES = 4096 };

typedef struct rank_process {
    pid_t pid; /* 0: not started, or reaped */
    pid_t group;
    int output; /* its stdout and stderr; -1 once at its end */
    char *text;
    size_t bytes, capacity;
    int exit_code;
    bool stopped;
    int64_t ended_ns;
} rank_process;

struct ranks {
    int world, started;
    bool finished, clean;
    rp_store_server *server;
    int64_t struck_ns; /* first kill or stop */
    rank_process process[MAX_RANKS];
};

/* ---- starting ---- */

/* What the child may not compute itself: between fork and exec it makes system calls only. */
typedef struct launch {
    char path[PATH_MAX];
    char *argv[5];
    char *environment[1024];
    char own[ENVIRONMENT][320];
    int own_count, count;
    pid_t parent;
} launch;

static void add_variable(launch *with, const char *text) {
    if (with->own_count == ENVIRONMENT) return;
    char *copy = with->own[with->own_count++];
    snprintf(copy, sizeof with->own[0], "%s", text);
    with->environment[with->count++] = copy;
    with->environment[with->count] = NULL;
}

static bool is_ours(const char *variable) {
    static const char *const names[] = {
        "RANK=",        "WORLD_SIZE=",       "LOCAL_RANK=",   "MASTER_ADDR=",
        "MASTER_PORT=", "LOCAL_WORLD_SIZE=", "REDPOLL_STORE="};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0) return true;
    return false;
}

static void prepare(launch *with, int rank, int world, int port, const ranks_options *options) {
    with->own_count = with->count = 0;
    /* The caller's variables first: the first of two is the one getenv finds. */
    for (int i = 0; options->environment && options->environment[i]; i++)
        add_variable(with, options->environment[i]);
    char text[320];
#define ADD(...) (snprintf(text, sizeof text, __VA_ARGS__), add_variable(with, text))
    ADD("RANK=%d", rank);
    ADD("WORLD_SIZE=%d", world);
    ADD("LOCAL_RANK=%d", rank);
    ADD("LOCAL_WORLD_SIZE=%d", world);
    ADD("MASTER_ADDR=127.0.0.1");
    ADD("MASTER_PORT=%d", port);
    if (!options->own_store) ADD("REDPOLL_STORE=127.0.0.1:%d", port);
    ADD("REDPOLL_TEST_ARGUMENT=%s", options->argument ? options->argument : "");
    ADD("REDPOLL_TEST_SEED=%llu", (unsigned long long)check_seed());
#undef ADD
    for (char **each = environ; *each && with->count < 1000; each++)
        if (!is_ours(*each)) with->environment[with->count++] = *each;
    with->environment[with->count] = NULL;
}

static void become_rank(const launch *with, int output) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != with->parent) _exit(127); /* it died before we asked to be told */
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execve(with->path, with->argv, with->environment);
    _exit(127);
}

static bool start_one(ranks *world, int rank, const launch *with) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    pid_t pid = fork();
    if (pid == 0) become_rank(with, ends[1]);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return false;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    setpgid(pid, pid); /* both sides do, so that it holds for either at once */
    rank_process *process = &world->process[rank];
    process->pid = process->group = pid;
    process->output = ends[0];
    return true;
}

ranks *ranks_start(const char *function, int world_size, const ranks_options *options) {
    static const ranks_options defaults;
    static launch with; /* large; one world starts at a time */
    ranks *world = calloc(1, sizeof *world);
    if (!world) abort();
    if (!options) options = &defaults;
    world->world = world_size <= MAX_RANKS ? world_size : MAX_RANKS;
    for (int i = 0; i < MAX_RANKS; i++) world->process[i].output = -1;
    int port = 0;
    if (rp_store_serve(NULL, 0, &world->server, &port) != RP_OK) {
        check_failed(__FILE__, __LINE__, "no store: %s", rp_last_error()->message);
        return world;
    }
    if (options->own_store) { /* a port that is free now */
        rp_store_server_stop(world->server);
        world->server = NULL;
    }
    ssize_t length = readlink("/proc/self/exe", with.path, sizeof with.path - 1);
    with.path[length > 0 ? length : 0] = '\0';
    with.parent = getpid();
    with.argv[0] = with.path;
    static char flag[] = RANK_FLAG;
    with.argv[1] = flag;
    with.argv[2] = (char *)(uintptr_t)function;
    with.argv[3] = NULL;
    for (int rank = 0; rank < world->world - options->missing; rank++) {
        prepare(&with, rank, world->world, port, options);
        if (!start_one(world, rank, &with)) {
            check_failed(__FILE__, __LINE__, "cannot start rank %d: %s", rank, strerror(errno));
            return world;
        }
        world->started++;
    }
    return world;
}

/* ---- listening ---- */

static void take_output(rank_process *process) {
    for (;;) {
        if (process->capacity - process->bytes < READ_BYTES + 1) {
            size_t wider = process->capacity * 2 + 2 * READ_BYTES;
            char *text = realloc(process->text, wider);
            if (!text) abort();
            process->text = text;
            process->capacity = wider;
            process->text[process->bytes] = '\0';
        }
        ssize_t got = read(process->output, process->text + process->bytes, READ_BYTES);
        if (got > 0) {
            process->bytes += (size_t)got;
            process->text[process->bytes] = '\0';
        } else if (got == 0) {
            close(process->output);
            process->output = -1;
            return;
        } else if (errno != EINTR) {
            return;
        }
    }
}

static void reap(rank_process *process) {
    int status = 0;
    if (!process->pid || waitpid(process->pid, &status, WNOHANG) != process->pid) return;
    process->pid = 0;
    process->ended_ns = rpi_now_ns();
    process->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Take what has been printed, see who has ended; sleeps at most until then or 20 ms. */
static void pump(ranks *world) {
    struct pollfd waits[MAX_RANKS];
    int count = 0;
    for (int i = 0; i < world->started; i++)
        if (world->process[i].output >= 0)
            waits[count++] = (struct pollfd){.fd = world->process[i].output, .events = POLLIN};
    poll(waits, (nfds_t)count, 20);
    for (int i = 0; i < world->started; i++) {
        if (world->process[i].output >= 0) take_output(&world->process[i]);
        reap(&world->process[i]);
    }
}

const char *ranks_output(ranks *world, int rank) {
    rank_process *process = &world->process[rank];
    if (process->output >= 0) take_output(process);
    return process->text ? process->text : "";
}

bool ranks_wait_for(ranks *world, int rank, const char *text, double timeout_s) {
    if (rank >= world->started) return false;
    int64_t deadline_ns = rpi_deadline_ns(timeout_s);
    for (;;) {
        if (strstr(ranks_output(world, rank), text)) return true;
        bool ended = world->process[rank].pid == 0;
        if (ended || rpi_now_ns() >= deadline_ns) {
            check_failed(__FILE__, __LINE__, "rank %d %s without printing '%s'; it printed: %s",
                         rank, ended ? "ended" : "went on", text, ranks_output(world, rank));
            return false;
        }
        pump(world);
    }
}

/* All its threads are, or it has ended. On a machine that has no time for it one that is told
 * to stop goes on for a while. */
static void await_stopped(pid_t pid) {
    int64_t deadline_ns = rpi_deadline_ns(20);
    siginfo_t is = {0};
    while (waitid(P_PID, (id_t)pid, &is, WSTOPPED | WEXITED | WNOWAIT | WNOHANG) == 0 &&
           is.si_pid == 0 && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + 200000);
}

void ranks_signal(ranks *world, int rank, int signal) {
    rank_process *process = &world->process[rank];
    if (!process->pid) return;
    if (signal == SIGSTOP) process->stopped = true;
    if (signal == SIGCONT) process->stopped = false;
    if (!world->struck_ns && (signal == SIGKILL || signal == SIGSTOP))
        world->struck_ns = rpi_now_ns();
    kill(process->pid, signal);
    if (signal == SIGSTOP) await_stopped(process->pid);
}

/* ---- ending ---- */

/* A rank that the test stopped is not expected to end. */
static bool all_ended(const ranks *world) {
    for (int i = 0; i < world->started; i++)
        if (world->process[i].pid && !world->process[i].stopped) return false;
    return true;
}

static void kill_rank(ranks *world, int rank) {
    rank_process *process = &world->process[rank];
    if (!process->pid) return;
    kill(-process->group, SIGKILL);
    while (process->pid) pump(world);
}

/* Does a process of this group live? One that has ended may wait long for its new parent to
 * take note of that: the first process of a container often never does. */
static bool group_lives(pid_t group) {
    if (kill(-group, 0) != 0) return false;
    DIR *folder = opendir("/proc");
    if (!folder) return true;
    bool lives = false;
    for (const struct dirent *entry; !lives && (entry = readdir(folder)) != NULL;) {
        process_look look;
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        lives = pid > 0 && process_look_at(pid, &look) && look.group == group &&
                process_look_runs(&look);
    }
    closedir(folder);
    return lives;
}

/* Did a rank leave processes behind? They carry its process group. One that is on its way out
 * has a second. */
static bool sweep(rank_process *process) {
    int64_t deadline_ns = rpi_deadline_ns(1);
    while (process->group && group_lives(process->group)) {
        if (rpi_now_ns() >= deadline_ns) {
            kill(-process->group, SIGKILL);
            return false;
        }
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 200);
    }
    return true;
}

bool ranks_finish(ranks *world, double timeout_s) {
    if (world->finished) return world->clean;
    int64_t deadline_ns = rpi_deadline_ns(timeout_s);
    while (!all_ended(world) && rpi_now_ns() < deadline_ns) pump(world);
    world->finished = world->clean = true;
    for (int rank = 0; rank < world->started; rank++) {
        rank_process *process = &world->process[rank];
        if (process->pid && !process->stopped) {
            check_failed(__FILE__, __LINE__,
                         "rank %d has not ended within %g s; it printed: %s", rank, timeout_s,
                         ranks_output(world, rank));
            world->clean = false;
        }
        kill_rank(world, rank);
        if (!sweep(process)) {
            check_failed(__FILE__, __LINE__, "rank %d left processes behind", rank);
            world->clean = false;
        }
        ranks_output(world, rank);
    }
    return world->clean;
}

int ranks_exit_code(const ranks *world, int rank) {
    return world->process[rank].exit_code;
}

double ranks_survived_s(const ranks *world, int rank) {
    return rpi_seconds(world->process[rank].ended_ns - world->struck_ns);
}

void ranks_check_exit(ranks *world, int rank, int code, const char *text) {
    if (rank >= world->started) return;
    const char *output = ranks_output(world, rank);
    int actual = ranks_exit_code(world, rank);
    if (actual != code)
        check_failed(__FILE__, __LINE__, "rank %d ended with %d, not %d; it printed: %s", rank,
                     actual, code, output);
    if (text && !strstr(output, text))
        check_failed(__FILE__, __LINE__, "rank %d did not print '%s' but: %s", rank, text,
                     output);
}

void ranks_check_passed(ranks *world) {
    for (int rank = 0; rank < world->started; rank++) ranks_check_exit(world, rank, 0, NULL);
}

void ranks_free(ranks *world) {
    if (!world) return;
    for (int rank = 0; rank < world->started; rank++) {
        kill_rank(world, rank);
        sweep(&world->process[rank]);
        if (world->process[rank].output >= 0) close(world->process[rank].output);
        free(world->process[rank].text);
    }
    rp_store_server_stop(world->server);
    free(world);
}

/* ---- in a rank ---- */

static int number_of(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : -1;
}

int ranks_rank(void) {
    return number_of("RANK");
}

int ranks_world(void) {
    return number_of("WORLD_SIZE");
}

const char *ranks_argument(void) {
    const char *text = getenv("REDPOLL_TEST_ARGUMENT");
    return text ? text : "";
}

rp_status ranks_store(rp_store *out_store) {
    return rp_store_connect(NULL, number_of("MASTER_PORT"), 20, out_store);
}

void ranks_mark(const char *text) {
    printf("%s\n", text);
    fflush(stdout);
}

static void cut(int signal) {
    (void)signal;
    int saved = errno;
    for (int fd = STDERR_FILENO + 1; fd < 1024; fd++) (void)shutdown(fd, SHUT_RDWR);
    errno = saved;
}

void ranks_cut_on(int signal) {
    struct sigaction action = {.sa_handler = cut, .sa_flags = SA_RESTART};
    sigaction(signal, &action, NULL);
}

_Noreturn void ranks_die(void) {
    fprintf(stderr, "%s\n", rp_last_error()->message);
    exit(1);
}

static int run_function(const char *name, const ranks_function *functions, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(functions[i].name, name) == 0) {
            functions[i].run();
            return check_failures() ? 1 : 0;
        }
    fprintf(stderr, "no rank function '%s'\n", name);
    return 2;
}

int ranks_main(int argc, char **argv, const ranks_function *functions, int function_count,
               const check_case *cases, int case_count) {
    if (argc == 3 && strcmp(argv[1], RANK_FLAG) == 0)
        return run_function(argv[2], functions, function_count);
    return check_main(argc, argv, cases, case_count);
}
