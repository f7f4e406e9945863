#include "net/bytes/descriptor_limit.h"

#include "base/lacking.h"

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

/* -1: unknown. */
static long count_open(void) {
    DIR *folder = opendir("/proc/self/fd");
    long count = -1; /* the folder's own */
    if (!folder) return -1;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

rp_status rpi_descriptors_check(int rank, int world, long needed) {
    struct rlimit limit;
    long open = count_open();
    rpi_lacking_note_world(world, needed + (open > 0 ? open : 0));
    if (open < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        (rlim_t)(open + needed) <= limit.rlim_cur)
        return RP_OK;
    long wanted = (open + needed + 1023) / 1024 * 1024;
    bool allowed = limit.rlim_max == RLIM_INFINITY || (rlim_t)wanted <= limit.rlim_max;
    return RP_FAIL(IO,
                   "rank %d of %d needs about %ld more open files, has %ld, and may have %llu: "
                   "raise the limit where ranks are started, by `ulimit -n %ld`%s",
                   rank, world, needed, open, (unsigned long long)limit.rlim_cur, wanted,
                   allowed ? "" : " once the host's hard limit allows it (limits.conf)");
}
