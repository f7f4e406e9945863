/* Other processes, as /proc shows them, and what our own may do. */
#ifndef HARNESS_PROCESS_H
#define HARNESS_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct process_look {
    char state; /* as in proc(5): R, S, T, Z, ... */
    pid_t parent, group;
} process_look;

/* False: there is no such process any more. */
bool process_look_at(pid_t pid, process_look *out);
/* Has it not ended? One that has is there until its parent has reaped it (which the first
 * process of a container may never do), as a zombie (Z) and, while it is reaped, as dead (X).
 */
bool process_runs(pid_t pid);
bool process_look_runs(const process_look *look);

/* From now on the kernel answers this system call of our own process with `error`, as it does
 * in containers with an old seccomp profile: for children of a test. False: it cannot. */
bool process_forbid(unsigned call, unsigned error);

/* What `run` returns in a child where it is given `error`; -1: the child did not exit. One that
 * returns PROCESS_CANNOT_FORBID, as process_forbid() was false, is skipped by name and counts
 * as 0. */
enum { PROCESS_CANNOT_FORBID = 77 };
int process_code_of(int (*run)(unsigned error), unsigned error);

#endif
