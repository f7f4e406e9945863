/* `redpoll train`: options in, a run out; the work is in train/. */
#include "base/log.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/run.h"
#include "cli/said_once.h"
#include "cli/train_forecast.h"
#include "cli/train_settings.h"
#include "cli/train_signals.h"
#include "train/strategies/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A mistake of usage, or a failure; told apart by its status. */
static int failed(rp_status status) {
    return status == RP_INVALID ? rpi_command_misused("train", status)
                                : rpi_command_failed(status);
}

static rp_status check(const rpi_train_settings *s) {
    RP_TRY(rpi_world_check(&s->world));
    RP_TRY(rpi_train_check(&s->train, (int)s->world.ranks));
    RP_TRY(rpi_train_forecast_check(s));
    return rpi_train_check_files(&s->train);
}

/* This rank's share of the cores, unless somebody has said it. */
static int64_t choose_threads(const rpi_train_settings *s, const rpi_world *world) {
    const char *told = getenv("OMP_NUM_THREADS");
    long threads = told ? strtol(told, NULL, 10) : 0;
    if (s->train.threads > 0) return s->train.threads;
    if (threads > 0 && threads <= 4096) return threads;
    return world->cores;
}

static void print_changes(const rpi_train_settings *s, const rpi_train_hooks *hooks) {
    char line[sizeof s->changes];
    for (const char *at = s->changes; *at; at += strcspn(at, "\n") + 1) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        hooks->note(hooks->context, line);
    }
}

static void note_idle_link(const rpi_train_settings *s, const rpi_world *world,
                           const rpi_train_hooks *hooks) {
    char line[160];
    if (!s->world.link || world->ranks > 1) return;
    snprintf(line, sizeof line, "--link %s changes nothing: one rank sends nothing (-n 2)",
             s->world.link);
    hooks->note(hooks->context, line);
}

/* A warning does not stand behind the bar. */
static void log_line(void *context, rp_log_level level, const char *line) {
    rpi_progress_end(context);
    rpi_log_print(level, line);
}

static rp_status train(rpi_train_settings *s, rpi_world *world, bool *out_stopped) {
    rpi_train_settings given = *s;
    s->train.given = &given;
    rpi_train_prepare_returns(s, world);
    RP_TRY(rpi_train_find_folder(s, world));
    s->train.threads = choose_threads(s, world);
    rpi_progress progress = rpi_progress_on(stdout);
    rp_log_set_sink(log_line, &progress);
    progress.is_silent = world->rank > 0;
    rpi_train_hooks hooks = rpi_progress_hooks(&progress);
    print_changes(s, &hooks);
    note_idle_link(s, world, &hooks);
    if (s->machine && !progress.is_silent) {
        progress.begun = rpi_train_forecast_print;
        progress.begun_context = s;
    }
    hooks.asked = rpi_train_asked;
    rpi_train_result result = {0};
    rp_status status = rpi_train(&s->train, world->comm, &hooks, &result);
    rpi_progress_end(&progress);
    rp_log_set_sink(NULL, NULL);
    if (status == RP_OK && result.is_late)
        fprintf(stderr, "redpoll train: rank %d came back when the run was over\n",
                world->rank);
    if (status == RP_OK && result.rank == 0 && world->comm)
        rpi_train_print_result(s, world, &result);
    *out_stopped = result.stopped;
    return status;
}

static rp_status join_world(const rpi_train_settings *s, rpi_world *out_world) {
    if (!rpi_launch_generation()) return rpi_world_join(&s->world, out_world);
    if (s->restarts) return rpi_world_take_place(&s->world, out_world);
    return RP_FAIL(STATE, "this rank was started in the place of one that died, and the run "
                          "takes nobody back: --restart 0");
}

/* A refusal is the same on all ranks as a rule, and is printed once: by rank 0, before another
 * rank ends without a word. */
static int failed_with_others(rpi_world *world, rp_status status) {
    rpi_kept_error why;
    bool is_refusal = status == RP_INVALID || status == RP_NOMEM, is_first = world->rank == 0;
    rpi_error_keep(&why);
    if (is_refusal && !is_first && rpi_said_by_first(world, why.message))
        return status == RP_INVALID ? RPI_EXIT_USAGE : RPI_EXIT_FAILED;
    rpi_error_put_back(&why);
    int code = failed(status);
    if (is_refusal && is_first) rpi_tell_what_was_said(world, why.message);
    return code;
}

static int run_rank(rpi_train_settings *s) {
    rpi_world world = {0};
    bool stopped = false;
    rp_status status = join_world(s, &world);
    if (status != RP_OK) return failed(status);
    int code = RPI_EXIT_DONE;
    status = rpi_train_check(&s->train, world.ranks);
    if (status == RP_OK && world.ranks == 1) status = rpi_train_forecast_check(s);
    if (status == RP_OK) {
        rpi_train_take_stop_signals(world.rank == 0, s->train.checkpoint);
        status = train(s, &world, &stopped);
        rpi_train_drop_stop_signals();
    }
    if (status != RP_OK)
        code = failed_with_others(&world, status);
    else if (stopped)
        code = 128 + rpi_train_stop_signal();
    rpi_world_leave(&world);
    return code;
}

static int run_settings(rpi_train_settings *s, int argc, char **argv) {
    if (rpi_world_must_launch(&s->world)) {
        rp_status status = check(s);
        return status == RP_OK ? rpi_world_launch(&s->world, "train", argc, argv)
                               : failed(status);
    }
    return run_rank(s);
}

static int run(int argc, char **argv) {
    rpi_train_settings s = {0};
    rpi_train_sources from = {0};
    bool wants_help = false;
    rpi_train_take_save_signal();
    rp_status status = rpi_train_settings_read(argc, argv, &s, &from, &wants_help);
    int code = RPI_EXIT_DONE;
    if (status != RP_OK)
        code = status == RP_CORRUPT ? rpi_command_failed(status)
                                    : rpi_command_misused("train", status);
    else if (wants_help)
        rpi_command_print_help(&rpi_command_train, stdout);
    else
        code = run_settings(&s, argc, argv);
    rpi_train_settings_close(&from);
    return code;
}

/* Strategies that have options. */
static rpi_inner_options inner_at(int index) {
    const rpi_strategy *strategy;
    for (int i = 0; (strategy = rpi_strategy_at(i)) != NULL; i++)
        if (strategy->options && index-- == 0)
            return (rpi_inner_options){"strategy", strategy->name, strategy->options};
    return (rpi_inner_options){NULL};
}

const rpi_command rpi_command_train = {
    .name = "train",
    .summary = "train a model on data, alone or over ranks",
    .about =
        "Trains a model. With -n it starts that many ranks on this machine; without, a process "
        "started by redpoll run, torchrun, mpirun or srun joins that world, else it is alone. "
        "The folder of --out gets metrics.jsonl, model.safetensors and, with --trace, "
        "trace.json.",
    .notes = "SIGUSR1 saves a checkpoint. SIGTERM and Ctrl-C save one and end the run soon, "
             "all ranks after the same step (exit code 143 and 130); a second one ends it at "
             "once.",
    .examples = "  redpoll train --model resnet18 --data fashion-mnist -n 2 \\\n"
                "      --link 200Mbit,50us --codec q4 --steps 200 --global-batch-size 64 \\\n"
                "      --seed 1 --out runs/q4\n"
                "  redpoll train --resume runs/q4 --steps 400\n"
                "  redpoll train --config examples/fashion-mnist.yaml\n"
                "  redpoll train --model mlp --data synthetic --epochs 3 --lr 0.05\n"
                "  redpoll train --model gpt2 --data tokens:data/kjv --seq-length 256 -n 2 \\\n"
                "      --optimizer adamw --lr 6e-4 --clip 1 --accumulate 4 --codec q4\n"
                "  redpoll train --model hf:models/gpt2 --data tokens:data/kjv \\\n"
                "      --optimizer adamw --lr 2e-5\n",
    .options = rpi_train_table,
    .inner_at = inner_at,
    .run = run,
};
