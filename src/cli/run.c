#include "cli/run.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/memory.h"
#include "cli/descendants.h"
#include "cli/first_failure.h"
#include "cli/guard.h"
#include "cli/hosts/agent.h"
#include "cli/launch_signals.h"
#include "cli/progress.h"
#include "cli/rank_output.h"
#include "net/store_tcp.h"
#include "net/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_GRACE_S 10.0
/* Between asking ranks to end (SIGTERM) and making them (SIGKILL). */
#define TERM_S          5.0

enum { SIGNALS, READER, AGENT_IN, AGENT_OUT, FIRST_STREAM }; /* what is polled */
enum { OWN_VARIABLES = 12, VARIABLE_BYTES = 320, STREAMS = 2, CANNOT_START = 1 };
enum { RELAYED_BYTES = 16384 };

typedef struct rank_process {
    pid_t pid;      /* 0: not started, or it has ended */
    pid_t group;    /* of it and its children */
    int generation; /* how often it was started again */
} rank_process;

typedef struct launch {
    rpi_launch_options *options;
    rpi_agent *agent; /* of options */
    rpi_launch_world world;
    int ranks;                /* here */
    rank_process *processes;  /* [ranks] */
    rpi_rank_output *outputs; /* [ranks][STREAMS] */
    rpi_last_lines *last;     /* [ranks] where output goes into files; else NULL */
    struct pollfd *polls;     /* [FIRST_STREAM + ranks * STREAMS] */
    rp_store_server *server;
    int signals;         /* signalfd */
    pid_t first_process; /* of the two that a launch is: guard.h */
    sigset_t mask_before;
    char **environment; /* ours, without what we set */
    int variables;
    int alive;
    rpi_bind_host host;      /* where ranks are bound */
    bool has_ended_well;     /* a rank has */
    rpi_first_failure first; /* of ranks numbered as here */
    bool is_unread;          /* our standard output was a pipe, and its reader has gone */
    int stop_signal;         /* passed on to the ranks because we were told to end */
    bool has_told;           /* the ranks have had a signal to end */
    int next_signal;         /* SIGTERM, SIGKILL: what ranks get when the time has come */
    int64_t next_ns;
} launch;

rp_status rpi_launch_check_ranks(int64_t ranks) {
    if (ranks >= 1 && ranks <= RPI_LAUNCH_MAX_RANKS) return RP_OK;
    return RP_FAIL(INVALID, "-n is %lld; 1 to %d ranks can be started on one host",
                   (long long)ranks, RPI_LAUNCH_MAX_RANKS);
}

/* Rank 0 may be drawing a bar on the terminal that we write to, too: take its line. It draws
 * the next one below. */
static const char *line_start(const launch *l, FILE *sink) {
    bool shared = l->options->output == RPI_LAUNCH_PREFIX_OTHERS && rpi_is_terminal(stdout) &&
                  rpi_is_terminal(sink);
    return shared ? "\r\033[K" : "";
}

static void say(const launch *l, const char *format, ...) RP_PRINTF(2, 3);
static void say(const launch *l, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fprintf(stderr, "%s%s: ", line_start(l, stderr), l->options->name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
}

/* ---- the environment of a rank ---- */

static bool has_name(const char *variable, const char *name) {
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

static bool is_ours(const launch *l, const char *variable) {
    static const char *const ours[] = {"RANK",
                                       "WORLD_SIZE",
                                       "LOCAL_RANK",
                                       "MASTER_ADDR",
                                       "MASTER_PORT",
                                       "LOCAL_WORLD_SIZE",
                                       "REDPOLL_STORE",
                                       "REDPOLL_SECRET",
                                       "REDPOLL_SECRET_FILE",
                                       RPI_GENERATION_VARIABLE};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (has_name(variable, ours[i])) return true;
    return l->options->restarts && has_name(variable, RPI_RESTARTS_VARIABLE);
}

static rp_status copy_environment(launch *l) {
    int count = 0;
    while (environ[count]) count++;
    RP_TRY(rpi_alloc_array((size_t)count + OWN_VARIABLES + 1, sizeof *l->environment,
                           "an environment", &l->environment));
    for (int i = 0; i < count; i++)
        if (!is_ours(l, environ[i])) l->environment[l->variables++] = environ[i];
    return RP_OK;
}

/* Put this rank's variables behind the others; `text` holds them until its exec. */
static void set_variables(launch *l, int rank, char text[OWN_VARIABLES][VARIABLE_BYTES]) {
    int share = rpi_cpu_count() / l->ranks, count = 0;
#define SET(...) snprintf(text[count++], VARIABLE_BYTES, __VA_ARGS__)
    const rpi_launch_world *world = &l->world;
    SET("RANK=%d", world->first_rank + rank);
    SET("WORLD_SIZE=%d", world->ranks);
    SET("LOCAL_RANK=%d", rank);
    SET("LOCAL_WORLD_SIZE=%d", l->ranks);
    SET("MASTER_ADDR=%s", world->store_host);
    SET("MASTER_PORT=%d", world->master_port);
    SET("REDPOLL_STORE=%s:%d", world->store_host, world->store_port);
    int generation = l->processes[rank].generation;
    if (l->options->restarts) SET(RPI_RESTARTS_VARIABLE "=%d", l->options->restarts);
    if (generation) SET(RPI_GENERATION_VARIABLE "=%d", generation);
    if (*world->secret) SET("REDPOLL_SECRET=%s", world->secret); /* unlike argv, not in ps */
    if (!getenv("OMP_NUM_THREADS")) SET("OMP_NUM_THREADS=%d", share > 1 ? share : 1);
    /* Barriers that spin for long take the core that the thread they wait for needs. */
    if (!getenv("GOMP_SPINCOUNT") && !getenv("OMP_WAIT_POLICY")) SET("GOMP_SPINCOUNT=3000");
#undef SET
    for (int i = 0; i < count; i++) l->environment[l->variables + i] = text[i];
    l->environment[l->variables + count] = NULL;
}

/* ---- starting ---- */

static void write_words(const char *words) {
    ssize_t written = write(STDERR_FILENO, words, strlen(words));
    (void)written; /* nobody reads: the rank will notice */
}

/* In the child, system calls only. */
static void bind_rank(const launch *l, const rpi_bind_share *share) {
    bool is_bound = !l->host.is_made_up && rpi_bind_self(share);
    if (!l->options->reports_bindings) return;
    write_words(is_bound             ? "bound to "
                : l->host.is_made_up ? "on a host that is made up, would be bound to "
                                     : "the kernel does not allow all of this: bound to ");
    write_words(share->text);
    write_words("\n");
}

/* In the child, system calls only. Errors go up the pipe; a successful exec closes it. */
static void become_rank(const launch *l, int rank, const int *streams, int report, pid_t parent,
                        const rpi_bind_share *share) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127); /* it died before we asked to be told */
    /* One reader at most: rank 0, and not from a terminal, where its group is in the
     * background. */
    if (rank != 0 || l->agent || isatty(STDIN_FILENO)) {
        int null = open("/dev/null", O_RDONLY);
        if (null >= 0) dup2(null, STDIN_FILENO);
        if (null > STDERR_FILENO) close(null);
    }
    if (streams[0] >= 0) dup2(streams[0], STDOUT_FILENO);
    if (streams[1] >= 0) dup2(streams[1], STDERR_FILENO);
    if (l->options->binding != RPI_BIND_NONE) bind_rank(l, share);
    sigprocmask(SIG_SETMASK, &l->mask_before, NULL);
    if (l->options->path)
        execve(l->options->path, l->options->argv, l->environment);
    else
        execvpe(l->options->argv[0], l->options->argv, l->environment);
    int error = errno;
    ssize_t written = write(report, &error, sizeof error);
    (void)written;
    _exit(127);
}

static bool is_piped(const launch *l, int rank) {
    return l->options->output == RPI_LAUNCH_PREFIX || l->options->output == RPI_LAUNCH_FILES ||
           (l->options->output == RPI_LAUNCH_PREFIX_OTHERS && rank > 0);
}

static void close_all(int *fds, int count) {
    for (int i = 0; i < count; i++) {
        if (fds[i] >= 0) close(fds[i]);
        fds[i] = -1;
    }
}

static rp_status open_file(launch *l, int rank) {
    rpi_rank_output *outputs = &l->outputs[rank * STREAMS];
    if (outputs->bare) return RP_OK; /* a rank that was started again writes on */
    FILE *file = rpi_rank_file_open(l->options->output_folder, outputs->rank);
    if (!file)
        return RP_FAIL_ERRNO(IO, "cannot write rank %d's file in %s", outputs->rank,
                             l->options->output_folder);
    for (int i = 0; i < STREAMS; i++) {
        outputs[i].sink = file;
        outputs[i].before = NULL;
        outputs[i].bare = true;
    }
    return RP_OK;
}

static rp_status open_pipes(launch *l, int rank, int *ends) {
    FILE *const sinks[STREAMS] = {stdout, stderr};
    int pair[2];
    for (int i = 0; i < STREAMS && is_piped(l, rank); i++) {
        if (pipe2(pair, O_CLOEXEC) != 0) return RP_FAIL_ERRNO(IO, "cannot make a pipe");
        fcntl(pair[0], F_SETFL, O_NONBLOCK);
        rpi_rank_output *output = &l->outputs[rank * STREAMS + i];
        output->fd = pair[0];
        output->rank = l->world.first_rank + rank;
        if (!output->bare) output->sink = sinks[i];
        output->before = line_start(l, sinks[i]);
        output->last = l->last ? &l->last[rank] : NULL;
        ends[i] = pair[1];
    }
    if (l->options->output == RPI_LAUNCH_FILES) RP_TRY(open_file(l, rank));
    if (pipe2(pair, O_CLOEXEC) != 0) return RP_FAIL_ERRNO(IO, "cannot make a pipe");
    ends[STREAMS] = pair[0];
    ends[STREAMS + 1] = pair[1];
    return RP_OK;
}

static rp_status fork_rank(launch *l, int rank, int *ends, int *out_error) {
    char text[OWN_VARIABLES][VARIABLE_BYTES];
    rpi_bind_share share;
    pid_t parent = getpid();
    if (l->options->binding != RPI_BIND_NONE)
        RP_TRY(rpi_bind_choose(l->options->binding, &l->host, rank, l->ranks, &share));
    set_variables(l, rank, text);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) become_rank(l, rank, ends, ends[STREAMS + 1], parent, &share);
    if (pid < 0) return RP_FAIL_ERRNO(IO, "cannot start rank %d", l->world.first_rank + rank);
    setpgid(pid, pid); /* both sides do, so that it holds for either at once */
    l->processes[rank].pid = l->processes[rank].group = pid;
    l->alive++;
    close(ends[STREAMS + 1]);
    ends[STREAMS + 1] = -1;
    ssize_t got;
    do got = read(ends[STREAMS], out_error, sizeof *out_error);
    while (got < 0 && errno == EINTR);
    if (got != sizeof *out_error) *out_error = 0;
    return RP_OK;
}

/* 0, or the exit code of the launch. */
static int start_rank(launch *l, int rank) {
    int ends[STREAMS + 2] = {-1, -1, -1, -1}, error = 0;
    rp_status status = open_pipes(l, rank, ends);
    if (status == RP_OK) status = fork_rank(l, rank, ends, &error);
    close_all(ends, STREAMS + 2);
    if (status != RP_OK) {
        say(l, "%s", rp_last_error()->message);
        return CANNOT_START;
    }
    if (!error) return 0;
    const char *program = l->options->path ? l->options->path : l->options->argv[0];
    bool missing = error == ENOENT || error == ENOTDIR;
    say(l, "cannot run '%s': %s%s", program, strerror(error),
        error == EACCES ? "; is it an executable file?" : "");
    return missing ? 127 : 126;
}

/* Every job has a secret of its own, whatever our own environment says. */
static rp_status serve_store(launch *l) {
    rpi_launch_world *world = &l->world;
    rpi_secret secret = {0};
    if (rpi_secret_is_supported()) {
        RP_TRY(rpi_secret_draw(world->secret));
        RP_TRY(rpi_secret_make("the job's secret", world->secret, &secret));
    }
    world->ranks = l->ranks;
    snprintf(world->store_host, sizeof world->store_host, "127.0.0.1");
    RP_TRY(rpi_store_serve(NULL, 0, &secret, &l->server, &world->store_port));
    /* For the program to listen at, as torchrun's children may. */
    return rpi_stream_reserve(NULL, &world->master_port);
}

/* No further than needed: ranks inherit it, and some programs walk through all they may have.
 */
static void raise_descriptor_limit(int ranks) {
    struct rlimit limit;
    rlim_t wanted = (rlim_t)ranks * (STREAMS + 1) + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* too few after all: a pipe will fail */
}

static rp_status prepare(launch *l) {
    if (l->agent) {
        l->agent->signals = l->signals;
        RP_TRY(rpi_agent_meet(l->agent, l->options, &l->world, &l->server));
        l->ranks = l->agent->ranks;
    } else {
        RP_TRY(serve_store(l));
    }
    size_t ranks = (size_t)l->ranks;
    raise_descriptor_limit(l->ranks);
    RP_TRY(rpi_alloc_array(ranks, sizeof *l->processes, "ranks", &l->processes));
    RP_TRY(rpi_alloc_array(ranks * STREAMS, sizeof *l->outputs, "ranks", &l->outputs));
    for (size_t i = 0; i < ranks * STREAMS; i++) l->outputs[i].fd = -1;
    RP_TRY(
        rpi_alloc_array(FIRST_STREAM + ranks * STREAMS, sizeof *l->polls, "ranks", &l->polls));
    if (l->options->output == RPI_LAUNCH_FILES)
        RP_TRY(rpi_alloc_array(ranks, sizeof *l->last, "last lines", &l->last));
    if (l->options->binding != RPI_BIND_NONE) RP_TRY(rpi_bind_host_find(&l->host));
    return copy_environment(l);
}

/* ---- watching ---- */

static void signal_all(launch *l, int number) {
    if (number != SIGUSR1 && number != SIGUSR2 && number != SIGCONT) l->has_told = true;
    for (int rank = 0; rank < l->ranks; rank++)
        if (l->processes[rank].pid) kill(-l->processes[rank].group, number);
}

/* From now on the ranks have `grace_s` to end, then they are asked, then they are made to. */
static void start_countdown(launch *l, int first_signal, double grace_s) {
    if (l->next_signal) return;
    l->next_signal = first_signal;
    l->next_ns = rpi_deadline_ns(grace_s);
}

static double grace_of(const launch *l) {
    return l->options->grace_s > 0 ? l->options->grace_s : DEFAULT_GRACE_S;
}

static double stop_grace_of(const launch *l) {
    return l->options->stop_grace_s > 0 ? l->options->stop_grace_s : grace_of(l);
}

/* `redpoll bench ... | head`: rank 0, which writes to our output, ends as any program does
 * there, and nobody wants to hear of it. */
static bool has_had_enough(const launch *l, int status) {
    return l->is_unread && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE;
}

static void name_first(launch *l) {
    int status = l->first.status, rank = l->first.rank;
    char how[80];
    l->first.is_named = true;
    if (l->agent || has_had_enough(l, status)) return; /* the launcher says it */
    /* A consequence of what has been said already, or will be. */
    if (l->stop_signal || getppid() != l->first_process) return;
    say(l, "rank %d %s", rank, rpi_ending_text(status, how, sizeof how));
    if (!l->last) return;
    rpi_last_lines_print(&l->last[rank], rank, stderr);
    say(l, "the rest is in %s/rank-%d.log", l->options->output_folder, rank);
}

/* To the launcher, as it is: that one cuts it into lines. As much as it has room for, or `all`
 * that has come. */
static void relay(launch *l, int stream, bool all) {
    rpi_rank_output *output = &l->outputs[stream];
    char text[RELAYED_BYTES];
    while (output->fd >= 0 && (all || rpi_agent_has_room(&l->agent->link))) {
        ssize_t got = read(output->fd, text, sizeof text);
        if (got > 0)
            rpi_agent_output(l->agent, output->rank, stream % STREAMS == 1, text, (size_t)got);
        else if (got < 0 && errno == EAGAIN)
            return;
        else if (got == 0 || errno != EINTR)
            close_all(&output->fd, 1);
    }
}

static void finish_output(launch *l, int stream) {
    rpi_rank_output *output = &l->outputs[stream];
    if (output->fd < 0) return;
    if (l->agent) {
        relay(l, stream, true);
        close_all(&output->fd, 1);
    } else {
        rpi_rank_output_finish(output);
    }
}

/* Nothing has failed, and nobody has told us to end. */
static bool is_outlived(const launch *l, int rank) {
    const rpi_launch_options *o = l->options;
    bool may_be = o->outlives_deaths && rank >= o->vital_ranks && !l->stop_signal;
    return may_be && l->first.rank < 0;
}

bool rpi_launch_restarts(int restarts, int generation, int status) {
    return generation < restarts && WIFSIGNALED(status);
}

/* Of an agent's host it may be the only one. */
static bool may_restart(const launch *l, int rank, int status) {
    bool others = (l->alive > 0 || l->agent) && !l->next_signal && !l->is_unread;
    return others && is_outlived(l, rank) &&
           rpi_launch_restarts(l->options->restarts, l->processes[rank].generation, status);
}

/* What it has left running must not meet the others in its place. Once there is a process, it
 * is this one's end that counts, be it that it cannot run the program. */
static bool restart(launch *l, int rank) {
    rank_process *process = &l->processes[rank];
    if (process->group) kill(-process->group, SIGKILL);
    for (int i = 0; i < STREAMS; i++) finish_output(l, rank * STREAMS + i);
    process->generation++;
    (void)start_rank(l, rank);
    return process->pid != 0;
}

/* Has it left the others to go on? A rank that was started again is not theirs before they have
 * taken it back, and from then on its failure fails them, too; they may have ended before it.
 */
static bool is_left_behind(const launch *l, int rank, int status) {
    if (l->first.rank >= 0) return false;
    if (l->processes[rank].generation > 0) return l->alive > 0 || l->has_ended_well;
    return l->alive > 0 && WIFSIGNALED(status) && is_outlived(l, rank);
}

static void rank_ended(launch *l, int rank, int status) {
    char how[80];
    int generation = l->processes[rank].generation;
    l->processes[rank].pid = 0;
    l->alive--;
    bool again = status != 0 && may_restart(l, rank, status) && restart(l, rank);
    /* Where the agent was killed, its ranks are killed for that. */
    if (l->agent && getppid() == l->first_process)
        rpi_agent_ended(l->agent, &(rpi_ending){.rank = l->world.first_rank + rank,
                                                .status = status,
                                                .was_told = l->has_told,
                                                .generation = generation,
                                                .is_again = again});
    l->has_ended_well |= status == 0;
    if (status == 0) return;
    if (again || is_left_behind(l, rank, status)) {
        if (!l->agent) /* the launcher says it */
            say(l, "rank %d %s; %s", rank, rpi_ending_text(status, how, sizeof how),
                again ? "it is started again, and the others may go on"
                      : "the others may go on");
        return;
    }
    rpi_first_failure_note(&l->first, rank, status, l->has_told);
    if (rpi_first_failure_is_due(&l->first)) name_first(l);
    if (has_had_enough(l, l->first.status)) signal_all(l, SIGKILL);
    start_countdown(l, SIGTERM, grace_of(l));
}

static void take_output(launch *l, int stream, bool all) {
    if (l->agent)
        relay(l, stream, all);
    else
        rpi_rank_output_take(&l->outputs[stream]);
}

static void reap(launch *l) {
    int status = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int rank = 0; rank < l->ranks; rank++)
            if (l->processes[rank].pid == pid) {
                /* Its last words come before the word of its end. */
                for (int i = 0; i < STREAMS; i++) take_output(l, rank * STREAMS + i, true);
                rank_ended(l, rank, status);
            }
}

static void pass_on(launch *l, int number) {
    if (number == SIGUSR1 || number == SIGUSR2) {
        signal_all(l, number);
        return;
    }
    if (l->stop_signal) { /* told twice: at once, then */
        signal_all(l, SIGKILL);
        return;
    }
    l->stop_signal = number;
    if (!l->agent) say(l, "stopping the ranks: signal %d (%s)", number, strsignal(number));
    signal_all(l, number);
    l->next_signal = 0;
    start_countdown(l, SIGKILL, stop_grace_of(l));
}

static void take_signal_news(launch *l) {
    struct signalfd_siginfo news;
    while (read(l->signals, &news, sizeof news) == sizeof news)
        if (news.ssi_signo != SIGCHLD) pass_on(l, (int)news.ssi_signo);
    reap(l);
}

static void keep_time(launch *l) {
    int64_t now_ns = rpi_now_ns();
    if (rpi_first_failure_is_due(&l->first)) name_first(l);
    if (!l->next_signal || now_ns < l->next_ns) return;
    say(l, "%d rank%s still running: sending %s", l->alive, l->alive == 1 ? "" : "s",
        l->next_signal == SIGTERM ? "SIGTERM" : "SIGKILL");
    signal_all(l, l->next_signal);
    /* A stopped process takes no SIGTERM until it goes on. */
    if (l->next_signal == SIGTERM) signal_all(l, SIGCONT);
    l->next_signal = SIGKILL;
    l->next_ns = rpi_deadline_ns(TERM_S);
}

static int64_t wake_ns(const launch *l) {
    int64_t at_ns = l->next_signal ? l->next_ns : RPI_NEVER_NS;
    int64_t due_ns = rpi_first_failure_due_ns(&l->first);
    return due_ns < at_ns ? due_ns : at_ns;
}

/* The ranks' complaints about the one that wrote to a reader who has gone are not for people.
 */
static void reader_has_gone(launch *l) {
    l->is_unread = true;
    for (int i = 0; i < l->ranks * STREAMS; i++)
        if (l->outputs[i].fd >= 0) close(l->outputs[i].fd);
    for (int i = 0; i < l->ranks * STREAMS; i++) l->outputs[i].fd = -1;
}

static bool reader_is_watched(const launch *l) {
    return l->options->output == RPI_LAUNCH_PREFIX_OTHERS && !l->is_unread;
}

/* Our launcher, on another host, speaks or has gone. */
static void serve_launcher(launch *l) {
    int number = 0;
    rpi_agent_flush(&l->agent->link);
    if (l->polls[AGENT_IN].revents && rpi_agent_fill(&l->agent->link) != RP_OK)
        l->agent->is_over = true;
    while (rpi_agent_order(l->agent, &number)) {
        if (number)
            pass_on(l, number);
        else
            start_countdown(l, SIGTERM, grace_of(l));
    }
    if (!l->agent->is_over) return;
    l->stop_signal = SIGHUP; /* nobody is there to be told */
    signal_all(l, SIGKILL);
}

static void choose_polls(launch *l) {
    bool has_room = !l->agent || rpi_agent_has_room(&l->agent->link);
    l->polls[SIGNALS] = (struct pollfd){.fd = l->signals, .events = POLLIN};
    l->polls[READER] = (struct pollfd){.fd = reader_is_watched(l) ? STDOUT_FILENO : -1};
    l->polls[AGENT_IN] = l->polls[AGENT_OUT] = (struct pollfd){.fd = -1};
    if (l->agent) rpi_agent_poll(&l->agent->link, &l->polls[AGENT_IN]);
    for (int i = 0; i < l->ranks * STREAMS; i++)
        l->polls[FIRST_STREAM + i] =
            (struct pollfd){.fd = has_room ? l->outputs[i].fd : -1, .events = POLLIN};
}

static void watch(launch *l) {
    int streams = l->ranks * STREAMS;
    while (l->alive > 0) {
        choose_polls(l);
        if (poll(l->polls, (nfds_t)streams + FIRST_STREAM, rpi_poll_ms(wake_ns(l))) < 0)
            continue;
        if (l->polls[READER].revents & POLLERR) reader_has_gone(l);
        for (int i = 0; i < streams; i++)
            if (l->polls[FIRST_STREAM + i].revents) take_output(l, i, false);
        if (l->polls[SIGNALS].revents) take_signal_news(l);
        if (l->agent) serve_launcher(l);
        keep_time(l);
    }
}

/* ---- ending ---- */

static void finish_outputs(launch *l) {
    for (int i = 0; i < l->ranks * STREAMS; i++) finish_output(l, i);
    for (int i = 0; i < l->ranks; i++)
        if (l->outputs[i * STREAMS].bare) fclose(l->outputs[i * STREAMS].sink);
}

static void finish(launch *l) {
    rpi_descendants_kill(); /* what ranks have left behind */
    if (l->outputs) finish_outputs(l);
    if (l->agent) rpi_agent_finish(l->agent);
    rp_store_server_stop(l->server);
    rpi_free(l->processes);
    rpi_free(l->outputs);
    rpi_free(l->last);
    rpi_free(l->polls);
    rpi_free(l->environment);
}

static int run_ranks(launch *l) {
    if (l->ranks > rpi_cpu_count())
        say(l, "note: %d ranks share %d core%s", l->ranks, rpi_cpu_count(),
            rpi_cpu_count() == 1 ? "" : "s");
    for (int rank = 0; rank < l->ranks; rank++) {
        int code = start_rank(l, rank);
        if (code) return code;
    }
    watch(l);
    bool failed = l->first.rank >= 0;
    if (failed || l->stop_signal) fputs(line_start(l, stdout), stdout);
    if (failed && !l->first.is_named) name_first(l);
    if (failed) return rpi_exit_code_of(l->first.status);
    return l->stop_signal ? 128 + l->stop_signal : 0;
}

static int fail_to_start(const launch *l) {
    if (!l->agent) say(l, "%s", rp_last_error()->message); /* the launcher has been told */
    return CANNOT_START;
}

static int prepare_and_run(void *context) {
    launch *l = context;
    int code = prepare(l) == RP_OK ? run_ranks(l) : fail_to_start(l);
    finish(l);
    return code;
}

int rpi_launch(const rpi_launch_options *options) {
    rpi_launch_options own = *options; /* an agent's become known later */
    launch l = {.options = &own,
                .agent = options->agent,
                .ranks = (int)options->ranks,
                .first = {.rank = -1},
                .first_process = getpid()};
    if (rpi_launch_check_ranks(options->ranks) != RP_OK) return fail_to_start(&l);
    if (rpi_launch_signals_take(&l.mask_before, &l.signals) != RP_OK)
        return fail_to_start(&l); /* and the process ends */
    int code = rpi_guard(&(rpi_guard_options){
        .name = options->name, .signals = l.signals, .work = prepare_and_run, .context = &l});
    close(l.signals);
    sigprocmask(SIG_SETMASK, &l.mask_before, NULL);
    return code;
}

int rpi_launch_generation(void) {
    const char *generation = getenv(RPI_GENERATION_VARIABLE);
    return generation && rpi_launched() ? (int)strtol(generation, NULL, 10) : 0;
}

bool rpi_launched(void) {
    const char *store = getenv("REDPOLL_STORE");
    return store && *store;
}
