/* Starting ranks on this host: `redpoll run`, and the -n of the other commands. */
#ifndef RPI_CLI_RUN_H
#define RPI_CLI_RUN_H

#include "base/status.h"
#include "cli/bind_ranks.h"

#include <stdbool.h>
#include <stdint.h>

enum { RPI_LAUNCH_MAX_RANKS = 1024, RPI_LAUNCH_MOST_RESTARTS = 1000 };

typedef enum rpi_launch_output {
    RPI_LAUNCH_PREFIX, /* "[rank] " before every line */
    /* rank 0 writes directly to our own streams, which may be a terminal */
    RPI_LAUNCH_PREFIX_OTHERS,
    RPI_LAUNCH_PLAIN, /* all ranks write directly to our own streams */
    RPI_LAUNCH_FILES, /* one file for each rank in output_folder */
} rpi_launch_output;

typedef struct rpi_launch_options {
    const char *name;  /* for messages: "redpoll run" */
    int64_t ranks;     /* 1 to RPI_LAUNCH_MAX_RANKS */
    const char *path;  /* the executable; NULL: argv[0], looked up in PATH */
    char *const *argv; /* NULL-terminated; argv[0] may be any name when there is a path */
    rpi_launch_output output;
    bool is_raw;          /* true: a terminal obeys what ranks print; false: it shows it */
    double grace_s;       /* seconds for ranks to end by themselves after a failure; 0: 10 */
    double stop_grace_s;  /* the same after we were told to end; 0: grace_s */
    bool survives_deaths; /* ranks that are killed end nobody else and are no failure: the
                             others say what they make of it */
    int vital_ranks; /* so many of the first ranks are excepted: their deaths end the job */
    int restarts;    /* how often each rank that was killed is started again, where the others
                        survive it */
    rpi_binding binding;       /* of each rank to processors and memory */
    bool reports_bindings;     /* each rank prints its binding on its standard error */
    const char *output_folder; /* of RPI_LAUNCH_FILES; it exists */
    struct rpi_agent *agent;   /* these are some of a world's ranks, for a launcher on another
                                  host, which gets their output (hosts/agent.h); NULL: all */
} rpi_launch_options;

/* "-n is 0; 1 to 1024 are allowed" before anything is started. */
rp_status rpi_launch_check_ranks(int64_t ranks);

/* Variables of a rank that may be started again: how often, and, from the first time on, which
 * time it is. What such a rank ends with is no failure: it was left behind before. */
#define RPI_RESTARTS_VARIABLE   "REDPOLL_RESTART"
#define RPI_GENERATION_VARIABLE "REDPOLL_GENERATION"

/* A pipe on which a rank that was started again says how far it is, for when the others end: a
 * byte of these. DESCRIPTOR:INODE, by which a child that has another file there does not take
 * it for that. */
#define RPI_RETURN_VARIABLE "REDPOLL_RETURN_PIPE"
enum { RPI_RETURN_WAITS = 'w', RPI_RETURN_DONE = 'b' };

/* Start the ranks, each with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT, REDPOLL_STORE (of a store served here) and REDPOLL_SECRET (drawn for this job)
 * in its environment, and wait for all. Returns 0 when all ranks did; else the code of the
 * first that failed (128 + signal when it was killed), 127 when there is no such program, 126
 * when it cannot be executed, 1 when ranks could not be started, or when what they printed
 * could not all be written. Has printed why to standard error, naming the rank.
 *
 * Blocks. Call it from the main thread of a process without other threads and children; it
 * takes over SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 meanwhile and passes them
 * on. When it returns no rank is left, nor anything that one has started, in whatever process
 * group or session; when this process is killed they end, too (guard.h).  OMP_NUM_THREADS,
 * where it is not set, becomes the share of cores, and GOMP_SPINCOUNT, where neither it nor
 * OMP_WAIT_POLICY is set, a short one.
 */
int rpi_launch(const rpi_launch_options *options);

/* Is this process a rank that rpi_launch() started? */
bool rpi_launched(void);
/* How often this rank was started again; 0: it is the first process in its place. */
int rpi_launch_generation(void);
/* May a rank with this end be started again, if it was so `generation` times already? */
bool rpi_launch_restarts(int restarts, int generation, int status);

#endif
