#include "cli/report/output_file.h"

#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A device or a pipe cannot be replaced by a file beside it. */
static bool is_special(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0 && !S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode);
}

static rp_status name_aside(rpi_output_file *file) {
    size_t bytes = strlen(file->path) + 32;
    RP_TRY(rpi_alloc(bytes, "a file name", &file->aside));
    snprintf(file->aside, bytes, "%s.part-%ld", file->path, (long)getpid());
    return RP_OK;
}

static rp_status open_stream(rpi_output_file *file) {
    struct stat facts;
    if (stat(file->path, &facts) == 0 && S_ISDIR(facts.st_mode))
        return RP_FAIL(IO, "cannot write %s: it is a folder", file->path);
    bool direct = is_special(file->path);
    if (!direct) RP_TRY(name_aside(file));
    const char *target = direct ? file->path : file->aside;
    int flags = O_WRONLY | O_CLOEXEC | (direct ? 0 : O_CREAT | O_TRUNC | O_NOFOLLOW);
    int descriptor = open(target, flags, 0666);
    if (descriptor < 0) return RP_FAIL_ERRNO(IO, "cannot write %s", file->path);
    file->stream = fdopen(descriptor, "w");
    if (file->stream) return RP_OK;
    close(descriptor);
    return RP_FAIL_ERRNO(IO, "cannot write %s", file->path);
}

rp_status rpi_output_open(const char *path, rpi_output_file *out_file) {
    rpi_output_file file = {0};
    RP_TRY(rpi_strdup(path, &file.path));
    rp_status status = open_stream(&file);
    if (status != RP_OK) {
        rpi_free(file.aside);
        rpi_free(file.path);
        return status;
    }
    *out_file = file;
    return RP_OK;
}

rp_status rpi_output_finish(rpi_output_file *file) {
    if (!file->stream) return RP_OK;
    bool written = !ferror(file->stream) && fflush(file->stream) == 0;
    int reason = errno;
    bool closed = fclose(file->stream) == 0;
    file->stream = NULL;
    if (written && closed) return RP_OK;
    if (!written) errno = reason;
    return RP_FAIL_ERRNO(IO, "cannot write %s", file->path);
}

static void forget(rpi_output_file *file) {
    rpi_free(file->aside);
    rpi_free(file->path);
    *file = (rpi_output_file){0};
}

rp_status rpi_output_commit(rpi_output_file *file) {
    rp_status status = rpi_output_finish(file);
    if (status == RP_OK && file->aside && rename(file->aside, file->path) != 0)
        status = RP_FAIL_ERRNO(IO, "cannot write %s", file->path);
    if (status == RP_OK)
        forget(file);
    else
        rpi_output_discard(file);
    return status;
}

void rpi_output_discard(rpi_output_file *file) {
    if (file->stream) fclose(file->stream);
    if (file->aside) unlink(file->aside);
    forget(file);
}

rp_status rpi_output_folder(const char *path) {
    char *copy = NULL;
    RP_TRY(rpi_strdup(path, &copy));
    rp_status status = RP_OK;
    for (char *slash = strchr(copy + 1, '/'); status == RP_OK; slash = strchr(slash + 1, '/')) {
        if (slash) *slash = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            status = RP_FAIL_ERRNO(IO, "cannot make the folder %s", copy);
        if (!slash) break;
        *slash = '/';
    }
    struct stat facts;
    if (status == RP_OK && (stat(path, &facts) != 0 || !S_ISDIR(facts.st_mode)))
        status = RP_FAIL(IO, "%s is not a folder", path);
    rpi_free(copy);
    return status;
}
