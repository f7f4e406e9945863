#include "cli/hosts/host_launch.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cli/descendants.h"
#include "cli/guard.h"
#include "cli/launch_signals.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* RANKS_MAX is for the world; a host has a lower limit. */
enum { RANKS_MAX = 16384, CANNOT_START = 1, CANNOT_WRITE = 1 };
/* An agent ends its ranks by itself. If it has not after this time, it is dead, or its
 * connection is. */
#define LEAVE_S       2.0 /* for remote shells to end after their ranks */
#define SLACK_S       15.0
#define SECOND_INT_S  3.0
/* After this time, more than SLACK_S and LEAVE_S, a launcher that has not ended is killed. */
#define GUARD_SLACK_S 30.0

void rpi_hosts_say(const rpi_host_launch *launch, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fprintf(stderr, "%s: ", launch->options->name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
}

/* ---- ending ---- */

static void kill_shells(const rpi_host_launch *launch) {
    for (int i = 0; i < launch->hosts; i++)
        if (launch->remotes[i].pid) kill(-launch->remotes[i].pid, SIGKILL);
}

static void limit_end(rpi_host_launch *launch, double limit_s) {
    int64_t at_ns = rpi_deadline_ns(limit_s);
    if (at_ns < launch->kill_ns) launch->kill_ns = at_ns;
}

void rpi_hosts_tell(rpi_host_launch *launch, rpi_agent_word word, int number) {
    for (int i = 0; i < launch->hosts; i++)
        if (launch->remotes[i].state == RPI_HOST_RUNNING)
            (void)rpi_agent_send(&launch->remotes[i].link, word, number, NULL, 0);
}

/* Something has failed: the ranks of the other hosts have the time of --grace to end. */
static void hurry(rpi_host_launch *launch) {
    rpi_hosts_tell(launch, RPI_AGENT_HURRY, 0);
    limit_end(launch, launch->options->grace_s + SLACK_S);
}

static const rpi_remote *remote_of(const rpi_host_launch *launch, int rank) {
    int i = launch->hosts - 1;
    while (launch->remotes[i].first_rank > rank) i--;
    return &launch->remotes[i];
}

static void name_first(rpi_host_launch *launch) {
    int rank = launch->first.rank;
    char how[80];
    launch->first.is_named = true;
    if (launch->stop_signal || rpi_guard_is_orphan()) return;
    rpi_hosts_say(launch, "rank %d on %s %s%s", rank, remote_of(launch, rank)->host->name,
                  rpi_ending_text(launch->first.status, how, sizeof how),
                  launch->last[rank].count ? "; its last lines:" : "");
    rpi_last_lines_print(&launch->last[rank], rank,
                         rpi_output_is_shown(stderr, launch->options->is_raw), stderr);
}

int rpi_hosts_alive(const rpi_host_launch *launch) {
    int alive = 0;
    for (int i = 0; i < launch->hosts; i++) alive += launch->remotes[i].alive;
    return alive;
}

bool rpi_hosts_survive(const rpi_host_launch *launch) {
    return launch->options->survives_deaths && !launch->stop_signal && launch->first.rank < 0;
}

/* Whether the other ranks continue without it, or have ended well, in any order. */
static bool others_do(const rpi_host_launch *launch) {
    return rpi_hosts_survive(launch) && (rpi_hosts_alive(launch) > 0 || launch->has_ended_well);
}

static const char *what_of_the_others(const rpi_host_launch *launch) {
    return rpi_hosts_alive(launch) > 0 ? "the others may go on" : "the others have ended";
}

static void say_left_behind(const rpi_host_launch *launch, const rpi_remote *remote,
                            const rpi_ending *e) {
    char how[80];
    rpi_hosts_say(launch, "rank %d on %s %s; %s", e->rank, remote->host->name,
                  rpi_ending_text(e->status, how, sizeof how),
                  e->is_again ? "it is started again, and the others may go on"
                              : what_of_the_others(launch));
}

/* As in a launch on one host (rank_end.c). */
static bool is_left_behind(const rpi_host_launch *launch, const rpi_ending *e) {
    return (WIFSIGNALED(e->status) || e->generation > 0) && others_do(launch);
}

static void note_good_end(rpi_host_launch *launch) {
    if (launch->has_ended_well) return;
    launch->has_ended_well = true;
    rpi_hosts_tell(launch, RPI_AGENT_WELL, 0);
}

static void rank_ended(rpi_host_launch *launch, rpi_remote *remote, const rpi_ending *e) {
    for (int i = 0; i < RPI_HOST_STREAMS; i++)
        rpi_rank_output_finish(&launch->outputs[e->rank * RPI_HOST_STREAMS + i]);
    if (e->is_again) {
        if (launch->files) rpi_rank_file_end_writers(&launch->files[e->rank]);
        say_left_behind(launch, remote, e);
        return;
    }
    remote->alive--;
    if (e->status == 0) note_good_end(launch);
    if (e->status == 0 || launch->is_lost) return; /* the loss of the host is why it ended */
    if (is_left_behind(launch, e)) {
        say_left_behind(launch, remote, e);
        return;
    }
    bool is_first = launch->first.rank < 0;
    /* If ranks continue without the dead, a death does not explain the failure of another rank.
     */
    if (is_first || !WIFSIGNALED(e->status) || !launch->options->survives_deaths)
        rpi_first_failure_note(&launch->first, e->rank, e->status, e->was_told);
    if (is_first) hurry(launch);
}

void rpi_hosts_hear(rpi_host_launch *launch, rpi_remote *remote, const rpi_agent_frame *frame) {
    int rank = frame->rank, stream = frame->word == RPI_AGENT_ERR ? 1 : 0;
    if (frame->word == RPI_AGENT_ALIVE) {
        remote->idle = rank & ~RPI_AGENT_STOPPED;
        remote->has_stopped = (rank & RPI_AGENT_STOPPED) != 0;
        return;
    }
    if (rank < remote->first_rank || rank >= remote->first_rank + remote->host->slots) return;
    rpi_rank_output *output = &launch->outputs[rank * RPI_HOST_STREAMS + stream];
    if (frame->word == RPI_AGENT_ENDED && frame->bytes == RPI_ENDING_BYTES &&
        remote->alive > 0) {
        rpi_ending ending;
        rpi_ending_read(frame, &ending);
        rank_ended(launch, remote, &ending);
    } else if (frame->word == RPI_AGENT_OUT || frame->word == RPI_AGENT_ERR) {
        if (launch->options->output != RPI_LAUNCH_PLAIN) {
            rpi_rank_output_feed(output, frame->text, frame->bytes);
            return;
        }
        fwrite(frame->text, 1, frame->bytes, output->sink);
        fflush(output->sink);
    }
}

void rpi_hosts_end(rpi_host_launch *launch, rpi_remote *remote) {
    int count = remote->host->slots;
    bool is_first = launch->first.rank < 0 && !launch->is_lost;
    rpi_agent_link_close(&remote->link);
    remote->state = RPI_HOST_OVER;
    if (remote->alive == 0) return;
    remote->alive = 0;
    rpi_hosts_tell(launch, RPI_AGENT_LOST, remote->first_rank);
    if (!is_first || launch->stop_signal || rpi_guard_is_orphan()) return;
    bool goes_on = others_do(launch);
    rpi_hosts_say(launch, "the connection to %s was lost, with rank%s %d%s%.0d%s%s",
                  remote->host->name, count == 1 ? "" : "s", remote->first_rank,
                  count == 1 ? "" : " to ", count == 1 ? 0 : remote->first_rank + count - 1,
                  goes_on ? "; " : "", goes_on ? what_of_the_others(launch) : "");
    launch->is_lost = !goes_on;
    if (!goes_on) hurry(launch);
}

/* ---- signals ---- */

static void pass_on(rpi_host_launch *launch, int number) {
    if (number == SIGUSR1 || number == SIGUSR2) {
        rpi_hosts_tell(launch, RPI_AGENT_SIGNAL, number);
        return;
    }
    if (launch->stop_signal) { /* the second such signal: the ranks are ended at once */
        rpi_hosts_tell(launch, RPI_AGENT_SIGNAL, number);
        limit_end(launch, SECOND_INT_S);
        return;
    }
    launch->stop_signal = number;
    rpi_hosts_say(launch, "stopping%s: signal %d (%s)", launch->outputs ? " the ranks" : "",
                  number, strsignal(number));
    rpi_hosts_tell(launch, RPI_AGENT_SIGNAL, number);
    limit_end(launch, launch->options->grace_s + SLACK_S);
}

static void reap(rpi_host_launch *launch) {
    int status = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < launch->hosts; i++)
            if (launch->remotes[i].pid == pid) {
                launch->remotes[i].pid = 0;
                launch->remotes[i].status = status;
            }
}

void rpi_hosts_take_signals(rpi_host_launch *launch) {
    struct signalfd_siginfo news;
    while (read(launch->signals, &news, sizeof news) == sizeof news)
        if (news.ssi_signo != SIGCHLD) pass_on(launch, (int)news.ssi_signo);
    reap(launch);
}

/* ---- running ---- */

static bool is_running(const rpi_host_launch *launch) {
    for (int i = 0; i < launch->hosts; i++)
        if (launch->remotes[i].state == RPI_HOST_RUNNING) return true;
    return false;
}

static bool has_shells(const rpi_host_launch *launch) {
    for (int i = 0; i < launch->hosts; i++)
        if (launch->remotes[i].pid) return true;
    return false;
}

/* Tells the agent of the first host that the store is not needed any more. */
static void release(rpi_host_launch *launch) {
    if (launch->has_released || rpi_hosts_alive(launch) > 0) return;
    launch->has_released = true;
    rpi_hosts_tell(launch, RPI_AGENT_RELEASE, 0);
    limit_end(launch, SLACK_S);
}

/* Hosts are examined every second. */
static int64_t wake_ns(const rpi_host_launch *launch) {
    int64_t at_ns = rpi_deadline_ns(RPI_AGENT_BEAT_S);
    int64_t due_ns = rpi_first_failure_due_ns(&launch->first);
    if (due_ns < at_ns) at_ns = due_ns;
    return launch->kill_ns < at_ns ? launch->kill_ns : at_ns;
}

static int run(rpi_host_launch *launch) {
    while (is_running(launch)) {
        if (rpi_hosts_pump(launch, wake_ns(launch)) != RP_OK) {
            rpi_hosts_say(launch, "%s", rp_last_error()->message);
            return CANNOT_START;
        }
        rpi_hosts_watch_silence(launch);
        rpi_hosts_watch_idle(launch);
        release(launch);
        if (rpi_first_failure_is_due(&launch->first)) name_first(launch);
        if (rpi_now_ns() < launch->kill_ns) continue;
        rpi_hosts_say(launch, "hosts that do not answer are left alone");
        launch->kill_ns = RPI_NEVER_NS;
        kill_shells(launch);
    }
    int64_t leave_ns = rpi_deadline_ns(LEAVE_S);
    while (has_shells(launch) && rpi_now_ns() < leave_ns &&
           rpi_hosts_pump(launch, leave_ns) == RP_OK) {
    }
    if (launch->first.rank >= 0 && !launch->first.is_named) name_first(launch);
    if (launch->first.rank >= 0)
        return rpi_first_failure_code(&launch->first, launch->stop_signal);
    if (launch->is_lost) return CANNOT_START;
    return launch->stop_signal ? 128 + launch->stop_signal : 0;
}

/* ---- before and after ---- */

static rp_status open_outputs(rpi_host_launch *launch, int rank) {
    const rpi_hosts_options *options = launch->options;
    FILE *const sinks[RPI_HOST_STREAMS] = {stdout, stderr};
    if (launch->files)
        RP_TRY(rpi_rank_file_open(&launch->files[rank], options->name, options->output_folder,
                                  rank));
    for (int i = 0; i < RPI_HOST_STREAMS; i++) {
        rpi_rank_output *output = &launch->outputs[rank * RPI_HOST_STREAMS + i];
        output->fd = -1;
        output->rank = rank;
        output->file = launch->files ? &launch->files[rank] : NULL;
        output->sink = sinks[i];
        output->is_shown = rpi_output_is_shown(sinks[i], options->is_raw);
        output->last = &launch->last[rank];
    }
    return RP_OK;
}

static rp_status prepare(rpi_host_launch *launch) {
    const rpi_host_list *list = launch->options->hosts;
    size_t ranks = (size_t)list->slots;
    if (list->slots > RANKS_MAX)
        return RP_FAIL(INVALID, "%lld ranks; %d are allowed", (long long)list->slots,
                       RANKS_MAX);
    RP_TRY(
        rpi_hosts_open(launch, launch->options->output == RPI_LAUNCH_FILES ? (int)ranks : 0));
    RP_TRY(rpi_alloc_array(ranks, sizeof *launch->last, "ranks", &launch->last));
    if (launch->options->output == RPI_LAUNCH_FILES)
        RP_TRY(rpi_alloc_array(ranks, sizeof *launch->files, "files", &launch->files));
    RP_TRY(rpi_alloc_array(ranks * RPI_HOST_STREAMS, sizeof *launch->outputs, "ranks",
                           &launch->outputs));
    for (int rank = 0; rank < launch->ranks; rank++) RP_TRY(open_outputs(launch, rank));
    return RP_OK;
}

/* Whether all output of ranks has been written. */
static bool finish(rpi_host_launch *launch) {
    bool is_whole = true;
    for (int i = 0; i < launch->hosts; i++) rpi_agent_link_close(&launch->remotes[i].link);
    rpi_descendants_kill();
    for (int i = 0; launch->outputs && i < launch->ranks * RPI_HOST_STREAMS; i++) {
        if (launch->outputs[i].sink) rpi_rank_output_finish(&launch->outputs[i]);
        is_whole = is_whole && !launch->outputs[i].has_lost;
    }
    for (int i = 0; launch->files && i < launch->ranks; i++)
        is_whole = rpi_rank_file_close(&launch->files[i]) && is_whole;
    rpi_hosts_close(launch);
    rpi_free(launch->last);
    rpi_free(launch->files);
    rpi_free(launch->outputs);
    return is_whole;
}

static int prepare_and_run(void *context) {
    rpi_host_launch *launch = context;
    bool said = false;
    int code = CANNOT_START;
    rp_status status = prepare(launch);
    if (status == RP_OK) status = rpi_hosts_meet(launch, &said);
    if (status == RP_OK)
        code = run(launch);
    else if (!said)
        rpi_hosts_say(launch, "%s", rp_last_error()->message);
    else if (launch->stop_signal)
        code = 128 + launch->stop_signal;
    bool is_whole = finish(launch);
    return code == 0 && !is_whole ? CANNOT_WRITE : code;
}

int rpi_launch_on_hosts(const rpi_hosts_options *options) {
    rpi_host_launch launch = {
        .options = options, .first = {.rank = -1}, .kill_ns = RPI_NEVER_NS};
    if (rpi_launch_signals_take(&launch.mask_before, &launch.signals) != RP_OK) {
        rpi_hosts_say(&launch, "%s", rp_last_error()->message);
        return CANNOT_START;
    }
    int code = rpi_guard(&(rpi_guard_options){.name = options->name,
                                              .signals = launch.signals,
                                              .end_s = options->grace_s + GUARD_SLACK_S,
                                              .caller = -1,
                                              .work = prepare_and_run,
                                              .context = &launch});
    close(launch.signals);
    sigprocmask(SIG_SETMASK, &launch.mask_before, NULL);
    return code;
}
