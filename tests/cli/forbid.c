/* forbid ERRNO CALL... -- COMMAND...: runs a command to which the kernel answers these system
 * calls (names of the table, or numbers) with ERRNO, as the seccomp profile of a container
 * does. 77: it cannot. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { MOST = 32 };

#define CALL(name)                                                                             \
    { #name, SYS_##name }
static const struct call {
    const char *name;
    unsigned number;
} calls[] = {
    CALL(memfd_create),
    CALL(getrandom),
    CALL(accept4),
    CALL(eventfd2),
    CALL(signalfd4),
    CALL(epoll_create1),
    CALL(set_mempolicy),
    CALL(sched_setaffinity),
    CALL(setpriority),
    CALL(prctl),
    CALL(ppoll),
    CALL(fallocate),
    CALL(madvise),
    CALL(process_vm_readv),
    CALL(sched_getaffinity),
    CALL(mbind),
    CALL(getpriority),
    CALL(prlimit64),
};

static unsigned number_of(const char *text) {
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (strcmp(calls[i].name, text) == 0) return calls[i].number;
    return (unsigned)atoi(text);
}

int main(int argc, char **argv) {
    struct sock_filter rules[2 * MOST + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short count = 1;
    int at = 2;
    for (; at < argc && strcmp(argv[at], "--") != 0 && at < MOST; at++) {
        unsigned call = number_of(argv[at]), error = (unsigned)atoi(argv[1]);
        rules[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
        rules[count++] =
            (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
    }
    if (at + 1 >= argc || strcmp(argv[at], "--") != 0) return 2;
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = count, .filter = rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("forbid: seccomp");
        return 77;
    }
    execvp(argv[at + 1], argv + at + 1);
    perror(argv[at + 1]);
    return 127;
}
