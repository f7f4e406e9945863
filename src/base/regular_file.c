#include "base/regular_file.h"

#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "folder";
    if (S_ISFIFO(mode)) return "named pipe";
    if (S_ISSOCK(mode)) return "socket";
    return "device";
}

static rp_status check_kind(const char *path, const struct stat *facts) {
    if (S_ISREG(facts->st_mode)) return RP_OK;
    return RP_FAIL(CORRUPT, "%s is a %s, not a regular file", path, kind_of(facts->st_mode));
}

/* What `git clone` leaves in the place of a large file where Git LFS is not installed. */
static rp_status check_pointer(const char *path, int fd, off_t bytes) {
    static const char signature[] = "version https://git-lfs.github.com/spec/";
    enum { LENGTH = sizeof signature - 1, LONGEST = 1024 };
    char begin[LENGTH];
    if (bytes < LENGTH || bytes > LONGEST || pread(fd, begin, LENGTH, 0) != LENGTH ||
        memcmp(begin, signature, LENGTH) != 0)
        return RP_OK;
    return RP_FAIL(CORRUPT,
                   "%s is a pointer of Git LFS, not the file itself: fetch it with 'git lfs "
                   "pull' in its repository",
                   path);
}

/* Asked before opening, which is an action of its own on a device; and again of what was
 * opened, which may be another file by then. */
rp_status rpi_regular_file_descriptor(const char *path, int *out_fd, int64_t *out_bytes) {
    struct stat facts;
    if (stat(path, &facts) != 0)
        return errno == ENOENT ? RP_FAIL(NOT_FOUND, "%s is missing", path)
                               : RP_FAIL_ERRNO(IO, "cannot open %s", path);
    RP_TRY(check_kind(path, &facts));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return RP_FAIL_ERRNO(IO, "cannot open %s", path);
    rp_status status = RP_OK;
    if (fstat(fd, &facts) != 0)
        status = RP_FAIL_ERRNO(IO, "cannot read %s", path);
    else
        status = check_kind(path, &facts);
    if (status == RP_OK) status = check_pointer(path, fd, facts.st_size);
    if (status != RP_OK) {
        close(fd);
        return status;
    }
    *out_fd = fd;
    *out_bytes = facts.st_size;
    return RP_OK;
}

static rp_status stream_of(int fd, const char *mode, const char *path, FILE **out_stream) {
    FILE *stream = fdopen(fd, mode);
    if (!stream) {
        rp_status status = RP_FAIL_ERRNO(IO, "cannot open %s", path);
        close(fd);
        return status;
    }
    *out_stream = stream;
    return RP_OK;
}

rp_status rpi_regular_file_open(const char *path, FILE **out_stream, int64_t *out_bytes) {
    int fd = -1;
    RP_TRY(rpi_regular_file_descriptor(path, &fd, out_bytes));
    return stream_of(fd, "rb", path, out_stream);
}

rp_status rpi_regular_file_read(const char *path, size_t most, char **out_text,
                                size_t *out_bytes) {
    FILE *stream = NULL;
    int64_t size = 0;
    RP_TRY(rpi_regular_file_open(path, &stream, &size));
    char *text = NULL;
    size_t bytes = 0;
    rp_status status = RP_OK;
    if ((uint64_t)size > most)
        status = RP_FAIL(CORRUPT, "%s has %lld bytes; %zu are the most", path, (long long)size,
                         most);
    if (status == RP_OK) status = rpi_alloc((size_t)size + 1, path, &text);
    if (status == RP_OK) {
        bytes = fread(text, 1, (size_t)size, stream);
        if (ferror(stream)) status = RP_FAIL_ERRNO(IO, "cannot read %s", path);
    }
    fclose(stream);
    if (status != RP_OK) {
        rpi_free(text);
        return status;
    }
    *out_text = text;
    *out_bytes = bytes;
    return RP_OK;
}

rp_status rpi_regular_file_write(const char *path, const char *mode, FILE **out_stream) {
    int how = mode[0] == 'a' ? O_APPEND : O_TRUNC;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | how, 0666);
    if (fd < 0) return RP_FAIL_ERRNO(IO, "cannot write %s", path);
    return stream_of(fd, mode, path, out_stream);
}

/* A rename is only certain once the folder has reached the disk as well. */
static rp_status sync_folder(const char *path) {
    char folder[RPI_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1,
             slash ? path : ".");
    int fd = open(*folder ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return RP_FAIL_ERRNO(IO, "cannot open the folder %s", folder);
    /* Some file systems cannot sync a folder; the rename is then as safe as they make it. */
    int failed = fsync(fd) != 0 && errno != EINVAL;
    rp_status status = failed ? RP_FAIL_ERRNO(IO, "cannot write the folder %s", folder) : RP_OK;
    close(fd);
    return status;
}

rp_status rpi_replacement_open(const char *path, rpi_replacement *out_replacement) {
    rpi_replacement r = {0};
    if (snprintf(r.aside, sizeof r.aside, "%s.tmp", path) >= (int)sizeof r.aside)
        return RP_FAIL(INVALID, "the path %s is too long", path);
    snprintf(r.path, sizeof r.path, "%s", path);
    RP_TRY(rpi_regular_file_write(r.aside, "wb", &r.stream));
    *out_replacement = r;
    return RP_OK;
}

rp_status rpi_replacement_close(rpi_replacement *r, rp_status status) {
    /* What an earlier write could not put down is in no buffer any more. */
    if (status == RP_OK && ferror(r->stream))
        status = RP_FAIL(IO, "cannot write %s; is the disk full?", r->path);
    if (status == RP_OK && (fflush(r->stream) != 0 || fsync(fileno(r->stream)) != 0))
        status = RP_FAIL_ERRNO(IO, "cannot write %s", r->path);
    if (fclose(r->stream) != 0 && status == RP_OK)
        status = RP_FAIL_ERRNO(IO, "cannot write %s", r->path);
    if (status == RP_OK && rename(r->aside, r->path) != 0)
        status = RP_FAIL_ERRNO(IO, "cannot rename %s to %s", r->aside, r->path);
    if (status != RP_OK) unlink(r->aside);
    return status == RP_OK ? sync_folder(r->path) : status;
}
