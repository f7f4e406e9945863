#include "cli/cores.h"

#include "base/cpu.h"
#include "net/join.h"

#include <sched.h>

int rpi_share_of_cores(int own, int all, int local_ranks) {
    int share = (all > own ? all : own) / local_ranks;
    if (share > own) return own;
    return share > 0 ? share : 1;
}

int rpi_own_share_of_cores(int local_ranks) {
    cpu_set_t set;
    pid_t launcher = (pid_t)rpi_launcher_pid();
    int all = 0;
    if (launcher > 0 && sched_getaffinity(launcher, sizeof set, &set) == 0)
        all = CPU_COUNT(&set);
    return rpi_share_of_cores(rpi_cpu_count(), all, local_ranks);
}
