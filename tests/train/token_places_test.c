/* Where tokens lie in a text, beside the tokenizers package (make_token_places.py). */
#include "train/tokenizers/token_places.h"

#include "base/regular_file.h"
#include "harness/check.h"
#include "train/tokenizers/json_read.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 1 << 16 };

static rpi_tokenizer *open_golden(const char *name) {
    char path[800], *text = NULL;
    size_t bytes = 0;
    cJSON *root = NULL;
    rpi_tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, "%s/%s.json", TOKENIZER_GOLDEN, name);
    CHECK_OK(rpi_regular_file_read(path, 1 << 24, &text, &bytes));
    CHECK_OK(rpi_json_parse(path, text, bytes, &root));
    char *json = cJSON_PrintUnformatted(cJSON_GetObjectItem(root, "tokenizer"));
    CHECK_OK(rpi_tokenizer_parse(name, json, strlen(json), &tokenizer));
    cJSON_free(json);
    cJSON_Delete(root);
    rpi_free(text);
    return tokenizer;
}

static size_t unhex(const char *hex, char *out) {
    size_t count = strlen(hex) / 2;
    for (size_t i = 0; i < count; i++) {
        unsigned byte = 0;
        sscanf(hex + 2 * i, "%2x", &byte);
        out[i] = (char)byte;
    }
    return count;
}

static void check_line(rpi_encoder *encoder, char *rest, int line) {
    static char text[LINE];
    rpi_ids ids = {0};
    rpi_pieces places = {0};
    size_t bytes = unhex(strsep(&rest, " "), text), count = 0;
    CHECK_OK(rpi_encode_with_places(encoder, text, bytes, &ids, &places));
    CHECK_EQ(ids.count, places.count);
    for (char *word; (word = strsep(&rest, " ")); count++) {
        unsigned id = 0, from = 0, to = 0;
        CHECK_EQ(sscanf(word, "%u:%u:%u", &id, &from, &to), 3);
        if (count >= ids.count) continue;
        const rpi_text_piece *place = &places.at[count];
        CHECK_MSG(ids.at[count] == id && place->start == from &&
                      place->start + place->bytes == to,
                  "line %d, token %zu: %u:%u:%u, not %s", line, count, ids.at[count],
                  place->start, place->start + place->bytes, word);
    }
    CHECK_MSG(count == ids.count, "line %d: %zu tokens, not %zu", line, ids.count, count);
    rpi_ids_free(&ids);
    rpi_pieces_free(&places);
}

static void check_tokenizer(const char *name) {
    static char text[LINE];
    rpi_encoder *encoder = NULL;
    rpi_tokenizer *tokenizer = open_golden(name);
    FILE *stream = fopen(TOKEN_PLACES, "r");
    REQUIRE(stream && tokenizer);
    REQUIRE_OK(rpi_encoder_create(tokenizer, &encoder));
    int line = 0, met = 0;
    while (fgets(text, sizeof text, stream)) {
        char *rest = text;
        line++;
        text[strcspn(text, "\n")] = '\0';
        if (strcmp(strsep(&rest, " "), name) != 0) continue;
        check_line(encoder, rest, line);
        met++;
    }
    CHECK(met > 10);
    fclose(stream);
    rpi_encoder_destroy(encoder);
    rpi_tokenizer_close(tokenizer);
}

static void places_are_those_of_tokenizers(void) {
    check_tokenizer("bert_uncased");
    check_tokenizer("bert_cased");
}

static void bytes_are_their_own_places(void) {
    rpi_tokenizer *bytes = NULL;
    rpi_encoder *encoder = NULL;
    rpi_ids ids = {0};
    rpi_pieces places = {0};
    REQUIRE_OK(rpi_tokenizer_open("byte", &bytes));
    REQUIRE_OK(rpi_encoder_create(bytes, &encoder));
    CHECK_OK(rpi_encode_with_places(encoder, "a\xc3\xa9", 3, &ids, &places));
    CHECK(ids.count == 3 && ids.at[1] == 0xc3);
    CHECK(places.count == 3 && places.at[2].start == 2 && places.at[2].bytes == 1);
    CHECK_FAILS(rpi_encode_with_places(encoder, "ab\xff", 3, &ids, &places), CORRUPT,
                "no UTF-8 from byte 2 on");
    CHECK(ids.count == 3 && places.count == 3);
    rpi_ids_free(&ids);
    rpi_pieces_free(&places);
    rpi_encoder_destroy(encoder);
    rpi_tokenizer_close(bytes);
}

static void others_are_refused(void) {
    rpi_tokenizer *gpt2 = open_golden("gpt2");
    REQUIRE(gpt2);
    CHECK_FAILS(rpi_token_places_check(gpt2), UNSUPPORTED, "the tokenizer gpt2 is BPE");
    rpi_tokenizer_close(gpt2);
}

CASES({"places are those of tokenizers", places_are_those_of_tokenizers},
      {"bytes are their own places", bytes_are_their_own_places},
      {"others are refused", others_are_refused})
