/* redpoll run -n N [OPTIONS] [--] PROGRAM ARGUMENTS: start ranks of any program. */
#include "cli/commands.h"

#include "base/status.h"
#include "cli/option_rows.h"
#include "cli/run.h"

#include <stdlib.h>

typedef struct settings {
    int64_t ranks;
    bool prefix;
    double grace_s;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    RPI_ROWS_RANKS(FIELD(ranks), NULL, NULL, 0, 0, "how many ranks to start; required"),
    {"prefix", NULL, NULL, RPI_OPTION_FLAG, FIELD(prefix), "true", 0, 0, NULL,
     "--no-prefix: no \"[rank] \" in front of lines of output", NULL},
    {"grace", NULL, NULL, RPI_OPTION_SECONDS, FIELD(grace_s), "10s", 0.001, 1e9, "TIME",
     "after a failure, how long the other ranks may take to end", NULL},
    {0},
};

static rp_status parse(int argc, char **argv, settings *s, int *out_program, bool *out_help) {
    rpi_positional program = {.stops_at_first = true};
    RP_TRY(rpi_options_defaults(options, s));
    s->ranks = -1; /* not said: 0 is a mistake of its own */
    RP_TRY(rpi_options_environment(options, getenv, s));
    RP_TRY(rpi_options_parse(options, argc, argv, s, &program, out_help));
    if (*out_help) return RP_OK;
    if (s->ranks == -1) return RP_FAIL(INVALID, "how many ranks? -n N says so");
    RP_TRY(rpi_launch_check_ranks(s->ranks));
    if (program.first == argc)
        return RP_FAIL(INVALID, "which program? it stands behind the options");
    *out_program = program.first;
    return RP_OK;
}

static int run(int argc, char **argv) {
    settings s = {0};
    int program = 0;
    bool help = false;
    rp_status status = parse(argc, argv, &s, &program, &help);
    if (status != RP_OK) return rpi_command_misused("run", status);
    if (help) {
        rpi_command_print_help(&rpi_command_run, stdout);
        return RPI_EXIT_DONE;
    }
    return rpi_launch(&(rpi_launch_options){
        .name = "redpoll run",
        .ranks = s.ranks,
        .argv = argv + program,
        .output = s.prefix ? RPI_LAUNCH_PREFIX : RPI_LAUNCH_PLAIN,
        .grace_s = s.grace_s,
    });
}

const rpi_command rpi_command_run = {
    .name = "run",
    .summary = "start ranks of any program",
    .words = "-n N [OPTIONS] [--] PROGRAM [ARGUMENTS]",
    .about =
        "Starts N ranks of PROGRAM on this host and waits for them. Each finds its place in "
        "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.",
    .notes =
        "The exit code is that of the first rank that failed (128 + signal if it was "
        "killed), 2 for a mistake in these options, 127 if there is no such program, 126 if "
        "it cannot be executed.",
    .examples = "  redpoll run -n 4 ./all_reduce\n"
                "  redpoll run -n 2 --no-prefix -- python train.py --epochs 3\n",
    .options = options,
    .run = run,
};
