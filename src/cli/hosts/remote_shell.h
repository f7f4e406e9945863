/* How an agent is started on another host, and what it means if it does not answer. */
#ifndef RPI_CLI_REMOTE_SHELL_H
#define RPI_CLI_REMOTE_SHELL_H

#include "base/status.h"
#include "cli/hosts/host_list.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct rpi_remote_shell {
    const char *command; /* "ssh -p 2222", as a shell reads it */
    const char *redpoll; /* on the other hosts; if there is none, `redpoll` of their PATH */
    const char *agent;   /* the command whose --agent is started: "run" */
    int connect_timeout_s;
    double lost_s; /* a host that does not answer for this long is lost; 0: 30 */
} rpi_remote_shell;

/* The command line of the child that runs the agent: of a shell here that calls ssh, or of this
 * very program for this host. NULL-terminated; free with rpi_remote_shell_free(). */
typedef struct rpi_remote_words {
    char *argv[24];
    char *texts[2]; /* what was put together for them */
    char interval[48], count[48];
} rpi_remote_words;
rp_status rpi_remote_shell_words(const rpi_remote_shell *shell, const char *host,
                                 rpi_remote_words *out_words);
void rpi_remote_shell_free(rpi_remote_words *words);

/* Whether the command's first word is a program here, if a host needs it. Reported here, it is
 * not mistaken for something that another host lacks. RP_INVALID. */
rp_status rpi_remote_shell_check(const char *command, const rpi_host_list *hosts);

/* Whether the name means this host, so that no ssh is needed. */
bool rpi_is_this_host(const char *name);

/* An agent that has sent no greeting: what that means and what to do, by ssh's exit code (-1:
 * it was still running at the deadline) and the last line of its output. */
const char *rpi_remote_shell_explain(const rpi_remote_shell *shell, const char *host, int code,
                                     const char *said, char *text, size_t bytes);

#endif
