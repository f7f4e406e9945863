/* Ranks that will not end by themselves after the others have ended well. */
#include "cli/launch.h"

#include "base/clock.h"
#include "cli/stopped_group.h"

#include <signal.h>
#include <unistd.h>

#define LOOK_S  0.5
#define LEAVE_S 5.0 /* for one that is told to end */

/* Does a restarted rank wait to be taken back, by its last report? False for any other rank. */
static bool waits_to_return(rpi_rank_process *process) {
    char said;
    while (process->returns && read(process->returns, &said, 1) == 1) {
        process->is_back |= said == RPI_RETURN_DONE;
        process->waits |= said == RPI_RETURN_WAITS;
    }
    return process->waits && !process->is_back;
}

int rpi_launch_count_idle(rpi_launch_run *l, bool *out_stopped) {
    int count = 0;
    *out_stopped = false;
    for (int rank = 0; rank < l->ranks; rank++) {
        rpi_rank_process *process = &l->processes[rank];
        bool stopped = process->pid && rpi_group_is_stopped(process->group);
        count += process->pid && (stopped || waits_to_return(process));
        *out_stopped |= stopped;
    }
    return count;
}

static void end_one(rpi_launch_run *l, int rank) {
    rpi_rank_process *process = &l->processes[rank];
    int number = l->world.first_rank + rank;
    if (rpi_group_is_stopped(process->group)) {
        rpi_launch_say(l, "rank %d is stopped, and the others have ended well: it is killed",
                       number);
        kill(-process->group, SIGKILL);
    } else if (waits_to_return(process)) {
        rpi_launch_say(l,
                       "rank %d was started again, and the others have ended: the run is over, "
                       "and it is told to end",
                       number);
        kill(-process->group, SIGTERM);
        rpi_launch_count_down(l, SIGKILL, LEAVE_S);
    }
}

void rpi_launch_end_idle(rpi_launch_run *l) {
    for (int rank = 0; rank < l->ranks; rank++)
        if (l->processes[rank].pid) end_one(l, rank);
}

static bool is_watching(const rpi_launch_run *l) {
    return !l->agent && l->options->survives_deaths && l->has_ended_well && l->alive > 0 &&
           !l->next_signal;
}

void rpi_launch_watch_idle(rpi_launch_run *l) {
    rpi_idle_watch *watch = &l->idle;
    int64_t now_ns = rpi_now_ns();
    bool stopped = false;
    if (!is_watching(l) || now_ns < watch->look_ns) return;
    watch->look_ns = rpi_deadline_ns(LOOK_S);
    if (rpi_launch_count_idle(l, &stopped) < l->alive) {
        watch->since_ns = 0;
        return;
    }
    if (!watch->since_ns) watch->since_ns = now_ns;
    double limit_s = stopped ? rpi_launch_grace_s(l) : LOOK_S;
    if (rpi_seconds(now_ns - watch->since_ns) < limit_s) return;
    rpi_launch_end_idle(l);
    watch->since_ns = 0;
}

int64_t rpi_launch_idle_due_ns(const rpi_launch_run *l) {
    return is_watching(l) ? l->idle.look_ns : RPI_NEVER_NS;
}
