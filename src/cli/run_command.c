/* redpoll run -n N | -H HOSTS [OPTIONS] [--] PROGRAM ARGUMENTS: start ranks of any program. */
#include "cli/commands.h"

#include "base/folder.h"
#include "base/status.h"
#include "base/units.h"
#include "cli/hosts/agent.h"
#include "cli/hosts/choose_hosts.h"
#include "cli/hosts/find_program.h"
#include "cli/hosts/run_hosts.h"
#include "cli/option_rows.h"
#include "cli/run.h"
#include "net/control/control.h"
#include "net/socket/addresses.h"
#include "net/trust/tls.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct settings {
    int64_t ranks, restarts;
    bool prefix, raw, tls, report_bindings;
    double grace_s, answer_s;
    const char *hosts, *hostfile, *ssh, *remote_redpoll, *folder, *output_folder, *ports,
        *lost_after, *bind_to, *on_loss;
    rpi_option_list variables;
    rpi_host_list list; /* empty: this host */
} settings;

/* The check of the library (control_open.c), made before any rank starts. */
static rp_status check_lost_after(const char *text) {
    double seconds = 0;
    RP_TRY(rpi_parse_seconds(text, &seconds));
    if (seconds >= 1 && seconds <= 1e9) return RP_OK;
    return RP_FAIL(INVALID, "'%s' is out of range; 1s to 1e9s are allowed", text);
}

static rp_status check_on_loss(const char *text) {
    if (strcmp(text, "stop") == 0 || strcmp(text, "continue") == 0) return RP_OK;
    return RP_FAIL(INVALID, "'%s' is neither stop nor continue", text);
}

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    RPI_ROWS_RANKS(FIELD(ranks), NULL, NULL, 0, 0,
                   "how many ranks to start; with hosts all of their slots when absent"),
    {"host", "H", NULL, RPI_OPTION_TEXT, FIELD(hosts), NULL, 0, 0, "HOSTS",
     "big:4,small:4: hosts to start them on by ssh, with so many ranks each", NULL},
    RPI_ROWS_SSH(FIELD(hostfile), FIELD(ssh), FIELD(remote_redpoll)),
    {"answer-timeout", NULL, NULL, RPI_OPTION_SECONDS, FIELD(answer_s), "20s", 0.1, 1e6, "TIME",
     "for each host to answer", NULL},
    {"ports", NULL, NULL, RPI_OPTION_TEXT, FIELD(ports), NULL, 0, 0, "FIRST-LAST",
     "at which ranks and store listen, for firewalls; any free ones when absent",
     rpi_ports_check},
    {"lost-after", NULL, NULL, RPI_OPTION_TEXT, FIELD(lost_after), NULL, 0, 0, "TIME",
     "a host that answers nothing for so long is lost and fails the job; 30s when absent",
     check_lost_after},
    {"bind-to", NULL, NULL, RPI_OPTION_TEXT, FIELD(bind_to), "none", 0, 0, "WHAT",
     "processors of each rank, and the memory next to them: cores of its own (core), or those "
     "of a socket or a NUMA node (socket, numa)",
     rpi_binding_check},
    {"report-bindings", NULL, NULL, RPI_OPTION_FLAG, FIELD(report_bindings), NULL, 0, 0, NULL,
     "each rank says on standard error to what it is bound", NULL},
    RPI_ROW_TLS(FIELD(tls), NULL,
                "encrypt all that ranks say by TCP (TLS 1.3): data, store, control connection"),
    {"env", "x", NULL, RPI_OPTION_LIST, FIELD(variables), NULL, 0, 0, "NAME[=VALUE]",
     "a variable for the ranks, with its value here when none is given; again for more",
     rpi_check_variable},
    {"wdir", NULL, NULL, RPI_OPTION_TEXT, FIELD(folder), NULL, 0, 0, "FOLDER",
     "where ranks start; this folder when absent", NULL},
    {"output-dir", NULL, NULL, RPI_OPTION_TEXT, FIELD(output_folder), NULL, 0, 0, "FOLDER",
     "what rank N prints goes to FOLDER/rank-N.log", NULL},
    {"prefix", NULL, NULL, RPI_OPTION_FLAG, FIELD(prefix), "true", 0, 0, NULL,
     "--no-prefix: no \"[rank] \" in front of lines of output", NULL},
    {"raw", NULL, NULL, RPI_OPTION_FLAG, FIELD(raw), NULL, 0, 0, NULL,
     "a terminal gets what ranks print as it is; else it shows control characters, colours "
     "apart, "
     "in place of obeying them",
     NULL},
    {"grace", NULL, NULL, RPI_OPTION_SECONDS, FIELD(grace_s), "10s", 0.001, 1e9, "TIME",
     "after a failure, how long the other ranks may take to end", NULL},
    {"on-loss", NULL, NULL, RPI_OPTION_TEXT, FIELD(on_loss), "stop", 0, 0, "stop|continue",
     "when a rank is killed: end the others after --grace, or leave them to go on, for "
     "programs that can",
     check_on_loss},
    {"restart", NULL, NULL, RPI_OPTION_COUNT, FIELD(restarts), "0", 0, RPI_LAUNCH_MOST_RESTARTS,
     "N",
     "start a rank that is killed again, N times at most each, for programs that take it back; "
     "with --on-loss continue",
     NULL},
    {0},
};

static rp_status choose_ranks(settings *s) {
    bool said = s->ranks != -1;
    RP_TRY(rpi_hosts_choose("run", s->hosts, s->hostfile, !said, &s->list));
    if (s->list.count == 0 && !said)
        return RP_FAIL(INVALID, "how many ranks? -n N says so, or -H big:4,small:4");
    if (s->list.count == 0) return rpi_launch_check_ranks(s->ranks);
    if (said && s->ranks < 1)
        return RP_FAIL(INVALID, "-n is %lld; 1 to the hosts' %lld slots are allowed",
                       (long long)s->ranks, (long long)s->list.slots);
    return said ? rpi_host_list_limit(&s->list, s->ranks) : RP_OK;
}

static bool survives_deaths(const settings *s) {
    return strcmp(s->on_loss, "continue") == 0;
}

static rp_status parse(int argc, char **argv, settings *s, int *out_program, bool *out_help) {
    rpi_positional program = {.stops_at_first = true};
    RP_TRY(rpi_options_defaults(options, s));
    s->ranks = -1; /* the option is not set; 0 is a mistake of the user */
    RP_TRY(rpi_options_environment(options, getenv, s));
    RP_TRY(rpi_options_parse(options, argc, argv, s, &program, out_help));
    if (*out_help) return RP_OK;
    RP_TRY(choose_ranks(s));
    if (s->restarts && !survives_deaths(s))
        return RP_FAIL(
            INVALID,
            "--restart %lld: the death of a rank ends the others, and there is nothing "
            "to come back to; say --on-loss continue, too",
            (long long)s->restarts);
    if (program.first == argc)
        return RP_FAIL(INVALID, "which program? it stands behind the options");
    *out_program = program.first;
    return RP_OK;
}

static rpi_launch_output output_of(const settings *s) {
    if (s->output_folder) return RPI_LAUNCH_FILES;
    return s->prefix ? RPI_LAUNCH_PREFIX : RPI_LAUNCH_PLAIN;
}

/* ---- on other hosts ---- */

/* The folder by the name that the user has for it, which may exist on other hosts, too. */
static rp_status own_folder(char *text, size_t bytes) {
    const char *said = getenv("PWD");
    struct stat here, there;
    if (said && *said == '/' && strlen(said) < bytes && stat(".", &here) == 0 &&
        stat(said, &there) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino) {
        snprintf(text, bytes, "%s", said);
        return RP_OK;
    }
    return getcwd(text, bytes) ? RP_OK : RP_FAIL_ERRNO(IO, "cannot find this folder's name");
}

/* The folder in which ranks start, on all hosts; a relative one is relative to that of this
 * process. */
static rp_status working_folder(const settings *s, char *text, size_t bytes) {
    if (!s->folder || *s->folder != '/') RP_TRY(own_folder(text, bytes));
    if (!s->folder) return RP_OK;
    size_t used = *s->folder == '/' ? 0 : strlen(text);
    int length = snprintf(text + used, bytes - used, "%s%s", used ? "/" : "", s->folder);
    if ((size_t)length < bytes - used) return RP_OK;
    return RP_FAIL(INVALID, "--wdir: a folder's name is longer than %zu bytes", bytes - 1);
}

static rp_status launch_on_hosts(const settings *s, char **argv, int *out_code) {
    char folder[PATH_MAX], path[PATH_MAX], **passed = NULL;
    double lost_s = 0;
    RP_TRY(rpi_control_lost_after(&lost_s));
    RP_TRY(rpi_remote_shell_check(s->ssh, &s->list));
    RP_TRY(working_folder(s, folder, sizeof folder));
    RP_TRY(rpi_program_own(path, sizeof path));
    RP_TRY(rpi_variables_to_pass(options, &s->variables, &passed));
    *out_code = rpi_launch_on_hosts(&(rpi_hosts_options){
        .name = "redpoll run",
        .hosts = &s->list,
        .shell = {.command = s->ssh,
                  .redpoll = s->remote_redpoll ? s->remote_redpoll : path,
                  .agent = "run",
                  .connect_timeout_s = 1 + (int)(s->answer_s / 2),
                  .lost_s = lost_s},
        .folder = folder,
        .argv = argv,
        .passed = (const char *const *)passed,
        .bind_to = s->bind_to,
        .reports_bindings = s->report_bindings,
        .output = output_of(s),
        .is_raw = s->raw,
        .output_folder = s->output_folder,
        .grace_s = s->grace_s,
        .survives_deaths = survives_deaths(s),
        .restarts = (int)s->restarts,
        .answer_s = s->answer_s,
    });
    rpi_variables_free(passed);
    return RP_OK;
}

/* ---- on this one ---- */

/* A NAME without a value is in the environment already. */
static rp_status set_variables(const rpi_option_list *list) {
    for (int i = 0; i < list->count; i++) {
        char name[256];
        const char *equals = strchr(list->items[i], '=');
        if (!equals) continue;
        snprintf(name, sizeof name, "%.*s", (int)(equals - list->items[i]), list->items[i]);
        if (setenv(name, equals + 1, 1) != 0) return RP_FAIL_ERRNO(IO, "cannot set %s", name);
    }
    return RP_OK;
}

static rp_status launch_here(const settings *s, char **argv, int *out_code) {
    char output_folder[PATH_MAX];
    rpi_binding binding;
    RP_TRY(rpi_binding_find(s->bind_to, &binding));
    RP_TRY(rpi_bind_check(binding, (int)s->ranks));
    RP_TRY(set_variables(&s->variables));
    if (s->output_folder && !realpath(s->output_folder, output_folder))
        return RP_FAIL_ERRNO(IO, "cannot find %s", s->output_folder);
    if (s->folder && chdir(s->folder) != 0)
        return RP_FAIL_ERRNO(IO, "cannot enter the working folder %s", s->folder);
    if (s->folder) (void)unsetenv("PWD"); /* it names the folder before */
    *out_code = rpi_launch(&(rpi_launch_options){
        .name = "redpoll run",
        .ranks = s->ranks,
        .argv = argv,
        .output = output_of(s),
        .is_raw = s->raw,
        .binding = binding,
        .reports_bindings = s->report_bindings,
        .output_folder = output_folder,
        .grace_s = s->grace_s,
        .survives_deaths = survives_deaths(s),
        .restarts = (int)s->restarts,
    });
    return RP_OK;
}

static rp_status launch(const settings *s, char **argv, int *out_code) {
    if (s->tls) RP_TRY(rpi_tls_check());
    /* It is set in either case, since the environment of another host may have it. */
    if (setenv("REDPOLL_TLS", s->tls ? "1" : "0", 1) != 0)
        return RP_FAIL_ERRNO(IO, "cannot set a variable");
    /* Ranks and agents read them, too. */
    if ((s->ports && setenv("REDPOLL_PORTS", s->ports, 1) != 0) ||
        (s->lost_after && setenv("REDPOLL_LOST_AFTER", s->lost_after, 1) != 0))
        return RP_FAIL_ERRNO(IO, "cannot set a variable");
    if (s->output_folder) RP_TRY(rpi_folder_make(s->output_folder));
    return s->list.count ? launch_on_hosts(s, argv, out_code) : launch_here(s, argv, out_code);
}

static int run(int argc, char **argv) {
    settings s = {0};
    int program = 0, code = RPI_EXIT_DONE;
    bool help = false;
    if (argc == 2 && strcmp(argv[1], "--agent") == 0) return rpi_agent_main();
    rp_status status = parse(argc, argv, &s, &program, &help);
    if (status != RP_OK) {
        code = rpi_command_misused("run", status);
    } else if (help) {
        rpi_command_print_help(&rpi_command_run, stdout);
    } else {
        status = launch(&s, argv + program, &code);
        if (status != RP_OK) code = rpi_command_failed(status);
    }
    rpi_host_list_free(&s.list);
    return code;
}

const rpi_command rpi_command_run = {
    .name = "run",
    .summary = "start ranks of any program",
    .words = "-n N | -H HOSTS [OPTIONS] [--] PROGRAM [ARGUMENTS]",
    .about =
        "Starts ranks of PROGRAM on this host, or by ssh on several, and waits for them. Each "
        "finds its place in RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and "
        "MASTER_PORT. In a job of Slurm or PBS the job's hosts are taken when neither -n nor "
        "hosts are given.",
    .notes =
        "Hosts are looked at first, all at once; what is wrong with any of them is said, and "
        "nothing started. Ranks start in this folder, with this environment's REDPOLL_* and "
        "what -x names; standard input is not forwarded. The exit code is that of the first "
        "rank that failed (128 + signal if it was killed), 1 if a host cannot take part or was "
        "lost, or output could not be written, 2 for a mistake in these options, 127 if there "
        "is no such program, 126 if it "
        "cannot be executed.",
    .examples = "  redpoll run -n 4 ./all_reduce\n"
                "  redpoll run -n 2 --no-prefix -- python train.py --epochs 3\n"
                "  redpoll run -H big:4,small:4 -x PATH python train.py\n"
                "  redpoll run -H big,small --tls ./all_reduce\n"
                "  redpoll run --hostfile hosts --output-dir logs ./all_reduce\n",
    .options = options,
    .run = run,
};
