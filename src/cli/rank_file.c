#include "cli/rank_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Opened without waiting for the reader of a named pipe; written as any file. */
rp_status rpi_rank_file_open(rpi_rank_file *file, const char *launcher, const char *folder,
                             int rank) {
    char path[PATH_MAX];
    *file = (rpi_rank_file){.launcher = launcher, .folder = folder, .rank = rank, .fd = -1};
    int length = snprintf(path, sizeof path, "%s/rank-%d.log", folder, rank);
    if (length >= (int)sizeof path)
        return RP_FAIL(
            IO, "cannot write rank %d's file: the path %.200s... is longer than %d bytes", rank,
            folder, PATH_MAX - 1);
    file->fd =
        open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (file->fd < 0) return RP_FAIL_ERRNO(IO, "cannot write rank %d's file %s", rank, path);
    fcntl(file->fd, F_SETFL, 0);
    return RP_OK;
}

static void give_up(rpi_rank_file *file, int error, const char *then) {
    fflush(stdout);
    fprintf(stderr, "%s: cannot write %s/rank-%d.log: %s; %s\n", file->launcher, file->folder,
            file->rank, strerror(error), then);
    file->has_failed = true;
}

static bool write_all(rpi_rank_file *file, const char *text, size_t bytes, size_t *out_done) {
    *out_done = 0;
    while (*out_done < bytes) {
        ssize_t written = write(file->fd, text + *out_done, bytes - *out_done);
        if (written > 0) *out_done += (size_t)written;
        if (written == 0) errno = ENOSPC;
        if (written == 0 || (written < 0 && errno != EINTR)) return false;
    }
    return true;
}

static bool ends_line(char last) {
    return last == '\n' || last == '\r';
}

/* How many of these bytes are whole lines; 0: none. */
static size_t whole_lines(const char *text, size_t bytes) {
    while (bytes > 0 && !ends_line(text[bytes - 1])) bytes--;
    return bytes;
}

size_t rpi_rank_file_write(rpi_rank_file *file, const void *writer, const char *text,
                           size_t bytes) {
    size_t done = 0;
    if (file->fd < 0 || bytes == 0) return 0;
    bool begins = file->is_in_line && file->writer != writer;
    bool written = !begins || write_all(file, "\n", 1, &done);
    if (written) written = write_all(file, text, bytes, &done);
    file->writer = writer;
    file->is_in_line = bytes > 0 && !ends_line(text[bytes - 1]);
    if (written) return bytes;
    give_up(file, errno, "what the rank prints from here on comes here");
    close(file->fd);
    file->fd = -1;
    return whole_lines(text, done);
}

void rpi_rank_file_end_writers(rpi_rank_file *file) {
    file->writer = NULL;
}

/* On network file systems close() may be the first call that fails. */
bool rpi_rank_file_close(rpi_rank_file *file) {
    int fd = file->fd;
    file->fd = -1;
    if (file->folder && fd >= 0 && close(fd) != 0)
        give_up(file, errno, "the last of what the rank has printed may be missing");
    return !file->has_failed;
}
