/* A launch under way, between the files that make it: launch.c watches, rank_environment.c and
 * rank_start.c make a process of a rank, rank_end.c says what its output and its end mean. */
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
    RPI_LAUNCH_CANNOT_WRITE = 1, /* likewise, of a launch whose ranks all did well */
};

typedef struct rpi_rank_process {
    pid_t pid;      /* 0: not started, or it has ended */
    pid_t group;    /* of it and its children */
    int generation; /* how often it was started again */
    int returns;    /* where it says how far it is (RPI_RETURN_VARIABLE), and our end of it */
    int return_end; /* the other end, until it has it; 0: none, of both */
    unsigned long pipe; /* the inode of both */
    bool waits;         /* it has said so: for the others to take it back */
    bool is_back;       /* likewise; for good */
} rpi_rank_process;

/* Of ranks that are idle for ever when the others have ended well. */
typedef struct rpi_idle_watch {
    int64_t look_ns;  /* when they are looked at next */
    int64_t since_ns; /* all that are left are idle; 0: they are not */
} rpi_idle_watch;

typedef struct rpi_launch_run {
    rpi_launch_options *options;
    rpi_agent *agent; /* of options */
    rpi_launch_world world;
    int ranks;                   /* here */
    rpi_rank_process *processes; /* [ranks] */
    rpi_rank_output *outputs;    /* [ranks][RPI_RANK_STREAMS] */
    rpi_last_lines *last;        /* [ranks] where output goes into files; else NULL */
    rpi_rank_file *files;        /* likewise */
    struct pollfd *polls;        /* some, and one for each of the outputs */
    rp_store_server *server;
    int signals; /* signalfd */
    sigset_t mask_before;
    char **environment; /* ours, without what we set */
    int variables;
    int alive;
    rpi_bind_host host;  /* where ranks are bound */
    bool has_ended_well; /* a rank has, here or elsewhere */
    bool has_told_end;   /* the others, of the first that has ended for good */
    rpi_idle_watch idle;
    rpi_first_failure first; /* of ranks numbered as here */
    bool is_unread;          /* our standard output was a pipe, and its reader has gone */
    int stop_signal;         /* passed on to the ranks because we were told to end */
    bool has_told;           /* the ranks have had a signal to end */
    int next_signal;         /* SIGTERM, SIGKILL: what ranks get when the time has come */
    int64_t next_ns;
} rpi_launch_run;

/* ---- launch.c ---- */

/* "redpoll run: ..." to standard error. */
void rpi_launch_say(const rpi_launch_run *l, const char *format, ...) RP_PRINTF(2, 3);
/* What goes before a line on `sink`. */
const char *rpi_launch_line_start(const rpi_launch_run *l, FILE *sink);
void rpi_launch_signal_all(rpi_launch_run *l, int number);
/* From now on the ranks have `grace_s` to end, then they are asked, then they are made to. */
void rpi_launch_count_down(rpi_launch_run *l, int first_signal, double grace_s);
/* How long that is after a failure. */
double rpi_launch_grace_s(const rpi_launch_run *l);

/* ---- idle_ranks.c ---- */

/* When others have ended well, ranks that are idle for ever hold up the launch: those that are
 * stopped, and those that were started again and wait for the others. Once nothing else has
 * been left for the grace, or at once where none is stopped, they are named and ended, which is
 * no failure. */
void rpi_launch_watch_idle(rpi_launch_run *l);
/* When it is to be called next; RPI_NEVER_NS: never. */
int64_t rpi_launch_idle_due_ns(const rpi_launch_run *l);
/* Of those that are here. *out_stopped: some are stopped. */
int rpi_launch_count_idle(rpi_launch_run *l, bool *out_stopped);
void rpi_launch_end_idle(rpi_launch_run *l);

/* ---- rank_environment.c ---- */

rp_status rpi_launch_copy_environment(rpi_launch_run *l);
/* Put this rank's variables behind the others; `text` holds them until its exec. */
void rpi_launch_set_variables(rpi_launch_run *l, int rank,
                              char text[RPI_RANK_VARIABLES][RPI_RANK_VARIABLE_BYTES]);

/* ---- rank_start.c ---- */

/* 0, or the exit code of the launch; has said why. */
int rpi_launch_start_rank(rpi_launch_run *l, int rank);
void rpi_launch_close_fds(int *fds, int count);

/* ---- rank_end.c ---- */

/* Copy what has come on a stream, or with `all` everything that is there. */
void rpi_launch_take_output(rpi_launch_run *l, int stream, bool all);
void rpi_launch_finish_output(rpi_launch_run *l, int stream);
/* It has, with this status of waitpid(): it is started again, left behind, or a failure. */
void rpi_launch_rank_ended(rpi_launch_run *l, int rank, int status);
/* Say to ranks that wait for this one of all to connect that it has ended, and how. Only the
 * first counts: what ends behind it may do so because of it. */
void rpi_launch_tell_end(rpi_launch_run *l, int rank, const char *how);
/* Say which rank failed first. */
void rpi_launch_name_first(rpi_launch_run *l);

#endif
