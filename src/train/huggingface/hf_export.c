#include "train/huggingface/hf_export.h"

#include "base/folder.h"
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "train/checkpoint/piece_files.h"
#include "train/data/data_tokenizer.h"
#include "train/data/picture_data.h"
#include "train/huggingface/hf_config.h"
#include "train/huggingface/hf_weights.h"
#include "train/trained_model.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_FILES = 5, MOST_PARTS = 3, PATH_BYTES = RPI_PATH_BYTES + 128 };

typedef struct folder_export {
    char folder[RPI_PATH_BYTES], aside[RPI_PATH_BYTES + 64]; /* the second is made first */
    const char *files[MOST_FILES];                           /* written aside */
    int file_count;
    rpi_trained_model model;
    rpi_model_choice choice;
    const rpi_hf_family *family;
    rpi_tokenizer *tokenizer;  /* of its data; NULL: there is none at hand */
    rpi_named_tensor *tensors; /* those of the run, under names of theirs */
    char (*names)[RPI_HF_NAME];
    int count;
} folder_export;

/* ---- the run ---- */

static rp_status open_run(const char *folder, folder_export *e) {
    if (strncmp(folder, "hf:", 3) == 0)
        return RP_FAIL(INVALID,
                       "--model %s: the folder of a run is wanted, and this is an "
                       "export already",
                       folder);
    RP_TRY(rpi_trained_model_open(folder, &e->model));
    RP_TRY(rpi_model_parse(e->model.text, &e->choice));
    RP_TRY(rpi_hf_family_of_model(&e->choice, &e->family));
    return rpi_hf_family_check(e->family, &e->choice);
}

/* Turn rows into columns. */
static rp_status turn(rpi_named_tensor *tensor) {
    float *turned = NULL;
    int64_t rows = tensor->shape.size[0], columns = tensor->shape.size[1];
    RP_TRY(rpi_alloc_array((size_t)rpi_shape_count(&tensor->shape), sizeof *turned,
                           tensor->name, &turned));
    rpi_hf_transpose(tensor->data, rows, columns, turned);
    rpi_free((void *)tensor->data);
    tensor->data = turned;
    tensor->shape = (rpi_shape){2, {columns, rows}};
    return RP_OK;
}

/* One of theirs, of which ours may be several. */
static rp_status add_part(folder_export *e, const rpi_named_tensor *ours,
                          const rpi_hf_tensor *row, const float *values, const char *theirs) {
    float *copy = NULL;
    rpi_shape shape = ours->shape;
    if (row->parts) shape.size[0] /= row->parts;
    size_t count = (size_t)rpi_shape_count(&shape);
    RP_TRY(rpi_alloc_array(count, sizeof *copy, theirs, &copy));
    memcpy(copy, values + (size_t)row->part * count, count * sizeof *copy);
    rpi_named_tensor *tensor = &e->tensors[e->count];
    snprintf(e->names[e->count], sizeof e->names[0], "%s", theirs);
    *tensor = (rpi_named_tensor){e->names[e->count], RP_F32, shape, copy};
    e->count++;
    return row->transposed ? turn(tensor) : RP_OK;
}

static rp_status add_parts(folder_export *e, const rpi_named_tensor *ours,
                           const float *values) {
    char theirs[RPI_HF_NAME];
    const rpi_hf_tensor *row = rpi_hf_tensor_find(e->family, ours->name, NULL, theirs);
    for (; row; row = rpi_hf_tensor_find(e->family, ours->name, row, theirs))
        RP_TRY(add_part(e, ours, row, values, theirs));
    return RP_OK;
}

static rp_status add_tensor(folder_export *e, const rpi_named_tensor *ours) {
    char theirs[RPI_HF_NAME];
    const rpi_hf_tensor *row = rpi_hf_tensor_find(e->family, ours->name, NULL, theirs);
    if (!row || ours->dtype != RP_F32 || (row->transposed && ours->shape.dims != 2))
        return RP_FAIL(INTERNAL, "%s has no name in Hugging Face folders", ours->name);
    float *values = NULL;
    RP_TRY(rpi_alloc_array((size_t)rpi_shape_count(&ours->shape), sizeof *values, ours->name,
                           &values));
    rp_status status =
        rpi_piece_files_read_whole(e->model.pieces, ours->name, &ours->shape, values);
    if (status == RP_OK) status = add_parts(e, ours, values);
    rpi_free(values);
    return status;
}

/* Parameters; what else a checkpoint holds is for the next step of training. */
static bool is_parameter(const rpi_named_tensor *ours) {
    static const char optimizer[] = "optimizer.";
    return strncmp(ours->name, optimizer, sizeof optimizer - 1) != 0;
}

static rp_status count_tensor(void *count, const rpi_named_tensor *ours) {
    *(size_t *)count += is_parameter(ours);
    return RP_OK;
}

static rp_status read_tensor(void *of_export, const rpi_named_tensor *ours) {
    return is_parameter(ours) ? add_tensor(of_export, ours) : RP_OK;
}

static int by_name(const void *a, const void *b) {
    const rpi_named_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* By name, so that the bytes are the same whether ranks saved pieces or one the whole. */
static rp_status read_tensors(folder_export *e) {
    size_t most = 0;
    RP_TRY(rpi_piece_files_each(e->model.pieces, count_tensor, &most));
    most *= MOST_PARTS;
    RP_TRY(rpi_alloc_array(most, sizeof *e->tensors, "tensors", &e->tensors));
    RP_TRY(rpi_alloc_array(most, sizeof *e->names, "names", &e->names));
    RP_TRY(rpi_piece_files_each(e->model.pieces, read_tensor, e));
    if (e->count) qsort(e->tensors, (size_t)e->count, sizeof *e->tensors, by_name);
    return RP_OK;
}

/* ---- the folder ---- */

/* As "." and ".." are in every folder. */
static rp_status check_folder(const folder_export *e, bool overwrite) {
    DIR *stream = opendir(e->folder);
    if (!stream && errno == ENOENT) return RP_OK;
    if (!stream) return RP_FAIL_ERRNO(INVALID, "--to: cannot open the folder %s", e->folder);
    int entries = 0;
    while (readdir(stream)) entries++;
    closedir(stream);
    if (entries <= 2 || overwrite) return RP_OK;
    return RP_FAIL(INVALID,
                   "%s holds something already: choose another folder, or replace its files "
                   "with --overwrite",
                   e->folder);
}

/* Without slashes at its end, beside which another name can stand. */
static rp_status take_folder(const char *folder, folder_export *e) {
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/') length--;
    if (length == 0 || length + 64 > sizeof e->folder)
        return RP_FAIL(INVALID, "--to: hf:FOLDER, a path of 1 to %d bytes",
                       RPI_PATH_BYTES - 64);
    snprintf(e->folder, sizeof e->folder, "%.*s", (int)length, folder);
    snprintf(e->aside, sizeof e->aside, "%s.partial-%ld", e->folder, (long)getpid());
    return RP_OK;
}

static void path_in(const char *folder, const char *name, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
}

static rp_status write_text(folder_export *e, const char *name, const char *text,
                            size_t bytes) {
    char path[PATH_BYTES];
    rpi_replacement file;
    path_in(e->aside, name, path);
    RP_TRY(rpi_replacement_open(path, &file));
    rp_status status = fwrite(text, 1, bytes, file.stream) == bytes
                           ? RP_OK
                           : RP_FAIL_ERRNO(IO, "cannot write %s", path);
    RP_TRY(rpi_replacement_close(&file, status));
    e->files[e->file_count++] = name;
    return RP_OK;
}

static rp_status write_weights(folder_export *e) {
    static const rpi_metadata metadata[] = {{"format", "pt"}};
    static const char name[] = "model.safetensors";
    char path[PATH_BYTES];
    path_in(e->aside, name, path);
    RP_TRY(rpi_safetensors_write(path, e->tensors, e->count, metadata, 1));
    e->files[e->file_count++] = name;
    return RP_OK;
}

/* ---- the tokenizer ---- */

/* Of the data of the run. */
static rp_status open_tokenizer(folder_export *e) {
    const char *data = e->model.data;
    if (!data) return RP_FAIL(NOT_FOUND, "the run does not name its data");
    return rpi_data_tokenizer_open(data, &e->tokenizer);
}

static rpi_hf_text_ends text_ends(const folder_export *e) {
    uint32_t begin = 0, end = 0;
    int64_t usual = e->family->text_end;
    if (!e->tokenizer && usual && usual < rpi_model_number(&e->choice, "vocabulary"))
        return (rpi_hf_text_ends){usual, usual};
    if (!e->tokenizer || !rpi_tokenizer_special(e->tokenizer, RPI_SPECIAL_END, &end))
        return (rpi_hf_text_ends){-1, -1};
    if (!rpi_tokenizer_special(e->tokenizer, RPI_SPECIAL_BEGIN, &begin)) begin = end;
    return (rpi_hf_text_ends){begin, end};
}

static void put_special(const folder_export *e, cJSON *root, const char *key,
                        rpi_special special) {
    uint32_t id = 0;
    if (rpi_tokenizer_special(e->tokenizer, special, &id))
        cJSON_AddStringToObject(root, key, rpi_tokenizer_token(e->tokenizer, id));
}

/* What transformers pads, hides and separates with: it asks by these names, not the tokens. */
static void put_specials(const folder_export *e, cJSON *root) {
    uint32_t mask = 0;
    put_special(e, root, "unk_token", RPI_SPECIAL_UNKNOWN);
    put_special(e, root, "pad_token", RPI_SPECIAL_PAD);
    if (!rpi_tokenizer_special(e->tokenizer, RPI_SPECIAL_MASK, &mask)) return;
    put_special(e, root, "cls_token", RPI_SPECIAL_CLS);
    put_special(e, root, "sep_token", RPI_SPECIAL_SEP);
    put_special(e, root, "mask_token", RPI_SPECIAL_MASK);
}

/* Transformers leaves segments out where it is not told that there are some. */
static void put_inputs(const folder_export *e, cJSON *root) {
    static const char *const names[] = {"input_ids", "token_type_ids", "attention_mask"};
    if (e->family->has_segments)
        cJSON_AddItemToObject(root, "model_input_names", cJSON_CreateStringArray(names, 3));
}

static rp_status write_tokenizer_config(folder_export *e) {
    rpi_hf_text_ends ends = text_ends(e);
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "tokenizer_class", "PreTrainedTokenizerFast");
    cJSON_AddNumberToObject(root, "model_max_length",
                            (double)rpi_model_number(&e->choice, "positions"));
    if (ends.end >= 0) {
        cJSON_AddStringToObject(root, "bos_token",
                                rpi_tokenizer_token(e->tokenizer, (uint32_t)ends.begin));
        cJSON_AddStringToObject(root, "eos_token",
                                rpi_tokenizer_token(e->tokenizer, (uint32_t)ends.end));
    }
    put_specials(e, root);
    put_inputs(e, root);
    char *text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    if (!text) return RP_FAIL(NOMEM, "no memory for tokenizer_config.json");
    rp_status status = write_text(e, "tokenizer_config.json", text, strlen(text));
    cJSON_free(text);
    return status;
}

static rp_status write_tokenizer(folder_export *e, rpi_hf_exported *result) {
    size_t bytes = 0;
    rp_status status = open_tokenizer(e);
    const char *json = status == RP_OK ? rpi_tokenizer_json(e->tokenizer, &bytes) : NULL;
    if (!json) {
        snprintf(result->note, sizeof result->note, "no tokenizer.json: %s",
                 status == RP_OK ? "the tokens are bytes, which need none"
                                 : rp_last_error()->message);
        return RP_OK;
    }
    RP_TRY(write_text(e, "tokenizer.json", json, bytes));
    RP_TRY(write_tokenizer_config(e));
    result->has_tokenizer = true;
    return RP_OK;
}

/* ---- pictures ---- */

static const rpi_shape *shape_named(const folder_export *e, const char *theirs) {
    for (int i = 0; i < e->count; i++)
        if (strcmp(e->tensors[i].name, theirs) == 0) return &e->tensors[i].shape;
    return NULL;
}

/* By the shapes of its tensors. */
static rp_status find_pictures(const folder_export *e, rpi_hf_pictures *out) {
    const rpi_shape *head = shape_named(e, "classifier.weight");
    const rpi_shape *map = shape_named(e, "vit.embeddings.patch_embeddings.projection.weight");
    const rpi_shape *places = shape_named(e, "vit.embeddings.position_embeddings");
    if (!head || !map || !places) return RP_FAIL(CORRUPT, "the run lacks tensors of its model");
    int64_t patches = places->size[1] - 1, side = 1;
    while (side * side < patches) side++;
    if (side * side != patches)
        return RP_FAIL(
            UNSUPPORTED,
            "the pictures have %lld patches each: those of Hugging Face's are square",
            (long long)patches);
    *out = (rpi_hf_pictures){
        .classes = head->size[0], .channels = map->size[1], .side = side * map->size[2]};
    return RP_OK;
}

/* How pictures were shown, where the data are files of them. */
static rp_status write_preprocessor(folder_export *e, rpi_hf_pictures pictures) {
    const rpi_picture_scale *scale = NULL;
    if (!e->model.data || strncmp(e->model.data, "images:", 7) != 0) return RP_OK;
    RP_TRY(rpi_picture_scale_of(e->model.data, &scale));
    cJSON *root = cJSON_CreateObject(), *size = cJSON_AddObjectToObject(root, "size");
    cJSON_AddStringToObject(root, "image_processor_type", "ViTImageProcessor");
    cJSON_AddNumberToObject(size, "height", (double)pictures.side);
    cJSON_AddNumberToObject(size, "width", (double)pictures.side);
    cJSON_AddBoolToObject(root, "do_resize", true);
    cJSON_AddNumberToObject(root, "resample", 2); /* bilinear */
    cJSON_AddBoolToObject(root, "do_rescale", true);
    cJSON_AddNumberToObject(root, "rescale_factor", 1.0 / 255);
    cJSON_AddBoolToObject(root, "do_normalize", true);
    cJSON_AddItemToObject(root, "image_mean", cJSON_CreateDoubleArray(scale->mean, 3));
    cJSON_AddItemToObject(root, "image_std", cJSON_CreateDoubleArray(scale->deviation, 3));
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text) return RP_FAIL(NOMEM, "no memory for preprocessor_config.json");
    rp_status status = write_text(e, "preprocessor_config.json", text, strlen(text));
    cJSON_free(text);
    return status;
}

static rp_status write_config(folder_export *e) {
    char *text = NULL;
    rpi_hf_pictures pictures = {0};
    if (e->family->sees_pictures) {
        RP_TRY(find_pictures(e, &pictures));
        RP_TRY(write_preprocessor(e, pictures));
    }
    RP_TRY(rpi_hf_config_text(e->family, &e->choice, text_ends(e), pictures, &text));
    rp_status status = write_text(e, "config.json", text, strlen(text));
    rpi_free(text);
    return status;
}

/* ---- all of it ---- */

static void remove_aside(const folder_export *e) {
    char path[PATH_BYTES];
    for (int i = 0; i < e->file_count; i++) {
        path_in(e->aside, e->files[i], path);
        unlink(path);
    }
    rmdir(e->aside);
}

/* A folder that is not there, or is empty, is replaced as a whole; else file by file, config
 * last. */
static rp_status publish(const folder_export *e) {
    char from[PATH_BYTES], to[PATH_BYTES];
    if (rename(e->aside, e->folder) == 0) return RP_OK;
    if (access(e->folder, F_OK) != 0)
        return RP_FAIL_ERRNO(IO, "cannot make the folder %s", e->folder);
    for (int i = 0; i < e->file_count; i++) {
        path_in(e->aside, e->files[i], from);
        path_in(e->folder, e->files[i], to);
        if (rename(from, to) != 0) return RP_FAIL_ERRNO(IO, "cannot replace %s", to);
    }
    rmdir(e->aside);
    return RP_OK;
}

static rp_status write_all(folder_export *e, rpi_hf_exported *result) {
    RP_TRY(rpi_folder_make(e->aside));
    rp_status status = write_weights(e);
    if (status == RP_OK && !e->family->sees_pictures) status = write_tokenizer(e, result);
    if (status == RP_OK) status = write_config(e);
    if (status == RP_OK) status = publish(e);
    rpi_kept_error why;
    if (status == RP_OK) return RP_OK;
    rpi_error_keep(&why);
    remove_aside(e);
    rpi_error_put_back(&why);
    return status;
}

static rp_status export_run(const char *run, const char *folder, bool overwrite,
                            folder_export *e, rpi_hf_exported *result) {
    RP_TRY(take_folder(folder, e));
    RP_TRY(open_run(run, e));
    RP_TRY(check_folder(e, overwrite));
    RP_TRY(read_tensors(e));
    RP_TRY(write_all(e, result));
    result->step = e->model.step;
    result->architecture = rpi_hf_architecture(e->family, &e->choice);
    for (int i = 0; i < e->count; i++)
        result->parameters += rpi_shape_count(&e->tensors[i].shape);
    return RP_OK;
}

rp_status rpi_hf_export(const char *run, const char *folder, bool overwrite,
                        rpi_hf_exported *out_exported) {
    folder_export *e = NULL;
    rpi_hf_exported result = {0};
    RP_TRY(rpi_alloc(sizeof *e, "an export", &e));
    rp_status status = export_run(run, folder, overwrite, e, &result);
    for (int i = 0; i < e->count; i++) rpi_free((void *)e->tensors[i].data);
    rpi_free(e->tensors);
    rpi_free(e->names);
    rpi_tokenizer_close(e->tokenizer);
    rpi_trained_model_close(&e->model);
    rpi_free(e);
    if (status == RP_OK) *out_exported = result;
    return status;
}
