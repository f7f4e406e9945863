/* What is NaN or infinite on one rank stops all of them, with one line that names the step, the
 * tensor and the rank where it began; it is neither saved nor loaded. */
#include "base/memory.h"
#include "harness/check.h"
#include "net/bytes/frame.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checksum.h"
#include "train/data/source_images.h"
#include "train/divergence.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { WORLD = 3, CULPRIT = 1 };

/* One way to spoil a rank's training between its first step and its second. */
typedef struct spoiling {
    const char *name;
    void (*spoil)(rpi_trainer *t);
    bool in_step; /* seen by the next step; else only by a look at all that is saved */
    bool lossy;   /* needs error feedback */
    const char *model;
    const char *part; /* of the message */
} spoiling;

static float *element(rpi_trainer *t, float *arena, const char *name, int64_t at) {
    return arena + rpi_weights_find(t->weights, name)->first + at;
}

static void spoil_parameter(rpi_trainer *t) {
    *element(t, rpi_weights_values(t->weights), "fc1.weight", 77) = NAN;
    rpi_weights_changed(t->weights, 0, rpi_weights_count(t->weights));
}

/* Finite parameters with sums beyond f32. */
static void spoil_output(rpi_trainer *t) {
    const rpi_weight *w = rpi_weights_find(t->weights, "fc1.weight");
    float *values = rpi_weights_values(t->weights) + w->first;
    for (int64_t i = 0; i < w->count; i++) values[i] = i % 2 ? 3e38f : 2e38f;
    rpi_weights_changed(t->weights, 0, rpi_weights_count(t->weights));
}

/* Finite logits, and gradients of the hidden layer beyond f32: tiny hidden values under huge
 * weights, of another sign for each other class. */
static void spoil_gradient(rpi_trainer *t) {
    float *values = rpi_weights_values(t->weights);
    const rpi_weight *fc2 = rpi_weights_find(t->weights, "fc2.weight");
    const rpi_weight *fc1 = rpi_weights_find(t->weights, "fc1.weight");
    const rpi_weight *bias = rpi_weights_find(t->weights, "fc1.bias");
    memset(values + fc1->first, 0, (size_t)fc1->count * sizeof *values);
    for (int64_t i = 0; i < bias->count; i++) values[bias->first + i] = 1e-37f;
    int64_t hidden = fc2->shape.size[1];
    for (int64_t i = 0; i < fc2->count; i++)
        values[fc2->first + i] = i / hidden == 0 ? 3.3e38f : -3.3e38f;
    *element(t, values, "fc2.bias", 0) = 50;
    rpi_weights_changed(t->weights, 0, rpi_weights_count(t->weights));
    rpi_source_images_dataset(&t->source)->deviation =
        1e-10f; /* images beyond 1e9 meet weights of 0 */
}

static void spoil_momentum(rpi_trainer *t) {
    *element(t, t->optimizer.slots[0], "fc2.weight", 3) = INFINITY;
}

static void spoil_residual(rpi_trainer *t) {
    *element(t, t->residual, "fc1.weight", 9) = -INFINITY;
}

static void spoil_state(rpi_trainer *t) {
    *element(t, rpi_weights_states(t->weights), "layer1.0.bn1.running_var", 1) = INFINITY;
}

static const spoiling spoilings[] = {
    {"parameter", spoil_parameter, true, false, NULL,
     "at step 2: fc1.weight holds NaN since the update of step 1 on rank 1; "},
    {"output", spoil_output, true, false, NULL,
     "at step 2: the output of fc1 (linear) is not finite, first of the forward pass, on rank "
     "1; "},
    {"gradient", spoil_gradient, true, false, NULL,
     "at step 2: the gradient of fc1.weight holds "},
    {"running variance", spoil_state, true, false, "resnet20:width=2",
     "at step 2: layer1.0.bn1.running_var holds infinity on rank 1; "},
    {"parameter when saving", spoil_parameter, false, false, NULL,
     "at step 1: fc1.weight holds NaN since the update of step 1 on rank 1; "},
    {"momentum", spoil_momentum, false, false, NULL,
     "at step 1: the momentum of fc2.weight holds infinity on rank 1; "},
    {"error feedback", spoil_residual, false, true, NULL,
     "at step 1: the error feedback of fc1.weight holds infinity on rank 1; "},
    {"running variance when saving", spoil_state, false, false, "resnet20:width=2",
     "at step 1: layer1.0.bn1.running_var holds infinity on rank 1; "},
};
enum { SPOILINGS = sizeof spoilings / sizeof spoilings[0] };

typedef struct job {
    rpi_train_options options;
    const spoiling *how;
} job;

static rp_status step(rpi_trainer *t) {
    rpi_step_metrics metrics;
    RP_TRY(rpi_trainer_step(t, &metrics));
    RP_TRY(rpi_step_reports_flush(&t->reports));
    rpi_told_step told;
    while (rpi_step_reports_take(&t->reports, &told))
        RP_TRY(rpi_divergence_report(t, told.faults, told.stride, told.metrics.step,
                                     told.metrics.step - 1));
    return RP_OK;
}

static rp_status run_steps(rpi_trainer *t, const job *it) {
    RP_TRY(step(t));
    RP_TRY(rpi_checkpoint_save(t, it->options.out));
    if (t->place.rank == 0)
        CHECK(rename(ranks_path(it->options.out, "model.safetensors"),
                     ranks_path(it->options.out, "first")) == 0);
    if (t->place.rank == CULPRIT || t->place.world == 1) it->how->spoil(t);
    return it->how->in_step ? step(t) : rpi_checkpoint_save(t, it->options.out);
}

static rp_status train_spoiled(void *context, rp_comm *comm) {
    const job *it = context;
    rpi_trainer t = {0};
    rp_status status = rpi_trainer_open(&t, &it->options, comm);
    if (status == RP_OK) status = run_steps(&t, it);
    rpi_kept_error kept;
    rpi_error_keep(&kept);
    if (status != RP_OK) rp_comm_abort(comm, status, kept.message);
    rpi_trainer_close(&t);
    rpi_error_put_back(&kept);
    return status;
}

static void try_spoiling(const spoiling *how, const char *codec, int accumulate) {
    job it = {.options = ranks_options(), .how = how};
    char name[64];
    snprintf(name, sizeof name, "%s-%s-%d", how->name, codec, accumulate);
    it.options.accumulate = accumulate;
    it.options.codec = codec;
    it.options.out = ranks_folder(name);
    if (how->model) {
        it.options.model = how->model;
        it.options.train_images = 24;
        it.options.global_batch_size = 6;
    } else {
        it.options.global_batch_size = 6;
    }
    REQUIRE(mkdir(it.options.out, 0700) == 0);
    CHECK(ranks_run(WORLD, train_spoiled, &it) == RP_CORRUPT);
    for (int rank = 0; rank < WORLD; rank++) {
        const char *message = ranks_message(rank);
        CHECK_MSG(strstr(message, "training has diverged ") && strstr(message, how->part) &&
                      strstr(message, "on rank 1; ") && strstr(message, "smaller --lr") &&
                      strstr(message, "--lr-warmup-steps") &&
                      strstr(message, "checkpoint is that of step 1: go on from it with") &&
                      strstr(message, it.options.out),
                  "%s, %s: rank %d says '%s'", how->name, codec, rank, message);
    }
    struct stat facts; /* nothing was saved after it */
    CHECK(stat(ranks_path(it.options.out, "model.safetensors"), &facts) != 0);
}

static void all_ranks_name_the_one(void) {
    for (int i = 0; i < SPOILINGS; i++) {
        if (!spoilings[i].lossy) try_spoiling(&spoilings[i], "fp32", 1);
        try_spoiling(&spoilings[i], "q4", 2);
    }
}

static void the_same_on_all_is_of_every_rank(void) {
    rpi_train_options options = ranks_options();
    options.lr = 1e30;
    CHECK_FAILS(ranks_train(&options, 2, NULL), CORRUPT, "on every rank; ");
    CHECK(!strcmp(ranks_message(0), ranks_message(1)));
    CHECK_MSG(strstr(ranks_message(0), "there is no checkpoint to go on from"), "'%s'",
              ranks_message(0));
}

/* A file whose bytes have changed, with a checksum that is right: its digits before, and now.
 */
typedef struct signed_anew {
    char before[RPI_CHECKSUM_DIGITS], now[RPI_CHECKSUM_DIGITS];
} signed_anew;

static signed_anew sign(const char *path, unsigned char *data, size_t bytes) {
    signed_anew it = {0};
    uint32_t old;
    char *digits = rpi_checksum_digits((char *)data + 8, bytes - 8);
    CHECK(digits != NULL);
    if (!digits) return it;
    memcpy(it.before, digits, sizeof it.before);
    CHECK(rpi_checksum_take(digits, &old));
    rpi_checksum_write(digits, rpi_crc32c(0, data, bytes));
    memcpy(it.now, digits, sizeof it.now);
    FILE *stream = fopen(path, "wb");
    CHECK(stream && fwrite(data, 1, bytes, stream) == bytes);
    if (stream) fclose(stream);
    return it;
}

/* The four bytes before the end of the file become NaN, as a version that saved what had
 * diverged would have written them. */
static signed_anew spoil(const char *path) {
    float value = NAN;
    size_t bytes = 0;
    unsigned char *data = ranks_file(path, &bytes);
    signed_anew it = {0};
    CHECK(data != NULL);
    if (!data) return it;
    memcpy(data + bytes - sizeof value, &value, sizeof value);
    it = sign(path, data, bytes);
    free(data);
    return it;
}

/* The model's file says that it was saved with that one. */
static void say_saved_with(const char *path, const signed_anew *rank_file) {
    size_t bytes = 0;
    unsigned char *data = ranks_file(path, &bytes);
    REQUIRE(data);
    char *at = memmem(data, bytes, rank_file->before, sizeof rank_file->before);
    CHECK(at != NULL);
    if (at) memcpy(at, rank_file->now, sizeof rank_file->now);
    (void)sign(path, data, bytes);
    free(data);
}

static void checkpoints_with_nan_are_refused(void) {
    static const char *const files[] = {"model.safetensors", "rank-1-of-2-step-3.safetensors"};
    for (int i = 0; i < 2; i++) {
        rpi_train_options options = ranks_options();
        options.codec = "q4";
        options.steps = 3;
        options.out = ranks_folder(i ? "damaged-rank" : "damaged-model");
        REQUIRE_OK(ranks_train(&options, 2, NULL));
        signed_anew spoiled = spoil(ranks_path(options.out, files[i]));
        if (i) say_saved_with(ranks_path(options.out, files[0]), &spoiled);
        options.resume = options.out;
        options.steps = 5;
        CHECK_FAILS(ranks_train(&options, 2, NULL), CORRUPT, "is NaN: this checkpoint is of");
        int rank = i ? 1 : 0;
        CHECK_MSG(strstr(ranks_message(rank), files[i]) && strstr(ranks_message(rank), " of "),
                  "rank %d says '%s'", rank, ranks_message(rank));
    }
}

/* Where there is an earlier one, that one is taken. */
static void a_finite_checkpoint_before_is_taken(void) {
    rpi_train_options options = ranks_options();
    options.steps = 4;
    options.checkpoint_every = 2;
    options.keep = 2;
    options.out = ranks_folder("before");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    spoil(ranks_path(options.out, "model.safetensors"));
    options.resume = options.out;
    rpi_train_result result = {0};
    CHECK_OK(ranks_train(&options, 2, &result));
    CHECK_EQ(result.first_step, 3);
    CHECK_MSG(strstr(ranks_notes(), "NaN") &&
                  strstr(ranks_notes(), "going on from the one of step 2"),
              "notes: %s", ranks_notes());
}

/* The last line says what happened, and every line is JSON: no bare NaN. */
static void metrics_end_with_the_reason(void) {
    rpi_train_options options = ranks_options();
    options.lr = 1e30;
    options.out = ranks_folder("metrics");
    CHECK(ranks_train(&options, 2, NULL) == RP_CORRUPT);
    size_t bytes = 0;
    char *text = (char *)ranks_file(ranks_path(options.out, "metrics.jsonl"), &bytes);
    REQUIRE(text && bytes > 1);
    text[bytes - 1] = '\0'; /* the last newline */
    const char *last = strrchr(text, '\n');
    REQUIRE(last);
    CHECK_MSG(strstr(last, "{\"failed_step\":") == last + 1 &&
                  strstr(last, "\"error\":\"training has diverged at step "),
              "the last line is '%s'", last);
    CHECK(strstr(text, ":nan") == NULL && strstr(text, ":NaN") == NULL);
    CHECK(strstr(text, ":inf") == NULL && strstr(text, ":-inf") == NULL);
    free(text);
}

typedef struct shortage {
    job job;
    long n;
} shortage;

static rp_status save_short_of_memory(void *context, rp_comm *comm) {
    shortage *s = context;
    rpi_trainer t = {0};
    rp_status status = rpi_trainer_open(&t, &s->job.options, comm);
    if (rp_comm_rank(comm) == CULPRIT) rpi_memory_fail_after(s->n);
    if (status == RP_OK) status = rpi_divergence_check(&t, NULL);
    rpi_memory_fail_after(0);
    rpi_kept_error kept;
    rpi_error_keep(&kept);
    if (status != RP_OK) rp_comm_abort(comm, status, kept.message);
    rpi_trainer_close(&t);
    rpi_error_put_back(&kept);
    return status;
}

static void memory_that_runs_out_fails_all(void) {
    shortage s = {.job.options = ranks_options()};
    rp_status status = RP_NOMEM;
    for (s.n = 1; status != RP_OK && s.n < 500; s.n++) {
        status = ranks_run(2, save_short_of_memory, &s);
        if (status != RP_OK) CHECK_EQ(ranks_status(CULPRIT), RP_NOMEM);
    }
    CHECK_OK(status);
    CHECK(s.n > 2);
}

CASES({"all ranks name the one", all_ranks_name_the_one},
      {"the same on all is of every rank", the_same_on_all_is_of_every_rank},
      {"checkpoints with NaN are refused", checkpoints_with_nan_are_refused},
      {"a finite checkpoint before is taken", a_finite_checkpoint_before_is_taken},
      {"metrics end with the reason", metrics_end_with_the_reason},
      {"memory that runs out fails all", memory_that_runs_out_fails_all})
