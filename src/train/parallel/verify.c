#include "train/parallel/verify.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/optimizer.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/piece_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *rpi_verify_kind_name(rpi_verify_kind kind) {
    static const char *const names[] = {
        [RPI_VERIFY_LOSS] = "loss",
        [RPI_VERIFY_NORM] = "gradient norm",
        [RPI_VERIFY_PARAMETERS] = "parameters",
        [RPI_VERIFY_OPTIMIZER] = "optimizer's state",
        [RPI_VERIFY_STATISTICS] = "running statistics",
    };
    return names[kind];
}

/* ---- what differs ---- */

static uint64_t double_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void note_tensor(rpi_verify_difference *d, const rpi_verify_tensor *tensor,
                        double largest) {
    if (!tensor->differing) return;
    bool is_worst = d->differing == 0 || largest > d->largest;
    if (d->differing++ == 0) d->first = *tensor;
    if (is_worst) d->worst = *tensor;
    d->largest = fmax(d->largest, largest);
}

static double distance_of(const rpi_verify_tensor *tensor) {
    return fabs(tensor->one - tensor->other);
}

/* Keeps the one that is furthest off: only of that one the scale of all has to be asked. */
static void note_wrong(rpi_verify_difference *d, const rpi_verify_tensor *tensor) {
    double distance = distance_of(tensor);
    if (!tensor->differing || distance <= RPI_VERIFY_OF_TENSOR * tensor->scale) return;
    if (d->wrong.differing && distance <= distance_of(&d->wrong)) return;
    d->wrong = *tensor;
}

static void end_wrong(rpi_verify_difference *d) {
    const rpi_verify_tensor *wrong = &d->wrong;
    double distance = distance_of(wrong);
    if (!wrong->differing || distance <= RPI_VERIFY_OF_ALL * d->scale) return;
    d->wrong_relative = wrong->scale > 0 ? distance / wrong->scale : INFINITY;
}

static void end_difference(rpi_verify_difference *d) {
    if (d->largest > 0) d->relative = d->scale > 0 ? d->largest / d->scale : INFINITY;
    end_wrong(d);
}

void rpi_verify_numbers(const char *name, double one, double other, rpi_verify_difference *d) {
    *d = (rpi_verify_difference){0};
    if (isnan(one) && isnan(other)) return;
    rpi_verify_tensor number = {.count = 1, .one = one, .other = other, .rank = -1};
    snprintf(number.name, sizeof number.name, "%s", name);
    number.differing = double_bits(one) != double_bits(other);
    d->compared = 1;
    d->scale = fabs(one);
    double largest = fabs(one - other);
    note_tensor(d, &number, isnan(largest) ? INFINITY : largest);
    end_difference(d);
}

/* The elements are finite, which the reader has checked. */
static void compare_elements(const float *one, const float *other, rpi_verify_tensor *tensor) {
    double largest = -1;
    for (int64_t i = 0; i < tensor->count; i++) {
        tensor->scale = fmax(tensor->scale, fabs((double)one[i]));
        if (float_bits(one[i]) == float_bits(other[i])) continue;
        double distance = fabs((double)one[i] - (double)other[i]);
        tensor->differing++;
        if (distance <= largest) continue;
        largest = distance;
        tensor->element = i;
        tensor->one = (double)one[i];
        tensor->other = (double)other[i];
    }
}

/* ---- two checkpoints ---- */

typedef struct saved {
    rpi_safetensors *model;
    rpi_piece_files *pieces;
} saved;

static rp_status open_saved(const char *folder, int64_t step, saved *out) {
    char path[RPI_CHECKPOINT_PATH];
    rpi_checkpoint_earlier_path(folder, step, path);
    if (step == 0 || access(path, F_OK) != 0) rpi_checkpoint_path(folder, path, sizeof path);
    RP_TRY(rpi_safetensors_open(path, &out->model));
    const char *saved_step = rpi_safetensors_metadata(out->model, "step");
    if (step && (!saved_step || strtoll(saved_step, NULL, 10) != step))
        return RP_FAIL(NOT_FOUND, "%s is of step %s, and %s has none of step %lld", path,
                       saved_step ? saved_step : "?", folder, (long long)step);
    return rpi_piece_files_open(out->model, folder, &out->pieces);
}

static void close_saved(saved *it) {
    rpi_piece_files_close(it->pieces);
    rpi_safetensors_close(it->model);
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), bytes = strlen(end);
    return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

/* Tensors of one kind and, for the optimizer's state, of one slot: squares of gradients are far
 * smaller than gradients, and their differences would be hidden by them. */
typedef struct tensor_group {
    rpi_verify_kind kind;
    char slot[RPI_VERIFY_NAME]; /* "optimizer.exp_avg."; "": no slot */
    rpi_verify_difference difference;
} tensor_group;

enum { GROUPS = RPI_VERIFY_KINDS + RPI_OPTIMIZER_SLOTS + 2 };
typedef struct tensor_groups {
    tensor_group of[GROUPS];
    int count;
} tensor_groups;

static const char optimizer_prefix[] = "optimizer.";

static bool is_of_optimizer(const char *tensor) {
    return strncmp(tensor, optimizer_prefix, sizeof optimizer_prefix - 1) == 0;
}

static rpi_verify_kind kind_of(const char *tensor) {
    if (is_of_optimizer(tensor)) return RPI_VERIFY_OPTIMIZER;
    bool is_statistic = ends_with(tensor, ".running_mean") || ends_with(tensor, ".running_var");
    return is_statistic ? RPI_VERIFY_STATISTICS : RPI_VERIFY_PARAMETERS;
}

static rp_status group_of(tensor_groups *groups, const char *tensor, tensor_group **out_group) {
    tensor_group found = {.kind = kind_of(tensor)};
    size_t begin = sizeof optimizer_prefix - 1, length = 0;
    if (is_of_optimizer(tensor)) length = begin + strcspn(tensor + begin, ".") + 1;
    snprintf(found.slot, sizeof found.slot, "%.*s", (int)length, tensor);
    for (int i = 0; i < groups->count; i++) {
        *out_group = &groups->of[i];
        if (groups->of[i].kind == found.kind && strcmp(groups->of[i].slot, found.slot) == 0)
            return RP_OK;
    }
    if (groups->count == GROUPS)
        return RP_FAIL(CORRUPT, "%s: no optimizer has so many slots", tensor);
    groups->of[groups->count] = found;
    *out_group = &groups->of[groups->count++];
    return RP_OK;
}

static void merge(const rpi_verify_difference *d, rpi_verify_difference *into) {
    bool is_first = !into->differing || d->first.place < into->first.place;
    bool is_worst = !into->compared || d->relative > into->relative;
    if (d->differing && is_first) into->first = d->first;
    if (is_worst) {
        into->worst = d->worst;
        into->relative = d->relative;
        into->scale = d->scale;
    }
    if (d->wrong_relative > into->wrong_relative) {
        into->wrong = d->wrong;
        into->wrong_relative = d->wrong_relative;
    }
    into->compared += d->compared;
    into->differing += d->differing;
    into->largest = fmax(into->largest, d->largest);
}

static rp_status compare_read(const saved *runs, const rpi_named_tensor *t, float *elements,
                              rpi_verify_difference *d, int place) {
    rpi_verify_tensor tensor = {
        .place = place, .count = rpi_shape_count(&t->shape), .rank = -1};
    float *other = elements + tensor.count;
    RP_TRY(rpi_piece_files_read_whole(runs[0].pieces, t->name, &t->shape, elements));
    RP_TRY(rpi_piece_files_read_whole(runs[1].pieces, t->name, &t->shape, other));
    snprintf(tensor.name, sizeof tensor.name, "%s", t->name);
    compare_elements(elements, other, &tensor);
    d->scale = fmax(d->scale, tensor.scale);
    if (tensor.differing)
        tensor.rank = rpi_piece_files_rank_of(runs[1].pieces, t->name, tensor.element);
    d->compared++;
    note_tensor(d, &tensor, distance_of(&tensor));
    note_wrong(d, &tensor);
    return RP_OK;
}

static rp_status compare_tensor(const saved *runs, const rpi_named_tensor *t,
                                tensor_groups *groups, int place) {
    float *elements = NULL;
    tensor_group *group = NULL;
    size_t count = (size_t)rpi_shape_count(&t->shape);
    if (t->dtype != RP_F32) return RP_OK;
    RP_TRY(group_of(groups, t->name, &group));
    RP_TRY(rpi_alloc_array(2 * count, sizeof *elements, t->name, &elements));
    rp_status status = compare_read(runs, t, elements, &group->difference, place);
    rpi_free(elements);
    return status;
}

typedef struct placed {
    int index;
    uint64_t begin;
} placed;

static int by_begin(const void *a, const void *b) {
    const placed *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Compares in the model's order, in which a rank that holds the whole model writes its tensors.
 */
static rp_status compare_all(const saved *runs, tensor_groups *groups) {
    const rpi_safetensors *file = runs[0].model;
    int count = rpi_safetensors_count(file);
    placed *order = NULL;
    rp_status status = RP_OK;
    RP_TRY(rpi_alloc_array((size_t)count + 1, sizeof *order, "tensors", &order));
    for (int i = 0; i < count; i++) order[i] = (placed){i, rpi_safetensors_begin(file, i)};
    qsort(order, (size_t)count, sizeof *order, by_begin);
    for (int i = 0; i < count && status == RP_OK; i++)
        status = compare_tensor(runs, rpi_safetensors_at(file, order[i].index), groups, i);
    rpi_free(order);
    return status;
}

rp_status rpi_verify_checkpoints(const char *one, const char *other, int64_t step,
                                 rpi_verify_difference out_kinds[RPI_VERIFY_KINDS]) {
    saved runs[2] = {{0}};
    tensor_groups groups = {0};
    for (int k = RPI_VERIFY_PARAMETERS; k < RPI_VERIFY_KINDS; k++)
        out_kinds[k] = (rpi_verify_difference){0};
    rp_status status = open_saved(one, step, &runs[0]);
    if (status == RP_OK) status = open_saved(other, step, &runs[1]);
    if (status == RP_OK) status = compare_all(runs, &groups);
    for (int i = 0; i < groups.count; i++) {
        end_difference(&groups.of[i].difference);
        merge(&groups.of[i].difference, &out_kinds[groups.of[i].kind]);
    }
    close_saved(&runs[0]);
    close_saved(&runs[1]);
    return status;
}
