#include "harness/process.h"

#include "harness/check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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

bool process_forbid(unsigned call, unsigned error) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = sizeof rules / sizeof rules[0], .filter = rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int process_code_of(int (*run)(unsigned error), unsigned error) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(run(error));
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    if (WEXITSTATUS(status) != PROCESS_CANNOT_FORBID) return WEXITSTATUS(status);
    check_skip("no system call can be forbidden here");
    return 0;
}
