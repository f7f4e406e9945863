/* redpoll doctor [-H HOSTS]: before a job, which hosts reach each other, by which way, and how
 * fast. */
#include "cli/commands.h"

#include "base/status.h"
#include "cli/doctor/doctor.h"
#include "cli/hosts/choose_hosts.h"
#include "cli/hosts/find_program.h"
#include "cli/option_rows.h"
#include "net/link/transport.h"
#include "net/socket/addresses.h"
#include "net/trust/tls.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *hosts, *hostfile, *ssh, *remote_redpoll, *ports;
    double answer_s, connect_s, time_s;
    int64_t bytes;
    bool json, tls;
    rpi_host_list list;
    int code;
} settings;

#define LONG_S      5.0
#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    {"host", "H", NULL, RPI_OPTION_TEXT, FIELD(hosts), NULL, 0, 0, "HOSTS",
     "big,small: hosts to look at, by ssh; this one when absent", NULL},
    RPI_ROWS_SSH(FIELD(hostfile), FIELD(ssh), FIELD(remote_redpoll)),
    {"ports", NULL, NULL, RPI_OPTION_TEXT, FIELD(ports), NULL, 0, 0, "FIRST-LAST",
     "at which ranks are to listen, as in redpoll run; hosts are called at one of them",
     rpi_ports_check},
    RPI_ROW_TLS(FIELD(tls), NULL, "measure over TLS, as a job with --tls talks"),
    {"time", NULL, NULL, RPI_OPTION_SECONDS, FIELD(time_s), "1s", 0.01, 60, "TIME",
     "for how long data is sent from each host to each other one, at most", NULL},
    {"size", NULL, NULL, RPI_OPTION_BYTES, FIELD(bytes), "256MB", 65536, 1e12, "BYTES",
     "how much of it, at most", NULL},
    {"connect-timeout", NULL, NULL, RPI_OPTION_SECONDS, FIELD(connect_s), "5s", 0.1, 600,
     "TIME", "for a host to be reached by another one", NULL},
    {"answer-timeout", NULL, NULL, RPI_OPTION_SECONDS, FIELD(answer_s), "20s", 0.1, 1e6, "TIME",
     "for each host to answer over ssh", NULL},
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

static rp_status choose(settings *s) {
    if (s->tls) RP_TRY(rpi_tls_check());
    RP_TRY(rpi_hosts_choose("doctor", s->hosts, s->hostfile, true, &s->list));
    if (s->list.count == 0) RP_TRY(rpi_host_list_add_words(&s->list, "localhost"));
    RP_TRY(rpi_remote_shell_check(s->ssh, &s->list));
    /* Agents read it. */
    if (s->ports && setenv("REDPOLL_PORTS", s->ports, 1) != 0)
        return RP_FAIL_ERRNO(IO, "cannot set a variable");
    return RP_OK;
}

/* Progress, on standard error. */
static void say_how_long(const settings *s) {
    int count = s->list.count, turns = count < 3 ? 2 : 2 * (count - 1 + count % 2);
    double seconds = turns * s->time_s * 1.25;
    if (seconds < LONG_S) return;
    fprintf(stderr, "redpoll doctor: %d host%s; measuring takes up to %.3g s\n", count,
            count == 1 ? "" : "s", seconds);
}

static rp_status report(settings *s, rpi_doctor_report *found) {
    RP_TRY(rpi_doctor_find(found));
    if (s->json)
        rpi_doctor_print_json(found);
    else
        rpi_doctor_print(found);
    s->code = rpi_doctor_is_well(found) ? RPI_EXIT_DONE : RPI_EXIT_FAILED;
    return RP_OK;
}

static rp_status examine(settings *s, char **passed) {
    char path[PATH_MAX];
    rpi_doctor_report found = {.count = 0};
    int stop_signal = 0, streams = 1;
    RP_TRY(rpi_program_own(path, sizeof path));
    RP_TRY(rpi_streams_find(&streams));
    say_how_long(s);
    rp_status status = rpi_doctor_examine(
        &(rpi_doctor_options){
            .hosts = &s->list,
            .shell = {.command = s->ssh,
                      .redpoll = s->remote_redpoll ? s->remote_redpoll : path,
                      .agent = "doctor",
                      .connect_timeout_s = 1 + (int)(s->answer_s / 2)},
            .passed = (const char *const *)passed,
            .tls = s->tls,
            .streams = streams,
            .bytes = s->bytes,
            .time_s = s->time_s,
            .connect_s = s->connect_s,
            .answer_s = s->answer_s,
        },
        &found, &stop_signal);
    if (stop_signal) {
        s->code = 128 + stop_signal;
        rpi_doctor_free(&found);
        return RP_OK;
    }
    if (status == RP_OK) status = report(s, &found);
    rpi_doctor_free(&found);
    return status;
}

static rp_status work(void *target) {
    settings *s = target;
    static const rpi_option_list none;
    char **passed = NULL;
    rp_status status = choose(s);
    if (status == RP_OK) status = rpi_variables_to_pass(options, &none, &passed);
    if (status == RP_OK) status = examine(s, passed);
    rpi_variables_free(passed);
    rpi_host_list_free(&s->list);
    return status;
}

static int run(int argc, char **argv) {
    settings s = {.code = RPI_EXIT_DONE};
    if (argc == 2 && strcmp(argv[1], "--agent") == 0) return rpi_doctor_agent_main();
    int code = rpi_command_work(&rpi_command_doctor, argc, argv, &s, NULL, work);
    return code == RPI_EXIT_DONE ? s.code : code;
}

const rpi_command rpi_command_doctor = {
    .name = "doctor",
    .summary = "before a job: which hosts reach each other, and how fast",
    .about =
        "Looks at hosts before a job: starts an agent on each by ssh, lets each call each "
        "other "
        "one, and prints by which interface and address they are reached, at what rate and "
        "latency, and each host's cores, load, free memory, clock and MTU. What is wrong is "
        "said with what to do. In a job of Slurm or PBS the job's hosts are taken when none "
        "are "
        "given; without hosts this one is looked at.",
    .notes =
        "Hosts call each other as ranks would: at the addresses of REDPOLL_SOCKET_IFNAME, and "
        "at one port of --ports. A host measures with one other at a time, first in one "
        "direction and then in the other. The exit code is 0 when all reach each other, 1 when "
        "some do not or cannot take part, 2 for a mistake in these options.",
    .examples = "  redpoll doctor\n"
                "  redpoll doctor -H big,small\n"
                "  redpoll doctor --hostfile hosts --ports 20000-20100 --time 0.2s\n"
                "  redpoll doctor -H big,small --json\n",
    .options = options,
    .run = run,
};
