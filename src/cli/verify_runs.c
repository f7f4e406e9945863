/* The two runs of `redpoll verify`: processes of `redpoll train`, as a user would start them;
 * and what is said of how they ended. */
#include "base/append.h"
#include "base/folder.h"
#include "base/memory.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/cores.h"
#include "cli/run.h"
#include "cli/verify_command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- words ---- */

rp_status rpi_verify_words_open(int most, rpi_verify_words *words) {
    *words = (rpi_verify_words){.room = most};
    return rpi_alloc_array((size_t)most + 1, sizeof *words->argv, "a command line",
                           &words->argv);
}

void rpi_verify_words_close(rpi_verify_words *words) {
    rpi_free(words->argv);
    *words = (rpi_verify_words){0};
}

void rpi_verify_words_add(rpi_verify_words *words, const char *word) {
    if (words->count < words->room) words->argv[words->count++] = (char *)(uintptr_t)word;
}

static void add_text(rpi_verify_words *words, const char *option, const char *value) {
    size_t room = sizeof words->own - words->used;
    int length = snprintf(words->own + words->used, room, "--%s=%s", option, value);
    if (length < 0 || (size_t)length >= room) return;
    rpi_verify_words_add(words, words->own + words->used);
    words->used += (size_t)length + 1;
}

void rpi_verify_words_number(rpi_verify_words *words, const char *option, int64_t number) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)number);
    add_text(words, option, text);
}

/* ---- what runs are trained with ---- */

/* The layout's ranks share the cores, and bits may depend on how many threads there are. */
static int64_t threads_of(const rpi_verify_job *job) {
    const char *told = getenv("OMP_NUM_THREADS");
    long threads = told ? strtol(told, NULL, 10) : 0;
    if (job->train.train.threads > 0) return job->train.train.threads;
    if (threads > 0 && threads <= 4096) return threads;
    return rpi_own_share_of_cores((int)job->train.world.ranks);
}

static void add_common(const rpi_verify_job *job, rpi_verify_words *words) {
    const rpi_train_options *o = &job->train.train;
    int64_t steps = job->asked->steps;
    rpi_verify_words_number(words, "steps", steps);
    rpi_verify_words_number(words, "checkpoint-every",
                            o->checkpoint_every ? o->checkpoint_every : 1);
    rpi_verify_words_number(words, "keep", steps);
    rpi_verify_words_number(words, "threads", threads_of(job));
    rpi_verify_words_number(words, "log-every", 1);
    rpi_verify_words_add(words, "--no-eval");
    rpi_verify_words_add(words, "--checkpoint");
    add_text(words, "checkpoint-time", "0s");
    rpi_verify_words_number(words, "sample-every", 0);
    add_text(words, "prompt", "");
    add_text(words, "machine", "");
    if (!(o->clip > 0)) add_text(words, "clip", "1e30"); /* measures the norm, clips nothing */
}

void rpi_verify_layout_words(const rpi_verify_job *job, rpi_verify_words *words) {
    add_common(job, words);
    rpi_verify_words_add(words, "--checkpoint-pieces");
    add_text(words, "out", job->other);
}

/* The same samples in the same runs of the model, one after the other. */
void rpi_verify_one_words(const rpi_verify_job *job, rpi_verify_words *words) {
    int64_t runs = job->layout.replicas * job->layout.micro_batches;
    add_common(job, words);
    rpi_verify_words_number(words, "ranks", 1);
    rpi_verify_words_number(words, "pp", 1);
    rpi_verify_words_number(words, "tp", 1);
    rpi_verify_words_number(words, "cp", 1);
    rpi_verify_words_number(words, "dp", 1);
    rpi_verify_words_number(words, "zero", 0);
    add_text(words, "codec", "fp32");
    add_text(words, "weights-codec", "");
    rpi_verify_words_add(words, "--no-host-shards");
    add_text(words, "activations-codec", "");
    rpi_verify_words_add(words, "--no-recompute");
    rpi_verify_words_number(words, "global-batch-size", job->global_batch);
    rpi_verify_words_number(words, "batch-size", job->global_batch);
    rpi_verify_words_number(words, "micro-batch-size", job->global_batch / runs);
    rpi_verify_words_number(words, "accumulate", runs);
    add_text(words, "out", job->one);
    for (int i = 0; i < job->asked->against.count; i++)
        rpi_verify_words_add(words, job->asked->against.items[i]);
}

/* ---- running ---- */

static rp_status own_path(char *path, size_t bytes) {
    ssize_t length = readlink("/proc/self/exe", path, bytes - 1);
    if (length < 0)
        return RP_FAIL_ERRNO(IO, "cannot find this program's own file (is /proc mounted?)");
    path[length] = '\0';
    return RP_OK;
}

static int launch(const rpi_verify_words *words, int64_t ranks, const char *log) {
    char self[4096];
    rp_status status = own_path(self, sizeof self);
    if (status == RP_OK) status = rpi_folder_make(log);
    if (status != RP_OK) return rpi_command_failed(status);
    return rpi_launch(&(rpi_launch_options){.name = "redpoll verify",
                                            .ranks = ranks,
                                            .path = self,
                                            .argv = words->argv,
                                            .output = RPI_LAUNCH_FILES,
                                            .output_folder = log});
}

void rpi_verify_logs(const char *run, char path[RPI_VERIFY_LOGS]) {
    snprintf(path, RPI_VERIFY_LOGS, "%s-logs", run);
}

/* How a run ended. */
typedef struct verify_ending {
    int code;                            /* its exit code */
    int64_t diverged_at;                 /* the step of which it said so; 0: it did not */
    char divergence[RPI_VERIFY_UNEQUAL]; /* "training has diverged at step 2: the loss ..." */
} verify_ending;

static int run_ranks(const rpi_verify_job *job, const char *log, int64_t ranks,
                     void (*say)(const rpi_verify_job *, rpi_verify_words *)) {
    enum { OWN_WORDS = 64 };
    rpi_verify_words words = {0};
    int most = job->user.count + OWN_WORDS + RPI_OPTION_LIST_MAX;
    rp_status status = rpi_verify_words_open(most, &words);
    if (status != RP_OK) return rpi_command_failed(status);
    rpi_verify_words_add(&words, "redpoll");
    for (int i = 0; i < job->user.count; i++) rpi_verify_words_add(&words, job->user.argv[i]);
    say(job, &words);
    int code = launch(&words, ranks, log);
    rpi_verify_words_close(&words);
    return code;
}

static verify_ending train(const rpi_verify_job *job, const char *run, int64_t ranks,
                           void (*say)(const rpi_verify_job *, rpi_verify_words *)) {
    verify_ending ending = {0};
    char log[RPI_VERIFY_LOGS];
    rpi_verify_logs(run, log);
    ending.code = run_ranks(job, log, ranks, say);
    if (ending.code == RPI_EXIT_FAILED)
        ending.diverged_at =
            rpi_verify_find_divergence(log, ranks, ending.divergence, sizeof ending.divergence);
    return ending;
}

/* ---- what came of them ---- */

static void print(const rpi_verify_job *job, const rpi_verify_result *result) {
    if (job->asked->json)
        rpi_verify_print_json(job, result);
    else
        rpi_verify_print(job, result);
}

/* Both runs have made `steps` steps; divergence: what they said when the next one failed. */
static int compare(const rpi_verify_job *job, int64_t steps, const char *divergence) {
    rpi_verify_result result;
    rp_status status = rpi_verify_compare(job, steps, &result);
    if (status != RP_OK) return rpi_command_failed(status);
    snprintf(result.divergence, sizeof result.divergence, "%s", divergence);
    print(job, &result);
    if (job->asked->out && !job->asked->json) printf("both runs are in %s\n", job->folder);
    return result.beyond.step || divergence[0] ? RPI_EXIT_FAILED : RPI_EXIT_DONE;
}

/* A run that failed leaves nothing to compare, but may say itself that it is not the training
 * of one rank. */
static void print_unequal(const rpi_verify_job *job) {
    rpi_verify_result result = {.layout = job->layout};
    char logs[RPI_VERIFY_LOGS];
    rpi_verify_logs(job->other, logs);
    if (rpi_verify_find_unequal(logs, job->train.world.ranks, result.unequal,
                                sizeof result.unequal))
        print(job, &result);
}

/* "training has diverged at step 2: ..., and that of one rank has not" */
static int tell_divergence(const rpi_verify_job *job, const verify_ending *layout,
                           const verify_ending *one) {
    rpi_verify_result result = {.layout = job->layout};
    if (layout->diverged_at == one->diverged_at)
        return compare(job, layout->diverged_at - 1, layout->divergence);
    if (!layout->diverged_at)
        rpi_append(result.unequal, sizeof result.unequal,
                   "it has not diverged, and on one rank %s", one->divergence);
    else if (!one->diverged_at)
        rpi_append(result.unequal, sizeof result.unequal,
                   "its %s, and that of one rank has not diverged", layout->divergence);
    else
        rpi_append(result.unequal, sizeof result.unequal,
                   "its %s, and that of one rank at step %lld", layout->divergence,
                   (long long)one->diverged_at);
    print(job, &result);
    return RPI_EXIT_FAILED;
}

/* One rank is trained, too, where the layout has diverged: it may be the rate. */
int rpi_verify_train_and_compare(const rpi_verify_job *job, bool *out_run_failed) {
    verify_ending layout =
        train(job, job->other, job->train.world.ranks, rpi_verify_layout_words);
    *out_run_failed = layout.code != 0;
    if (layout.code && !layout.diverged_at) {
        if (layout.code == RPI_EXIT_FAILED) print_unequal(job);
        return layout.code;
    }
    verify_ending one = train(job, job->one, 1, rpi_verify_one_words);
    *out_run_failed |= one.code != 0;
    if (one.code && !one.diverged_at) return one.code;
    if (layout.code || one.code) return tell_divergence(job, &layout, &one);
    return compare(job, job->asked->steps, "");
}
