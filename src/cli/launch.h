/* A launch that is running, for the files of which it consists: launch.c watches,
 * rank_environment.c and rank_start.c make a process of a rank, rank_end.c handles the output
 * and the end of a rank. */
#ifndef RPI_CLI_LAUNCH_H
#define RPI_CLI_LAUNCH_H

#include "base/status.h"
#include "cli/first_failure.h"
#include "cli/hosts/agent.h"
#include "cli/rank_output.h"
#include "cli/run.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

enum {
    RPI_RANK_STREAMS = 2, /* standard output and error */
    RPI_RANK_VARIABLES = 13,
    RPI_RANK_VARIABLE_BYTES = 320,
    RPI_LAUNCH_CANNOT_START = 1, /* the exit code */
    /* the exit code of a launch whose ranks all succeeded but whose output could not be written
     */
    RPI_LAUNCH_CANNOT_WRITE = 1,
};

typedef struct rpi_rank_process {
    pid_t pid;      /* 0: not started, or it has ended */
    pid_t group;    /* the process group of it and its children */
    int generation; /* how often it was restarted */
    /* a restarted rank writes to this pipe how far it has come (RPI_RETURN_VARIABLE); our end
     * of the pipe */
    int returns;
    /* the other end of that pipe, until the rank has it; both are 0 if there is no pipe */
    int return_end;
    unsigned long pipe; /* the inode of the pipe */
    bool waits;         /* it has said that it waits for the others to take it back */
    bool is_back; /* it has said that they have taken it back, which does not change again */
} rpi_rank_process;

/* Ranks that stay idle for ever after the others have ended well. */
typedef struct rpi_idle_watch {
    int64_t look_ns;  /* when to check them next */
    int64_t since_ns; /* since when all remaining ranks are idle; 0: some are not */
} rpi_idle_watch;

typedef struct rpi_launch_run {
    rpi_launch_options *options;
    rpi_agent *agent; /* of options */
    rpi_launch_world world;
    int ranks;                   /* on this host */
    rpi_rank_process *processes; /* [ranks] */
    rpi_rank_output *outputs;    /* [ranks][RPI_RANK_STREAMS] */
    rpi_last_lines *last;        /* [ranks] if output goes into files; else NULL */
    rpi_rank_file *files;        /* likewise */
    struct pollfd *polls;        /* the first few are the launch's, then one for each output */
    rp_store_server *server;
    int signals; /* signalfd */
    sigset_t mask_before;
    char **environment; /* of this process, without the variables that ranks get anew */
    int variables;
    int alive;
    rpi_bind_host host;  /* if ranks are bound */
    bool has_ended_well; /* a rank of this host or of another one has ended well */
    /* the others have been told about the first rank that has ended for good */
    bool has_told_end;
    rpi_idle_watch idle;
    rpi_first_failure first; /* ranks are numbered as on this host */
    bool is_unread;          /* our standard output was a pipe, and its reader has gone */
    int stop_signal;         /* passed on to the ranks because the launch was told to end */
    bool has_told;           /* the ranks have had a signal to end */
    int next_signal;         /* SIGTERM, then SIGKILL: sent to ranks at the next deadline */
    int64_t next_ns;
} rpi_launch_run;

/* ---- launch.c ---- */

/* "redpoll run: ..." to standard error. */
void rpi_launch_say(const rpi_launch_run *l, const char *format, ...) RP_PRINTF(2, 3);
/* The text before a line on `sink`. */
const char *rpi_launch_line_start(const rpi_launch_run *l, FILE *sink);
void rpi_launch_signal_all(rpi_launch_run *l, int number);
/* From now on ranks have `grace_s` to end by themselves; then they get the first signal, and
 * later they are killed. */
void rpi_launch_count_down(rpi_launch_run *l, int first_signal, double grace_s);
/* The time that ranks have to end after a failure. */
double rpi_launch_grace_s(const rpi_launch_run *l);

/* ---- idle_ranks.c ---- */

/* After others have ended well, ranks that are idle for ever would keep the launch from ending:
 * stopped ranks, and restarted ranks that wait for the others. When only such ranks are left
 * for the time of the grace, or at once if none of them is stopped, they are named and ended.
 * This is not a failure. */
void rpi_launch_watch_idle(rpi_launch_run *l);
/* When to call it next; RPI_NEVER_NS: never. */
int64_t rpi_launch_idle_due_ns(const rpi_launch_run *l);
/* Counts the idle ranks of this host. *out_stopped: some of them are stopped. */
int rpi_launch_count_idle(rpi_launch_run *l, bool *out_stopped);
void rpi_launch_end_idle(rpi_launch_run *l);

/* ---- rank_environment.c ---- */

rp_status rpi_launch_copy_environment(rpi_launch_run *l);
/* Appends the variables of this rank; `text` holds them until its program is started. */
void rpi_launch_set_variables(rpi_launch_run *l, int rank,
                              char text[RPI_RANK_VARIABLES][RPI_RANK_VARIABLE_BYTES]);

/* ---- rank_start.c ---- */

/* Returns 0, or the exit code of the launch after having said why. */
int rpi_launch_start_rank(rpi_launch_run *l, int rank);
void rpi_launch_close_fds(int *fds, int count);

/* ---- rank_end.c ---- */

/* Copies what has arrived on a stream; `all`: reads until nothing is left. */
void rpi_launch_take_output(rpi_launch_run *l, int stream, bool all);
void rpi_launch_finish_output(rpi_launch_run *l, int stream);
/* A rank has ended with this status of waitpid(): it is restarted, left behind, or counted as a
 * failure. */
void rpi_launch_rank_ended(rpi_launch_run *l, int rank, int status);
/* Tells ranks that wait for this one to connect that it has ended, and how. Only the first call
 * counts, because a rank that ends later may do so because of the first. */
void rpi_launch_tell_end(rpi_launch_run *l, int rank, const char *how);
/* Prints which rank failed first. */
void rpi_launch_name_first(rpi_launch_run *l);

#endif
