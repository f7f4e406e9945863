#include "base/cpu_quota.h"

#include "base/cgroup_limits.h"

#include <math.h>

static double quota_of(const char *root, const char *folder, bool unified) {
    double quota = 0, period = 100000, unused = 0;
    if (unified) {
        if (rpi_control_group_numbers(root, folder, "cpu.max", &quota, &period) < 1)
            return INFINITY;
    } else {
        if (rpi_control_group_numbers(root, folder, "cpu.cfs_quota_us", &quota, &unused) < 1)
            return INFINITY;
        (void)rpi_control_group_numbers(root, folder, "cpu.cfs_period_us", &period, &unused);
    }
    return quota > 0 && period > 0 ? quota / period : INFINITY;
}

double rpi_cpu_quota(const char *root, int64_t pid) {
    return rpi_control_groups_least(root, pid, "cpu", quota_of);
}
