#include "train/data/token_writer.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "net/bytes/endian.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS, INDEX, TOKENIZER, CONFIG, METADATA, FILES, BLOCK = 1 << 14 };

struct rpi_token_writer {
    const rpi_tokenizer *tokenizer;
    rpi_replacement files[FILES]; /* stream NULL: what is under this name goes at the end */
    int token_bytes;
    int64_t tokens, documents;
    uint8_t block[BLOCK];
};

static rp_status open_file(rpi_token_writer *w, int which, bool wanted, const char *name) {
    static const char *const suffixes[FILES] = {".ds", ".ds.index", ".tokenizer.json",
                                                ".tokenizer_config.json", ".ds.metadata"};
    char *path = w->files[which].path;
    if (snprintf(path, RPI_PATH_BYTES, "%s%s", name, suffixes[which]) >= RPI_PATH_BYTES)
        return RP_FAIL(INVALID, "the path %s is too long", name);
    return wanted ? rpi_replacement_open(path, &w->files[which]) : RP_OK;
}

rp_status rpi_token_writer_open(const char *name, const rpi_tokenizer *tokenizer,
                                rpi_token_writer **out_writer) {
    rpi_token_writer *w = NULL;
    size_t bytes;
    RP_TRY(rpi_alloc(sizeof *w, "a writer of tokens", &w));
    w->tokenizer = tokenizer;
    w->token_bytes = rpi_tokenizer_size(tokenizer) < 65536 ? 2 : 4;
    rp_status status = RP_OK;
    const bool json = rpi_tokenizer_json(tokenizer, &bytes) != NULL;
    for (int i = 0; i < FILES && status == RP_OK; i++)
        status = open_file(w, i, json || (i != TOKENIZER && i != CONFIG), name);
    if (status != RP_OK) return rpi_token_writer_close(w, status);
    *out_writer = w;
    return RP_OK;
}

int64_t rpi_token_writer_tokens(const rpi_token_writer *w) {
    return w->tokens;
}

int64_t rpi_token_writer_documents(const rpi_token_writer *w) {
    return w->documents;
}

int rpi_token_writer_token_bytes(const rpi_token_writer *w) {
    return w->token_bytes;
}

static rp_status put(rpi_token_writer *w, int which, const void *data, size_t bytes) {
    if (fwrite(data, 1, bytes, w->files[which].stream) == bytes) return RP_OK;
    return RP_FAIL_ERRNO(IO, "cannot write %s", w->files[which].path);
}

rp_status rpi_token_writer_add(rpi_token_writer *w, const uint32_t *ids, size_t count) {
    size_t most = BLOCK / (size_t)w->token_bytes;
    for (size_t done = 0; done < count;) {
        size_t some = count - done < most ? count - done : most;
        for (size_t i = 0; i < some; i++) {
            if (w->token_bytes == 2)
                rpi_put_u16(w->block + 2 * i, (uint16_t)ids[done + i]);
            else
                rpi_put_u32(w->block + 4 * i, ids[done + i]);
        }
        RP_TRY(put(w, TOKENS, w->block, some * (size_t)w->token_bytes));
        done += some;
    }
    uint8_t end[8];
    w->tokens += (int64_t)count;
    w->documents++;
    rpi_put_u64(end, (uint64_t)w->tokens);
    return put(w, INDEX, end, sizeof end);
}

/* "1.2M", for people who look into the file. */
static const char *short_count(int64_t count, char text[32]) {
    static const char units[] = " KMGT";
    double value = (double)count;
    int unit = 0;
    for (; value >= 1000 && unit < 4; unit++) value /= 1000;
    if (unit == 0)
        snprintf(text, 32, "%lld", (long long)count);
    else
        snprintf(text, 32, "%.2f%c", value, units[unit]);
    return text;
}

/* Which token ends a text, for whoever opens the tokenizer again. */
static rp_status put_config(rpi_token_writer *w) {
    uint32_t id = 0;
    bool has_end = rpi_tokenizer_special(w->tokenizer, RPI_SPECIAL_END, &id);
    const char *token = has_end ? rpi_tokenizer_token(w->tokenizer, id) : NULL;
    cJSON *object = cJSON_CreateObject();
    if (token)
        cJSON_AddStringToObject(object, "eos_token", token);
    else
        cJSON_AddNullToObject(object, "eos_token");
    char *text = cJSON_Print(object);
    rp_status status = text ? put(w, CONFIG, text, strlen(text))
                            : RP_FAIL(NOMEM, "no memory for the end of texts");
    cJSON_free(text);
    cJSON_Delete(object);
    return status;
}

static rp_status put_rest(rpi_token_writer *w) {
    char text[700], count[32];
    size_t bytes;
    if (w->documents == 0) return RP_FAIL(INVALID, "there are no documents in what is read");
    const char *json = rpi_tokenizer_json(w->tokenizer, &bytes);
    if (json) RP_TRY(put(w, TOKENIZER, json, bytes));
    if (json) RP_TRY(put_config(w));
    int length =
        snprintf(text, sizeof text, "%.600s|%d\n%lld\n%s", rpi_tokenizer_name(w->tokenizer),
                 w->token_bytes, (long long)w->tokens, short_count(w->tokens, count));
    RP_TRY(put(w, METADATA, text, (size_t)length));
    /* A full disk shows here, before the first file takes its name. */
    for (int i = 0; i < FILES; i++)
        if (w->files[i].stream && fflush(w->files[i].stream) != 0)
            return RP_FAIL_ERRNO(IO, "cannot write %s", w->files[i].path);
    return RP_OK;
}

/* A tokenizer that has no file, put where one had: tokens are not read by the other's words. */
static rp_status remove_old(const char *path) {
    if (unlink(path) == 0 || errno == ENOENT) return RP_OK;
    return RP_FAIL_ERRNO(IO, "cannot remove %s, of the tokens that were there before", path);
}

rp_status rpi_token_writer_close(rpi_token_writer *w, rp_status status) {
    if (status == RP_OK) status = put_rest(w);
    for (int i = 0; i < FILES; i++) {
        if (w->files[i].stream)
            status = rpi_replacement_close(&w->files[i], status);
        else if (status == RP_OK)
            status = remove_old(w->files[i].path);
    }
    rpi_free(w);
    return status;
}
