#include "cli/cores.h"

#include "base/cpu.h"
#include "net/world/join.h"

int rpi_share_of_cores(int own, int all, int local_ranks) {
    int share = (all > own ? all : own) / local_ranks;
    if (share > own) return own;
    return share > 0 ? share : 1;
}

int rpi_own_share_of_cores(int local_ranks) {
    return rpi_share_of_cores(rpi_cpu_count(), rpi_cpu_count_of(rpi_launcher_pid()),
                              local_ranks);
}
