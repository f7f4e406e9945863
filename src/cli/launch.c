#include "cli/launch.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/memory.h"
#include "cli/descendants.h"
#include "cli/guard.h"
#include "cli/launch_signals.h"
#include "cli/progress.h"
#include "net/socket/stream.h"
#include "net/store/store_tcp.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_GRACE_S 10.0
/* Seconds from the signal that asks ranks to end (SIGTERM) to the one that ends them
 * (SIGKILL). */
#define TERM_S          5.0
/* A launch that is told to end gives its ranks their time, and then has this time to kill those
 * that are left. */
#define GUARD_SLACK_S   10.0
/* An agent has no limit of its own: that of its launcher applies. */
#define AGENT_END_S     1e9

enum { SIGNALS, READER, AGENT_IN, AGENT_OUT, FIRST_STREAM }; /* what is polled */

rp_status rpi_launch_check_ranks(int64_t ranks) {
    if (ranks >= 1 && ranks <= RPI_LAUNCH_MAX_RANKS) return RP_OK;
    return RP_FAIL(INVALID, "-n is %lld; 1 to %d ranks can be started on one host",
                   (long long)ranks, RPI_LAUNCH_MAX_RANKS);
}

/* Rank 0 may be drawing a progress bar on the terminal to which this launch writes as well: a
 * message takes the line of the bar, and rank 0 redraws the bar on the next line. */
const char *rpi_launch_line_start(const rpi_launch_run *l, FILE *sink) {
    bool shared = l->options->output == RPI_LAUNCH_PREFIX_OTHERS && rpi_is_terminal(stdout) &&
                  rpi_is_terminal(sink);
    return shared ? "\r\033[K" : "";
}

void rpi_launch_say(const rpi_launch_run *l, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fprintf(stderr, "%s%s: ", rpi_launch_line_start(l, stderr), l->options->name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
}

/* ---- starting ---- */

/* Every job has a secret of its own, whatever our own environment says. */
static rp_status serve_store(rpi_launch_run *l) {
    rpi_launch_world *world = &l->world;
    rpi_secret secret = {0};
    if (rpi_secret_is_supported()) {
        RP_TRY(rpi_secret_draw(world->secret));
        RP_TRY(rpi_secret_make("the job's secret", world->secret, &secret));
    }
    world->ranks = l->ranks;
    snprintf(world->store_host, sizeof world->store_host, "127.0.0.1");
    RP_TRY(rpi_store_serve(NULL, 0, &secret, &l->server, &world->store_port));
    /* Reserves a port on which the program of rank 0 may listen, as that of a rank of torchrun
     * may. */
    return rpi_stream_reserve(NULL, &world->master_port);
}

/* The limit of open files is raised no further than needed: ranks inherit it, and some programs
 * try every descriptor that they may have. */
static void raise_descriptor_limit(int ranks) {
    struct rlimit limit;
    rlim_t wanted = (rlim_t)ranks * (RPI_RANK_STREAMS + 1) + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    /* If this fails, making a pipe fails later with a message. */
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static rp_status prepare(rpi_launch_run *l) {
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
    RP_TRY(rpi_alloc_array(ranks * RPI_RANK_STREAMS, sizeof *l->outputs, "ranks", &l->outputs));
    for (size_t i = 0; i < ranks * RPI_RANK_STREAMS; i++) l->outputs[i].fd = -1;
    RP_TRY(rpi_alloc_array(FIRST_STREAM + ranks * RPI_RANK_STREAMS, sizeof *l->polls, "ranks",
                           &l->polls));
    if (l->options->output == RPI_LAUNCH_FILES) {
        RP_TRY(rpi_alloc_array(ranks, sizeof *l->last, "last lines", &l->last));
        RP_TRY(rpi_alloc_array(ranks, sizeof *l->files, "files", &l->files));
    }
    if (l->options->binding != RPI_BIND_NONE) RP_TRY(rpi_bind_host_find(&l->host));
    return rpi_launch_copy_environment(l);
}

/* ---- watching ---- */

void rpi_launch_signal_all(rpi_launch_run *l, int number) {
    if (number != SIGUSR1 && number != SIGUSR2 && number != SIGCONT) l->has_told = true;
    for (int rank = 0; rank < l->ranks; rank++)
        if (l->processes[rank].pid) kill(-l->processes[rank].group, number);
}

void rpi_launch_count_down(rpi_launch_run *l, int first_signal, double grace_s) {
    if (l->next_signal) return;
    l->next_signal = first_signal;
    l->next_ns = rpi_deadline_ns(grace_s);
}

double rpi_launch_grace_s(const rpi_launch_run *l) {
    return l->options->grace_s > 0 ? l->options->grace_s : DEFAULT_GRACE_S;
}

static double stop_grace_of(const rpi_launch_run *l) {
    return l->options->stop_grace_s > 0 ? l->options->stop_grace_s : rpi_launch_grace_s(l);
}

static void reap(rpi_launch_run *l) {
    int status = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int rank = 0; rank < l->ranks; rank++)
            if (l->processes[rank].pid == pid) {
                /* What the rank has printed is shown before the message about its end. */
                for (int i = 0; i < RPI_RANK_STREAMS; i++)
                    rpi_launch_take_output(l, rank * RPI_RANK_STREAMS + i, true);
                rpi_launch_rank_ended(l, rank, status);
            }
}

static void pass_on(rpi_launch_run *l, int number) {
    if (number == SIGUSR1 || number == SIGUSR2) {
        rpi_launch_signal_all(l, number);
        return;
    }
    if (l->stop_signal) { /* the second such signal: the ranks are ended at once */
        rpi_launch_signal_all(l, SIGKILL);
        return;
    }
    l->stop_signal = number;
    if (!l->agent)
        rpi_launch_say(l, "stopping the ranks: signal %d (%s)", number, strsignal(number));
    rpi_launch_signal_all(l, number);
    rpi_launch_signal_all(l, SIGCONT); /* a stopped process handles no signal but this one */
    l->next_signal = 0;
    rpi_launch_count_down(l, SIGKILL, stop_grace_of(l));
}

static void take_signal_news(rpi_launch_run *l) {
    struct signalfd_siginfo news;
    while (read(l->signals, &news, sizeof news) == sizeof news)
        if (news.ssi_signo != SIGCHLD) pass_on(l, (int)news.ssi_signo);
    reap(l);
}

static void keep_time(rpi_launch_run *l) {
    int64_t now_ns = rpi_now_ns();
    if (rpi_first_failure_is_due(&l->first)) rpi_launch_name_first(l);
    rpi_launch_watch_idle(l);
    if (!l->next_signal || now_ns < l->next_ns || l->alive == 0) return;
    rpi_launch_say(l, "%d rank%s still running: sending %s", l->alive, l->alive == 1 ? "" : "s",
                   l->next_signal == SIGTERM ? "SIGTERM" : "SIGKILL");
    rpi_launch_signal_all(l, l->next_signal);
    /* A stopped process handles SIGTERM when it goes on, not before. */
    if (l->next_signal == SIGTERM) rpi_launch_signal_all(l, SIGCONT);
    l->next_signal = SIGKILL;
    l->next_ns = rpi_deadline_ns(TERM_S);
}

static int64_t wake_ns(const rpi_launch_run *l) {
    int64_t at_ns = l->next_signal && l->alive > 0 ? l->next_ns : RPI_NEVER_NS;
    int64_t due_ns = rpi_first_failure_due_ns(&l->first);
    int64_t idle_ns = rpi_launch_idle_due_ns(l);
    if (idle_ns < due_ns) due_ns = idle_ns;
    if (l->agent && rpi_agent_beat_ns(l->agent) < due_ns) due_ns = rpi_agent_beat_ns(l->agent);
    return due_ns < at_ns ? due_ns : at_ns;
}

/* The reader of this output has gone (`| head`). Ranks complain about it, which is of no use to
 * people. */
static void reader_has_gone(rpi_launch_run *l) {
    l->is_unread = true;
    for (int i = 0; i < l->ranks * RPI_RANK_STREAMS; i++)
        if (l->outputs[i].fd >= 0) close(l->outputs[i].fd);
    for (int i = 0; i < l->ranks * RPI_RANK_STREAMS; i++) l->outputs[i].fd = -1;
}

static bool reader_is_watched(const rpi_launch_run *l) {
    return l->options->output == RPI_LAUNCH_PREFIX_OTHERS && !l->is_unread;
}

static void beat(rpi_launch_run *l) {
    bool stopped = false;
    int idle = l->has_ended_well ? rpi_launch_count_idle(l, &stopped) : 0;
    rpi_agent_beat(l->agent, idle, stopped);
}

/* The launcher on another host has sent something, or has gone. */
static void serve_launcher(rpi_launch_run *l) {
    rpi_agent_word word;
    int number = 0;
    rpi_agent_flush(&l->agent->link);
    if (l->polls[AGENT_IN].revents && rpi_agent_fill(&l->agent->link) != RP_OK)
        l->agent->is_over = true;
    while (rpi_agent_order(l->agent, &word, &number)) {
        if (word == RPI_AGENT_SIGNAL) pass_on(l, number);
        if (word == RPI_AGENT_LOST) rpi_launch_tell_end(l, number, "was lost with its host");
        if (word == RPI_AGENT_HURRY) rpi_launch_count_down(l, SIGTERM, rpi_launch_grace_s(l));
        if (word == RPI_AGENT_WELL) l->has_ended_well = true;
        if (word == RPI_AGENT_RELEASE) l->agent->is_released = true;
        if (word == RPI_AGENT_FORGO) rpi_launch_end_idle(l);
    }
    if (rpi_now_ns() >= rpi_agent_beat_ns(l->agent)) beat(l);
    if (!l->agent->is_over) return;
    l->stop_signal = SIGHUP; /* the launcher has gone, and with it who would read a message */
    rpi_launch_signal_all(l, SIGKILL);
}

static void choose_polls(rpi_launch_run *l) {
    bool has_room = !l->agent || rpi_agent_has_room(&l->agent->link);
    l->polls[SIGNALS] = (struct pollfd){.fd = l->signals, .events = POLLIN};
    l->polls[READER] = (struct pollfd){.fd = reader_is_watched(l) ? STDOUT_FILENO : -1};
    l->polls[AGENT_IN] = l->polls[AGENT_OUT] = (struct pollfd){.fd = -1};
    if (l->agent) rpi_agent_poll(&l->agent->link, &l->polls[AGENT_IN]);
    for (int i = 0; i < l->ranks * RPI_RANK_STREAMS; i++)
        l->polls[FIRST_STREAM + i] =
            (struct pollfd){.fd = has_room ? l->outputs[i].fd : -1, .events = POLLIN};
}

/* Ranks of other hosts may still need the store of this one, which also tells them why they
 * fail. */
static bool serves_on(const rpi_launch_run *l) {
    return l->agent && l->server && !l->agent->is_over && !l->agent->is_released;
}

static void watch(rpi_launch_run *l) {
    int streams = l->ranks * RPI_RANK_STREAMS;
    while (l->alive > 0 || serves_on(l)) {
        choose_polls(l);
        if (poll(l->polls, (nfds_t)streams + FIRST_STREAM, rpi_poll_ms(wake_ns(l))) < 0)
            continue;
        if (l->polls[READER].revents & POLLERR) reader_has_gone(l);
        for (int i = 0; i < streams; i++)
            if (l->polls[FIRST_STREAM + i].revents) rpi_launch_take_output(l, i, false);
        if (l->polls[SIGNALS].revents) take_signal_news(l);
        if (l->agent) serve_launcher(l);
        keep_time(l);
    }
}

/* ---- ending ---- */

/* Has everything that ranks have printed been written to its destination? */
static bool finish_outputs(rpi_launch_run *l) {
    bool is_whole = true;
    for (int i = 0; i < l->ranks * RPI_RANK_STREAMS; i++) {
        rpi_launch_finish_output(l, i);
        is_whole = is_whole && !l->outputs[i].has_lost;
    }
    for (int i = 0; l->files && i < l->ranks; i++)
        is_whole = rpi_rank_file_close(&l->files[i]) && is_whole;
    return is_whole;
}

static bool finish(rpi_launch_run *l) {
    rpi_descendants_kill(); /* processes that ranks have started and not ended */
    bool is_whole = !l->outputs || finish_outputs(l);
    if (l->agent) rpi_agent_finish(l->agent);
    rp_store_server_stop(l->server);
    rpi_free(l->processes);
    rpi_free(l->outputs);
    rpi_free(l->last);
    rpi_free(l->files);
    rpi_free(l->polls);
    rpi_free(l->environment);
    return is_whole;
}

static int run_ranks(rpi_launch_run *l) {
    if (l->ranks > rpi_cpu_count())
        rpi_launch_say(l, "note: %d ranks share %d core%s", l->ranks, rpi_cpu_count(),
                       rpi_cpu_count() == 1 ? "" : "s");
    for (int rank = 0; rank < l->ranks; rank++) {
        int code = rpi_launch_start_rank(l, rank);
        if (code) return code;
    }
    watch(l);
    bool failed = l->first.rank >= 0;
    if (failed || l->stop_signal) fputs(rpi_launch_line_start(l, stdout), stdout);
    if (failed && !l->first.is_named) rpi_launch_name_first(l);
    if (failed) return rpi_first_failure_code(&l->first, l->stop_signal);
    return l->stop_signal ? 128 + l->stop_signal : 0;
}

static int fail_to_start(const rpi_launch_run *l) {
    if (!l->agent)
        rpi_launch_say(l, "%s", rp_last_error()->message); /* the launcher has been told */
    return RPI_LAUNCH_CANNOT_START;
}

static int prepare_and_run(void *context) {
    rpi_launch_run *l = context;
    int code = prepare(l) == RP_OK ? run_ranks(l) : fail_to_start(l);
    bool is_whole = finish(l);
    return code == 0 && !is_whole ? RPI_LAUNCH_CANNOT_WRITE : code;
}

int rpi_launch(const rpi_launch_options *options) {
    rpi_launch_options own = *options; /* an agent learns them later, from its launcher */
    rpi_launch_run l = {.options = &own,
                        .agent = options->agent,
                        .ranks = (int)options->ranks,
                        .first = {.rank = -1}};
    if (rpi_launch_check_ranks(options->ranks) != RP_OK) return fail_to_start(&l);
    if (rpi_launch_signals_take(&l.mask_before, &l.signals) != RP_OK)
        return fail_to_start(&l); /* and the process ends */
    double end_s = options->agent ? AGENT_END_S : stop_grace_of(&l) + GUARD_SLACK_S;
    int code = rpi_guard(&(rpi_guard_options){.name = options->name,
                                              .signals = l.signals,
                                              .end_s = end_s,
                                              .caller = options->agent ? STDIN_FILENO : -1,
                                              .work = prepare_and_run,
                                              .context = &l});
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
