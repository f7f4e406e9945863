#include "cli/stopped_group.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS_MAX = 4096 };

typedef struct member {
    pid_t pid, parent;
    char state; /* of the kernel: R runs, D waits for a disk, S sleeps, T is stopped */
} member;

static bool read_member(const char *name, pid_t group, member *out_member) {
    char path[300], text[512];
    int of = 0, parent = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", name);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    /* "123 (any name) S 45 44 ...": a name may hold parentheses, the last one ends it. */
    const char *name_end = strrchr(text, ')');
    if (!name_end || sscanf(name_end + 1, " %c %d %d", &out_member->state, &parent, &of) != 3)
        return false;
    out_member->pid = (pid_t)strtol(name, NULL, 10);
    out_member->parent = (pid_t)parent;
    return of == (int)group && out_member->state != 'Z' && out_member->state != 'X';
}

static int list_members(pid_t group, member *members, int most) {
    DIR *folder = opendir("/proc");
    const struct dirent *entry;
    int count = 0;
    if (!folder) return 0;
    while (count < most && (entry = readdir(folder)) != NULL)
        if (*entry->d_name >= '1' && *entry->d_name <= '9')
            count += read_member(entry->d_name, group, &members[count]);
    closedir(folder);
    return count;
}

static bool has_child(const member *members, int count, pid_t pid) {
    for (int i = 0; i < count; i++)
        if (members[i].parent == pid) return true;
    return false;
}

bool rpi_group_is_stopped(pid_t group) {
    static member members[MEMBERS_MAX];
    int count = list_members(group, members, MEMBERS_MAX), stopped = 0;
    for (int i = 0; i < count; i++) {
        stopped += members[i].state == 'T';
        if (members[i].state == 'T' || has_child(members, count, members[i].pid)) continue;
        if (members[i].state == 'R' || members[i].state == 'D') return false;
    }
    return stopped > 0;
}
