/* The catalogue of tokenizers that have a name, and where their files are looked for. */
#include "train/tokenizers/tokenizers.h"

#include "base/log.h"
#include "base/regular_file.h"
#include "base/suggest.h"
#include "train/tokenizers/tokenizer_config.h"
#include "train/tokenizers/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BYTE_TOKENS = 257, FILE_MOST = 1 << 29, PATH_BYTES = RPI_PATH_BYTES };

static const rpi_tokenizer_source sources[] = {
    {"byte", "each byte is a token, and 256 ends a document; needs no file", NULL, NULL},
    {"gpt2", "byte-level BPE of GPT-2", "tokenizer.json, or vocab.json and merges.txt",
     rpi_gpt2_json},
    {"llama", "SentencePiece BPE of LLaMA", "tokenizer.json", NULL},
    {"bert", "WordPiece of BERT", "tokenizer.json, or vocab.txt", rpi_bert_json},
};
enum { SOURCES = sizeof sources / sizeof sources[0] };

const rpi_tokenizer_source *rpi_tokenizer_source_at(int index) {
    return index >= 0 && index < SOURCES ? &sources[index] : NULL;
}

static const rpi_tokenizer_source *find(const char *name, size_t bytes) {
    for (int i = 0; i < SOURCES; i++)
        if (strlen(sources[i].name) == bytes && memcmp(sources[i].name, name, bytes) == 0)
            return &sources[i];
    return NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < SOURCES ? sources[index].name : NULL;
}

static bool is_folder(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

static bool is_there(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0;
}

/* ---- opening ---- */

static rp_status open_bytes(rpi_tokenizer **out_tokenizer) {
    rpi_tokenizer *t = NULL;
    RP_TRY(rpi_alloc(sizeof *t, "a tokenizer", &t));
    rp_status status = rpi_strdup("byte", &t->name);
    if (status == RP_OK)
        status = rpi_vocabulary_add(&t->added_ids, "<|endoftext|>", 13, BYTE_TOKENS - 1);
    if (status == RP_OK)
        status = rpi_alloc_array(BYTE_TOKENS, sizeof *t->is_special, "tokens", &t->is_special);
    if (status != RP_OK) {
        rpi_tokenizer_close(t);
        return status;
    }
    t->is_special[BYTE_TOKENS - 1] = true;
    t->size = BYTE_TOKENS;
    for (int s = 0; s < RPI_SPECIALS; s++) t->specials[s] = UINT32_MAX;
    t->specials[RPI_SPECIAL_END] = BYTE_TOKENS - 1;
    *out_tokenizer = t;
    return RP_OK;
}

/* What the files beside it say of the token that ends a text goes before what is usual. */
static rp_status take_end(const char *path, rpi_tokenizer *t) {
    char *token = NULL;
    uint32_t id = 0;
    RP_TRY(rpi_tokenizer_config_end(path, &token));
    if (token && rpi_tokenizer_find(t, token, &id))
        t->specials[RPI_SPECIAL_END] = id;
    else if (token)
        rpi_log(RP_LOG_WARNING,
                "%s has no token '%.60s', which tokenizer_config.json beside it names as the "
                "end of a text",
                path, token);
    rpi_free(token);
    return RP_OK;
}

static rp_status rename_as(const char *name, rpi_tokenizer *t) {
    if (!name) return RP_OK;
    rpi_free(t->name);
    t->name = NULL;
    return rpi_strdup(name, &t->name);
}

static rp_status open_file(const char *path, const char *name, rpi_tokenizer **out_tokenizer) {
    char *text = NULL;
    size_t bytes = 0;
    RP_TRY(rpi_regular_file_read(path, FILE_MOST, &text, &bytes));
    rp_status status = rpi_tokenizer_parse(path, text, bytes, out_tokenizer);
    rpi_free(text);
    RP_TRY(status);
    status = take_end(path, *out_tokenizer);
    if (status == RP_OK) status = rename_as(name, *out_tokenizer);
    if (status != RP_OK) {
        rpi_tokenizer_close(*out_tokenizer);
        *out_tokenizer = NULL;
    }
    return status;
}

static rp_status open_made(const rpi_tokenizer_source *source, const char *folder,
                           rpi_tokenizer **out_tokenizer) {
    char *json = NULL;
    RP_TRY(source->make_json(folder, &json));
    rp_status status = rpi_tokenizer_parse(source->name, json, strlen(json), out_tokenizer);
    cJSON_free(json);
    return status;
}

/* What to do with a folder that has no tokenizer.json, by what it has. */
static rp_status refuse_folder(const char *folder) {
    static const struct {
        const char *file, *advice;
    } others[] = {
        {"vocab.json", "; vocab.json is there: with merges.txt it is read as gpt2:FOLDER"},
        {"vocab.txt", "; vocab.txt is there, and is read as bert:FOLDER"},
        {"tokenizer.model", "; tokenizer.model is there: transformers' "
                            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(NEW) "
                            "writes one"},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s", folder, others[i].file);
        if (is_there(path))
            return RP_FAIL(NOT_FOUND, "%s has no file tokenizer.json%s", folder,
                           others[i].advice);
    }
    return RP_FAIL(NOT_FOUND, "%s has no file tokenizer.json", folder);
}

/* Of a folder: tokenizer.json, or the older files of the kind. */
static rp_status open_folder(const rpi_tokenizer_source *source, const char *folder,
                             rpi_tokenizer **out_tokenizer) {
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/tokenizer.json", folder) >= (int)sizeof path)
        return RP_FAIL(INVALID, "the path %s is too long", folder);
    if (is_there(path)) return open_file(path, source ? source->name : NULL, out_tokenizer);
    if (source && source->make_json) return open_made(source, folder, out_tokenizer);
    return refuse_folder(folder);
}

static rp_status open_named(const rpi_tokenizer_source *source, rpi_tokenizer **out_tokenizer) {
    const char *folders = getenv("REDPOLL_TOKENIZERS");
    while (folders && *folders) {
        char path[PATH_BYTES];
        size_t length = strcspn(folders, ":");
        snprintf(path, sizeof path, "%.*s/%s", (int)length, folders, source->name);
        if (length && is_folder(path)) return open_folder(source, path, out_tokenizer);
        folders += length + (folders[length] == ':');
    }
    const char *set = getenv("REDPOLL_TOKENIZERS");
    return RP_FAIL(NOT_FOUND,
                   "no files of the tokenizer %s: put %s into a folder and write "
                   "--tokenizer %s:FOLDER, or into %s/%s%s",
                   source->name, source->files, source->name, set && *set ? set : "DIR",
                   source->name, set && *set ? "" : " with REDPOLL_TOKENIZERS=DIR");
}

/* NULL: `spec` is neither KIND nor KIND:FOLDER. */
static const rpi_tokenizer_source *source_of(const char *spec, const char **out_folder) {
    const char *colon = strchr(spec, ':');
    *out_folder = colon ? colon + 1 : NULL;
    return find(spec, colon ? (size_t)(colon - spec) : strlen(spec));
}

rp_status rpi_tokenizer_open(const char *spec, rpi_tokenizer **out_tokenizer) {
    const char *folder = NULL;
    const rpi_tokenizer_source *source = source_of(spec, &folder);
    if (source && !source->files)
        return folder ? RP_FAIL(INVALID, "the tokenizer %s needs no file", source->name)
                      : open_bytes(out_tokenizer);
    if (source && !folder) return open_named(source, out_tokenizer);
    if (source)
        return is_folder(folder) ? open_folder(source, folder, out_tokenizer)
                                 : open_file(folder, source->name, out_tokenizer);
    if (is_folder(spec)) return open_folder(NULL, spec, out_tokenizer);
    if (is_there(spec)) return open_file(spec, NULL, out_tokenizer);
    char hint[64];
    return RP_FAIL(NOT_FOUND,
                   "no tokenizer '%s': neither a file or folder nor one of byte, gpt2, llama, "
                   "bert%s",
                   spec, rpi_suggest_text(spec, name_at, NULL, hint, sizeof hint));
}
