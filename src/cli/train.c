/* `redpoll train`: options in, a run out; the work is in train/. */
#include "cli/commands.h"

#include "base/log.h"
#include "base/status.h"
#include "cli/config.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "cli/run.h"
#include "cli/train_profile.h"
#include "cli/train_signals.h"
#include "cli/world.h"
#include "engine/optimizer.h"
#include "net/join.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_settings.h"
#include "train/data/batch_ring.h"
#include "train/data/label_split.h"
#include "train/huggingface/hf_config.h"
#include "train/strategies/strategy.h"
#include "train/train.h"

#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct settings {
    rpi_world_settings world;
    rpi_train_options train;
    const char *config;
    char model[RPI_MODEL_TEXT]; /* as it is trained: a folder's, with the head of the data */
    char folder[256];           /* chosen for a run without --out */
    const char *on_loss;        /* NULL: as the strategy says */
    int64_t restarts;           /* of a rank that is killed, at most */
    rpi_train_returns returns;  /* then */
    char strategy[sizeof(rpi_strategy_words)]; /* that with this */
    char changes[4096]; /* lines: what a run that goes on does differently */
} settings;

/* Ranks that are told to end may finish a step over a slow link, and save. */
#define STOP_GRACE_S 60.0

static rp_status check_split(const char *text) {
    rpi_split split;
    return rpi_split_parse(text, &split);
}

#define FIELD(name) offsetof(settings, train.name)
#define LR          "optimizer.learning_rate_scheduler."
static const rpi_option options[] = {
    {"config", NULL, NULL, RPI_OPTION_TEXT, offsetof(settings, config), NULL, 0, 0, "FILE",
     "YAML with the keys below; the command line wins", NULL},
    {"model", NULL, "model.name", RPI_OPTION_TEXT, FIELD(model), "resnet18", 0, 0, "MODEL",
     "mlp, resnet20, resnet18, 34, 50, 101 or 152, vgg16, vgg16-bn, vit, vit-b16, gpt2, "
     "llama, bert or transformer-xl; with options as mlp:hidden=512x256 (redpoll info lists "
     "them); or "
     "hf:FOLDER, a Hugging Face checkpoint to go on from",
     NULL},
    {"data", NULL, "data.dataset", RPI_OPTION_TEXT, FIELD(data), "fashion-mnist", 0, 0, "NAME",
     "cifar10:FOLDER, cifar100:FOLDER, fashion-mnist, idx, synthetic, images:FOLDER, "
     "tokens:PATH or masked:PATH (for bert), each of the last three with [,validation=PATH or "
     "5%], pairs:FILE.jsonl,tokenizer=NAME, or spans:FILE.json,tokenizer=NAME (for bert)",
     NULL},
    {"augment", NULL, "data.augment", RPI_OPTION_TEXT, FIELD(pictures.augment), NULL, 0, 0,
     "NAME",
     "of images: none, flip (half of them mirrored), or standard: that, and a random box of "
     "pictures, a random shift of small images; none when absent",
     NULL},
    {"image-size", NULL, "data.image_size", RPI_OPTION_COUNT, FIELD(pictures.size), NULL, 1,
     RPI_PICTURE_SIZE_MOST, "N", "of images: pixels a side that a model sees; 224 when absent",
     NULL},
    {"skip-broken", NULL, "data.skip_broken", RPI_OPTION_FLAG, FIELD(pictures.skip_broken),
     NULL, 0, 0, NULL, "of images: go on without those that cannot be decoded", NULL},
    {"data-threads", NULL, "data.num_loading_workers", RPI_OPTION_COUNT,
     FIELD(pictures.threads), NULL, 1, RPI_BATCH_THREADS_MOST, "N",
     "of images: threads of each rank that decode ahead; 2 when absent", NULL},
    {"split", NULL, "data.split", RPI_OPTION_TEXT, FIELD(split), "iid", 0, 0,
     "iid|by-label|dirichlet=A",
     "of images: which rank sees which: all of them all; one label after the other; or shares "
     "of "
     "the labels drawn from Dir(A), few labels a rank where A is small",
     check_split},
    {"seq-length", NULL, "tokens.sequence_length", RPI_OPTION_COUNT, FIELD(seq_length), NULL, 1,
     1 << 20, "N", "tokens that a language model sees at once; 256 when absent", NULL},
    {"data-dir", NULL, "data.folder", RPI_OPTION_TEXT, FIELD(data_dir), NULL, 0, 0, "FOLDER",
     "where the data's files are", NULL},
    {"train-images", NULL, "data.train_images", RPI_OPTION_COUNT, FIELD(train_images), NULL, 1,
     1e9, "N", "of synthetic data; 2048 when absent", NULL},
    {"test-images", NULL, "data.test_images", RPI_OPTION_COUNT, FIELD(test_images), NULL, 1,
     1e9, "N", "of synthetic data; 512 when absent", NULL},
    {"steps", NULL, "tokens.train_steps", RPI_OPTION_COUNT, FIELD(steps), NULL, 1, 1e12, "N",
     "steps of the whole run; beats --epochs", NULL},
    {"epochs", NULL, "tokens.train_epochs", RPI_OPTION_COUNT, FIELD(epochs), NULL, 1, 1e9, "N",
     "passes over the data; 1 when neither is given", NULL},
    {"global-batch-size", NULL, "tokens.global_batch_size", RPI_OPTION_COUNT,
     FIELD(global_batch_size), NULL, 1, 1e9, "N",
     "samples of a step, of all ranks; 64 when absent", NULL},
    {"batch-size", NULL, "tokens.micro_batch_size", RPI_OPTION_COUNT, FIELD(batch_size), NULL,
     1, 1e9, "N", "samples that a rank runs at once: a step, or with --accumulate a part of it",
     NULL},
    {"accumulate", NULL, "tokens.batch_accumulation_per_replica", RPI_OPTION_COUNT,
     FIELD(accumulate), "1", 1, 1e6, "N",
     "micro-batches of each rank in a step: memory of one, gradients of all", NULL},
    {"seed", NULL, "general.seed", RPI_OPTION_COUNT, FIELD(seed), "1", 0, 1e15, "N",
     "of parameters, order of the data, stochastic rounding", NULL},

    {"optimizer", NULL, "optimizer.optimizer_factory.name", RPI_OPTION_TEXT, FIELD(optimizer),
     "sgd", 0, 0, "NAME", "sgd, adamw or lamb", NULL},
    {"lr", NULL, LR "learning_rate", RPI_OPTION_REAL, FIELD(lr), "0.05", 0, 1e30, "RATE",
     "learning rate, at its highest; adamw and lamb: 0.001 when absent", NULL},
    {"momentum", NULL, "optimizer.optimizer_factory.momentum", RPI_OPTION_REAL, FIELD(momentum),
     "0.9", 0, 1, "SHARE", "sgd: of the gradient's running sum", NULL},
    {"nesterov", NULL, "optimizer.optimizer_factory.nesterov", RPI_OPTION_FLAG, FIELD(nesterov),
     NULL, 0, 0, NULL, "sgd: Nesterov's momentum", NULL},
    {"beta1", NULL, "optimizer.optimizer_factory.adam_beta1", RPI_OPTION_REAL, FIELD(beta1),
     "0.9", 0, 1, "SHARE", "adamw, lamb: of the gradient's running mean", NULL},
    {"beta2", NULL, "optimizer.optimizer_factory.adam_beta2", RPI_OPTION_REAL, FIELD(beta2),
     "0.999", 0, 1, "SHARE", "adamw, lamb: of its square's running mean", NULL},
    {"epsilon", NULL, "optimizer.optimizer_factory.adam_eps", RPI_OPTION_REAL, FIELD(epsilon),
     "1e-8", 0, 1e30, "NUMBER", "adamw, lamb: added to the root of that mean", NULL},
    {"weight-decay", NULL, "optimizer.weight_decay", RPI_OPTION_REAL, FIELD(weight_decay),
     "5e-4", 0, 1e30, "RATE",
     "sgd, lamb: this times the parameter joins the gradient, or the step's direction; adamw: "
     "it shrinks by this",
     NULL},
    {"decay", NULL, "optimizer.decay", RPI_OPTION_TEXT, FIELD(decay), "all", 0, 0, "WHICH",
     "all parameters, or weights: no biases, scales and shifts", NULL},
    {"clip", NULL, "optimizer.clip_grad", RPI_OPTION_REAL, FIELD(clip), NULL, 0, 1e30, "NORM",
     "the most that the norm of all gradients together may be; 0 or absent: anything", NULL},
    {"mixup", NULL, "data.mixup", RPI_OPTION_REAL, FIELD(mixup), NULL, 0, 1, "ALPHA",
     "images, and their labels, are blended in pairs in training, by a share of Beta(ALPHA, "
     "ALPHA); evaluations are without; 0, none, when absent",
     NULL},
    {"label-smoothing", NULL, "optimizer.label_smoothing", RPI_OPTION_REAL,
     FIELD(label_smoothing), NULL, 0, 1, "SHARE",
     "of a label's probability that all classes, or tokens, share in training; evaluations are "
     "without; 0 when absent",
     NULL},
    {"lr-schedule", NULL, LR "lr_decay_style", RPI_OPTION_TEXT, FIELD(lr_schedule), "constant",
     0, 0, "NAME", "constant, warmup, step, cosine, linear, 1-sqrt, wsd or inverse-sqrt", NULL},
    {"lr-warmup-steps", NULL, LR "lr_warmup_steps", RPI_OPTION_COUNT, FIELD(lr_warmup_steps),
     NULL, 0, 1e12, "N", "linear warm-up before any schedule", NULL},
    {"lr-min", NULL, LR "min_decay_lr", RPI_OPTION_REAL, FIELD(lr_min), "0", 0, 1e30, "RATE",
     "where cosine, linear, 1-sqrt and wsd end", NULL},
    {"lr-decay-start", NULL, LR "lr_decay_starting_step", RPI_OPTION_COUNT,
     FIELD(lr_decay_start), NULL, 0, 1e12, "STEP",
     "the peak is held until then; after the warm-up when absent, wsd: at the end", NULL},
    {"lr-decay-steps", NULL, LR "lr_decay_steps", RPI_OPTION_COUNT, FIELD(lr_decay_steps), NULL,
     0, 1e12, "N", "steps down to --lr-min; to the end of the run when absent", NULL},
    {"lr-drop-every", NULL, LR "lr_drop_every", RPI_OPTION_COUNT, FIELD(lr_drop_every), NULL, 0,
     1e12, "N", "steps between two drops of the schedule step", NULL},
    {"lr-gamma", NULL, LR "lr_gamma", RPI_OPTION_REAL, FIELD(lr_gamma), "0.1", 0, 1, "FACTOR",
     "of each drop", NULL},

    {"strategy", NULL, "parallelism.strategy", RPI_OPTION_TEXT, FIELD(strategy), "all-reduce",
     0, 0, "NAME",
     "all-reduce; gossip:topology=base,algorithm=atc, local-sgd:outer=diloco,every=100 or "
     "parameter-server:servers=2,staleness=4 (below; docs/decentralised.md); single for one "
     "rank",
     NULL},
    {"on-loss", NULL, "parallelism.on_loss", RPI_OPTION_TEXT, offsetof(settings, on_loss), NULL,
     0, 0, "stop|continue",
     "when a rank dies: the strategy's option of this name, of gossip, local-sgd, "
     "parameter-server and async-local-sgd; stop when absent",
     NULL},
    {"restart", NULL, "parallelism.restart", RPI_OPTION_COUNT, offsetof(settings, restarts),
     "0", 0, RPI_LAUNCH_MOST_RESTARTS, "N",
     "a worker that is killed is started again, N times at most each, and comes back: of "
     "parameter-server and async-local-sgd, with --on-loss continue",
     NULL},
    {"codec", NULL, "communication.codec", RPI_OPTION_TEXT, FIELD(codec), "fp32", 0, 0, "CODEC",
     "of gradients: fp32 (exact), bf16, fp16, q1 ... q8, v1 ... v8, topk, randk, sign; "
     "q4:bucket=1024,rounding=stochastic; auto:like=q4,every=100 chooses bits for each tensor; "
     "auto does where that is faster than fp32",
     rpi_check_adaptive_codec},
    RPI_ROW_ALGORITHM(FIELD(algorithm), "communication.algorithm",
                      "of the all-reduce: ring or sra; chosen when absent",
                      rpi_check_all_reduce),
    {"error-feedback", NULL, "communication.error_feedback", RPI_OPTION_FLAG,
     FIELD(error_feedback), "on", 0, 0, "on|off",
     "add what a lossy codec lost to the next gradient", NULL},
    {"warmup-exact", NULL, "communication.warmup_exact", RPI_OPTION_COUNT, FIELD(warmup_exact),
     NULL, 0, 1e12, "N", "first steps with exact gradients", NULL},
    {"bucket-mb", NULL, "communication.bucket_mb", RPI_OPTION_REAL, FIELD(bucket_mb), "4",
     0.001, 1e6, "MIB", "gradients in one all-reduce", NULL},

    {"out", NULL, "checkpoints.checkpoints_path", RPI_OPTION_TEXT, FIELD(out), NULL, 0, 0,
     "FOLDER", "where results go; runs/MODEL-DATA-TIME when absent", NULL},
    {"overwrite", NULL, NULL, RPI_OPTION_FLAG, FIELD(overwrite), NULL, 0, 0, NULL,
     "start over in a folder that holds a run", NULL},
    {"resume", NULL, "checkpoints.resume_checkpoint_path", RPI_OPTION_TEXT, FIELD(resume), NULL,
     0, 0, "FOLDER", "go on with the run in this folder and its options", NULL},
    {"checkpoint-every", NULL, "checkpoints.checkpoint_interval", RPI_OPTION_COUNT,
     FIELD(checkpoint_every), NULL, 0, 1e12, "N",
     "steps between checkpoints; 0: by time and at the end", NULL},
    {"checkpoint-time", NULL, "checkpoints.checkpoint_time", RPI_OPTION_SECONDS,
     FIELD(checkpoint_time_s), "10min", 0, 1e9, "TIME",
     "at the latest so long after the one before; 0: by steps alone", NULL},
    {"keep", NULL, "checkpoints.keep", RPI_OPTION_COUNT, FIELD(keep), "3", 1,
     RPI_CHECKPOINT_MOST_KEPT, "N", "newest checkpoints that stay in the folder", NULL},
    {"checkpoint", NULL, "checkpoints.save_final_state", RPI_OPTION_FLAG, FIELD(checkpoint),
     "true", 0, 0, NULL, "--no-checkpoint: save nothing", NULL},
    {"eval", NULL, "evaluation.enabled", RPI_OPTION_FLAG, FIELD(eval), "true", 0, 0, NULL,
     "--no-eval: do not use the test set", NULL},
    {"eval-every", NULL, "tokens.val_check_interval", RPI_OPTION_COUNT, FIELD(eval_every), NULL,
     -1, 1e12, "N", "steps between evaluations; 0, or -1: at the end only", NULL},
    {"eval-images", NULL, "evaluation.images", RPI_OPTION_COUNT, FIELD(eval_images), NULL, 0,
     1e9, "N", "first images, or sequences, of those held out; 0: all", NULL},
    {"sample-every", NULL, "logging.sample_every", RPI_OPTION_COUNT, FIELD(sample_every), NULL,
     0, 1e12, "N",
     "of language models: steps between two texts that rank 0's model writes behind --prompt; "
     "0: "
     "none",
     NULL},
    {"prompt", NULL, "logging.prompt", RPI_OPTION_TEXT, FIELD(prompt), NULL, 0, 0, "TEXT",
     "that these texts begin with", NULL},
    {"sample-tokens", NULL, "logging.sample_tokens", RPI_OPTION_COUNT, FIELD(sample_tokens),
     "40", 1, 1 << 20, "N", "new tokens of such a text at most", NULL},
    {"check-replicas", NULL, "general.check_replicas", RPI_OPTION_COUNT, FIELD(check_replicas),
     "100", 0, 1e12, "N",
     "steps between two comparisons of all ranks' parameters; 0: only at the start and before "
     "checkpoints",
     NULL},
    {"log-every", NULL, "logging.iteration_step_info_interval", RPI_OPTION_COUNT,
     FIELD(log_every), NULL, 1, 256, "N",
     "steps after which ranks tell each other their losses, and are saved or stopped when "
     "asked "
     "to; about a fifth of a second when absent",
     NULL},
    {"trace", NULL, "logging.trace", RPI_OPTION_FLAG, FIELD(trace), NULL, 0, 0, NULL,
     "write trace.json for ui.perfetto.dev", NULL},
    {"profile", NULL, "logging.profile", RPI_OPTION_FLAG, FIELD(profile), NULL, 0, 0, NULL,
     "at the end, say where a step's time goes, by kind of work", NULL},
    {"dtype", NULL, "model.dtype", RPI_OPTION_TEXT, FIELD(dtype), "fp32", 0, 0, "TYPE",
     "of what matrix products and convolutions multiply: fp32, or bf16 (summed in fp32; "
     "parameters stay fp32), on processors with AVX512-BF16 or AMX",
     NULL},
    {"backend", NULL, "general.backend", RPI_OPTION_TEXT, FIELD(backend), NULL, 0, 0, "NAME",
     "of the engine; the fastest when absent", NULL},
    {"threads", NULL, "general.threads", RPI_OPTION_COUNT, FIELD(threads), NULL, 1, 4096, "N",
     "of each rank; its share of the cores when absent", NULL},
    RPI_WORLD_OPTIONS(settings, world),
    {0},
};

/* What the words come from besides argv; settings point into both. */
typedef struct sources {
    rpi_config *config;
    rpi_run_settings *recorded;
} sources;

static void close_sources(sources *from) {
    rpi_config_free(from->config);
    rpi_run_settings_free(from->recorded);
}

/* What the user has said, each over the one before: file, environment, command line. */
static rp_status apply_words(const sources *from, int argc, char **argv, settings *s) {
    bool wants_help = false;
    if (from->config) RP_TRY(rpi_config_apply(from->config, options, s));
    RP_TRY(rpi_options_environment(options, getenv, s));
    return rpi_options_parse(options, argc, argv, s, NULL, &wants_help);
}

/* Options of which one stands for the other: what is said now takes the recorded one's place.
 */
static void drop_alternatives(settings *s, const settings *said) {
    rpi_train_options *t = &s->train;
    if (said->train.epochs && !said->train.steps) t->steps = 0;
    if (said->train.batch_size && !said->train.global_batch_size) t->global_batch_size = 0;
    if (said->train.global_batch_size && !said->train.batch_size) t->batch_size = 0;
    if (said->train.data && strcmp(said->train.data, t->data) != 0) t->data_dir = NULL;
}

/* How many ranks go on: those that a launcher has started, else as many as -n started then. */
static rp_status choose_ranks(settings *s, const settings *said, int recorded_world) {
    rpi_place place;
    if (said->world.ranks || rpi_place_find_own(&place) != RP_OK) return RP_OK;
    bool launched = place.world > 1 || rpi_launched();
    if (launched && !(rpi_launched() && s->world.ranks == place.world)) s->world.ranks = 0;
    if (launched || s->world.ranks || recorded_world == 1) return RP_OK;
    return RP_FAIL(
        INVALID,
        "the run in %s had %d ranks, which a launcher had started: start it with that "
        "again, or with -n N on this machine",
        said->train.resume, recorded_world);
}

static void note_change(void *context, const char *line) {
    settings *s = context;
    size_t used = strlen(s->changes);
    snprintf(s->changes + used, sizeof s->changes - used, "%s\n", line);
}

/* Words that say the same become the same, as they are recorded. */
static rp_status use_own_names(settings *s) {
    const rpi_optimizer *optimizer = NULL;
    RP_TRY(rpi_optimizer_find(s->train.optimizer, &optimizer));
    s->train.optimizer = optimizer->name;
    if (s->train.eval_every < 0) s->train.eval_every = 0;
    return RP_OK;
}

static rp_status take_over(settings *s, const settings *said, sources *from, int argc,
                           char **argv) {
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
        RP_TRY(rpi_run_settings_apply(from->recorded, options, s));
    }
    settings before = *s;
    drop_alternatives(s, said);
    RP_TRY(apply_words(from, argc, argv, s));
    RP_TRY(use_own_names(s));
    if (!from->recorded) return RP_OK;
    rpi_run_settings_compare(options, &before, s, note_change, s);
    return choose_ranks(s, said, rpi_run_settings_world(from->recorded));
}

/* The model, with the head that the data want where it has such a one. Of a Hugging Face folder
 * a run has the model and starts from its weights, and goes on without it. */
static rp_status open_model(settings *s) {
    const rpi_task *task = NULL;
    const char *folder = NULL;
    RP_TRY(rpi_hf_model_of(s->train.model, s->model, &folder));
    if (folder) s->train.weights = folder;
    RP_TRY(rpi_source_task(s->train.data, &task));
    RP_TRY(rpi_model_add_head(s->model, task->name));
    s->train.model = s->model;
    return RP_OK;
}

static rp_status apply_on_loss(settings *s) {
    if (!s->on_loss) return RP_OK;
    RP_TRY(rpi_strategy_set_on_loss(s->train.strategy, s->on_loss, s->strategy,
                                    sizeof s->strategy));
    s->train.strategy = s->strategy;
    return RP_OK;
}

static rp_status apply_restarts(settings *s) {
    if (!s->restarts) return RP_OK;
    s->world.restarts = (int)s->restarts;
    return rpi_strategy_check_returns(s->train.strategy);
}

/* A run that nobody gave a rate has its optimizer's. */
static rp_status choose_rate(settings *s, const settings *said) {
    const rpi_optimizer *optimizer = NULL;
    RP_TRY(rpi_optimizer_find(s->train.optimizer, &optimizer));
    if (isnan(said->train.lr) && !s->train.resume) s->train.lr = optimizer->usual_rate;
    return RP_OK;
}

static rp_status read_settings(int argc, char **argv, settings *s, sources *from,
                               bool *wants_help) {
    settings scratch = {0}, said = {0}; /* without defaults */
    said.train.lr = NAN;                /* 0 is a rate, too */
    RP_TRY(rpi_options_defaults(options, s));
    /* The words are checked before any file is read. */
    RP_TRY(rpi_options_parse(options, argc, argv, &scratch, NULL, wants_help));
    if (*wants_help) return RP_OK;
    const char *file = scratch.config ? scratch.config : getenv("REDPOLL_CONFIG");
    if (file && *file) RP_TRY(rpi_config_open(file, &from->config));
    RP_TRY(apply_words(from, argc, argv, &said));
    if (said.train.resume)
        RP_TRY(take_over(s, &said, from, argc, argv));
    else
        RP_TRY(apply_words(from, argc, argv, s));
    RP_TRY(open_model(s));
    RP_TRY(use_own_names(s));
    RP_TRY(choose_rate(s, &said));
    RP_TRY(apply_on_loss(s));
    RP_TRY(apply_restarts(s));
    s->train.table = options;
    s->train.target = s;
    s->world.progress_thread = true;
    s->world.greeting = stdout;
    s->world.stop_grace_s = STOP_GRACE_S;
    s->world.outlives_deaths = rpi_strategy_outlives(s->train.strategy, &s->world.vital_ranks);
    if (s->train.resume && !s->train.out) s->train.out = s->train.resume;
    return RP_OK;
}

/* A mistake of usage, or a failure; told apart by its status. */
static int failed(rp_status status) {
    return status == RP_INVALID ? rpi_command_misused("train", status)
                                : rpi_command_failed(status);
}

static rp_status check(const settings *s) {
    RP_TRY(rpi_world_check(&s->world));
    RP_TRY(rpi_train_check(&s->train, (int)s->world.ranks));
    return rpi_train_check_files(&s->train);
}

/* "runs/resnet18-fashion-mnist-20260102-030405", chosen by rank 0 for all. */
static rp_status choose_folder(settings *s, const rpi_world *world) {
    if (s->train.out) return RP_OK;
    char when[32];
    time_t now = time(NULL);
    struct tm parts;
    strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime_r(&now, &parts));
    const char *slash = strrchr(s->train.data, '/'); /* tokens:FOLDER/NAME */
    snprintf(s->folder, sizeof s->folder, "runs/%.100s-%.100s-%s", s->train.model,
             slash ? slash + 1 : s->train.data, when);
    for (char *c = s->folder + 5; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '.') *c = '-';
    RP_TRY(rp_broadcast(world->comm, s->folder, sizeof s->folder, RP_U8, NULL));
    s->train.out = s->folder;
    return RP_OK;
}

/* ---- ranks that come back ---- */

#define FOLDER_KEY "redpoll/returns/folder"

static rp_status open_store(void *context, const rp_store **out_store) {
    return rpi_world_store(context, out_store);
}

static rp_status connect_again(void *context, const char *name, uint32_t epoch, int rank,
                               int ranks, double connect_timeout_s, rp_comm **out_comm) {
    rp_comm_options asked = {
        .name = name, .epoch = epoch, .connect_timeout_s = connect_timeout_s};
    return rpi_world_connect(context, &asked, rank, ranks, out_comm);
}

/* What this process was started for in the launcher's own store. */
static void prepare_returns(settings *s, rpi_world *world) {
    if (!s->restarts || !rpi_launched()) return;
    s->returns = (rpi_train_returns){.context = world,
                                     .generation = rpi_launch_generation(),
                                     .rank = world->rank,
                                     .world = world->ranks,
                                     .timeout_s = s->world.timeout_s,
                                     .store = open_store,
                                     .connect = connect_again};
    s->train.returns = &s->returns;
}

/* The folder that rank 0 has chosen is there for who comes back, too. */
static rp_status tell_folder(const settings *s, rpi_world *world) {
    const rp_store *store = NULL;
    if (!s->train.returns || world->rank > 0) return RP_OK;
    RP_TRY(rpi_world_store(world, &store));
    return store->ops->set(store->context, FOLDER_KEY, s->train.out, strlen(s->train.out));
}

static rp_status hear_folder(settings *s, rpi_world *world) {
    const rp_store *store = NULL;
    size_t bytes = 0;
    RP_TRY(rpi_world_store(world, &store));
    RP_TRY(store->ops->get(store->context, FOLDER_KEY, s->world.connect_timeout_s, s->folder,
                           sizeof s->folder - 1, &bytes));
    s->train.out = s->folder;
    return RP_OK;
}

static rp_status find_folder(settings *s, rpi_world *world) {
    if (s->train.out) return RP_OK;
    if (!world->comm) return hear_folder(s, world);
    RP_TRY(choose_folder(s, world));
    return tell_folder(s, world);
}

/* This rank's share of the cores, unless somebody has said it. */
static int64_t choose_threads(const settings *s, const rpi_world *world) {
    const char *told = getenv("OMP_NUM_THREADS");
    long threads = told ? strtol(told, NULL, 10) : 0;
    if (s->train.threads > 0) return s->train.threads;
    if (threads > 0 && threads <= 4096) return threads;
    return world->cores;
}

static const char *signal_name(int number) {
    return number == SIGINT ? "SIGINT" : "SIGTERM";
}

/* As a shell wants to be told it. */
static void print_quoted(const char *word) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
    if (*word && !word[strspn(word, plain)]) {
        printf("%s", word);
        return;
    }
    putchar('\'');
    for (; *word; word++) {
        if (*word == '\'')
            printf("'\\''");
        else
            putchar(*word);
    }
    putchar('\'');
}

static void print_how_to_go_on(const settings *s, const rpi_world *world,
                               const rpi_train_result *result) {
    printf("stopped by %s after step %lld; ", signal_name(rpi_train_stop_signal()),
           (long long)(result->first_step + result->steps - 1));
    if (!s->train.checkpoint) {
        printf("nothing was saved, as --no-checkpoint says\n");
        return;
    }
    bool launched = world->ranks > 1 && !s->world.ranks;
    printf(launched ? "go on by starting it in the same way with --resume "
                    : "go on with: redpoll train --resume ");
    print_quoted(s->train.out);
    putchar('\n');
}

/* Most steps send next to nothing: a median would say that all do. */
static bool exchanges_seldom(const rpi_train_result *result) {
    return result->wire_bytes_median < .5 * result->wire_bytes_mean;
}

static void print_result(const settings *s, const rpi_world *world,
                         const rpi_train_result *result) {
    char time[3][RPI_TIME_BYTES], loss[RPI_NUMBER_BYTES];
    if (result->steps == 0)
        printf("nothing was left to train; --steps says how far to go\n");
    else
        printf("%lld steps in %s, %.1f %s/s (median), loss %s\n", (long long)result->steps,
               rpi_time_text(result->seconds, time[0]), result->rate_median, result->unit,
               rpi_loss_text(result->last_loss, loss));
    if (result->steps > 0 && world->ranks > 1 && exchanges_seldom(result))
        printf("a step: %s (median); on average %.3f MB sent by a rank and %s exposed\n",
               rpi_time_text(result->step_s_median, time[0]), 1e-6 * result->wire_bytes_mean,
               rpi_time_text(result->exposed_s_mean, time[1]));
    else if (result->steps > 0 && world->ranks > 1)
        printf("a step (median): %s, %.3f MB sent by a rank, communication %s, of which %s "
               "exposed\n",
               rpi_time_text(result->step_s_median, time[0]), 1e-6 * result->wire_bytes_median,
               rpi_time_text(result->comm_s_median, time[1]),
               rpi_time_text(result->exposed_s_median, time[2]));
    if (result->back[0]) printf("back: %s\n", result->back);
    if (result->lost[0])
        printf("lost: %s; %d of %d ranks have ended the run\n", result->lost, result->ranks,
               world->ranks);
    rpi_train_profile_print(&result->profile, stdout);
    printf("results are in %s\n", s->train.out);
    if (result->stopped) print_how_to_go_on(s, world, result);
}

static void print_changes(const settings *s, const rpi_train_hooks *hooks) {
    char line[sizeof s->changes];
    for (const char *at = s->changes; *at; at += strcspn(at, "\n") + 1) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        hooks->note(hooks->context, line);
    }
}

/* A warning does not stand behind the bar. */
static void log_line(void *context, rp_log_level level, const char *line) {
    rpi_progress_end(context);
    rpi_log_print(level, line);
}

static rp_status train(settings *s, rpi_world *world, bool *out_stopped) {
    settings given = *s;
    s->train.given = &given;
    prepare_returns(s, world);
    RP_TRY(find_folder(s, world));
    s->train.threads = choose_threads(s, world);
    rpi_progress progress = rpi_progress_on(stdout);
    rp_log_set_sink(log_line, &progress);
    progress.is_silent = world->rank > 0;
    rpi_train_hooks hooks = rpi_progress_hooks(&progress);
    print_changes(s, &hooks);
    hooks.asked = rpi_train_asked;
    rpi_train_result result = {0};
    rp_status status = rpi_train(&s->train, world->comm, &hooks, &result);
    rpi_progress_end(&progress);
    rp_log_set_sink(NULL, NULL);
    if (status == RP_OK && result.is_late)
        fprintf(stderr, "redpoll train: rank %d came back when the run was over\n",
                world->rank);
    if (status == RP_OK && result.rank == 0 && world->comm) print_result(s, world, &result);
    *out_stopped = result.stopped;
    return status;
}

static rp_status join_world(const settings *s, rpi_world *out_world) {
    if (!rpi_launch_generation()) return rpi_world_join(&s->world, out_world);
    if (s->restarts) return rpi_world_find(&s->world, out_world);
    return RP_FAIL(STATE, "this rank was started in the place of one that died, and the run "
                          "takes nobody back: --restart 0");
}

static int run_rank(settings *s) {
    rpi_world world = {0};
    bool stopped = false;
    rp_status status = join_world(s, &world);
    if (status != RP_OK) return failed(status);
    int code = RPI_EXIT_DONE;
    status = rpi_train_check(&s->train, world.ranks);
    if (status == RP_OK) {
        rpi_train_take_stop_signals(world.rank == 0);
        status = train(s, &world, &stopped);
        rpi_train_drop_stop_signals();
    }
    if (status != RP_OK)
        code = failed(status);
    else if (stopped)
        code = 128 + rpi_train_stop_signal();
    rpi_world_leave(&world);
    return code;
}

static int run_settings(settings *s, int argc, char **argv) {
    if (rpi_world_must_launch(&s->world)) {
        rp_status status = check(s);
        return status == RP_OK ? rpi_world_launch(&s->world, "train", argc, argv)
                               : failed(status);
    }
    return run_rank(s);
}

static int run(int argc, char **argv) {
    settings s = {0};
    sources from = {0};
    bool wants_help = false;
    rpi_train_take_save_signal();
    rp_status status = read_settings(argc, argv, &s, &from, &wants_help);
    int code = RPI_EXIT_DONE;
    if (status != RP_OK)
        code = status == RP_CORRUPT ? rpi_command_failed(status)
                                    : rpi_command_misused("train", status);
    else if (wants_help)
        rpi_command_print_help(&rpi_command_train, stdout);
    else
        code = run_settings(&s, argc, argv);
    close_sources(&from);
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
    .options = options,
    .inner_at = inner_at,
    .run = run,
};
