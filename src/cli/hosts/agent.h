/* The agent: `redpoll run` starts it on each host by a remote shell (`redpoll run --agent`). It
 * receives what is to be run, checks whether it can be, and starts the ranks of its host as
 * rpi_launch() does. It sends the launcher the output and the ends of its ranks, and the
 * launcher sends it signals. When the connection ends, its ranks are ended. */
#ifndef RPI_CLI_AGENT_H
#define RPI_CLI_AGENT_H

#include "cli/hosts/agent_link.h"
#include "cli/run.h"
#include "net/socket/interfaces.h"
#include "net/trust/secret.h"
#include "redpoll/store.h"

/* The world of a launch, of which this host runs some ranks. */
typedef struct rpi_launch_world {
    int first_rank, ranks;           /* of all hosts */
    char store_host[RPI_HOST_BYTES]; /* as this host's ranks reach it */
    int store_port, master_port;
    char secret[RPI_SECRET_TEXT_BYTES]; /* empty: none */
} rpi_launch_world;

typedef struct rpi_agent {
    rpi_agent_link link;
    int signals;         /* readable: the agent was told to end */
    char *job;           /* the memory to which argv and others point */
    char **argv;         /* of the program */
    rpi_secret secret;   /* of the job */
    int64_t deadline_ns; /* of the meeting */
    int ranks;           /* on this host */
    bool is_over;        /* the launcher's end is gone */
    bool is_released;    /* the store is not needed any more */
    int64_t beat_ns;     /* when to send the next beat */
} rpi_agent;

/* `redpoll run --agent`: rpi_launch() over standard input and output; the exit code. */
int rpi_agent_main(void);

/* Everything before the first rank starts: greeting, job, checks, store. Fills the launch; if
 * this host serves the store, the caller owns the server. Failures have been reported to the
 * launcher. */
rp_status rpi_agent_meet(rpi_agent *agent, rpi_launch_options *options, rpi_launch_world *world,
                         rp_store_server **out_server);

/* Sends the output of a rank, while ranks run. */
void rpi_agent_output(rpi_agent *agent, int rank, bool is_error, const char *text,
                      size_t bytes);
void rpi_agent_ended(rpi_agent *agent, const rpi_ending *ending);
/* Reports that this agent is alive and how many of its ranks are idle, some of them stopped;
 * about once a second. */
void rpi_agent_beat(rpi_agent *agent, int idle, bool stopped);
/* When rpi_agent_beat() is due. */
int64_t rpi_agent_beat_ns(const rpi_agent *agent);
/* Reads, sends queued bytes, and returns the next order of the launcher: SIGNAL (the number to
 * pass on), LOST (the rank), HURRY, WELL or FORGO. False: there is none. */
bool rpi_agent_order(rpi_agent *agent, rpi_agent_word *out_word, int *out_number);
/* For agents that do something other than run ranks. The next frame of the launcher, before the
 * agent's deadline: RP_TIMEOUT; RP_PEER: the launcher has ended. */
rp_status rpi_agent_hear(rpi_agent *agent, rpi_agent_frame *frame);
/* "NAME=VALUE" into the environment. */
rp_status rpi_agent_set_variable(const char *text);
/* The addresses at which others may reach this host, first the one to which the ssh of the
 * launcher connected. */
rp_status rpi_agent_addresses(rpi_interface list[RPI_INTERFACES_MAX], int *out_count);

/* Send the rest, as long as the launcher takes it, and free. */
void rpi_agent_finish(rpi_agent *agent);

#endif
