/* The agent: what `redpoll run` starts on each host by a remote shell (`redpoll run --agent`).
 * It hears what is to be run, looks whether it can be, and starts the ranks of its host as
 * rpi_launch() does. What they print and how they end goes to the launcher, which in turn sends
 * signals. The end of the connection ends the ranks. */
#ifndef RPI_CLI_AGENT_H
#define RPI_CLI_AGENT_H

#include "cli/hosts/agent_link.h"
#include "cli/run.h"
#include "net/socket/interfaces.h"
#include "net/trust/secret.h"
#include "redpoll/store.h"

/* The world of a launch of which this host runs some ranks. */
typedef struct rpi_launch_world {
    int first_rank, ranks;           /* of all hosts */
    char store_host[RPI_HOST_BYTES]; /* as this host's ranks reach it */
    int store_port, master_port;
    char secret[RPI_SECRET_TEXT_BYTES]; /* empty: none */
} rpi_launch_world;

typedef struct rpi_agent {
    rpi_agent_link link;
    int signals;         /* readable: the agent was told to end */
    char *job;           /* what argv and the like point into */
    char **argv;         /* of the program */
    rpi_secret secret;   /* of the job */
    int64_t deadline_ns; /* of the meeting */
    int ranks;           /* on this host */
    bool is_over;        /* the launcher's end is gone */
    bool is_released;    /* nobody needs the store any more */
    int64_t beat_ns;     /* when it says next that it is alive */
} rpi_agent;

/* `redpoll run --agent`: rpi_launch() over standard input and output; the exit code. */
int rpi_agent_main(void);

/* All before the first rank starts: greeting, job, checks, store. Fills what is to be launched;
 * a server, where this host serves the store, is the caller's. Failures have been told to the
 * launcher. */
rp_status rpi_agent_meet(rpi_agent *agent, rpi_launch_options *options, rpi_launch_world *world,
                         rp_store_server **out_server);

/* Sends what a rank has printed, while ranks run. */
void rpi_agent_output(rpi_agent *agent, int rank, bool is_error, const char *text,
                      size_t bytes);
void rpi_agent_ended(rpi_agent *agent, const rpi_ending *ending);
/* Says that this agent is alive and how many of its ranks are idle, some of them stopped; about
 * once a second. */
void rpi_agent_beat(rpi_agent *agent, int idle, bool stopped);
/* When rpi_agent_beat() is due. */
int64_t rpi_agent_beat_ns(const rpi_agent *agent);
/* Reads, sends what waits to be sent, and returns the next order of the launcher: SIGNAL (the
 * number to pass on), LOST (the rank), HURRY, WELL or FORGO. False: there is none. */
bool rpi_agent_order(rpi_agent *agent, rpi_agent_word *out_word, int *out_number);
/* For agents that do something else than run ranks. The next word of the launcher, before the
 * deadline of the agent: RP_TIMEOUT; RP_PEER: the launcher has gone. */
rp_status rpi_agent_hear(rpi_agent *agent, rpi_agent_frame *frame);
/* "NAME=VALUE" into the environment. */
rp_status rpi_agent_set_variable(const char *text);
/* The addresses at which others may reach this host, first the one to which the ssh of the
 * launcher connected. */
rp_status rpi_agent_addresses(rpi_interface list[RPI_INTERFACES_MAX], int *out_count);

/* Send what is left, as long as the launcher takes it, and free. */
void rpi_agent_finish(rpi_agent *agent);

#endif
