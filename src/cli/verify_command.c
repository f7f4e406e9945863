/* `redpoll verify`: this layout against one rank. */
#include "cli/verify_command.h"
#include "base/folder.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/run.h"
#include "net/world/join.h"
#include "train/checkpoint/run_folder.h"
#include "train/data/label_split.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- options of its own; all others are those of redpoll train ---- */

#define FIELD(name) offsetof(rpi_verify_settings, name)
static const rpi_option options[] = {
    {"steps", NULL, NULL, RPI_OPTION_COUNT, FIELD(steps), "3", 1, 1000, "N",
     "steps to train and compare", NULL},
    {"tolerance", NULL, NULL, RPI_OPTION_REAL, FIELD(tolerance), NULL, 0, 1e30, "X",
     "the largest difference that is allowed, relative to the largest number of its kind; "
     "when absent what the layout promises: 0 if it is bit-equal",
     NULL},
    {"against", NULL, NULL, RPI_OPTION_LIST, FIELD(against), NULL, 0, 0, "OPTION",
     "an option only for the one rank, as --against=--dtype=fp32, to see what it changes; may "
     "be repeated",
     NULL},
    {"out", NULL, NULL, RPI_OPTION_TEXT, FIELD(out), NULL, 0, 0, "FOLDER",
     "keeps both runs there, as layout and one-rank; when absent they are in a temporary "
     "folder, which is removed",
     NULL},
    {"json", NULL, NULL, RPI_OPTION_FLAG, FIELD(json), NULL, 0, 0, NULL,
     "print one JSON object (docs/json.md)", NULL},
    {0},
};

static bool takes_value(const rpi_option *option) {
    return option->type != RPI_OPTION_FLAG || option->value;
}

/* Words of this command go to `own`, those of redpoll train, with their values, to `user`. */
static rp_status sort_words(int argc, char **argv, rpi_verify_words *own,
                            rpi_verify_words *user) {
    RP_TRY(rpi_verify_words_open(argc, own));
    RP_TRY(rpi_verify_words_open(argc, user));
    rpi_verify_words_add(own, argv[0]);
    rpi_verify_words_add(user, "train");
    for (int i = 1; i < argc; i++) {
        const rpi_option *mine = rpi_options_find(options, argv[i]);
        const rpi_option *option = mine ? mine : rpi_options_find(rpi_train_table, argv[i]);
        rpi_verify_words *words = mine ? own : user;
        bool is_help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
        rpi_verify_words_add(is_help ? own : words, argv[i]);
        bool has_value = option && takes_value(option) && !strchr(argv[i], '=');
        if (has_value && i + 1 < argc) rpi_verify_words_add(words, argv[++i]);
    }
    return RP_OK;
}

static rp_status read_own(const rpi_verify_words *own, rpi_verify_settings *s, bool *out_help) {
    RP_TRY(rpi_options_defaults(options, s));
    s->tolerance = -1; /* not said: 0 is a bound */
    RP_TRY(rpi_options_environment(options, getenv, s));
    return rpi_options_parse(options, own->count, own->argv, s, NULL, out_help);
}

/* ---- what can be verified ---- */

static rp_status check_start(const rpi_train_settings *s) {
    rpi_world_info info;
    RP_TRY(rpi_world_info_find_own(&info));
    if (rpi_launched() || !info.alone)
        return RP_FAIL(INVALID, "verify starts its ranks itself, and was started as one of %d",
                       info.world);
    if (s->train.resume)
        return RP_FAIL(INVALID, "--resume: verify begins with the first step; leave it out");
    if (s->world.ranks) return RP_OK;
    return RP_FAIL(INVALID, "-n N is missing: the number of ranks of the layout");
}

/* Refuses settings with which the two runs are meant to be different trainings. */
static rp_status check_method(const rpi_train_settings *s) {
    const rpi_train_options *o = &s->train;
    const rpi_strategy *strategy = NULL;
    rpi_label_split split;
    RP_TRY(rpi_strategy_find(o->strategy, &strategy));
    RP_TRY(rpi_split_parse(o->split, &split));
    if (strategy->replicas_differ || strategy->run)
        return RP_FAIL(INVALID,
                       "--strategy %s is another method than the training of one rank: its "
                       "ranks have parameters, or roles, of their own; verify compares "
                       "all-reduce",
                       strategy->name);
    if (split.kind != RPI_SPLIT_IID && s->world.ranks > 1)
        return RP_FAIL(INVALID,
                       "--split %s gives ranks samples of their own, which one rank does not "
                       "see in the same batches; verify compares iid",
                       o->split);
    rpi_grid model;
    RP_TRY(rpi_train_grid(o, &model));
    if (o->mixup > 0 && s->world.ranks > rpi_grid_world(&model))
        return RP_FAIL(INVALID, "--mixup blends the pictures of a replica's part of a step, "
                                "and one rank has other parts; leave it out");
    return RP_OK;
}

static rp_status measure_layout(rpi_verify_job *job) {
    const rpi_train_options *o = &job->train.train;
    rpi_verify_layout *l = &job->layout;
    rpi_grid model;
    RP_TRY(rpi_train_grid(o, &model));
    RP_TRY(rpi_train_place_open(&model, 0, (int)job->train.world.ranks, 0, &job->place));
    *l = (rpi_verify_layout){.options = o,
                             .stages = model.size[RPI_AXIS_STAGE],
                             .replicas = job->place.replicas,
                             .tensor_ranks = model.size[RPI_AXIS_TENSOR],
                             .context_ranks = model.size[RPI_AXIS_CONTEXT]};
    RP_TRY(rpi_train_global_batch(o, l->replicas, &job->global_batch));
    l->micro_batches = rpi_train_micro_batches(o, l->replicas, job->global_batch);
    return rpi_verify_find_ties(o, l);
}

static void name_runs(rpi_verify_job *job) {
    snprintf(job->other, sizeof job->other, "%s/layout", job->folder);
    snprintf(job->one, sizeof job->one, "%s/one-rank", job->folder);
}

/* A folder that is made for the runs gets its name when it is made. */
static rp_status name_folders(rpi_verify_job *job) {
    const char *base = getenv("TMPDIR"), *out = job->asked->out;
    if (!base || !*base) base = "/tmp";
    int length =
        out ? snprintf(job->folder, sizeof job->folder, "%s", out)
            : snprintf(job->folder, sizeof job->folder, "%s/redpoll-verify-XXXXXX", base);
    if (length < 0 || (size_t)length >= sizeof job->folder)
        return RP_FAIL(INVALID, "the name of the folder has more than %d characters",
                       RPI_VERIFY_FOLDER - 1);
    name_runs(job);
    return RP_OK;
}

/* As the layout will be trained. Files are looked at before any rank starts. */
static rp_status check(rpi_verify_job *job) {
    rpi_train_settings *s = &job->train;
    RP_TRY(check_start(s));
    RP_TRY(rpi_world_check(&s->world));
    RP_TRY(check_method(s));
    RP_TRY(rpi_train_check(&s->train, (int)s->world.ranks));
    RP_TRY(name_folders(job));
    s->train.out = job->asked->out ? job->other : NULL;
    RP_TRY(rpi_train_check_files(&s->train));
    s->train.out = job->asked->out ? job->one : NULL;
    RP_TRY(rpi_run_folder_check(&s->train));
    return measure_layout(job);
}

/* ---- folders ---- */

static rp_status make_folder(rpi_verify_job *job) {
    if (job->asked->out) return rpi_folder_make(job->folder);
    if (!mkdtemp(job->folder))
        return RP_FAIL_ERRNO(IO, "cannot make the folder %s", job->folder);
    name_runs(job);
    return RP_OK;
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *at) {
    (void)facts;
    (void)kind;
    (void)at;
    (void)remove(path);
    return 0;
}

static void remove_tree(const char *path) {
    enum { DESCRIPTORS = 16 };
    nftw(path, remove_one, DESCRIPTORS, FTW_DEPTH | FTW_PHYS);
}

/* Keeps what the ranks of a run that failed have printed: the launcher has named the folder. */
static void drop_folder(const rpi_verify_job *job, bool keeps_logs) {
    if (job->asked->out) return;
    remove_tree(keeps_logs ? job->other : job->folder);
    if (keeps_logs) remove_tree(job->one);
}

/* ---- running ---- */

static int failed(rp_status status) {
    return status == RP_INVALID ? rpi_command_misused("verify", status)
                                : rpi_command_failed(status);
}

static int run_job(rpi_verify_job *job) {
    enum { KILLED = 128 }; /* codes from here on: by a signal */
    rp_status status = check(job);
    if (status == RP_OK) status = make_folder(job);
    if (status != RP_OK) return failed(status);
    bool run_failed = false;
    int code = rpi_verify_train_and_compare(job, &run_failed);
    bool keeps_logs = run_failed && code < KILLED; /* whoever was told to end wants nothing */
    drop_folder(job, keeps_logs);
    return code;
}

/* The user's words, with the steps in the place of those of a file. */
static int read_and_run(rpi_verify_job *job) {
    rpi_train_sources from = {0};
    bool wants_help = false;
    rpi_verify_words words = {0};
    rp_status status = rpi_verify_words_open(job->user.count + 1, &words);
    for (int i = 0; status == RP_OK && i < job->user.count; i++)
        rpi_verify_words_add(&words, job->user.argv[i]);
    rpi_verify_words_number(&words, "steps", job->asked->steps);
    if (status == RP_OK)
        status =
            rpi_train_settings_read(words.count, words.argv, &job->train, &from, &wants_help);
    int code = status == RP_OK ? run_job(job) : failed(status);
    rpi_train_settings_close(&from);
    rpi_verify_words_close(&words);
    return code;
}

static int run(int argc, char **argv) {
    rpi_verify_settings asked = {0};
    rpi_verify_job job = {.asked = &asked};
    rpi_verify_words own = {0};
    bool wants_help = false;
    int code = RPI_EXIT_DONE;
    rp_status status = sort_words(argc, argv, &own, &job.user);
    if (status == RP_OK) status = read_own(&own, &asked, &wants_help);
    if (status != RP_OK)
        code = failed(status);
    else if (wants_help)
        rpi_command_print_help(&rpi_command_verify, stdout);
    else
        code = read_and_run(&job);
    rpi_verify_words_close(&own);
    rpi_verify_words_close(&job.user);
    return code;
}

const rpi_command rpi_command_verify = {
    .name = "verify",
    .summary = "this layout of a training against one rank",
    .words = "-n N [OPTIONS]",
    .about = "Trains a few steps over ranks, as redpoll train does with the same options or "
             "the same --config, and the same steps on one rank, with the same samples in the "
             "same micro-batches. Then it compares losses and gradient norms of every step, "
             "and parameters and the optimizer's state after it (or, with --checkpoint-every, "
             "after some). It prints the differences, and the first tensor that differs.",
    .notes = "Most layouts are bit-equal to one rank, and then no difference is allowed. If "
             "sums are in another order, or gradients are sent by a lossy codec, it prints the "
             "reason and the bound. Exit code 0: within bounds; 1: beyond, or a run failed; 2: "
             "wrong use.",
    .examples =
        "  redpoll verify --model gpt2:layers=4,hidden=128 --data tokens:data/kjv \\\n"
        "      --optimizer adamw --tp 2 --pp 2 -n 4 --micro-batch-size 4\n"
        "  redpoll verify --config examples/gpt2-kjv.yaml -n 2 --steps 3\n"
        "  redpoll verify --model mlp --data synthetic -n 2 --codec q4 --tolerance 0.05\n",
    .options = options,
    .also = &rpi_command_train,
    .run = run,
};
