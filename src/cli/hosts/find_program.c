#include "cli/hosts/find_program.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_program(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode) && access(path, X_OK) == 0;
}

bool rpi_program_exists(const char *name) {
    char path[4096];
    const char *folders = getenv("PATH");
    if (strchr(name, '/')) return is_program(name);
    if (!folders) folders = "/bin:/usr/bin";
    for (const char *at = folders;; at++) {
        size_t length = strcspn(at, ":");
        int bytes =
            snprintf(path, sizeof path, "%.*s%s%s", (int)length, at, length ? "/" : "./", name);
        if (bytes < (int)sizeof path && is_program(path)) return true;
        at += length;
        if (!*at) return false;
    }
}

rp_status rpi_program_own(char *text, size_t bytes) {
    ssize_t length = readlink("/proc/self/exe", text, bytes - 1);
    if (length < 0)
        return RP_FAIL_ERRNO(IO, "cannot find this program's own file (is /proc mounted?)");
    text[length] = '\0';
    return RP_OK;
}
