/* What the control groups of a process allow: the tightest of its own group and all groups
 * above it, in version 1 and 2 of control groups, which may be mounted side by side. In a
 * container groups above its own are out of sight. */
#ifndef RPI_BASE_CGROUP_LIMITS_H
#define RPI_BASE_CGROUP_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

/* What one group allows, by the files of its folder; INFINITY: anything. unified: version 2. */
typedef double (*rpi_group_limit)(const char *root, const char *folder, bool unified);

/* The least of all groups of a process; INFINITY: no limit that can be seen. pid: 0 is this
 * process. controller: "cpu", by which version 1 names its hierarchies. root: "" but in tests,
 * the folder in which /proc and the mounted hierarchies are looked up. */
double rpi_control_groups_least(const char *root, int64_t pid, const char *controller,
                                rpi_group_limit limit);

/* The first two numbers of a group's file, and how many there were; "max" is no number. */
int rpi_control_group_numbers(const char *root, const char *folder, const char *name,
                              double *first, double *second);

#endif
