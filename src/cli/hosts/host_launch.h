/* A launch over several hosts, shared by its files (host_launch.c and meet_hosts.c), and the
 * part of it that is used by others who ask agents on hosts (ask_hosts.c). */
#ifndef RPI_CLI_HOST_LAUNCH_H
#define RPI_CLI_HOST_LAUNCH_H

#include "cli/first_failure.h"
#include "cli/hosts/agent_link.h"
#include "cli/hosts/run_hosts.h"
#include "cli/rank_output.h"
#include "net/trust/secret.h"

#include <sys/types.h>

enum { RPI_HOST_STREAMS = 2, RPI_HOST_POLLS = 3, RPI_SAID_BYTES = 400 };

/*   GREETING --greeting--> ASKED --the word that is expected--> ANSWERED --the next question--
 *       |                    ^ |                                       \--> ASKED, or RUNNING
 *       +--------> FAILED <----+                                            --end--> OVER */
typedef enum rpi_host_state {
    RPI_HOST_GREETING,
    RPI_HOST_ASKED,
    RPI_HOST_ANSWERED,
    RPI_HOST_FAILED,
    RPI_HOST_RUNNING,
    RPI_HOST_OVER,
} rpi_host_state;

typedef struct rpi_remote {
    const rpi_host *host;
    rpi_host_state state;
    int first_rank, alive; /* ranks that have not ended */
    pid_t pid;             /* of ssh, or of the agent on this host; 0: it has ended */
    int status;            /* of waitpid(), once it has ended */
    bool may_be_late;      /* its answer is not waited for now */
    rpi_agent_link link;
    rpi_rank_output errors;    /* the output of ssh and the agent themselves */
    char said[RPI_SAID_BYTES]; /* the last line of it */
    int idle;                  /* how many of its ranks are idle, by its last beat */
    bool has_stopped;          /* some of these are stopped */
    int64_t heard_ns;          /* when anything last arrived from it */
    int64_t last_words_ns;     /* it has ended without an answer; what it printed until then is
                                  still read */
    char *answer;              /* the words of the last answer */
    size_t answer_bytes;
    char failure[1200];
} rpi_remote;

typedef struct rpi_host_launch {
    const rpi_hosts_options *options;
    rpi_remote *remotes; /* [hosts] */
    int hosts, ranks;
    struct pollfd *polls;     /* [1 + hosts * RPI_HOST_POLLS] */
    rpi_rank_output *outputs; /* [ranks][RPI_HOST_STREAMS] */
    rpi_last_lines *last;     /* [ranks] */
    rpi_rank_file *files;     /* [ranks] where output goes into files; else NULL */
    rpi_agent_word expected;  /* of those that are asked */
    char secret[RPI_SECRET_TEXT_BYTES];
    int signals;
    sigset_t mask_before;
    int stop_signal; /* passed on, because this process was told to end */
    rpi_first_failure first;
    bool has_released; /* all ranks have ended, and the agents know */
    bool is_lost;      /* a host was lost before any rank failed, and the ranks do not continue
                        * without it */
    int64_t idle_ns;   /* since then all ranks that are left are idle; 0: they are not */
    bool has_ended_well; /* a rank has */
    int64_t kill_ns;     /* when remote shells that have not ended are killed */
} rpi_host_launch;

/* ---- ask_hosts.c ---- */

/* Room for the hosts of the options, and descriptors for them and this many files. */
rp_status rpi_hosts_open(rpi_host_launch *launch, int files);
void rpi_hosts_close(rpi_host_launch *launch);
/* The agent of a host, which sends a greeting when it runs. */
rp_status rpi_hosts_start(rpi_host_launch *launch, rpi_remote *remote);
/* It cannot be used any more, and why; the first reason is kept. */
void rpi_hosts_fail(rpi_remote *remote, const char *format, ...) RP_PRINTF(2, 3);
/* A question was sent to it, or could not be. */
void rpi_hosts_ask(rpi_remote *remote, rp_status sent);
/* Whether its greeting or answer is still to come. */
bool rpi_hosts_is_waited_for(const rpi_remote *remote);
/* Until each host that was asked, and may not be late, has given the `expected` answer or has
 * failed; one that does not answer in time has failed. */
rp_status rpi_hosts_wait(rpi_host_launch *launch, double limit_s);

/* ---- of a launch ---- */

void rpi_hosts_say(const rpi_host_launch *launch, const char *format, ...) RP_PRINTF(2, 3);

/* Start the agents and ask them everything before the first rank starts; then all run. RP_OK or
 * the failure that was not reported yet; *out_said: it was. */
rp_status rpi_hosts_meet(rpi_host_launch *launch, bool *out_said);
/* Wait for the next event, until a time, and handle it: greetings and answers here, the rest by
 * rpi_hosts_hear(). */
rp_status rpi_hosts_pump(rpi_host_launch *launch, int64_t until_ns);
/* A frame of a host that runs. */
void rpi_hosts_hear(rpi_host_launch *launch, rpi_remote *remote, const rpi_agent_frame *frame);
/* The connection to a host has ended, as it does after its ranks have. */
void rpi_hosts_end(rpi_host_launch *launch, rpi_remote *remote);
/* The same word to all that run. */
void rpi_hosts_tell(rpi_host_launch *launch, rpi_agent_word word, int number);
/* Ranks that have not ended. */
int rpi_hosts_alive(const rpi_host_launch *launch);
/* A death is no failure: nothing has failed, and this process was not told to end. */
bool rpi_hosts_survive(const rpi_host_launch *launch);
/* From time to time (watch_hosts.c): a host that has been silent for too long is lost, and
 * ranks that are idle for ever after others have ended well are ended. */
void rpi_hosts_watch_silence(rpi_host_launch *launch);
void rpi_hosts_watch_idle(rpi_host_launch *launch);
/* A signal has come, or a child has ended. */
void rpi_hosts_take_signals(rpi_host_launch *launch);

#endif
