/* What two runs have written is compared by the right bounds: two folders are made by hand, in
 * which one number is off, by how much a row says. */
#include "base/status.h"
#include "cli/verify_command.h"
#include "harness/check.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/safetensors.h"
#include "train/divergence.h"
#include "train/replicas.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { STEPS = 3, ELEMENTS = 4, SLOTS = 2 };
static const double rate = 1e-3;

/* By how much the layout's number is off after each step: of the loss and the norm relative, of
 * the second element of a parameter whose first is 1, and of the second of a slot whose first
 * is 1e-2. Add a row. */
typedef struct fault_row {
    const char *optimizer;
    double loss[STEPS], norm[STEPS], parameter[STEPS], state[STEPS];
    int64_t every;        /* steps between checkpoints */
    int beyond_step;      /* 0: nothing is beyond its bound */
    rpi_verify_kind kind; /* that is */
} fault_row;

static const fault_row faults[] = {
    {"adamw", {0}, {0}, {0}, {0}, 1, 0, RPI_VERIFY_LOSS},
    /* An element whose gradient is rounding alone goes a whole step, either way, */
    {"adamw", {0}, {0}, {1.9e-3}, {0}, 1, 0, RPI_VERIFY_LOSS},
    {"adamw", {0}, {0}, {2.1e-3}, {0}, 1, 1, RPI_VERIFY_PARAMETERS},
    /* and the gradients behind it are as far off, and squares twice as far; */
    {"adamw", {0}, {0}, {1e-3, 1e-3, 1e-3}, {0, 1.9e-5, 1.9e-5}, 1, 0, RPI_VERIFY_LOSS},
    {"adamw", {0}, {0}, {1e-3, 1e-3, 1e-3}, {0, 2.1e-5}, 1, 2, RPI_VERIFY_OPTIMIZER},
    {"adamw", {0}, {0}, {1e-3}, {0, 0, 1.9e-5}, 1, 0, RPI_VERIFY_LOSS},
    {"lamb", {0}, {0}, {1e-3}, {0, 1.9e-5}, 1, 0, RPI_VERIFY_LOSS},
    {"adamw", {0}, {0, 0.9e-3}, {1e-3}, {0}, 1, 0, RPI_VERIFY_LOSS},
    {"adamw", {0}, {0, 1.1e-3}, {1e-3}, {0}, 1, 2, RPI_VERIFY_NORM},
    /* a loss is flat there; */
    {"adamw", {0, 2.9e-6}, {0}, {1e-3}, {0}, 1, 0, RPI_VERIFY_LOSS},
    {"adamw", {0, 3.1e-6}, {0}, {1e-3}, {0}, 1, 2, RPI_VERIFY_LOSS},
    /* but not before it, nor where parameters are the same. */
    {"adamw", {0}, {0}, {1e-3}, {5e-7}, 1, 1, RPI_VERIFY_OPTIMIZER},
    {"adamw", {0}, {0}, {0}, {0, 5e-7}, 1, 2, RPI_VERIFY_OPTIMIZER},
    {"adamw", {0}, {0}, {0, 1e-3}, {0, 5e-7}, 1, 2, RPI_VERIFY_OPTIMIZER},
    {"adamw", {0}, {3e-5}, {1e-3}, {0}, 1, 1, RPI_VERIFY_NORM},
    {"adamw", {2e-6}, {0}, {1e-3}, {0}, 1, 1, RPI_VERIFY_LOSS},
    {"sgd", {0}, {0}, {9e-6}, {0, 1.9e-7}, 1, 0, RPI_VERIFY_LOSS},
    {"sgd", {0}, {0}, {9e-6}, {0, 2.2e-7}, 1, 2, RPI_VERIFY_OPTIMIZER},
    {"sgd", {0}, {0}, {1e-3}, {0}, 1, 1, RPI_VERIFY_PARAMETERS},
    /* Behind steps that nobody has compared it may have happened. */
    {"adamw", {0}, {0}, {0}, {0, 3.9e-5}, 2, 0, RPI_VERIFY_LOSS},
    {"adamw", {0}, {0}, {0}, {0, 4.1e-5}, 2, 2, RPI_VERIFY_OPTIMIZER},
    {"adamw", {0}, {0}, {0}, {0, 0, 3.9e-5}, 2, 0, RPI_VERIFY_LOSS},
    {"adamw", {0}, {0}, {0}, {0, 0, 4.1e-5}, 2, 3, RPI_VERIFY_OPTIMIZER},
};

/* By how much a slot of another tensor is off, whose largest number is 1e-5: it has a bound of
 * its own size, after the first step. What is rounding of its own numbers, or of the largest of
 * all, is allowed. */
static const struct {
    fault_row row;
    double small[STEPS];
} small_faults[] = {
    {{"adamw", {0}, {0}, {0}, {0}, 1, 1, RPI_VERIFY_OPTIMIZER}, {3e-9}},
    {{"sgd", {0}, {0}, {0}, {0}, 1, 1, RPI_VERIFY_OPTIMIZER}, {3e-9}},
    {{"adamw", {0}, {0}, {0}, {0}, 1, 0, RPI_VERIFY_LOSS}, {0.9e-9}},
    {{"adamw", {0}, {0}, {0}, {0}, 1, 0, RPI_VERIFY_LOSS}, {0, 3e-9, 3e-9}},
    {{"adamw", {0}, {0}, {0}, {0}, 2, 0, RPI_VERIFY_LOSS}, {3e-9, 3e-9}},
};

/* ---- two runs ---- */

static void write_metrics(const char *folder, const fault_row *row, double share) {
    char path[600];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fprintf(file, "{\"redpoll\":\"run\",\"train_tokens\":64}\n");
    for (int i = 0; i < STEPS; i++)
        fprintf(file,
                "{\"step\":%d,\"loss\":%.17g,\"grad_norm\":%.17g,\"lr\":%g,\"tokens_s\":8,"
                "\"step_s\":1}\n",
                i + 1, 5 * (1 + share * row->loss[i]), 2 * (1 + share * row->norm[i]), rate);
    CHECK_EQ(fclose(file), 0);
}

static void write_checkpoint(const char *folder, int step, double parameter, double state,
                             double small) {
    static const char *const slots[] = {"optimizer.exp_avg.weight",
                                        "optimizer.exp_avg_sq.weight"};
    char path[RPI_CHECKPOINT_PATH], text[16];
    float values[ELEMENTS] = {1, (float)(0.5 + parameter)}, slot[ELEMENTS] = {0.01F};
    const rpi_shape shape = {.dims = 1, .size = {ELEMENTS}};
    const float scales[ELEMENTS] = {1e-5F, (float)(5e-6 + small)};
    rpi_named_tensor tensors[2 + SLOTS] = {
        {"weight", RP_F32, shape, values},
        [1 + SLOTS] = {"optimizer.exp_avg.scale", RP_F32, shape, scales}};
    slot[1] = (float)(0.005 + state);
    for (int i = 0; i < SLOTS; i++)
        tensors[1 + i] = (rpi_named_tensor){slots[i], RP_F32, shape, slot};
    snprintf(text, sizeof text, "%d", step);
    const rpi_metadata metadata[] = {{"step", text}};
    rpi_checkpoint_earlier_path(folder, step, path);
    REQUIRE_OK(rpi_safetensors_write(path, tensors, 2 + SLOTS, metadata, 1));
}

/* share: of the row's differences, 0 or 1 */
static void write_run(const char *folder, const fault_row *row, const double small[STEPS],
                      double share) {
    (void)mkdir(folder, 0700);
    write_metrics(folder, row, share);
    for (int i = 0; i < STEPS; i++)
        write_checkpoint(folder, i + 1, share * row->parameter[i], share * row->state[i],
                         share * small[i]);
}

static void look(const fault_row *row, const double small[STEPS], int index) {
    const rpi_verify_settings asked = {.steps = STEPS, .tolerance = -1};
    rpi_verify_job job = {.asked = &asked};
    rpi_verify_result result;
    job.train.train.optimizer = row->optimizer;
    job.train.train.codec = "fp32";
    job.train.train.checkpoint_every = row->every;
    job.layout = (rpi_verify_layout){.options = &job.train.train,
                                     .stages = 1,
                                     .replicas = 1,
                                     .tensor_ranks = 2,
                                     .context_ranks = 1,
                                     .micro_batches = 1};
    snprintf(job.one, sizeof job.one, "%s/one", check_folder());
    snprintf(job.other, sizeof job.other, "%s/other-%d", check_folder(), index);
    if (index == 0) write_run(job.one, row, small, 0);
    write_run(job.other, row, small, 1);
    REQUIRE_OK(rpi_verify_compare(&job, STEPS, &result));
    CHECK_MSG(result.beyond.step == row->beyond_step, "row %d: beyond after step %lld", index,
              (long long)result.beyond.step);
    CHECK_MSG(result.beyond.kind == row->kind, "row %d: %s is beyond", index,
              rpi_verify_kind_name(result.beyond.kind));
}

static void what_is_beyond_its_bound_is_found(void) {
    const double none[STEPS] = {0};
    for (int i = 0; i < (int)(sizeof faults / sizeof faults[0]); i++) look(&faults[i], none, i);
}

static void small_tensors_have_a_bound_of_their_own(void) {
    for (int i = 0; i < (int)(sizeof small_faults / sizeof small_faults[0]); i++)
        look(&small_faults[i].row, small_faults[i].small, i);
}

/* ---- a layout that ends before it can be compared ---- */

/* What the last rank of a run has printed, and what is found in it; "": nothing. */
static const struct {
    const char *printed, *found;
} endings[] = {
    {"step 1/3  loss 5.7\n", ""},
    {"redpoll: rank 1 gave up: timed out\n", ""},
    {"step 1/3\nredpoll: rank 0, tensor 0: copies" RPI_REPLICAS_UNEQUAL
     "1: rank 1, tensor 1 differs from rank 0, tensor 0 in wpe.weight; replicas stay "
     "equal\nend\n",
     "copies are not equal after step 1: rank 1, tensor 1 differs from rank 0, tensor 0 in "
     "wpe.weight"},
    {"replicas" RPI_REPLICAS_UNEQUAL "0: rank 1 differs",
     "replicas are not equal after step 0: rank 1 differs"},
};

static void print_log(int rank, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/rank-%d.log", check_folder(), rank);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK_EQ(fclose(file), 0);
}

static void copies_that_differ_are_found_in_logs(void) {
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        char found[RPI_VERIFY_UNEQUAL] = "", few[8] = "";
        bool is_there = endings[i].found[0] != '\0';
        print_log(0, "redpoll: rank 2 gave up\n"); /* rank 1 has no log */
        print_log(2, endings[i].printed);
        CHECK(rpi_verify_find_unequal(check_folder(), 3, found, sizeof found) == is_there);
        CHECK(strcmp(found, endings[i].found) == 0);
        CHECK(rpi_verify_find_unequal(check_folder(), 3, few, sizeof few) == is_there);
        CHECK(!rpi_verify_find_unequal(check_folder(), 2, few, sizeof few));
    }
}

static void divergence_is_found_in_logs(void) {
    char found[RPI_VERIFY_UNEQUAL] = "", few[10] = "";
    print_log(0, "redpoll: rank 1 gave up\n");
    print_log(1, "step 1/9\n[1] redpoll: rank 1, stage 1: " RPI_DIVERGED
                 "12: the loss is not finite, on every rank; try less\n");
    CHECK_EQ(rpi_verify_find_divergence(check_folder(), 1, found, sizeof found), 0);
    CHECK(found[0] == '\0');
    CHECK_EQ(rpi_verify_find_divergence(check_folder(), 2, found, sizeof found), 12);
    CHECK(strcmp(found, RPI_DIVERGED "12: the loss is not finite, on every rank") == 0);
    CHECK_EQ(rpi_verify_find_divergence(check_folder(), 2, few, sizeof few), 12);
    CHECK(strcmp(few, "training ") == 0);
}

CASES({"what is beyond its bound is found", what_is_beyond_its_bound_is_found},
      {"small tensors have a bound of their own", small_tensors_have_a_bound_of_their_own},
      {"copies that differ are found in logs", copies_that_differ_are_found_in_logs},
      {"divergence is found in logs", divergence_is_found_in_logs})
