#include "cli/descendants.h"

#include "base/clock.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PASS_NS (RPI_SECOND_NS / 500)
#define LIMIT_S 5.0

void rpi_descendants_adopt(void) {
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* since Linux 3.4 */
}

/* 0: it has ended, or cannot be looked at. */
static pid_t parent_of(pid_t pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    /* "123 (any name) S 45 ...": a name may hold parentheses, the last one ends it. */
    const char *name_end = strrchr(text, ')');
    return name_end && strlen(name_end) > 4 ? (pid_t)strtol(name_end + 4, NULL, 10) : 0;
}

static bool kill_children(void) {
    DIR *folder = opendir("/proc");
    if (!folder) return false;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid > 0 && parent_of(pid) == getpid()) kill(pid, SIGKILL);
    }
    closedir(folder);
    return true;
}

static bool has_children(void) {
    pid_t pid;
    do pid = waitpid(-1, NULL, WNOHANG);
    while (pid > 0);
    return pid == 0;
}

void rpi_descendants_kill(void) {
    int64_t deadline_ns = rpi_deadline_ns(LIMIT_S);
    while (has_children() && rpi_now_ns() < deadline_ns && kill_children())
        rpi_sleep_until_ns(rpi_now_ns() + PASS_NS);
}
