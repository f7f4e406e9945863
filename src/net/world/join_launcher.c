/* Which process started this rank? If a launcher gives its job no name, the ranks of a host
 * have its process in common. */
#include "net/world/join.h"

#include "base/cpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Variables by which launchers mark each rank. Hydra below a rank of another Hydra has that
 * one's variables; its own ranks have other descriptors. */
static const char *const marks[] = {"PMI_RANK", "PMI_FD", "OMPI_COMM_WORLD_RANK",
                                    "SLURM_PROCID"};
enum { MARKS = sizeof marks / sizeof marks[0] };

static FILE *open_proc(int64_t pid, const char *file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/%s", pid, file);
    return fopen(path, "re");
}

/* Is this NAME=VALUE a mark of ours? */
static bool is_mark(const char *entry) {
    for (int i = 0; i < MARKS; i++) {
        const char *value = getenv(marks[i]);
        size_t length = strlen(marks[i]);
        if (value && strncmp(entry, marks[i], length) == 0 && entry[length] == '=' &&
            strcmp(entry + length + 1, value) == 0)
            return true;
    }
    return false;
}

/* Did this process start with our marks? */
static bool is_of_this_rank(int64_t pid) {
    int expected = 0, found = 0;
    char *entry = NULL;
    size_t bytes = 0;
    for (int i = 0; i < MARKS; i++) expected += getenv(marks[i]) != NULL;
    FILE *file = expected ? open_proc(pid, "environ") : NULL;
    if (!file) return false;
    while (getdelim(&entry, &bytes, '\0', file) > 0) found += is_mark(entry);
    free(entry);
    fclose(file);
    return found == expected;
}

static int64_t parent_of(int64_t pid) {
    char line[256];
    int64_t parent = 0;
    FILE *file = open_proc(pid, "status");
    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "PPid: %" SCNd64, &parent) == 1) break;
    fclose(file);
    return parent;
}

int64_t rpi_launcher_pid(void) {
    int64_t pid = getppid();
    while (pid > 1 && is_of_this_rank(pid)) pid = parent_of(pid);
    return pid;
}

int rpi_host_cores(void) {
    int own = rpi_cpu_count(), launcher = rpi_cpu_count_of(rpi_launcher_pid());
    return launcher > own ? launcher : own;
}
