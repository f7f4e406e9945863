#include "train/huggingface/hf_weights.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "engine/finite.h"
#include "train/checkpoint/safetensors.h"
#include "train/huggingface/hf_config.h"
#include "train/tokenizers/json_read.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_INDEX_BYTES = 64 << 20, MOST_SHARDS = 4096, PATH_BYTES = RPI_PATH_BYTES + 300 };

typedef struct shard {
    char *name;
    rpi_safetensors *file;
} shard;

struct rpi_hf_weights {
    char folder[RPI_PATH_BYTES];
    shard *shards;
    int count;
};

/* ---- the files ---- */

static void path_in(const char *folder, const char *name, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
}

static rp_status add_shard(rpi_hf_weights *w, const char *name) {
    char path[PATH_BYTES];
    if (w->count == MOST_SHARDS)
        return RP_FAIL(CORRUPT, "%s has more than %d shards", w->folder, MOST_SHARDS);
    size_t count = (size_t)w->count;
    RP_TRY(rpi_grow_array(count, count + 1, sizeof *w->shards, "shards", &w->shards));
    shard *s = &w->shards[w->count++];
    RP_TRY(rpi_strdup(name, &s->name));
    path_in(w->folder, name, path);
    return rpi_safetensors_open(path, &s->file);
}

static const shard *find_shard(const rpi_hf_weights *w, const char *name) {
    for (int i = 0; i < w->count; i++)
        if (strcmp(w->shards[i].name, name) == 0) return &w->shards[i];
    return NULL;
}

/* A file beside the index, whatever it says. */
static rp_status take_entry(rpi_hf_weights *w, const char *index, const cJSON *entry) {
    const char *name = cJSON_IsString(entry) ? entry->valuestring : "";
    if (!*name || strchr(name, '/') || strlen(name) > 255)
        return RP_FAIL(CORRUPT, "%s: no file beside it is named for %s", index, entry->string);
    if (!find_shard(w, name)) {
        rp_status status = add_shard(w, name);
        if (status == RP_NOT_FOUND)
            return RP_FAIL(NOT_FOUND, "%s/%s is missing, which %s names for %s", w->folder,
                           name, index, entry->string);
        RP_TRY(status);
    }
    if (rpi_safetensors_find(find_shard(w, name)->file, entry->string)) return RP_OK;
    return RP_FAIL(CORRUPT, "%s/%s holds no %s, which %s says it does", w->folder, name,
                   entry->string, index);
}

static rp_status read_index(rpi_hf_weights *w, const char *path, const cJSON *root) {
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(root, "weight_map");
    if (!cJSON_IsObject(map) || !map->child)
        return RP_FAIL(CORRUPT, "%s: 'weight_map' is missing or names nothing", path);
    const cJSON *entry;
    cJSON_ArrayForEach(entry, map) RP_TRY(take_entry(w, path, entry));
    return RP_OK;
}

static rp_status open_index(rpi_hf_weights *w, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    cJSON *root = NULL;
    RP_TRY(rpi_regular_file_read(path, MOST_INDEX_BYTES, &text, &bytes));
    rp_status status = rpi_json_parse(path, text, bytes, &root);
    rpi_free(text);
    if (status == RP_OK) status = read_index(w, path, root);
    cJSON_Delete(root);
    return status;
}

static rp_status open_files(rpi_hf_weights *w) {
    char path[PATH_BYTES];
    path_in(w->folder, "model.safetensors", path);
    if (access(path, F_OK) == 0) return add_shard(w, "model.safetensors");
    path_in(w->folder, "model.safetensors.index.json", path);
    if (access(path, F_OK) == 0) return open_index(w, path);
    path_in(w->folder, "pytorch_model.bin", path);
    bool is_old = access(path, F_OK) == 0;
    return RP_FAIL(NOT_FOUND,
                   "%s has neither model.safetensors nor model.safetensors.index.json%s",
                   w->folder,
                   is_old ? "; save its pytorch_model.bin once more with transformers, which "
                            "writes them"
                          : "");
}

rp_status rpi_hf_weights_open(const char *folder, rpi_hf_weights **out_weights) {
    rpi_hf_weights *w = NULL;
    if (strlen(folder) >= RPI_PATH_BYTES)
        return RP_FAIL(INVALID, "a path longer than %d bytes", RPI_PATH_BYTES - 1);
    RP_TRY(rpi_alloc(sizeof *w, "weights", &w));
    snprintf(w->folder, sizeof w->folder, "%s", folder);
    rp_status status = open_files(w);
    if (status == RP_OK)
        *out_weights = w;
    else
        rpi_hf_weights_close(w);
    return status;
}

void rpi_hf_weights_close(rpi_hf_weights *w) {
    if (!w) return;
    for (int i = 0; i < w->count; i++) {
        rpi_safetensors_close(w->shards[i].file);
        rpi_free(w->shards[i].name);
    }
    rpi_free(w->shards);
    rpi_free(w);
}

/* ---- one tensor ---- */

static bool widen(const void *raw, rp_dtype dtype, int64_t count, float *out) {
    const uint16_t *halves = raw;
    switch (dtype) {
    case RP_F32: memcpy(out, raw, (size_t)count * sizeof *out); return true;
    case RP_F16:
        for (int64_t i = 0; i < count; i++) out[i] = rp_f16_to_f32(halves[i]);
        return true;
    case RP_BF16:
        for (int64_t i = 0; i < count; i++) out[i] = rp_bf16_to_f32(halves[i]);
        return true;
    case RP_F64:
        for (int64_t i = 0; i < count; i++) out[i] = (float)((const double *)raw)[i];
        return true;
    default: return false;
    }
}

void rpi_hf_transpose(const float *from, int64_t rows, int64_t columns, float *to) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) to[c * rows + r] = from[r * columns + c];
}

static rp_status check_tensor(const rpi_hf_weights *w, const shard *s,
                              const rpi_named_tensor *tensor, const rpi_shape *wanted) {
    char has[96], wants[96];
    if (tensor->dtype != RP_F32 && tensor->dtype != RP_F16 && tensor->dtype != RP_BF16 &&
        tensor->dtype != RP_F64)
        return RP_FAIL(MISMATCH, "%s/%s: %s is %s; f32, bf16, f16 and f64 can be read",
                       w->folder, s->name, tensor->name, rp_dtype_name(tensor->dtype));
    if (rpi_shape_equal(&tensor->shape, wanted)) return RP_OK;
    return RP_FAIL(MISMATCH, "%s/%s: %s is %s, but by config.json it is %s", w->folder, s->name,
                   tensor->name, rpi_shape_text(&tensor->shape, has, sizeof has),
                   rpi_shape_text(wanted, wants, sizeof wants));
}

static rp_status convert(const rpi_hf_weights *w, const shard *s,
                         const rpi_named_tensor *tensor, const void *raw, bool transposed,
                         float *scratch, float *out) {
    int64_t count = rpi_shape_count(&tensor->shape);
    if (!widen(raw, tensor->dtype, count, scratch))
        return RP_FAIL(INTERNAL, "%s cannot be widened", tensor->name);
    int64_t at = rpi_first_nonfinite(scratch, count);
    if (at >= 0)
        return RP_FAIL(CORRUPT, "%s/%s: element %lld of %s is %s", w->folder, s->name,
                       (long long)at, tensor->name, isnan(scratch[at]) ? "NaN" : "infinite");
    if (transposed)
        rpi_hf_transpose(scratch, tensor->shape.size[0], tensor->shape.size[1], out);
    else
        memcpy(out, scratch, (size_t)count * sizeof *out);
    return RP_OK;
}

/* Theirs of ours. */
static rpi_shape shape_of(const rpi_parameter *parameter, const rpi_hf_tensor *row) {
    rpi_shape shape = parameter->shape;
    if (row->transposed)
        shape = (rpi_shape){2, {parameter->shape.size[1], parameter->shape.size[0]}};
    if (row->parts) shape.size[0] /= row->parts;
    return shape;
}

static rp_status read_tensor(const rpi_hf_weights *w, const shard *s,
                             const rpi_named_tensor *tensor, const rpi_parameter *parameter,
                             const rpi_hf_tensor *row, float *out) {
    rpi_shape wanted = shape_of(parameter, row);
    if (row->is_for_data && tensor->shape.dims == wanted.dims &&
        tensor->shape.size[0] != wanted.size[0])
        return RP_FAIL(MISMATCH, "%s/%s: %s is of %lld classes; the data have %lld", w->folder,
                       s->name, tensor->name, (long long)tensor->shape.size[0],
                       (long long)wanted.size[0]);
    out += row->part * rpi_shape_count(&wanted);
    RP_TRY(check_tensor(w, s, tensor, &wanted));
    size_t count = (size_t)rpi_shape_count(&wanted);
    void *raw = NULL;
    float *scratch = NULL;
    RP_TRY(rpi_alloc_array(count, rp_dtype_bytes(tensor->dtype), tensor->name, &raw));
    rp_status status = rpi_alloc_array(count, sizeof *scratch, tensor->name, &scratch);
    if (status == RP_OK)
        status =
            rpi_safetensors_read(s->file, tensor->name, tensor->dtype, &tensor->shape, raw);
    if (status == RP_OK) status = convert(w, s, tensor, raw, row->transposed, scratch, out);
    rpi_free(raw);
    rpi_free(scratch);
    return status;
}

/* ---- all of them ---- */

enum { SHOWN_NAMES = 6 };

/* Names that are to be told; the first of them are. */
typedef struct name_list {
    int count;
    char text[SHOWN_NAMES * RPI_HF_NAME];
} name_list;

static void list_name(name_list *list, const char *name) {
    size_t used = strlen(list->text);
    if (list->count < SHOWN_NAMES)
        snprintf(list->text + used, sizeof list->text - used, "%s%.150s",
                 list->count ? ", " : "", name);
    else if (list->count == SHOWN_NAMES)
        snprintf(list->text + used, sizeof list->text - used, ", ...");
    list->count++;
}

static const rpi_named_tensor *find_named(const rpi_hf_weights *w, const char *name,
                                          const shard **out_shard) {
    char text[RPI_HF_NAME];
    const char *old = rpi_hf_old_name(name, text);
    for (int i = 0; i < w->count; i++) {
        const rpi_named_tensor *tensor = rpi_safetensors_find(w->shards[i].file, name);
        if (!tensor && old) tensor = rpi_safetensors_find(w->shards[i].file, old);
        *out_shard = &w->shards[i];
        if (tensor) return tensor;
    }
    return NULL;
}

/* As a model with its head is saved, or the bare one. */
static const rpi_named_tensor *find_tensor(const rpi_hf_weights *w, const rpi_hf_family *family,
                                           const char *name, const shard **out_shard) {
    const rpi_named_tensor *tensor = find_named(w, name, out_shard);
    return tensor ? tensor : find_named(w, rpi_hf_bare_name(family, name), out_shard);
}

/* What a load finds missing, of all that there is; partial: it may be. */
typedef struct search {
    const rpi_hf_weights *from;
    const rpi_hf_family *family;
    bool partial;
    int all;
    name_list missing;
} search;

/* A head of other classes starts anew, where tensors may be missing. */
static bool fits(const search *s, const rpi_named_tensor *tensor,
                 const rpi_parameter *parameter, const rpi_hf_tensor *row) {
    rpi_shape shape = shape_of(parameter, row);
    if (!s->partial || !row->is_for_data || tensor->shape.dims != shape.dims) return true;
    return tensor->shape.size[0] == shape.size[0];
}

static rp_status load_parameter(search *s, const rpi_parameter *parameter, float *out) {
    char theirs[RPI_HF_NAME];
    const rpi_hf_tensor *row = rpi_hf_tensor_find(s->family, parameter->name, NULL, theirs);
    if (!row)
        return RP_FAIL(INTERNAL, "%s has no name in Hugging Face folders", parameter->name);
    for (; row; row = rpi_hf_tensor_find(s->family, parameter->name, row, theirs)) {
        const shard *where = NULL;
        const rpi_named_tensor *tensor = find_tensor(s->from, s->family, theirs, &where);
        s->all++;
        if (!tensor || !fits(s, tensor, parameter, row))
            list_name(&s->missing, theirs);
        else
            RP_TRY(read_tensor(s->from, where, tensor, parameter, row, out));
    }
    return RP_OK;
}

static rp_status load_parameters(search *s, const rpi_network *network, rpi_weights *weights) {
    for (int i = 0; i < network->parameter_count; i++)
        RP_TRY(load_parameter(s, &network->parameters[i],
                              rpi_network_elements(network, weights, i)));
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
    return RP_OK;
}

/* Has the model a parameter for a name of theirs? */
static bool is_used(const rpi_hf_family *family, const rpi_network *network, const char *name) {
    const char *bare = rpi_hf_bare_name(family, name);
    if (rpi_hf_tensor_is_ignored(family, name)) return true;
    for (int i = 0; i < network->parameter_count; i++) {
        char theirs[RPI_HF_NAME], text[RPI_HF_NAME];
        const char *ours = network->parameters[i].name;
        for (const rpi_hf_tensor *row = NULL;
             (row = rpi_hf_tensor_find(family, ours, row, theirs));) {
            const char *name_of = rpi_hf_bare_name(family, theirs);
            const char *old = rpi_hf_old_name(name_of, text);
            if (strcmp(name_of, bare) == 0 || (old && strcmp(old, bare) == 0)) return true;
        }
    }
    return false;
}

static void list_left_over(const rpi_hf_weights *w, const rpi_hf_family *family,
                           const rpi_network *network, name_list *left_over) {
    for (int i = 0; i < w->count; i++)
        for (int t = 0; t < rpi_safetensors_count(w->shards[i].file); t++) {
            const char *name = rpi_safetensors_at(w->shards[i].file, t)->name;
            if (!is_used(family, network, name)) list_name(left_over, name);
        }
}

rp_status rpi_hf_weights_load(const rpi_hf_weights *from, const rpi_hf_family *family,
                              const rpi_network *network, rpi_weights *weights, bool partial,
                              char *note, size_t note_bytes) {
    search s = {.from = from, .family = family, .partial = partial};
    name_list left_over = {0};
    note[0] = '\0';
    RP_TRY(load_parameters(&s, network, weights));
    if (s.missing.count == s.all)
        return RP_FAIL(CORRUPT, "%s holds no tensor of model %s, such as %s", from->folder,
                       family->model, family->tensors[0].theirs);
    if (s.missing.count && !partial)
        return RP_FAIL(CORRUPT, "%d of %d tensors are missing in %s: %s", s.missing.count,
                       s.all, from->folder, s.missing.text);
    list_left_over(from, family, network, &left_over);
    int used = 0;
    if (s.missing.count)
        used =
            snprintf(note, note_bytes, "%d of %d tensors are missing in %s and start anew: %s",
                     s.missing.count, s.all, from->folder, s.missing.text);
    if (left_over.count && used >= 0 && (size_t)used < note_bytes)
        snprintf(note + used, note_bytes - (size_t)used,
                 "%sof no use to model %s are %d in %s: %s", used ? "; " : "", family->model,
                 left_over.count, from->folder, left_over.text);
    return RP_OK;
}

rp_status rpi_hf_load(const char *folder, const rpi_network *network, rpi_weights *weights,
                      bool partial, char *note, size_t note_bytes) {
    char model[RPI_MODEL_TEXT];
    const rpi_hf_family *family = NULL;
    rpi_hf_weights *from = NULL;
    RP_TRY(rpi_hf_config_read(folder, model, &family));
    RP_TRY(rpi_model_add_head(model, network->task->name));
    if (!rpi_model_is_same(model, network->text))
        return RP_FAIL(MISMATCH, "%s holds the model %s, not %s", folder, model, network->text);
    RP_TRY(rpi_hf_weights_open(folder, &from));
    rp_status status =
        rpi_hf_weights_load(from, family, network, weights, partial, note, note_bytes);
    rpi_hf_weights_close(from);
    return status;
}

rp_status rpi_hf_check(const char *folder) {
    rpi_hf_weights *from = NULL;
    RP_TRY(rpi_hf_weights_open(folder, &from));
    rpi_hf_weights_close(from);
    return RP_OK;
}
