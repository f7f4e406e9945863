#include "harness/process.h"

#include <stdio.h>
#include <string.h>

bool process_look_at(pid_t pid, process_look *out) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    /* "123 (any name) S parent group ...": the last parenthesis ends the name. */
    const char *name_end = strrchr(text, ')');
    int parent, group;
    if (!name_end || sscanf(name_end + 1, " %c %d %d", &out->state, &parent, &group) != 3)
        return false;
    out->parent = parent;
    out->group = group;
    return true;
}

bool process_look_runs(const process_look *look) {
    return look->state != 'Z' && look->state != 'X';
}

bool process_runs(pid_t pid) {
    process_look look;
    return process_look_at(pid, &look) && process_look_runs(&look);
}
