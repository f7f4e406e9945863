/* Hosts that are silent, and ranks that will not end by themselves. */
#include "cli/hosts/host_launch.h"

#include "base/clock.h"

/* Added to the time for hosts: an agent reports every second. */
#define SILENCE_SLACK_S 5.0

/* A stopped agent, whose kernel and ssh answer for it; or, if the remote shell does not check
 * the other host, one that is cut off. */
void rpi_hosts_watch_silence(rpi_host_launch *launch) {
    double silence_s = launch->options->shell.lost_s + SILENCE_SLACK_S;
    for (int i = 0; i < launch->hosts; i++) {
        rpi_remote *remote = &launch->remotes[i];
        if (remote->state != RPI_HOST_RUNNING || remote->alive == 0 ||
            rpi_seconds(rpi_now_ns() - remote->heard_ns) < silence_s)
            continue;
        rpi_hosts_say(launch,
                      "%s has said nothing for %.0f s: its agent is stopped, or it is "
                      "cut off",
                      remote->host->name, silence_s);
        rpi_hosts_end(launch, remote);
    }
}

static int idle_ranks(const rpi_host_launch *launch, bool *out_stopped) {
    int idle = 0;
    *out_stopped = false;
    for (int i = 0; i < launch->hosts; i++) {
        if (launch->remotes[i].alive == 0) continue;
        idle += launch->remotes[i].idle;
        *out_stopped |= launch->remotes[i].has_stopped;
    }
    return idle;
}

/* As on one host (idle_ranks.c): the agents name and end theirs. */
void rpi_hosts_watch_idle(rpi_host_launch *launch) {
    int alive = rpi_hosts_alive(launch);
    bool stopped = false;
    if (!rpi_hosts_survive(launch) || !launch->has_ended_well || alive == 0 ||
        idle_ranks(launch, &stopped) < alive) {
        launch->idle_ns = 0;
        return;
    }
    if (!launch->idle_ns) launch->idle_ns = rpi_now_ns();
    double limit_s = stopped ? launch->options->grace_s : RPI_AGENT_BEAT_S;
    if (rpi_seconds(rpi_now_ns() - launch->idle_ns) < limit_s) return;
    rpi_hosts_tell(launch, RPI_AGENT_FORGO, 0);
    launch->idle_ns = 0;
}
