#include "base/cgroup_limits.h"

#include "base/c_locale.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* A hierarchy of control groups as it is mounted here. */
typedef struct mount {
    bool found;
    char top[PATH_BYTES], point[PATH_BYTES]; /* the group that is mounted, and where */
} mount;

static FILE *open_below(const char *root, const char *path, const char *name) {
    char whole[3 * PATH_BYTES];
    snprintf(whole, sizeof whole, "%s%s/%s", root, path, name);
    return fopen(whole, "re");
}

/* "cpu" in "rw,cpu,cpuacct", but not in "rw,cpuacct". */
static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; *at; at += *at == ',') {
        size_t here = strcspn(at, ",");
        if (here == length && strncmp(at, word, length) == 0) return true;
        at += here;
    }
    return false;
}

/* The kernel writes a blank in a path as \040. */
static void unescape(const char *from, char to[PATH_BYTES]) {
    size_t used = 0;
    while (*from && used + 1 < PATH_BYTES) {
        unsigned byte = 0;
        bool escaped = *from == '\\' && strspn(from + 1, "01234567") >= 3;
        for (int i = 1; escaped && i <= 3; i++) byte = byte * 8 + (unsigned)(from[i] - '0');
        to[used++] = escaped ? (char)byte : *from;
        from += escaped ? 4 : 1;
    }
    to[used] = '\0';
}

/* Is `path` this group, or below it? */
static bool is_within(const char *path, const char *group) {
    size_t length = strlen(group);
    if (strcmp(group, "/") == 0) return true;
    return strncmp(path, group, length) == 0 && (!path[length] || path[length] == '/');
}

/* A line of mountinfo, 36 35 98:0 TOP POINT rw shared:1 - cgroup cgroup rw,cpu: of the
 * hierarchy that is looked for? controller NULL: the unified one. */
static bool read_mount(char *line, const char *controller, mount *out) {
    char *fields[5] = {NULL}, *rest = NULL, *tail = strstr(line, " - ");
    char type[32] = "", options[PATH_BYTES] = "";
    if (!tail || sscanf(tail, " - %31s %*s %4095s", type, options) < 1) return false;
    if (strcmp(type, controller ? "cgroup" : "cgroup2") != 0) return false;
    if (controller && !has_word(options, controller)) return false;
    *tail = '\0';
    for (int i = 0; i < 5; i++)
        if (!(fields[i] = strtok_r(i ? NULL : line, " ", &rest))) return false;
    unescape(fields[3], out->top);
    unescape(fields[4], out->point);
    return out->found = true;
}

/* One that shows the group `path`, else any: a group that is mounted nowhere is below one that
 * is. */
static mount find_mount(const char *root, const char *controller, const char *path) {
    mount best = {.found = false}, next = {.found = false};
    FILE *file = open_below(root, "/proc/self", "mountinfo");
    char *line = NULL;
    size_t bytes = 0;
    while (file && getline(&line, &bytes, file) > 0) {
        if (!read_mount(line, controller, &next)) continue;
        if (!best.found || (!is_within(path, best.top) && is_within(path, next.top)))
            best = next;
    }
    free(line);
    if (file) fclose(file);
    return best;
}

int rpi_control_group_numbers(const char *root, const char *folder, const char *name,
                              double *first, double *second) {
    FILE *file = open_below(root, folder, name);
    char line[64] = "", *at = line, *end = NULL;
    double *const numbers[] = {first, second};
    int count = 0;
    if (file && !fgets(line, sizeof line, file)) line[0] = '\0';
    if (file) fclose(file);
    for (; count < 2; count++, at = end) {
        double number = rpi_strtod(at, &end);
        if (end == at) break;
        *numbers[count] = number;
    }
    return count;
}

/* Of a group and all above it, as far up as is mounted. */
static double tightest(const char *root, const char *controller, const char *path,
                       rpi_group_limit limit) {
    char folder[2 * PATH_BYTES];
    mount at = find_mount(root, controller, path);
    if (!at.found) return INFINITY;
    size_t top = strcmp(at.top, "/") == 0 ? 0 : strlen(at.top), point = strlen(at.point);
    bool shown = is_within(path, at.top) && !strstr(path, "/..");
    snprintf(folder, sizeof folder, "%s%s", at.point, shown ? path + top : "");
    double least = INFINITY;
    while (strlen(folder) > point) {
        least = fmin(least, limit(root, folder, !controller));
        *strrchr(folder, '/') = '\0';
    }
    return fmin(least, limit(root, at.point, !controller));
}

/* A line of /proc/PID/cgroup, 3:cpu,cpuacct:/PATH or 0::/PATH. */
static double limit_of_line(const char *root, char *line, const char *controller,
                            rpi_group_limit limit) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path || path[1] != '/' || strlen(path + 1) >= PATH_BYTES) return INFINITY;
    *path++ = '\0';
    bool unified = strcmp(line, "0:") == 0;
    if (!unified && !has_word(controllers + 1, controller)) return INFINITY;
    return tightest(root, unified ? NULL : controller, path, limit);
}

double rpi_control_groups_least(const char *root, int64_t pid, const char *controller,
                                rpi_group_limit limit) {
    char folder[64] = "/proc/self", *line = NULL;
    size_t bytes = 0;
    double least = INFINITY;
    if (pid > 0) snprintf(folder, sizeof folder, "/proc/%" PRId64, pid);
    FILE *file = open_below(root, folder, "cgroup");
    while (file && getline(&line, &bytes, file) > 0)
        least = fmin(least, limit_of_line(root, line, controller, limit));
    free(line);
    if (file) fclose(file);
    return least;
}
