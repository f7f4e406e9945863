#include "train/huggingface/hf_weights.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/huggingface/hf_config.h"
#include "train/huggingface/hf_ties.h"
#include "train/huggingface/hf_wrappers.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_NAMES = 6 };

/* Names that are to be told; the first of them are. */
typedef struct name_list {
    int count;
    char text[SHOWN_NAMES * RPI_HF_NAME];
} name_list;

/* A load, and what it finds missing, of all that there is; partial: heads may be. */
typedef struct search {
    const char *folder;
    const rpi_hf_files *from;
    const rpi_hf_family *family;
    const rpi_network *network;
    bool partial, is_bare;
    int all;
    name_list anew, missing;
} search;

static void list_name(name_list *list, const char *name) {
    size_t used = strlen(list->text);
    if (list->count < SHOWN_NAMES)
        snprintf(list->text + used, sizeof list->text - used, "%s%.150s",
                 list->count ? ", " : "", name);
    else if (list->count == SHOWN_NAMES)
        snprintf(list->text + used, sizeof list->text - used, ", ...");
    list->count++;
}

/* ---- one tensor ---- */

void rpi_hf_transpose(const float *from, int64_t rows, int64_t columns, float *to) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) to[c * rows + r] = from[r * columns + c];
}

/* Theirs of ours. */
static rpi_shape shape_of(const rpi_parameter *parameter, const rpi_hf_tensor *row) {
    rpi_shape shape = parameter->shape;
    if (row->transposed)
        shape = (rpi_shape){2, {parameter->shape.size[1], parameter->shape.size[0]}};
    if (row->parts) shape.size[0] /= row->parts;
    return shape;
}

static rp_status check_tensor(const search *s, const rpi_hf_stored *stored,
                              const rpi_hf_tensor *row, const rpi_shape *wanted) {
    const rpi_shape *shape = &stored->tensor->shape;
    const char *name = stored->tensor->name;
    char has[96], wants[96];
    if (row->is_for_data && shape->dims == wanted->dims && shape->size[0] != wanted->size[0])
        return RP_FAIL(MISMATCH, "%s/%s: %s is of %lld classes; the data have %lld", s->folder,
                       stored->file, name, (long long)shape->size[0],
                       (long long)wanted->size[0]);
    if (rpi_shape_equal(shape, wanted)) return RP_OK;
    return RP_FAIL(MISMATCH, "%s/%s: %s is %s, but by config.json it is %s", s->folder,
                   stored->file, name, rpi_shape_text(shape, has, sizeof has),
                   rpi_shape_text(wanted, wants, sizeof wants));
}

static rp_status read_tensor(const search *s, const rpi_hf_stored *stored,
                             const rpi_parameter *parameter, const rpi_hf_tensor *row,
                             float *out) {
    rpi_shape wanted = shape_of(parameter, row);
    float *values = NULL;
    size_t count = (size_t)rpi_shape_count(&wanted);
    out += (size_t)row->part * count;
    RP_TRY(check_tensor(s, stored, row, &wanted));
    if (!row->transposed) return rpi_hf_files_read(s->from, stored, out);
    RP_TRY(rpi_alloc_array(count, sizeof *values, stored->name, &values));
    rp_status status = rpi_hf_files_read(s->from, stored, values);
    if (status == RP_OK) rpi_hf_transpose(values, wanted.size[0], wanted.size[1], out);
    rpi_free(values);
    return status;
}

/* ---- ties ---- */

/* Has the model a parameter for a name of theirs, in files of the bare model's names, too? */
static bool has_parameter(const search *s, const char *name) {
    const char *bare = rpi_hf_bare_name(s->family, name);
    for (int i = 0; i < s->network->parameter_count; i++) {
        char theirs[RPI_HF_NAME], text[RPI_HF_NAME];
        const char *ours = s->network->parameters[i].name;
        for (const rpi_hf_tensor *row = NULL;
             (row = rpi_hf_tensor_find(s->family, ours, row, theirs));) {
            const char *name_of = rpi_hf_bare_name(s->family, theirs);
            const char *old = rpi_hf_old_name(name_of, text);
            if (strcmp(name_of, bare) == 0 || (old && strcmp(old, bare) == 0)) return true;
        }
    }
    return false;
}

/* A tie of this model, which may have a parameter for each of its names. */
static bool is_tied(const search *s, const rpi_hf_tie *tie) {
    return tie && !has_parameter(s, tie->also);
}

/* The model cannot be both. */
static rp_status check_ties(const search *s) {
    for (const rpi_hf_tie *tie = s->family->ties; tie && tie->name; tie++) {
        bool differs = false;
        if (!is_tied(s, tie) || (tie->used_by && !has_parameter(s, tie->used_by))) continue;
        RP_TRY(rpi_hf_tie_differs(s->from, s->family, tie, &differs));
        if (differs)
            return RP_FAIL(INVALID,
                           "%s: %s and %s differ; model %s has one for both, and cannot take "
                           "them",
                           s->folder, tie->also, tie->name, s->family->model);
    }
    return RP_OK;
}

/* ---- what is missing ---- */

static bool begins_with(const char *name, const char *begin) {
    return strncmp(name, begin, strlen(begin)) == 0;
}

static bool has_any(const search *s, const char *begin) {
    const char *bare = rpi_hf_bare_name(s->family, begin);
    for (int i = 0; i < rpi_hf_files_count(s->from); i++) {
        const char *name = rpi_hf_files_at(s->from, i)->name;
        if (begins_with(name, begin) || begins_with(name, bare)) return true;
    }
    return false;
}

static bool is_bare(const search *s) {
    for (int i = 0; i < rpi_hf_files_count(s->from); i++)
        if (begins_with(rpi_hf_files_at(s->from, i)->name, s->family->prefix)) return false;
    return true;
}

static bool is_of_missing_head(const search *s, const char *const *heads, const char *name) {
    for (; heads && *heads; heads++)
        if (begins_with(name, *heads)) return !has_any(s, *heads);
    return false;
}

/* A head of other classes starts anew, where heads may be missing. */
static bool fits(const search *s, const rpi_hf_stored *stored, const rpi_parameter *parameter,
                 const rpi_hf_tensor *row) {
    rpi_shape shape = shape_of(parameter, row);
    if (!s->partial || !row->is_for_data || stored->tensor->shape.dims != shape.dims)
        return true;
    return stored->tensor->shape.size[0] == shape.size[0];
}

static void list_missing(search *s, const char *theirs, bool is_new) {
    bool may_be =
        s->partial && (is_new || is_of_missing_head(s, s->family->heads, theirs) ||
                       (s->is_bare && is_of_missing_head(s, s->family->bare_lacks, theirs)));
    list_name(may_be ? &s->anew : &s->missing, theirs);
}

/* ---- all of them ---- */

static const rpi_hf_stored *find(const search *s, const char *theirs) {
    const rpi_hf_stored *stored = rpi_hf_find_stored(s->from, s->family, theirs);
    const rpi_hf_tie *tie = stored ? NULL : rpi_hf_tie_of(s->family, theirs);
    return tie && is_tied(s, tie) ? rpi_hf_find_stored(s->from, s->family, tie->also) : stored;
}

static rp_status load_parameter(search *s, const rpi_parameter *parameter, float *out) {
    char theirs[RPI_HF_NAME];
    const rpi_hf_tensor *row = rpi_hf_tensor_find(s->family, parameter->name, NULL, theirs);
    if (!row)
        return RP_FAIL(INTERNAL, "%s has no name in Hugging Face folders", parameter->name);
    for (; row; row = rpi_hf_tensor_find(s->family, parameter->name, row, theirs)) {
        const rpi_hf_stored *stored = find(s, theirs);
        s->all++;
        if (!stored || !fits(s, stored, parameter, row))
            list_missing(s, theirs, stored != NULL);
        else if (out) /* it is this rank's */
            RP_TRY(read_tensor(s, stored, parameter, row, out));
    }
    return RP_OK;
}

/* A tensor rank's runs of a whole tensor, there or back. */
typedef struct part {
    float *whole, *own;
} part;

static rp_status spread(void *context, const rpi_parameter *parameter,
                        const rpi_shard_run *run) {
    const part *p = context;
    (void)parameter;
    memcpy(p->whole + run->whole, p->own + run->local, (size_t)run->count * sizeof *p->own);
    return RP_OK;
}

static rp_status take(void *context, const rpi_parameter *parameter, const rpi_shard_run *run) {
    const part *p = context;
    (void)parameter;
    memcpy(p->own + run->local, p->whole + run->whole, (size_t)run->count * sizeof *p->own);
    return RP_OK;
}

/* Of a tensor that is cut the whole is here for as long as it is read: one at a time. What is
 * missing and starts anew stays as it was. */
static rp_status load_part(search *s, int index, float *own) {
    const rpi_parameter *parameter = &s->network->parameters[index];
    part p = {.own = own};
    RP_TRY(rpi_alloc_array((size_t)rpi_shape_count(&parameter->shape), sizeof *p.whole,
                           parameter->name, &p.whole));
    rp_status status = rpi_network_runs(s->network, index, spread, &p);
    if (status == RP_OK) status = load_parameter(s, parameter, p.whole);
    if (status == RP_OK) status = rpi_network_runs(s->network, index, take, &p);
    rpi_free(p.whole);
    return status;
}

static rp_status load_parameters(search *s, rpi_weights *weights) {
    const rpi_network *network = s->network;
    RP_TRY(check_ties(s));
    for (int i = 0; i < network->parameter_count; i++) {
        float *elements = rpi_network_elements(network, weights, i);
        bool is_cut =
            network->tensor_ranks > 1 && network->parameters[i].shard.kind == RPI_SHARD_CUT;
        RP_TRY(is_cut && elements ? load_part(s, i, elements)
                                  : load_parameter(s, &network->parameters[i], elements));
    }
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
    return RP_OK;
}

/* With a name that is there instead, where there is one. */
static rp_status check_missing(const search *s) {
    const char *first = s->family->tensors[0].theirs;
    int count = rpi_hf_files_count(s->from);
    if (s->missing.count + s->anew.count == s->all)
        return RP_FAIL(CORRUPT, "%s holds no tensor of model %s, such as %s%s%.150s", s->folder,
                       s->family->model, first, count ? "; there is " : "",
                       count ? rpi_hf_files_at(s->from, 0)->tensor->name : "");
    if (s->missing.count == 0) return RP_OK;
    return RP_FAIL(CORRUPT, "%d of %d tensors are missing in %s: %s", s->missing.count, s->all,
                   s->folder, s->missing.text);
}

/* ---- notes ---- */

static bool is_used(const search *s, const char *name) {
    const char *bare = rpi_hf_bare_name(s->family, name);
    for (const rpi_hf_tie *tie = s->family->ties; tie && tie->name; tie++)
        if (strcmp(rpi_hf_bare_name(s->family, tie->also), bare) == 0) return true;
    return rpi_hf_tensor_is_ignored(s->family, name) || has_parameter(s, name);
}

static void tell_left_over(const search *s, char *note, size_t bytes) {
    name_list left_over = {0};
    for (int i = 0; i < rpi_hf_files_count(s->from); i++) {
        const rpi_hf_stored *stored = rpi_hf_files_at(s->from, i);
        if (!is_used(s, stored->name)) list_name(&left_over, stored->tensor->name);
    }
    if (left_over.count)
        rpi_append(note, bytes, "%sof no use to model %s are %d in %s: %s", *note ? "; " : "",
                   s->family->model, left_over.count, s->folder, left_over.text);
}

static void tell_wrapper(const search *s, char *note, size_t bytes) {
    char wrapper[RPI_HF_NAME] = "";
    for (int i = 0; i < rpi_hf_files_count(s->from) && !*wrapper; i++)
        rpi_hf_wrapper_of(rpi_hf_files_at(s->from, i)->tensor->name, wrapper, sizeof wrapper);
    if (*wrapper)
        rpi_append(note, bytes, "%snames in %s begin with '%s', which is passed over",
                   *note ? "; " : "", s->folder, wrapper);
}

static void tell(const search *s, bool is_untied, char *note, size_t bytes) {
    const rpi_hf_tie *tie = s->family->ties;
    if (s->anew.count)
        rpi_append(note, bytes, "%d of %d tensors are missing in %s and start anew: %s",
                   s->anew.count, s->all, s->folder, s->anew.text);
    tell_left_over(s, note, bytes);
    tell_wrapper(s, note, bytes);
    if (is_untied && tie)
        rpi_append(note, bytes,
                   "%s%s and %s differ in %s, whatever tie_word_embeddings says: they stay two",
                   *note ? "; " : "", tie->also, tie->name, s->folder);
}

rp_status rpi_hf_load(const char *folder, const rpi_network *network, rpi_weights *weights,
                      bool partial, char *note, size_t note_bytes) {
    char model[RPI_MODEL_TEXT];
    bool is_untied = false;
    rpi_hf_files *from = NULL;
    search s = {.folder = folder, .network = network, .partial = partial};
    note[0] = '\0';
    RP_TRY(rpi_hf_config_open(folder, model, &s.family, &is_untied));
    RP_TRY(rpi_model_add_head(model, network->task->name));
    if (!rpi_model_is_same(model, network->text))
        return RP_FAIL(MISMATCH, "%s holds the model %s, not %s", folder, model, network->text);
    RP_TRY(rpi_hf_files_open(folder, &from));
    s.from = from;
    s.is_bare = is_bare(&s);
    rp_status status = load_parameters(&s, weights);
    if (status == RP_OK) status = check_missing(&s);
    /* What is left over the first tensor rank knows, which has a part of every tensor. */
    if (status == RP_OK && network->tensor_rank == 0) tell(&s, is_untied, note, note_bytes);
    rpi_hf_files_close(from);
    return status;
}

rp_status rpi_hf_check(const char *folder) {
    rpi_hf_files *from = NULL;
    RP_TRY(rpi_hf_files_open(folder, &from));
    rpi_hf_files_close(from);
    return RP_OK;
}
