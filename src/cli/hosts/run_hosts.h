/* Starting ranks on several hosts, each by an agent behind a remote shell. */
#ifndef RPI_CLI_RUN_HOSTS_H
#define RPI_CLI_RUN_HOSTS_H

#include "base/option.h"
#include "cli/hosts/host_list.h"
#include "cli/hosts/remote_shell.h"
#include "cli/run.h"

typedef struct rpi_hosts_options {
    const char *name; /* for messages: "redpoll run" */
    const rpi_host_list *hosts;
    rpi_remote_shell shell;
    const char *folder;        /* in which ranks start */
    char *const *argv;         /* NULL-terminated */
    const char *const *passed; /* NAME=VALUE for all ranks, NULL-terminated */
    const char *bind_to;       /* the name of a binding */
    bool reports_bindings;     /* as in rpi_launch_options */
    rpi_launch_output output;  /* not RPI_LAUNCH_PREFIX_OTHERS */
    const char *output_folder; /* of RPI_LAUNCH_FILES, on this host; it exists */
    bool is_raw;               /* as in rpi_launch_options */
    double grace_s;            /* as in rpi_launch_options */
    bool survives_deaths;      /* likewise; also those of a host that is lost */
    int restarts;              /* likewise */
    double answer_s;           /* for each host to report that it can run the program */
} rpi_hosts_options;

/* Examine all hosts at once; if each can run the program and reaches the first one, start the
 * ranks, host by host in order, and wait for all. The exit code is rpi_launch()'s, or 1 if a
 * host cannot take part or was lost; all such hosts have been named.
 *
 * Blocks; the main thread of a process without other threads and children calls it. When it
 * returns, or this process is killed, no rank is left on any host that can be reached: an agent
 * whose connection ends kills its ranks. */
int rpi_launch_on_hosts(const rpi_hosts_options *options);

#endif
