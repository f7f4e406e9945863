#include "train/data/token_data.h"

#include "base/c_locale.h"
#include "base/status.h"
#include "train/data/token_file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* How to write data of this kind ("tokens"). */
static const char *usage(const rpi_token_data *data, char text[160]) {
    const char *kind = data->kind;
    snprintf(text, 160, "write %s:PATH, %s:PATH,validation=PATH or %s:PATH,validation=5%%",
             kind, kind, kind);
    return text;
}

/* ---- folders ---- */

enum { MOST_SETS = 3 };

/* Sets of files in a folder, each by the path that opens it. */
typedef struct sets {
    const char *prefix; /* "uint16:" of ids without a header, or "" */
    char path[MOST_SETS][RPI_PATH_BYTES];
    int count; /* may be more than there is room for */
} sets;

static bool ends_with(const char *name, const char *suffix) {
    size_t length = strlen(name), end = strlen(suffix);
    return length > end && strcmp(name + length - end, suffix) == 0;
}

/* A .bin beside its .idx is Megatron's, and no set of its own. */
static bool is_indexed(const char *folder, const char *name) {
    char path[RPI_PATH_BYTES + 256];
    struct stat facts;
    snprintf(path, sizeof path, "%s/%.*s.idx", folder, (int)strlen(name) - 4, name);
    return stat(path, &facts) == 0;
}

/* By the path that opens it: a .bin keeps its suffix. */
static rp_status add_set(sets *found, const char *folder, const char *name) {
    int length = (int)strlen(name) - (ends_with(name, ".ds") ? 3 : 4);
    if (ends_with(name, ".bin")) length += 4;
    if (found->count++ >= MOST_SETS) return RP_OK;
    if (snprintf(found->path[found->count - 1], RPI_PATH_BYTES, "%s%s/%.*s", found->prefix,
                 folder, length, name) < RPI_PATH_BYTES)
        return RP_OK;
    return RP_FAIL(INVALID, "the path %s/%s is too long", folder, name);
}

static rp_status look(const char *folder, sets *found) {
    DIR *stream = opendir(folder);
    if (!stream) return RP_FAIL_ERRNO(IO, "cannot open the folder %s", folder);
    rp_status status = RP_OK;
    for (struct dirent *entry; status == RP_OK && (entry = readdir(stream)) != NULL;) {
        const char *name = entry->d_name;
        if (ends_with(name, ".ds") || ends_with(name, ".idx") ||
            (ends_with(name, ".bin") && !is_indexed(folder, name)))
            status = add_set(found, folder, name);
    }
    closedir(stream);
    return status;
}

static bool is_for_validation(const char *path) {
    return strstr(strrchr(path, '/'), "val") != NULL;
}

static rp_status resolve_folder(rpi_token_data *data) {
    char folder[RPI_PATH_BYTES], prefix[16];
    size_t raw = rpi_token_raw_prefix(data->train);
    sets found = {.prefix = prefix};
    snprintf(prefix, sizeof prefix, "%.*s", (int)raw, data->train);
    snprintf(folder, sizeof folder, "%s", data->train + raw);
    RP_TRY(look(folder, &found));
    if (found.count == 0)
        return RP_FAIL(
            NOT_FOUND,
            "the folder %s holds no tokens: no NAME.ds (of redpoll data tokenize), "
            "NAME.idx with NAME.bin (Megatron) or NAME.bin (llm.c, or nanoGPT as uint16:)",
            folder);
    int held_out = found.count == 2 && is_for_validation(found.path[1]);
    bool is_pair = found.count == 2 &&
                   is_for_validation(found.path[0]) != is_for_validation(found.path[1]);
    if (found.count > 1 && (!is_pair || data->validation[0]))
        return RP_FAIL(INVALID,
                       "the folder %s holds several files of tokens (%s and others): name one, "
                       "as %s:%s",
                       folder, found.path[0], data->kind, found.path[0]);
    if (is_pair) memcpy(data->validation, found.path[held_out], RPI_PATH_BYTES);
    memcpy(data->train, found.path[is_pair ? 1 - held_out : 0], RPI_PATH_BYTES);
    return RP_OK;
}

/* ---- words ---- */

bool rpi_token_data_share(const char *text, double *out_share) {
    char *end = NULL;
    double share = rpi_strtod(text, &end);
    if (end == text) return false;
    if (strcmp(end, "%") == 0)
        share /= 100;
    else if (*end)
        return false;
    *out_share = share;
    return true;
}

rp_status rpi_token_data_validation(const char *text, rpi_token_data *data) {
    char how[160];
    if (!*text) return RP_FAIL(INVALID, "validation= is empty; %s", usage(data, how));
    if (!rpi_token_data_share(text, &data->share)) {
        snprintf(data->validation, sizeof data->validation, "%s", text);
        return RP_OK;
    }
    if (data->share > 0 && data->share < 1) return RP_OK;
    return RP_FAIL(INVALID, "validation=%s: a share above 0 and below 1 (100%%) is allowed",
                   text);
}

static rp_status parse_words(char *words, rpi_token_data *data) {
    char *rest = words, how[160];
    char *path = strsep(&rest, ",");
    snprintf(data->train, sizeof data->train, "%s", path);
    if (!*path) return RP_FAIL(INVALID, "no file of tokens is named; %s", usage(data, how));
    for (char *word; (word = strsep(&rest, ","));) {
        if (strncmp(word, "validation=", 11) != 0)
            return RP_FAIL(INVALID, "'%s' is no option of %s; %s", word, data->kind,
                           usage(data, how));
        RP_TRY(rpi_token_data_validation(word + 11, data));
    }
    return RP_OK;
}

rp_status rpi_token_data_parse(const char *text, rpi_token_data *out_data) {
    char words[2 * RPI_PATH_BYTES];
    rpi_token_data data = {.share = RPI_TOKEN_DATA_SHARE};
    struct stat facts;
    const char *colon = strchr(text, ':');
    int length = snprintf(words, sizeof words, "%s", colon ? colon + 1 : "");
    snprintf(data.kind, sizeof data.kind, "%.*s", colon ? (int)(colon - text) : 0, text);
    if (length >= RPI_PATH_BYTES) return RP_FAIL(INVALID, "the text of the data is too long");
    RP_TRY(parse_words(words, &data));
    if (stat(data.train + rpi_token_raw_prefix(data.train), &facts) == 0 &&
        S_ISDIR(facts.st_mode))
        RP_TRY(resolve_folder(&data));
    *out_data = data;
    return RP_OK;
}

rp_status rpi_token_data_split(const rpi_token_data *data, int64_t all, int64_t sequence,
                               int64_t *out_train) {
    int64_t held_out = (int64_t)((double)all * data->share + 0.5);
    if (all < 2)
        return RP_FAIL(INVALID,
                       "%s holds one sequence of %lld tokens, and one is to be held out: a "
                       "smaller --seq-length, or validation=PATH",
                       data->train, (long long)sequence);
    if (held_out < 1) held_out = 1;
    if (held_out > all - 1) held_out = all - 1;
    *out_train = all - held_out;
    return RP_OK;
}

bool rpi_token_data_is(const char *text) {
    return strncmp(text, "tokens:", 7) == 0 || strncmp(text, "masked:", 7) == 0;
}
