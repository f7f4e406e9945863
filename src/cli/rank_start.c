/* Starts a process for a rank. */
#include "cli/file_limit.h"
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_words(const char *words) {
    ssize_t written = write(STDERR_FILENO, words, strlen(words));
    (void)written; /* nobody reads: the rank will notice */
}

/* In the child, system calls only. */
static void bind_rank(const rpi_launch_run *l, const rpi_bind_share *share) {
    bool is_bound = !l->host.is_made_up && rpi_bind_self(share);
    if (!l->options->reports_bindings) return;
    write_words(is_bound             ? "bound to "
                : l->host.is_made_up ? "on a host that is made up, would be bound to "
                                     : "the kernel does not allow all of this: bound to ");
    write_words(share->text);
    write_words("\n");
}

/* In the child, system calls only. Errors go up the pipe; a successful exec closes it. */
static void become_rank(const rpi_launch_run *l, int rank, const int *streams, int report,
                        pid_t parent, const rpi_bind_share *share) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127); /* it died before we asked to be told */
    /* One reader at most: rank 0, and not from a terminal, where its group is in the
     * background. */
    if (rank != 0 || l->agent || isatty(STDIN_FILENO)) {
        int null = open("/dev/null", O_RDONLY);
        if (null >= 0) dup2(null, STDIN_FILENO);
        if (null > STDERR_FILENO) close(null);
    }
    if (streams[0] >= 0) dup2(streams[0], STDOUT_FILENO);
    if (streams[1] >= 0) dup2(streams[1], STDERR_FILENO);
    if (l->options->binding != RPI_BIND_NONE) bind_rank(l, share);
    if (l->processes[rank].return_end) fcntl(l->processes[rank].return_end, F_SETFD, 0);
    rpi_file_limit_restore();
    sigprocmask(SIG_SETMASK, &l->mask_before, NULL);
    if (l->options->path)
        execve(l->options->path, l->options->argv, l->environment);
    else
        execvpe(l->options->argv[0], l->options->argv, l->environment);
    int error = errno;
    ssize_t written = write(report, &error, sizeof error);
    (void)written;
    _exit(127);
}

static bool is_piped(const rpi_launch_run *l, int rank) {
    return l->options->output == RPI_LAUNCH_PREFIX || l->options->output == RPI_LAUNCH_FILES ||
           (l->options->output == RPI_LAUNCH_PREFIX_OTHERS && rank > 0);
}

void rpi_launch_close_fds(int *fds, int count) {
    for (int i = 0; i < count; i++) {
        if (fds[i] >= 0) close(fds[i]);
        fds[i] = -1;
    }
}

static rp_status open_file(rpi_launch_run *l, int rank) {
    rpi_rank_output *outputs = &l->outputs[rank * RPI_RANK_STREAMS];
    rpi_rank_file *file = &l->files[rank];
    if (outputs->file) { /* a rank that was started again writes on */
        rpi_rank_file_end_writers(file);
        return RP_OK;
    }
    RP_TRY(
        rpi_rank_file_open(file, l->options->name, l->options->output_folder, outputs->rank));
    for (int i = 0; i < RPI_RANK_STREAMS; i++) outputs[i].file = file;
    return RP_OK;
}

/* For a rank that may be restarted: a pipe for each of its processes. */
static rp_status open_return(rpi_rank_process *process) {
    int pair[2];
    struct stat facts;
    process->waits = process->is_back = false;
    if (process->generation == 0) return RP_OK;
    if (process->returns) close(process->returns);
    process->returns = 0;
    if (pipe2(pair, O_CLOEXEC) != 0) return RP_FAIL_ERRNO(IO, "cannot make a pipe");
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    process->returns = pair[0];
    process->return_end = pair[1];
    process->pipe = fstat(pair[1], &facts) == 0 ? (unsigned long)facts.st_ino : 0;
    return RP_OK;
}

static void close_return_end(rpi_rank_process *process) {
    if (process->return_end) close(process->return_end);
    process->return_end = 0;
}

static rp_status open_pipes(rpi_launch_run *l, int rank, int *ends) {
    FILE *const sinks[RPI_RANK_STREAMS] = {stdout, stderr};
    int pair[2];
    for (int i = 0; i < RPI_RANK_STREAMS && is_piped(l, rank); i++) {
        if (pipe2(pair, O_CLOEXEC) != 0) return RP_FAIL_ERRNO(IO, "cannot make a pipe");
        fcntl(pair[0], F_SETFL, O_NONBLOCK);
        rpi_rank_output *output = &l->outputs[rank * RPI_RANK_STREAMS + i];
        output->fd = pair[0];
        output->rank = l->world.first_rank + rank;
        output->sink = sinks[i];
        output->is_shown = rpi_output_is_shown(sinks[i], l->options->is_raw);
        output->before = rpi_launch_line_start(l, sinks[i]);
        output->last = l->last ? &l->last[rank] : NULL;
        ends[i] = pair[1];
    }
    if (l->options->output == RPI_LAUNCH_FILES) RP_TRY(open_file(l, rank));
    if (pipe2(pair, O_CLOEXEC) != 0) return RP_FAIL_ERRNO(IO, "cannot make a pipe");
    ends[RPI_RANK_STREAMS] = pair[0];
    ends[RPI_RANK_STREAMS + 1] = pair[1];
    return RP_OK;
}

static rp_status fork_rank(rpi_launch_run *l, int rank, int *ends, int *out_error) {
    char text[RPI_RANK_VARIABLES][RPI_RANK_VARIABLE_BYTES];
    rpi_bind_share share;
    pid_t parent = getpid();
    if (l->options->binding != RPI_BIND_NONE)
        RP_TRY(rpi_bind_choose(l->options->binding, &l->host, rank, l->ranks, &share));
    rpi_launch_set_variables(l, rank, text);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) become_rank(l, rank, ends, ends[RPI_RANK_STREAMS + 1], parent, &share);
    if (pid < 0) return RP_FAIL_ERRNO(IO, "cannot start rank %d", l->world.first_rank + rank);
    setpgid(pid, pid); /* both sides do, so that it holds for either at once */
    l->processes[rank].pid = l->processes[rank].group = pid;
    l->alive++;
    close(ends[RPI_RANK_STREAMS + 1]);
    ends[RPI_RANK_STREAMS + 1] = -1;
    ssize_t got;
    do got = read(ends[RPI_RANK_STREAMS], out_error, sizeof *out_error);
    while (got < 0 && errno == EINTR);
    if (got != sizeof *out_error) *out_error = 0;
    return RP_OK;
}

int rpi_launch_start_rank(rpi_launch_run *l, int rank) {
    int ends[RPI_RANK_STREAMS + 2] = {-1, -1, -1, -1}, error = 0;
    rp_status status = open_pipes(l, rank, ends);
    if (status == RP_OK) status = open_return(&l->processes[rank]);
    if (status == RP_OK) status = fork_rank(l, rank, ends, &error);
    close_return_end(&l->processes[rank]);
    rpi_launch_close_fds(ends, RPI_RANK_STREAMS + 2);
    if (status != RP_OK) {
        rpi_launch_say(l, "%s", rp_last_error()->message);
        return RPI_LAUNCH_CANNOT_START;
    }
    if (!error) return 0;
    const char *program = l->options->path ? l->options->path : l->options->argv[0];
    bool missing = error == ENOENT || error == ENOTDIR;
    rpi_launch_say(l, "cannot run '%s': %s%s", program, strerror(error),
                   error == EACCES ? "; is it an executable file?" : "");
    return missing ? 127 : 126;
}
