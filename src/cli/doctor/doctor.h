/* `redpoll doctor`, shared by its files: the facts about hosts and pairs of them, which
 * examine.c and doctor_agent.c find out, and others print. */
#ifndef RPI_CLI_DOCTOR_H
#define RPI_CLI_DOCTOR_H

#include "cli/doctor/probe.h"
#include "cli/hosts/run_hosts.h"
#include "net/socket/interfaces.h"

/* All pairs are kept: 130 MB. */
enum { RPI_DOCTOR_HOSTS_MAX = 256, RPI_DOCTOR_TEXT_BYTES = 600 };

typedef struct rpi_doctor_interface {
    rpi_interface is;
    int mtu, speed_mbit; /* 0: not known */
} rpi_doctor_interface;

typedef struct rpi_doctor_host {
    const char *name;
    char failure[1200]; /* empty: it takes part */
    char machine[128];  /* the same for names of one host */
    char version[64], isa[16];
    bool is_local; /* no other machine calls it */
    int cores, port;
    int64_t memory_bytes, free_bytes; /* 0: not known */
    double load;
    int ports, free_ports; /* of REDPOLL_PORTS; 0: it is not set */
    rpi_doctor_interface interfaces[RPI_INTERFACES_MAX];
    int interface_count;
} rpi_doctor_host;

/* One end of a connection. */
typedef struct rpi_doctor_end {
    char address[RPI_HOST_BYTES], interface[IF_NAMESIZE];
    int mtu; /* 0: not known */
} rpi_doctor_end;

/* From one host to another, which is called in this direction. */
typedef struct rpi_doctor_pair {
    bool is_tried, is_reached;           /* connected, proved, and answers */
    char failure[RPI_DOCTOR_TEXT_BYTES]; /* empty: all of it was measured */
    rpi_doctor_end from, to;             /* of the first stream */
    char ways[RPI_DOCTOR_TEXT_BYTES];    /* of all, "eth0 10.0.0.1 - 10.0.0.2, eth1 ..." */
    char missed[200];                    /* addresses that a stream should have taken, and that
                                            do not lead there; empty: none */
    rpi_probe_result result;
} rpi_doctor_pair;

typedef struct rpi_doctor_finding {
    bool is_failure; /* else it is only worth knowing */
    char text[1800];
} rpi_doctor_finding;

typedef struct rpi_doctor_report {
    rpi_doctor_host *hosts;
    rpi_doctor_pair *pairs; /* [hosts][hosts], from and to */
    int count;
    bool tls;      /* measured over TLS */
    int streams;   /* connections of each pair */
    bool is_alone; /* one host, which has called itself: hosts 0 and 1 are the same */
    rpi_doctor_finding *findings;
    int finding_count;
} rpi_doctor_report;

static inline rpi_doctor_pair *rpi_doctor_pair_at(const rpi_doctor_report *report, int from,
                                                  int to) {
    return &report->pairs[from * report->count + to];
}

typedef struct rpi_doctor_options {
    const rpi_host_list *hosts; /* one alone is measured with itself */
    rpi_remote_shell shell;
    const char *const *passed; /* NAME=VALUE for the agents, NULL-terminated */
    bool tls;                  /* over TLS */
    int streams;               /* over this many connections at once, as REDPOLL_STREAMS says */
    int64_t bytes;             /* of rpi_probe_limits, in each direction */
    double time_s;
    double connect_s; /* for each pair, over all addresses */
    double answer_s;  /* for each host's agent */
} rpi_doctor_options;

/* Ask all hosts, and let each call each other, each host with one at a time. RP_OK also if
 * hosts or pairs have failed, which the report says; RP_PEER: told to end by *out_signal.
 * Blocks; for the main thread of a process without other threads and children. */
rp_status rpi_doctor_examine(const rpi_doctor_options *options, rpi_doctor_report *out_report,
                             int *out_signal);
/* The partner of a host in a round. There are `count` - 1 rounds or, if `count` is odd,
 * `count`, in which all pairs meet; itself: none in this round. */
int rpi_doctor_partner(int host, int round, int count);
/* `redpoll doctor --agent`, which is started on each of the hosts; the exit code. */
int rpi_doctor_agent_main(void);

/* What is wrong or unusual, with what to do. */
rp_status rpi_doctor_find(rpi_doctor_report *report);
bool rpi_doctor_is_well(const rpi_doctor_report *report);

enum { RPI_RATE_BYTES = 32 };
/* Bytes a second as "941 Mbit", with `gap` between; returns text. */
const char *rpi_doctor_rate_text(double rate, const char *gap, char text[RPI_RATE_BYTES]);
void rpi_doctor_print(const rpi_doctor_report *report);
void rpi_doctor_print_json(const rpi_doctor_report *report);
void rpi_doctor_free(rpi_doctor_report *report);

#endif
