#include "train/data/data_tokenizer.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/data/stages.h"
#include "train/data/token_data.h"
#include "train/data/token_file.h"

#include <string.h>

/* "pairs:FILE.jsonl,tokenizer=NAME" names its own, as "spans:FILE.json,tokenizer=NAME". */
static rp_status open_named(const char *data, rpi_tokenizer **out_tokenizer) {
    static const char word[] = ",tokenizer=";
    char name[RPI_PATH_BYTES];
    const char *found = strstr(data, word);
    if (!found) return RP_FAIL(NOT_FOUND, "--data %s names no tokenizer", data);
    found += sizeof word - 1;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(found, ","), found);
    return rpi_tokenizer_open(name, out_tokenizer);
}

/* All stages are of one tokenizer's. */
static rp_status open_first(const char *data, rpi_tokenizer **out_tokenizer) {
    rpi_stage *stage = NULL;
    bool more = false;
    RP_TRY(rpi_alloc(sizeof *stage, "a stage", &stage));
    rp_status status = rpi_stages_at(data, 0, stage, &more);
    if (status == RP_OK) status = rpi_data_tokenizer_open(stage->data, out_tokenizer);
    rpi_free(stage);
    return status;
}

/* NOLINTNEXTLINE(misc-no-recursion): a stage is no stages. */
rp_status rpi_data_tokenizer_open(const char *data, rpi_tokenizer **out_tokenizer) {
    rpi_token_data tokens;
    rpi_token_file *file = NULL;
    if (strncmp(data, "pairs:", 6) == 0 || strncmp(data, "spans:", 6) == 0)
        return open_named(data, out_tokenizer);
    if (rpi_stages_are(data)) return open_first(data, out_tokenizer);
    if (!rpi_token_data_is(data))
        return RP_FAIL(
            NOT_FOUND,
            "--data %s is none of tokens:PATH, masked:PATH, pairs:FILE and spans:FILE", data);
    RP_TRY(rpi_token_data_parse(data, &tokens));
    RP_TRY(rpi_token_file_open(tokens.train, &file));
    const char *spec = file->tokenizer_json ? file->tokenizer_json : file->tokenizer;
    rp_status status =
        spec ? rpi_tokenizer_open(spec, out_tokenizer)
             : RP_FAIL(NOT_FOUND, "there is none beside the tokens of %s", tokens.train);
    rpi_token_file_close(file);
    return status;
}
