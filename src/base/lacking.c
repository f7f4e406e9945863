#include "base/lacking.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>

static atomic_int world_of_process;
static atomic_long descriptors_needed;

void rpi_lacking_note_world(int world, long descriptors) {
    if (descriptors < atomic_load(&descriptors_needed)) return; /* of the largest world */
    atomic_store(&world_of_process, world);
    atomic_store(&descriptors_needed, descriptors);
}

const char *rpi_lacking_call(int error) {
    bool is_forbidden = error == ENOSYS || error == EPERM || error == EACCES;
    return is_forbidden ? ", which a seccomp profile or an old kernel forbids: allow it" : "";
}

const char *rpi_lacking_threads(int error) {
    if (error == EPERM) return "; a seccomp profile forbids clone3(): allow it";
    if (error != EAGAIN) return "";
    return "; more threads and processes than are allowed (`ulimit -u`, or the pids limit of "
           "the container, says how many), or no memory for its stack (`ulimit -v`)";
}

static void open_files_text(char *text, size_t bytes) {
    struct rlimit limit;
    int world = atomic_load(&world_of_process);
    long needed = atomic_load(&descriptors_needed);
    unsigned long long most =
        getrlimit(RLIMIT_NOFILE, &limit) == 0 ? (unsigned long long)limit.rlim_cur : 0;
    unsigned long long wanted = ((unsigned long long)needed + most + 1024) / 1024 * 1024;
    int used = snprintf(text, bytes,
                        "; the %llu that this process may have are open: raise the limit where "
                        "it is started, by `ulimit -n %llu`",
                        most, wanted);
    if (world > 0 && used > 0 && (size_t)used < bytes)
        snprintf(text + used, bytes - (size_t)used,
                 " (a rank of %d needs about %ld, besides what the program opens)", world,
                 needed);
}

const char *rpi_lacking_text(int error, char *text, size_t bytes) {
    text[0] = '\0';
    if (error == EMFILE) open_files_text(text, bytes);
    if (error == ENFILE)
        snprintf(text, bytes,
                 "; the whole host's are open: sysctl fs.file-max is its limit, and `lsof` "
                 "says whose they are");
    if (error == ENOMEM)
        snprintf(text, bytes,
                 "; what the host, its container or this process may have (`free -h`, the "
                 "container's limit, `ulimit -v`) is used up: use less, or raise it");
    if (error == ENOBUFS)
        snprintf(
            text, bytes,
            "; the kernel has no memory for sockets: sysctl net.ipv4.tcp_mem is its limit");
    return text;
}
