/* Two runs that are the same are found equal; an element that is changed in one of them is
 * found, where it is; and a layout has the bounds of its reasons. */
#include "base/status.h"
#include "harness/check.h"
#include "train/checkpoint/piece_files.h"
#include "train/parallel/verify.h"
#include "train_ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a run that is spoiled ---- */

static rpi_train_options options_of(const char *name) {
    rpi_train_options options = ranks_options();
    options.model = "resnet20:width=2";
    options.train_images = 32;
    options.test_images = 8;
    options.global_batch_size = 8;
    options.micro_batch_size = 4;
    options.steps = 2;
    options.checkpoint_every = 1;
    options.keep = 2;
    options.eval = false;
    options.out = ranks_folder(name);
    return options;
}

/* Element `element` of a tensor in a file of pieces becomes `factor` times itself, plus `by`.
 */
static void change(const char *path, const char *entry, int64_t element, float factor,
                   float by) {
    static const char *const keys[] = {"redpoll", "part", RPI_PIECES_KEY};
    rpi_safetensors *file = NULL;
    rpi_metadata metadata[3];
    REQUIRE_OK(rpi_safetensors_open(path, &file));
    int count = rpi_safetensors_count(file), found = 0;
    rpi_named_tensor *tensors = calloc((size_t)count, sizeof *tensors);
    for (int i = 0; i < count; i++) {
        tensors[i] = *rpi_safetensors_at(file, i);
        float *data = malloc((size_t)rpi_shape_count(&tensors[i].shape) * sizeof *data);
        REQUIRE_OK(
            rpi_safetensors_read(file, tensors[i].name, RP_F32, &tensors[i].shape, data));
        if (strcmp(tensors[i].name, entry) == 0) {
            data[element] = factor * data[element] + by;
            found++;
        }
        tensors[i].data = data;
    }
    CHECK_EQ(found, 1);
    for (int m = 0; m < 3; m++)
        metadata[m] = (rpi_metadata){keys[m], rpi_safetensors_metadata(file, keys[m])};
    CHECK_OK(rpi_safetensors_write(path, tensors, count, metadata, 3));
    for (int i = 0; i < count; i++) free((void *)(uintptr_t)tensors[i].data);
    free(tensors);
    rpi_safetensors_close(file);
}

/* The model's file, which is metadata alone where all is in pieces, takes any files of ranks
 * from here on: it says no longer which it was saved with. */
static void let_any_ranks_pass(const char *folder) {
    static const char *const keys[] = {"redpoll", "model", "shape",
                                       "step",    "world", RPI_PIECE_RANKS_KEY};
    enum { KEYS = sizeof keys / sizeof keys[0] };
    char path[600];
    rpi_safetensors *file = NULL;
    rpi_metadata metadata[KEYS];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    REQUIRE_OK(rpi_safetensors_open(path, &file));
    CHECK_EQ(rpi_safetensors_count(file), 0);
    for (int m = 0; m < KEYS; m++)
        metadata[m] = (rpi_metadata){keys[m], rpi_safetensors_metadata(file, keys[m])};
    CHECK_OK(rpi_safetensors_write(path, NULL, 0, metadata, KEYS));
    rpi_safetensors_close(file);
}

/* Add a row: one element of what a rank saved of two stages is changed. */
typedef struct spoiled_row {
    int rank;
    const char *tensor;
    int64_t element;
    float by;
    int kind;
} spoiled_row;

static const spoiled_row spoiled[] = {
    {0, "conv1.weight", 7, 0.25F, RPI_VERIFY_PARAMETERS},
    {1, "fc.bias", 3, 1e-7F, RPI_VERIFY_PARAMETERS},
    {1, "optimizer.momentum.fc.weight", 11, 1e-3F, RPI_VERIFY_OPTIMIZER},
    {0, "bn1.running_var", 1, 0.5F, RPI_VERIFY_STATISTICS},
};
enum { SPOILED = sizeof spoiled / sizeof spoiled[0] };

static void check_spoiled(const spoiled_row *row, const char *one, const char *other) {
    char path[600], entry[128];
    rpi_verify_difference kinds[RPI_VERIFY_KINDS];
    snprintf(path, sizeof path, "%s/rank-%d-of-2-step-2.safetensors", other, row->rank);
    snprintf(entry, sizeof entry, "%s@0", row->tensor);
    change(path, entry, row->element, 1, row->by);
    REQUIRE_OK(rpi_verify_checkpoints(one, other, 2, kinds));
    for (int k = RPI_VERIFY_PARAMETERS; k < RPI_VERIFY_KINDS; k++)
        CHECK_EQ(kinds[k].differing, k == row->kind);
    const rpi_verify_tensor *first = &kinds[row->kind].first;
    CHECK_MSG(strcmp(first->name, row->tensor) == 0, "it names %s", first->name);
    CHECK_EQ(first->differing, 1);
    CHECK_EQ(first->element, row->element);
    CHECK_EQ(first->rank, row->rank);
    CHECK(fabs(first->other - first->one - (double)row->by) < 1e-6);
    CHECK(kinds[row->kind].largest == fabs(first->other - first->one));
    change(path, entry, row->element, 0, (float)first->one); /* as it was */
}

static void a_changed_element_is_found(void) {
    rpi_train_options one = options_of("one"), other = options_of("other");
    rpi_verify_difference kinds[RPI_VERIFY_KINDS];
    REQUIRE_OK(ranks_train(&one, 1, NULL));
    other.stages = 2;
    REQUIRE_OK(ranks_train(&other, 2, NULL));
    for (int64_t step = 0; step <= 2; step++) {
        REQUIRE_OK(rpi_verify_checkpoints(one.out, other.out, step, kinds));
        for (int k = RPI_VERIFY_PARAMETERS; k < RPI_VERIFY_KINDS; k++) {
            CHECK(kinds[k].compared > 20);
            CHECK_EQ(kinds[k].differing, 0);
            CHECK(kinds[k].scale > 0);
        }
    }
    CHECK(rpi_verify_checkpoints(one.out, other.out, 3, kinds) == RP_NOT_FOUND);
    let_any_ranks_pass(other.out);
    for (int i = 0; i < SPOILED; i++) check_spoiled(&spoiled[i], one.out, other.out);
}

/* The first in the model's order, and the one that is furthest off, may be two. */
static void the_first_and_the_worst_are_told_apart(void) {
    rpi_train_options one = options_of("plain"), other = options_of("pieces");
    rpi_verify_difference kinds[RPI_VERIFY_KINDS];
    char path[600];
    REQUIRE_OK(ranks_train(&one, 1, NULL));
    other.stages = 2;
    REQUIRE_OK(ranks_train(&other, 2, NULL));
    let_any_ranks_pass(other.out);
    snprintf(path, sizeof path, "%s/rank-0-of-2-step-2.safetensors", other.out);
    change(path, "conv1.weight@0", 0, 1, 0.01F);
    snprintf(path, sizeof path, "%s/rank-1-of-2-step-2.safetensors", other.out);
    change(path, "fc.weight@0", 5, 1, 0.5F);
    REQUIRE_OK(rpi_verify_checkpoints(one.out, other.out, 2, kinds));
    const rpi_verify_difference *d = &kinds[RPI_VERIFY_PARAMETERS];
    CHECK_EQ(d->differing, 2);
    CHECK_MSG(strcmp(d->first.name, "conv1.weight") == 0, "first is %s", d->first.name);
    CHECK_MSG(strcmp(d->worst.name, "fc.weight") == 0, "worst is %s", d->worst.name);
    CHECK(fabs(d->largest - 0.5) < 1e-6);
    CHECK(fabs(d->relative - d->largest / d->scale) < 1e-12);
}

static void numbers_are_compared_by_bits(void) {
    rpi_verify_difference d;
    rpi_verify_numbers("loss", 2.5, 2.5, &d);
    CHECK_EQ(d.compared, 1);
    CHECK_EQ(d.differing, 0);
    rpi_verify_numbers("loss", 2.0, 2.5, &d);
    CHECK_EQ(d.differing, 1);
    CHECK(d.largest == 0.5 && d.relative == 0.25);
    rpi_verify_numbers("norm", (double)NAN, (double)NAN, &d);
    CHECK_EQ(d.compared, 0);
    rpi_verify_numbers("norm", 1.0, (double)NAN, &d);
    CHECK(d.differing == 1 && isinf(d.relative));
    rpi_verify_numbers("norm", 0.0, -0.0, &d);
    CHECK(d.differing == 1 && d.relative == 0);
}

/* ---- bounds ---- */

/* Add a row: what is said of a layout, and its reasons, in the order of their table. */
typedef struct bound_row {
    int stages, replicas, tensor_ranks;
    int64_t micro_batches;
    bool has_ties, has_shared, has_short_batch;
    const char *codec, *weights_codec, *dtype, *reasons;
    double loss, parameters, statistics;
    int context_ranks;
} bound_row;

#define NONE HUGE_VAL
static const bound_row bounds[] = {
    {1, 1, 1, 8, 0, 0, 0, "q4", NULL, NULL, "", 0, 0, 0, 1},
    {1, 1, 1, 8, 0, 1, 0, "fp32", NULL, NULL, "", 0, 0, 0, 1},
    {4, 1, 1, 8, 0, 0, 1, "fp32", NULL, "fp32", "", 0, 0, 0, 1},
    {1, 4, 1, 1, 1, 0, 0, "fp32", NULL, NULL, "kernels statistics ", 1e-6, 1e-5, NONE, 1},
    {1, 2, 1, 1, 0, 1, 0, "fp32", NULL, NULL, "kernels shared statistics ", 1e-6, 1e-5, NONE,
     1},
    {2, 1, 1, 4, 1, 1, 0, "fp32", NULL, NULL, "tie ", 1e-6, 1e-5, 0, 1},
    {1, 2, 1, 4, 0, 0, 0, "fp32", NULL, NULL, "kernels order statistics ", 1e-6, 1e-5, NONE, 1},
    {1, 2, 1, 1, 0, 0, 1, "fp32", NULL, NULL, "kernels short batch statistics ", 1e-6, 1e-5,
     NONE, 1},
    {2, 1, 1, 4, 0, 0, 0, "fp32", NULL, "bf16", "bf16 ", 2e-2, 2e-2, 2e-2, 1},
    {1, 2, 1, 1, 0, 0, 0, "q4", NULL, NULL, "kernels codec statistics ", NONE, NONE, NONE, 1},
    {1, 2, 1, 1, 0, 0, 0, "auto", NULL, NULL, "kernels codec statistics ", NONE, NONE, NONE, 1},
    {1, 1, 2, 8, 0, 1, 0, "fp32", NULL, "fp32", "tensor ", 1e-6, 1e-5, 0, 1},
    {1, 1, 2, 8, 0, 1, 0, "fp32", NULL, "bf16", "tensor bf16 ", 2e-2, 2e-2, 2e-2, 1},
    {2, 2, 2, 1, 0, 0, 0, "fp32", NULL, NULL, "tensor kernels statistics ", 1e-6, 1e-5, NONE,
     1},
    {1, 2, 1, 1, 0, 0, 0, "fp32", "q8", NULL, "kernels weights codec statistics ", NONE, NONE,
     NONE, 1},
    {1, 1, 1, 4, 0, 1, 0, "fp32", NULL, NULL, "context ", 1e-6, 1e-5, 0, 2},
    {1, 1, 1, 4, 0, 1, 0, "q8", NULL, "bf16", "context bf16 codec ", NONE, NONE, NONE, 2},
    {1, 2, 2, 1, 0, 0, 0, "fp32", NULL, NULL, "tensor context kernels statistics ", 1e-6, 1e-5,
     NONE, 2},
};
enum { BOUNDS = sizeof bounds / sizeof bounds[0] };

static void a_layout_has_the_bounds_of_its_reasons(void) {
    for (int i = 0; i < BOUNDS; i++) {
        const bound_row *row = &bounds[i];
        rpi_train_options options = {
            .codec = row->codec, .weights_codec = row->weights_codec, .dtype = row->dtype};
        rpi_verify_layout layout = {.options = &options,
                                    .stages = row->stages,
                                    .replicas = row->replicas,
                                    .tensor_ranks = row->tensor_ranks,
                                    .context_ranks = row->context_ranks,
                                    .micro_batches = row->micro_batches,
                                    .has_ties = row->has_ties,
                                    .has_shared = row->has_shared,
                                    .has_short_batch = row->has_short_batch};
        rpi_verify_bounds of = rpi_verify_bounds_of(&layout);
        char names[256] = "";
        const rpi_verify_reason *reason;
        for (int r = 0; (reason = rpi_verify_reason_at(r)) != NULL; r++)
            if (reason->applies(&layout))
                snprintf(names + strlen(names), sizeof names - strlen(names), "%s ",
                         reason->name);
        CHECK_MSG(strcmp(names, row->reasons) == 0, "row %d: '%s'", i, names);
        CHECK_MSG(of.of[RPI_VERIFY_LOSS] == row->loss, "row %d", i);
        CHECK_MSG(of.of[RPI_VERIFY_PARAMETERS] == row->parameters, "row %d", i);
        CHECK_MSG(of.of[RPI_VERIFY_STATISTICS] == row->statistics, "row %d", i);
    }
}

/* Add a row: a model, and whether stages, or several of its nodes, share a parameter. */
static const struct {
    const char *model;
    int64_t stages;
    bool has_ties, has_shared;
} shared[] = {
    {"gpt2:layers=2,hidden=16,heads=2,vocabulary=64,positions=16", 2, true, true},
    {"gpt2:layers=2,hidden=16,heads=2,vocabulary=64,positions=16", 1, false, true},
    {"llama:layers=2,hidden=16,heads=2,vocabulary=64,positions=16", 2, false, false},
    {"llama:layers=2,hidden=16,heads=2,vocabulary=64,positions=16,tied=on", 2, true, true},
    {"bert:layers=2,hidden=16,heads=2,vocabulary=64,positions=16", 2, true, true},
    {"transformer-xl:layers=2,hidden=16,heads=2,vocabulary=64", 1, false, true},
    {"resnet20:width=2", 2, false, false},
};
enum { SHARED = sizeof shared / sizeof shared[0] };

static void what_is_shared_is_found(void) {
    for (int i = 0; i < SHARED; i++) {
        rpi_train_options options = {.model = shared[i].model, .stages = shared[i].stages};
        rpi_verify_layout layout = {0};
        CHECK_OK(rpi_verify_find_ties(&options, &layout));
        CHECK_MSG(layout.has_ties == shared[i].has_ties, "ties of %s", shared[i].model);
        CHECK_MSG(layout.has_shared == shared[i].has_shared, "shared by %s", shared[i].model);
    }
}

CASES({"a_changed_element_is_found", a_changed_element_is_found},
      {"the_first_and_the_worst_are_told_apart", the_first_and_the_worst_are_told_apart},
      {"numbers_are_compared_by_bits", numbers_are_compared_by_bits},
      {"a_layout_has_the_bounds_of_its_reasons", a_layout_has_the_bounds_of_its_reasons},
      {"what_is_shared_is_found", what_is_shared_is_found})
