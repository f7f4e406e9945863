/* What the user has said, and what a run goes on with. */
#include "cli/train_settings.h"

#include "base/status.h"
#include "cli/run.h"
#include "engine/optimizer.h"
#include "net/world/join.h"
#include "train/data/source.h"
#include "train/huggingface/hf_config.h"
#include "train/strategies/strategy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Ranks that are told to end may finish a step over a slow link, and save. */
#define STOP_GRACE_S 60.0

void rpi_train_settings_close(rpi_train_sources *from) {
    rpi_config_free(from->config);
    rpi_run_settings_free(from->recorded);
}

/* What the user has said, each over the one before: file, environment, command line. */
static rp_status apply_words(const rpi_train_sources *from, int argc, char **argv,
                             rpi_train_settings *s) {
    bool wants_help = false;
    if (from->config) RP_TRY(rpi_config_apply(from->config, rpi_train_table, s));
    RP_TRY(rpi_options_environment(rpi_train_table, getenv, s));
    return rpi_options_parse(rpi_train_table, argc, argv, s, NULL, &wants_help);
}

/* Options of which one stands for the other: what is said now takes the recorded one's place.
 */
static void drop_alternatives(rpi_train_settings *s, const rpi_train_settings *said) {
    rpi_train_options *t = &s->train;
    if (said->train.epochs && !said->train.steps) t->steps = 0;
    if (said->train.batch_size && !said->train.global_batch_size) t->global_batch_size = 0;
    if (said->train.global_batch_size && !said->train.batch_size) t->batch_size = 0;
    if (said->train.accumulate && !said->train.micro_batch_size) t->micro_batch_size = 0;
    if (said->train.micro_batch_size && !said->train.accumulate) t->accumulate = 1;
    t->replicas = said->train.replicas; /* it is of the ranks that there are now */
    if (said->train.data && strcmp(said->train.data, t->data) != 0) t->data_dir = NULL;
}

/* How many ranks go on: those that a launcher has started, else as many as -n started then. */
static rp_status choose_ranks(rpi_train_settings *s, const rpi_train_settings *said,
                              int recorded_world) {
    rpi_world_info info;
    if (said->world.ranks || rpi_world_info_find_own(&info) != RP_OK) return RP_OK;
    bool launched = info.world > 1 || rpi_launched();
    if (launched && !(rpi_launched() && s->world.ranks == info.world)) s->world.ranks = 0;
    if (launched || s->world.ranks || recorded_world == 1) return RP_OK;
    return RP_FAIL(
        INVALID,
        "the run in %s had %d ranks, which a launcher had started: start it with that "
        "again, or with -n N on this machine",
        said->train.resume, recorded_world);
}

static void note_change(void *context, const char *line) {
    rpi_train_settings *s = context;
    size_t used = strlen(s->changes);
    snprintf(s->changes + used, sizeof s->changes - used, "%s\n", line);
}

/* Words that say the same become the same, as they are recorded. */
static rp_status use_own_names(rpi_train_settings *s) {
    const rpi_optimizer *optimizer = NULL;
    RP_TRY(rpi_optimizer_find(s->train.optimizer, &optimizer));
    s->train.optimizer = optimizer->name;
    if (s->train.eval_every < 0) s->train.eval_every = 0;
    return RP_OK;
}

static rp_status take_over(rpi_train_settings *s, const rpi_train_settings *said,
                           rpi_train_sources *from, int argc, char **argv) {
    const char *folder = said->train.resume;
    struct stat facts;
    if (stat(folder, &facts) == 0 && !S_ISDIR(facts.st_mode))
        return RP_FAIL(INVALID, "--resume: %s is not a folder; name that of a run", folder);
    rp_status status = rpi_run_settings_read(folder, &from->recorded);
    if (status == RP_NOT_FOUND) {
        char line[1024];
        snprintf(
            line, sizeof line,
            "%s/settings.json is missing: what is not said is the default, whatever it was",
            folder);
        note_change(s, line);
    } else if (status != RP_OK) {
        return status;
    } else {
        RP_TRY(rpi_run_settings_apply(from->recorded, rpi_train_table, s));
    }
    rpi_train_settings before = *s;
    drop_alternatives(s, said);
    RP_TRY(apply_words(from, argc, argv, s));
    RP_TRY(use_own_names(s));
    if (!from->recorded) return RP_OK;
    rpi_run_settings_compare(rpi_train_table, &before, s, note_change, s);
    return choose_ranks(s, said, rpi_run_settings_world(from->recorded));
}

/* The model, with the head that the data want where it has such a one. Of a Hugging Face folder
 * a run has the model and starts from its weights, and goes on without it. */
static rp_status open_model(rpi_train_settings *s) {
    const rpi_task *task = NULL;
    const char *folder = NULL;
    RP_TRY(rpi_hf_model_of(s->train.model, s->model, &folder));
    if (folder) s->train.weights = folder;
    RP_TRY(rpi_source_task(s->train.data, &task));
    RP_TRY(rpi_model_add_head(s->model, task->name));
    s->train.model = s->model;
    return RP_OK;
}

static rp_status apply_on_loss(rpi_train_settings *s) {
    if (!s->on_loss) return RP_OK;
    RP_TRY(rpi_strategy_set_on_loss(s->train.strategy, s->on_loss, s->strategy,
                                    sizeof s->strategy));
    s->train.strategy = s->strategy;
    return RP_OK;
}

static rp_status apply_restarts(rpi_train_settings *s) {
    if (!s->restarts) return RP_OK;
    s->world.restarts = (int)s->restarts;
    return rpi_strategy_check_returns(s->train.strategy);
}

/* A run that nobody gave a rate has its optimizer's. */
static rp_status choose_rate(rpi_train_settings *s, const rpi_train_settings *said) {
    const rpi_optimizer *optimizer = NULL;
    RP_TRY(rpi_optimizer_find(s->train.optimizer, &optimizer));
    if (isnan(said->train.lr) && !s->train.resume) s->train.lr = optimizer->usual_rate;
    return RP_OK;
}

/* A file's ranks are of its own layout; words beside it may make other replicas of them. */
static void note_replicas(rpi_train_settings *s, const rpi_config *config) {
    char line[256];
    long long tensor = rpi_train_axis(s->train.tensor_ranks);
    long long context = rpi_train_axis(s->train.context_ranks);
    long long stages = rpi_train_axis(s->train.stages), each = tensor * context * stages;
    long long said = rpi_config_replicas(config), there = s->world.ranks / each;
    if (said < 1 || s->world.ranks < 1 || s->world.ranks % each || there == said ||
        s->train.replicas)
        return;
    snprintf(line, sizeof line,
             "the file says dp: %lld, and %lld ranks with --tp %lld, --cp %lld and --pp %lld "
             "are %lld replica%s; -n %lld makes as many as it says",
             said, (long long)s->world.ranks, tensor, context, stages, there,
             there == 1 ? "" : "s", said * each);
    note_change(s, line);
}

rp_status rpi_train_settings_read(int argc, char **argv, rpi_train_settings *s,
                                  rpi_train_sources *from, bool *wants_help) {
    rpi_train_settings scratch = {0}, said = {0}; /* without defaults */
    said.train.lr = NAN;                          /* 0 is a rate, too */
    RP_TRY(rpi_options_defaults(rpi_train_table, s));
    /* The words are checked before any file is read. */
    RP_TRY(rpi_options_parse(rpi_train_table, argc, argv, &scratch, NULL, wants_help));
    if (*wants_help) return RP_OK;
    const char *file = scratch.config ? scratch.config : getenv("REDPOLL_CONFIG");
    if (file && *file) RP_TRY(rpi_config_open(file, &from->config));
    RP_TRY(apply_words(from, argc, argv, &said));
    if (said.train.resume)
        RP_TRY(take_over(s, &said, from, argc, argv));
    else
        RP_TRY(apply_words(from, argc, argv, s));
    if (from->config) note_replicas(s, from->config);
    RP_TRY(open_model(s));
    RP_TRY(use_own_names(s));
    RP_TRY(choose_rate(s, &said));
    RP_TRY(apply_on_loss(s));
    RP_TRY(apply_restarts(s));
    s->train.table = rpi_train_table;
    s->train.target = s;
    s->world.progress_thread = true;
    s->world.greeting = stdout;
    s->world.stop_grace_s = STOP_GRACE_S;
    s->world.survives_deaths = rpi_strategy_survives(s->train.strategy, &s->world.vital_ranks);
    if (s->train.resume && !s->train.out) s->train.out = s->train.resume;
    return RP_OK;
}
