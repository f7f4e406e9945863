#include "base/memory_limit.h"

#include "base/cgroup_limits.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

static double limit_of(const char *root, const char *folder, bool unified) {
    double bytes = 0, unused = 0;
    const char *name = unified ? "memory.max" : "memory.limit_in_bytes";
    if (rpi_control_group_numbers(root, folder, name, &bytes, &unused) < 1) return INFINITY;
    return bytes > 0 ? bytes : INFINITY;
}

/* "MemTotal:       16332648 kB" is the first line. */
static double total(const char *root) {
    char path[4096];
    unsigned long long kib = 0;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    FILE *file = fopen(path, "re");
    if (!file) return INFINITY;
    bool found = fscanf(file, "MemTotal: %llu kB", &kib) == 1;
    fclose(file);
    return found && kib > 0 ? 1024.0 * (double)kib : INFINITY;
}

double rpi_memory_limit(const char *root) {
    return fmin(total(root), rpi_control_groups_least(root, 0, "memory", limit_of));
}

double rpi_memory_resident(void) {
    unsigned long long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return 0;
    bool found = fscanf(file, "%llu %llu", &size, &resident) == 2;
    fclose(file);
    return found ? (double)resident * (double)sysconf(_SC_PAGESIZE) : 0;
}
