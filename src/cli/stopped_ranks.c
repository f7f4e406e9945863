/* Ranks that are stopped when the others have ended well. */
#include "cli/launch.h"

#include "base/clock.h"
#include "cli/stopped_group.h"

#include <signal.h>

#define LOOK_S 0.5

int rpi_launch_count_stopped(const rpi_launch_run *l) {
    int count = 0;
    for (int rank = 0; rank < l->ranks; rank++)
        count += l->processes[rank].pid && rpi_group_is_stopped(l->processes[rank].group);
    return count;
}

void rpi_launch_kill_stopped(rpi_launch_run *l) {
    for (int rank = 0; rank < l->ranks; rank++) {
        const rpi_rank_process *process = &l->processes[rank];
        if (!process->pid || !rpi_group_is_stopped(process->group)) continue;
        rpi_launch_say(l, "rank %d is stopped, and the others have ended well: it is killed",
                       l->world.first_rank + rank);
        kill(-process->group, SIGKILL);
    }
}

static bool is_watching(const rpi_launch_run *l) {
    return !l->agent && l->options->outlives_deaths && l->has_ended_well && l->alive > 0 &&
           !l->next_signal;
}

void rpi_launch_watch_stopped(rpi_launch_run *l) {
    rpi_stopped_watch *watch = &l->stopped;
    int64_t now_ns = rpi_now_ns();
    if (!is_watching(l) || now_ns < watch->look_ns) return;
    watch->look_ns = rpi_deadline_ns(LOOK_S);
    if (rpi_launch_count_stopped(l) < l->alive) {
        watch->since_ns = 0;
        return;
    }
    if (!watch->since_ns) watch->since_ns = now_ns;
    if (rpi_seconds(now_ns - watch->since_ns) < rpi_launch_grace_s(l)) return;
    rpi_launch_kill_stopped(l);
    watch->since_ns = 0;
}

int64_t rpi_launch_stopped_due_ns(const rpi_launch_run *l) {
    return is_watching(l) ? l->stopped.look_ns : RPI_NEVER_NS;
}
