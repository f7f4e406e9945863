#include "train/huggingface/hf_files.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/finite.h"
#include "train/huggingface/hf_wrappers.h"
#include "train/tokenizers/json_read.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_INDEX_BYTES = 64 << 20, MOST_SHARDS = 4096, PATH_BYTES = RPI_PATH_BYTES + 300 };

typedef struct shard {
    char *name;
    rpi_safetensors *file;
} shard;

struct rpi_hf_files {
    char folder[RPI_PATH_BYTES];
    shard *shards;
    int shard_count;
    rpi_hf_stored *stored; /* in order of name */
    int count;
    char *names; /* of all of them */
};

/* ---- the files ---- */

static void path_in(const char *folder, const char *name, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
}

static rp_status add_shard(rpi_hf_files *f, const char *name) {
    char path[PATH_BYTES];
    if (f->shard_count == MOST_SHARDS)
        return RP_FAIL(CORRUPT, "%s has more than %d shards", f->folder, MOST_SHARDS);
    size_t count = (size_t)f->shard_count;
    RP_TRY(rpi_grow_array(count, count + 1, sizeof *f->shards, "shards", &f->shards));
    shard *s = &f->shards[f->shard_count++];
    RP_TRY(rpi_strdup(name, &s->name));
    path_in(f->folder, name, path);
    return rpi_safetensors_open(path, &s->file);
}

static const shard *find_shard(const rpi_hf_files *f, const char *name) {
    for (int i = 0; i < f->shard_count; i++)
        if (strcmp(f->shards[i].name, name) == 0) return &f->shards[i];
    return NULL;
}

/* A file beside the index, whatever it says. */
static rp_status take_entry(rpi_hf_files *f, const char *index, const cJSON *entry) {
    const char *name = cJSON_IsString(entry) ? entry->valuestring : "";
    if (!*name || strchr(name, '/') || strlen(name) > 255)
        return RP_FAIL(CORRUPT, "%s: no file beside it is named for %s", index, entry->string);
    if (!find_shard(f, name)) {
        rp_status status = add_shard(f, name);
        if (status == RP_NOT_FOUND)
            return RP_FAIL(NOT_FOUND, "%s/%s is missing, which %s names for %s", f->folder,
                           name, index, entry->string);
        RP_TRY(status);
    }
    if (rpi_safetensors_find(find_shard(f, name)->file, entry->string)) return RP_OK;
    return RP_FAIL(CORRUPT, "%s/%s holds no %s, which %s says it does", f->folder, name,
                   entry->string, index);
}

static rp_status read_index(rpi_hf_files *f, const char *path, const cJSON *root) {
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(root, "weight_map");
    if (!cJSON_IsObject(map) || !map->child)
        return RP_FAIL(CORRUPT, "%s: 'weight_map' is missing or names nothing", path);
    const cJSON *entry;
    cJSON_ArrayForEach(entry, map) RP_TRY(take_entry(f, path, entry));
    return RP_OK;
}

static rp_status read_json(const char *path, cJSON **out_root) {
    char *text = NULL;
    size_t bytes = 0;
    RP_TRY(rpi_regular_file_read(path, MOST_INDEX_BYTES, &text, &bytes));
    rp_status status = rpi_json_parse(path, text, bytes, out_root);
    rpi_free(text);
    return status;
}

static rp_status open_index(rpi_hf_files *f, const char *path) {
    cJSON *root = NULL;
    rp_status status = read_json(path, &root);
    if (status == RP_OK) status = read_index(f, path, root);
    cJSON_Delete(root);
    return status;
}

enum { NAME_BYTES = 256 };

static bool is_weights(const char *name) {
    static const char *const ends[] = {".safetensors", ".gguf", ".h5", ".msgpack"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (length > strlen(ends[i]) && strcmp(name + length - strlen(ends[i]), ends[i]) == 0)
            return true;
    return strncmp(name, "pytorch_model", strlen("pytorch_model")) == 0;
}

/* Weights under another name, or of another kind: of several the first by name. */
static void find_other_weights(const char *folder, char *out) {
    DIR *listing = opendir(folder);
    if (!listing) return;
    for (const struct dirent *e; (e = readdir(listing));)
        if (is_weights(e->d_name) && strlen(e->d_name) < NAME_BYTES &&
            (!*out || strcmp(e->d_name, out) < 0))
            snprintf(out, NAME_BYTES, "%s", e->d_name);
    (void)closedir(listing);
}

static rp_status open_shards(rpi_hf_files *f) {
    char path[PATH_BYTES];
    path_in(f->folder, "model.safetensors", path);
    if (access(path, F_OK) == 0) return add_shard(f, "model.safetensors");
    path_in(f->folder, "model.safetensors.index.json", path);
    if (access(path, F_OK) == 0) return open_index(f, path);
    char other[NAME_BYTES] = "";
    find_other_weights(f->folder, other);
    return RP_FAIL(NOT_FOUND,
                   "%s has neither model.safetensors nor model.safetensors.index.json%s%s%s",
                   f->folder, *other ? "; save its " : "", other,
                   *other ? " once more with transformers, which writes them" : "");
}

/* ---- their tensors ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const rpi_hf_stored *)a)->name, ((const rpi_hf_stored *)b)->name);
}

/* All names, one after another; of which none is longer without its wrappers. */
static rp_status allocate(rpi_hf_files *f) {
    size_t bytes = 1, count = 0;
    for (int i = 0; i < f->shard_count; i++)
        for (int t = 0; t < rpi_safetensors_count(f->shards[i].file); t++, count++)
            bytes += strlen(rpi_safetensors_at(f->shards[i].file, t)->name) + 1;
    RP_TRY(rpi_alloc(bytes, "names", &f->names));
    return rpi_alloc_array(count + 1, sizeof *f->stored, "tensors", &f->stored);
}

static rp_status check_name(const rpi_hf_files *f, const shard *s, const char *name) {
    if (!strstr(name, ".lora_A") && !strstr(name, ".lora_B") &&
        !strstr(name, ".lora_embedding_"))
        return RP_OK;
    return RP_FAIL(INVALID,
                   "%s/%s holds %.150s: a LoRA adapter that was not merged into its model; "
                   "PEFT's merge_and_unload() does that, then save_pretrained(FOLDER)",
                   f->folder, s->name, name);
}

static rp_status list_tensors(rpi_hf_files *f) {
    RP_TRY(allocate(f));
    char *to = f->names;
    for (int i = 0; i < f->shard_count; i++)
        for (int t = 0; t < rpi_safetensors_count(f->shards[i].file); t++) {
            const shard *s = &f->shards[i];
            const rpi_named_tensor *tensor = rpi_safetensors_at(s->file, t);
            RP_TRY(check_name(f, s, tensor->name));
            rpi_hf_unwrap(tensor->name, to);
            f->stored[f->count++] = (rpi_hf_stored){to, s->name, tensor, s->file};
            to += strlen(to) + 1;
        }
    if (f->count) qsort(f->stored, (size_t)f->count, sizeof *f->stored, by_name);
    return RP_OK;
}

static rp_status check_twice(const rpi_hf_files *f) {
    for (int i = 1; i < f->count; i++) {
        const rpi_hf_stored *a = &f->stored[i - 1], *b = &f->stored[i];
        if (by_name(a, b) == 0)
            return RP_FAIL(CORRUPT, "%s: %.150s of %s and %.150s of %s are the same tensor",
                           f->folder, a->tensor->name, a->file, b->tensor->name, b->file);
    }
    return RP_OK;
}

rp_status rpi_hf_files_open(const char *folder, rpi_hf_files **out_files) {
    rpi_hf_files *f = NULL;
    if (strlen(folder) >= RPI_PATH_BYTES)
        return RP_FAIL(INVALID, "a path longer than %d bytes", RPI_PATH_BYTES - 1);
    RP_TRY(rpi_alloc(sizeof *f, "weights", &f));
    snprintf(f->folder, sizeof f->folder, "%s", folder);
    rp_status status = open_shards(f);
    if (status == RP_OK) status = list_tensors(f);
    if (status == RP_OK) status = check_twice(f);
    if (status == RP_OK)
        *out_files = f;
    else
        rpi_hf_files_close(f);
    return status;
}

void rpi_hf_files_close(rpi_hf_files *f) {
    if (!f) return;
    for (int i = 0; i < f->shard_count; i++) {
        rpi_safetensors_close(f->shards[i].file);
        rpi_free(f->shards[i].name);
    }
    rpi_free(f->shards);
    rpi_free(f->stored);
    rpi_free(f->names);
    rpi_free(f);
}

int rpi_hf_files_count(const rpi_hf_files *f) {
    return f->count;
}

const rpi_hf_stored *rpi_hf_files_at(const rpi_hf_files *f, int index) {
    return &f->stored[index];
}

const rpi_hf_stored *rpi_hf_files_find(const rpi_hf_files *f, const char *name) {
    rpi_hf_stored key = {.name = name};
    return f->count ? bsearch(&key, f->stored, (size_t)f->count, sizeof key, by_name) : NULL;
}

/* ---- one of them ---- */

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

static rp_status check_finite(const rpi_hf_files *f, const rpi_hf_stored *stored,
                              const float *values, int64_t count) {
    int64_t at = rpi_first_nonfinite(values, count);
    if (at < 0) return RP_OK;
    return RP_FAIL(CORRUPT, "%s/%s: element %lld of %s is %s", f->folder, stored->file,
                   (long long)at, stored->tensor->name, isnan(values[at]) ? "NaN" : "infinite");
}

rp_status rpi_hf_files_read(const rpi_hf_files *f, const rpi_hf_stored *stored, float *out) {
    const rpi_named_tensor *tensor = stored->tensor;
    int64_t count = rpi_shape_count(&tensor->shape);
    void *raw = NULL;
    RP_TRY(rpi_alloc_array((size_t)count, rp_dtype_bytes(tensor->dtype), tensor->name, &raw));
    rp_status status =
        rpi_safetensors_read(stored->from, tensor->name, tensor->dtype, &tensor->shape, raw);
    if (status == RP_OK && !widen(raw, tensor->dtype, count, out))
        status = RP_FAIL(MISMATCH, "%s/%s: %s is %s; f32, bf16, f16 and f64 can be read",
                         f->folder, stored->file, tensor->name, rp_dtype_name(tensor->dtype));
    rpi_free(raw);
    RP_TRY(status);
    return check_finite(f, stored, out, count);
}

/* ---- adapters ---- */

/* What the adapter says that it is of; NULL: nothing. */
static cJSON *read_adapter(const char *folder, const char **out_base) {
    char path[PATH_BYTES];
    cJSON *root = NULL;
    *out_base = NULL;
    path_in(folder, "adapter_config.json", path);
    if (read_json(path, &root) != RP_OK ||
        rpi_json_text(root, "base_model_name_or_path", NULL, out_base) != RP_OK)
        *out_base = NULL;
    return root;
}

rp_status rpi_hf_adapter_check(const char *folder) {
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors",
                                        "adapter_model.bin"};
    char path[PATH_BYTES];
    const char *base = NULL;
    if (strlen(folder) >= RPI_PATH_BYTES) return RP_OK;
    int i = 0;
    for (; i < 3; i++) {
        path_in(folder, names[i], path);
        if (access(path, F_OK) == 0) break;
    }
    if (i == 3) return RP_OK;
    cJSON *root = read_adapter(folder, &base);
    rp_status status = RP_FAIL(
        INVALID,
        "%s is there: the folder is an adapter (LoRA) of %.200s, not a model; merge it "
        "by PEFT's merge_and_unload() and save_pretrained(FOLDER), or take the adapter's "
        "files away where that has been done",
        path, base ? base : "another model");
    cJSON_Delete(root);
    return status;
}
