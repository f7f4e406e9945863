/* What happens to the output of a rank, and what its end means for the others. */
#include "cli/guard.h"
#include "cli/launch.h"
#include "net/store/store_tcp.h"
#include "net/world/launch_watch.h"
#include "train/return_requests.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define STORE_S 1.0

enum { RELAYED_BYTES = 16384 };

/* As in `redpoll bench ... | head`: rank 0 writes to the output of this process, and ends as
 * any program does when the reader of a pipe has gone; there is nothing to report. */
static bool has_had_enough(const rpi_launch_run *l, int status) {
    return l->is_unread && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE;
}

/* The rank whose last lines explain the end of this one: rank 0, if this one has left the words
 * to it (said_once.h). */
static int who_explains(rpi_launch_run *l, int rank) {
    if (l->last[rank].count > 0) return rank;
    for (int i = 0; i < RPI_RANK_STREAMS; i++) rpi_launch_take_output(l, i, true);
    return l->last[0].count > 0 ? 0 : rank;
}

void rpi_launch_name_first(rpi_launch_run *l) {
    int status = l->first.status, rank = l->first.rank;
    char how[80];
    l->first.is_named = true;
    if (l->agent || has_had_enough(l, status)) return; /* the launcher says it */
    /* It ends because of something that is reported elsewhere. */
    if (l->stop_signal || rpi_guard_is_orphan()) return;
    rpi_launch_say(l, "rank %d %s", rank, rpi_ending_text(status, how, sizeof how));
    if (!l->last) return;
    rank = who_explains(l, rank);
    rpi_last_lines_print(&l->last[rank], rank, rpi_output_is_shown(stderr, l->options->is_raw),
                         stderr);
    if (!l->files[rank].has_failed)
        rpi_launch_say(l, "the rest is in %s/rank-%d.log", l->options->output_folder, rank);
}

/* Passes output on to the launcher unchanged; the launcher cuts it into lines. Passes on as
 * much as there is room for, or with `all` everything that has come. */
static void relay(rpi_launch_run *l, int stream, bool all) {
    rpi_rank_output *output = &l->outputs[stream];
    char text[RELAYED_BYTES];
    while (output->fd >= 0 && (all || rpi_agent_has_room(&l->agent->link))) {
        ssize_t got = read(output->fd, text, sizeof text);
        if (got > 0)
            rpi_agent_output(l->agent, output->rank, stream % RPI_RANK_STREAMS == 1, text,
                             (size_t)got);
        else if (got < 0 && errno == EAGAIN)
            return;
        else if (got == 0 || errno != EINTR)
            rpi_launch_close_fds(&output->fd, 1);
    }
}

void rpi_launch_finish_output(rpi_launch_run *l, int stream) {
    rpi_rank_output *output = &l->outputs[stream];
    if (output->fd < 0) return;
    if (l->agent) {
        relay(l, stream, true);
        rpi_launch_close_fds(&output->fd, 1);
    } else {
        rpi_rank_output_finish(output);
    }
}

/* The death of this rank is no failure of the job. */
static bool may_die(const rpi_launch_run *l, int rank) {
    return l->options->survives_deaths && rank >= l->options->vital_ranks;
}

/* Do the others go on without it? Not if something has failed, or if the launch was told to
 * end. */
static bool is_outlived(const rpi_launch_run *l, int rank) {
    return may_die(l, rank) && !l->stop_signal && l->first.rank < 0;
}

bool rpi_launch_restarts(int restarts, int generation, int status) {
    return generation < restarts && WIFSIGNALED(status);
}

static bool open_store(const rpi_launch_run *l, rp_store *out_store) {
    const rpi_launch_world *world = &l->world;
    rpi_secret secret = {0};
    if (*world->secret && rpi_secret_make("the job's secret", world->secret, &secret) != RP_OK)
        return false;
    return rpi_store_connect(world->store_host, world->store_port, STORE_S, &secret,
                             out_store) == RP_OK;
}

/* Has a run that takes ranks back reported that it is over? Then its ranks have done their
 * work, and end. */
static bool is_run_over(const rpi_launch_run *l) {
    rp_store store;
    size_t bytes = 0;
    if (!open_store(l, &store)) return false;
    bool is_over =
        store.ops->get(store.context, RPI_RETURN_OVER_KEY, 0, NULL, 0, &bytes) == RP_OK;
    rp_store_close(&store);
    return is_over;
}

/* May it be restarted? An agent may have only this one rank. */
static bool may_restart(const rpi_launch_run *l, int rank, int status) {
    bool others = (l->alive > 0 || l->agent) && !l->next_signal && !l->is_unread;
    return others && !l->has_ended_well && is_outlived(l, rank) &&
           rpi_launch_restarts(l->options->restarts, l->processes[rank].generation, status) &&
           !is_run_over(l);
}

/* Ends what the rank has left running, which must not meet the others in its place. Once there
 * is a new process, only its end counts, even if it cannot run the program. */
static bool restart(rpi_launch_run *l, int rank) {
    rpi_rank_process *process = &l->processes[rank];
    if (process->group) kill(-process->group, SIGKILL);
    for (int i = 0; i < RPI_RANK_STREAMS; i++)
        rpi_launch_finish_output(l, rank * RPI_RANK_STREAMS + i);
    process->generation++;
    (void)rpi_launch_start_rank(l, rank);
    return process->pid != 0;
}

/* Tells servers without another worker whether to wait for this one. */
static void tell_fate(const rpi_launch_run *l, int rank, bool again) {
    rp_store store;
    if (!l->options->restarts || l->stop_signal || !open_store(l, &store)) return;
    (void)rpi_return_note_fate(&store, l->world.first_rank + rank, again);
    rp_store_close(&store);
}

void rpi_launch_tell_end(rpi_launch_run *l, int rank, const char *how) {
    rp_store store;
    if (l->has_told_end || l->stop_signal || !(l->alive > 0 || l->agent)) return;
    l->has_told_end = true;
    if (!open_store(l, &store)) return;
    (void)rpi_launch_note_end(&store, rank, how);
    rp_store_close(&store);
}

/* Have the others gone on without it, or ended well, in any order? A restarted rank is not one
 * of them before they have taken it back; from then on its failure is theirs, too. */
static bool is_left_behind(const rpi_launch_run *l, int rank, int status) {
    if (l->first.rank >= 0 || (l->alive == 0 && !l->has_ended_well)) return false;
    if (l->processes[rank].generation > 0) return true;
    return WIFSIGNALED(status) && is_outlived(l, rank);
}

static const char *what_of_the_others(const rpi_launch_run *l, bool again) {
    if (again) return "it is started again, and the others may go on";
    return l->alive > 0 ? "the others may go on" : "the others have ended";
}

void rpi_launch_rank_ended(rpi_launch_run *l, int rank, int status) {
    char how[80];
    int generation = l->processes[rank].generation;
    l->processes[rank].pid = 0;
    l->alive--;
    bool again = status != 0 && may_restart(l, rank, status) && restart(l, rank);
    if (status != 0 && l->alive > 0) tell_fate(l, rank, again);
    if (!again)
        rpi_launch_tell_end(l, l->world.first_rank + rank,
                            rpi_ending_text(status, how, sizeof how));
    /* Where the agent was killed its ranks are killed for that reason, which its launcher
     * reports. */
    if (l->agent && !rpi_guard_is_orphan())
        rpi_agent_ended(l->agent, &(rpi_ending){.rank = l->world.first_rank + rank,
                                                .status = status,
                                                .was_told = l->has_told,
                                                .generation = generation,
                                                .is_again = again});
    l->has_ended_well |= status == 0;
    if (status == 0) return;
    if (again || is_left_behind(l, rank, status)) {
        if (!l->agent) /* the launcher says it */
            rpi_launch_say(l, "rank %d %s; %s", rank, rpi_ending_text(status, how, sizeof how),
                           what_of_the_others(l, again));
        return;
    }
    /* A death that is no failure does not explain the failure of another rank. */
    bool explains = l->first.rank < 0 || !WIFSIGNALED(status) || !may_die(l, rank);
    if (explains) rpi_first_failure_note(&l->first, rank, status, l->has_told);
    if (rpi_first_failure_is_due(&l->first)) rpi_launch_name_first(l);
    if (has_had_enough(l, l->first.status)) rpi_launch_signal_all(l, SIGKILL);
    rpi_launch_count_down(l, SIGTERM, rpi_launch_grace_s(l));
}

void rpi_launch_take_output(rpi_launch_run *l, int stream, bool all) {
    if (l->agent)
        relay(l, stream, all);
    else
        rpi_rank_output_take(&l->outputs[stream]);
}
