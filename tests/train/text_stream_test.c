/* Tokens to text as they come: together the text of all, and each piece whole characters. */
#include "train/generation/text_stream.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "harness/check.h"
#include "train/tokenizers/json_read.h"
#include "train/tokenizers/utf8_text.h"

#include <string.h>

static const char *const files[] = {"gpt2.json", "llama2.json", "llama_metaspace.json",
                                    "unigram_bytes.json", "byte"};
static const char text[] = "In the beginning, \xc3\xa9t\xc3\xa9 \xe2\x82\xac 5; "
                           "\xf0\x9f\x90\xa6 and \xe6\x97\xa5\xe6\x9c\xac  two.\nEnd";

typedef struct taken {
    rpi_text all;
    int pieces, broken;
} taken;

static rp_status take(void *context, const char *piece, size_t bytes) {
    taken *t = context;
    t->pieces++;
    t->broken += rpi_utf8_valid(piece, bytes) < bytes;
    return rpi_text_append(&t->all, piece, bytes);
}

/* The tokenizer.json in a golden file. */
static rp_status open_golden(const char *name, rpi_tokenizer **tokenizer) {
    char path[RPI_PATH_BYTES], *file = NULL;
    size_t bytes = 0;
    cJSON *root = NULL;
    snprintf(path, sizeof path, "%s/%s", TOKENIZER_GOLDEN, name);
    RP_TRY(rpi_regular_file_read(path, 1 << 30, &file, &bytes));
    rp_status status = rpi_json_parse(path, file, bytes, &root);
    rpi_free(file);
    RP_TRY(status);
    char *json = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(root, "tokenizer"));
    status = rpi_tokenizer_parse(name, json, strlen(json), tokenizer);
    cJSON_free(json);
    cJSON_Delete(root);
    return status;
}

static void open_one(const char *name, rpi_tokenizer **tokenizer, rpi_encoder **encoder) {
    if (strchr(name, '.'))
        REQUIRE_OK(open_golden(name, tokenizer));
    else
        REQUIRE_OK(rpi_tokenizer_open(name, tokenizer));
    REQUIRE_OK(rpi_encoder_create(*tokenizer, encoder));
}

/* All ids but the first `known`, one by one. */
static void stream_ids(rpi_encoder *encoder, const rpi_ids *ids, size_t known, taken *t) {
    rpi_text_stream stream = {.encoder = encoder, .take = take, .context = t};
    CHECK_OK(rpi_text_stream_begin(&stream, ids->at, known));
    for (size_t i = known; i < ids->count; i++)
        CHECK_OK(rpi_text_stream_add(&stream, ids->at[i]));
    CHECK_OK(rpi_text_stream_end(&stream));
    rpi_text_stream_free(&stream);
}

static void check_stream_of(const char *name) {
    rpi_tokenizer *tokenizer = NULL;
    rpi_encoder *encoder = NULL;
    rpi_ids ids = {0};
    open_one(name, &tokenizer, &encoder);
    REQUIRE_OK(rpi_encode(encoder, text, strlen(text), 0, &ids, NULL));
    for (size_t known = 0; known < 8; known += 7) {
        rpi_text wanted = {0}, head = {0};
        taken t = {{0}, 0, 0};
        CHECK_OK(rpi_decode(encoder, ids.at, ids.count, RPI_DECODE_SKIP_SPECIAL, &wanted));
        CHECK_OK(rpi_decode(encoder, ids.at, known, RPI_DECODE_SKIP_SPECIAL, &head));
        stream_ids(encoder, &ids, known, &t);
        CHECK_MSG(t.all.count == wanted.count - head.count &&
                      !memcmp(t.all.at, wanted.at + head.count, t.all.count),
                  "%s, %zu known: '%.*s', not '%.*s'", name, known, (int)t.all.count, t.all.at,
                  (int)(wanted.count - head.count), wanted.at + head.count);
        CHECK_EQ(t.broken, 0);
        CHECK(t.pieces > 5);
        rpi_text_free(&wanted);
        rpi_text_free(&head);
        rpi_text_free(&t.all);
    }
    rpi_ids_free(&ids);
    rpi_encoder_destroy(encoder);
    rpi_tokenizer_close(tokenizer);
}

static void pieces_make_the_text(void) {
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) check_stream_of(files[i]);
}

/* Bytes that are no text become U+FFFD, and do not hold back what follows for long. */
static void what_is_no_text_is_replaced(void) {
    rpi_tokenizer *tokenizer = NULL;
    rpi_encoder *encoder = NULL;
    taken t = {{0}, 0, 0};
    const uint32_t bytes[] = {'a', 0xff, 'b', 0xe2, 0x82, 'c', 0xe2, 0x82, 0xac, 0xf0, 0x9f};
    static const char wanted[] = "a\xef\xbf\xbd"
                                 "b\xef\xbf\xbd"
                                 "c\xe2\x82\xac\xef\xbf\xbd";
    rpi_ids ids = {0};
    open_one("byte", &tokenizer, &encoder);
    CHECK_OK(rpi_ids_append(&ids, bytes, sizeof bytes / sizeof bytes[0]));
    stream_ids(encoder, &ids, 0, &t);
    CHECK_EQ(t.broken, 0);
    CHECK_MSG(t.all.count == strlen(wanted) && !memcmp(t.all.at, wanted, t.all.count), "%.*s",
              (int)t.all.count, t.all.at);
    rpi_text_free(&t.all);
    rpi_ids_free(&ids);
    rpi_encoder_destroy(encoder);
    rpi_tokenizer_close(tokenizer);
}

CASES({"pieces make the text", pieces_make_the_text},
      {"what is no text is replaced", what_is_no_text_is_replaced})
