/* Tokenizers against Hugging Face's, and the pieces that they are made of. */
#include "tokenizer_golden.h"

#include "train/tokenizers/byte_level.h"
#include "train/tokenizers/pattern.h"

#include <dirent.h>
#include <pthread.h>

static int check_cases_of(const char *name) {
    cJSON *root = read_golden(name);
    rpi_tokenizer *tokenizer = NULL;
    rpi_encoder *encoder = NULL;
    int cases = 0;
    if (!root) return 0;
    CHECK_OK(open_golden(name, root, &tokenizer));
    if (tokenizer) CHECK_OK(rpi_encoder_create(tokenizer, &encoder));
    const cJSON *one, *list = cJSON_GetObjectItemCaseSensitive(root, "cases");
    if (encoder) {
        cJSON_ArrayForEach(one, list) {
            check_text(name, one, encoder);
            cases++;
        }
    }
    rpi_encoder_destroy(encoder);
    rpi_tokenizer_close(tokenizer);
    cJSON_Delete(root);
    return cases;
}

static void agrees_with_golden_files(void) {
    DIR *folder = opendir(golden_folder());
    REQUIRE(folder);
    int files = 0, cases = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!strstr(entry->d_name, ".json")) continue;
        files++;
        cases += check_cases_of(entry->d_name);
    }
    closedir(folder);
    printf("  %d tokenizers, %d texts\n", files, cases);
    CHECK(files >= 15 && cases >= 500);
}

/* ---- words of GPT-2, against the expression itself ---- */

static uint64_t state;

static uint32_t next_random(uint32_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % bound;
}

static const char *const parts[] = {
    "a",
    "Zz",
    " ",
    "  ",
    "\n",
    "\t",
    "'s",
    "'ll",
    "'",
    "12",
    "\xc2\xb2",
    "!",
    "_",
    "\xc3\xa9",
    "\xc2\xa0",
    "\xe3\x80\x80",
    "\xe4\xb8\xad",
    "\xcc\x81",
    "\xf0\x9f\x98\x80",
    "\xe2\x85\xa7",
    "\xc2\x85",
};

static void cuts_words_as_the_expression_does(void) {
    rpi_pattern *pattern = NULL;
    rpi_matcher *matcher = NULL;
    REQUIRE_OK(rpi_pattern_compile(RPI_GPT2_PATTERN, false, &pattern));
    REQUIRE_OK(rpi_matcher_create(&matcher));
    state = check_seed();
    for (int trial = 0; trial < 3000 && check_failures() == 0; trial++) {
        rpi_text text = {0};
        for (uint32_t n = next_random(30); n > 0; n--) {
            const char *part = parts[next_random(sizeof parts / sizeof parts[0])];
            REQUIRE_OK(rpi_text_append(&text, part, strlen(part)));
        }
        rpi_pieces words = {.text = text.at};
        REQUIRE_OK(rpi_byte_level_words((rpi_text_piece){0, (uint32_t)text.count}, &words));
        size_t at = 0, start = 0, end = 0, w = 0;
        bool found = true;
        for (; at < text.count && found; at = end, w++) {
            REQUIRE_OK(rpi_pattern_next(pattern, matcher, text.at, text.count, at, &found,
                                        &start, &end));
            CHECK_MSG(found && w < words.count && words.at[w].start == start &&
                          words.at[w].start + words.at[w].bytes == end,
                      "word %zu of '%.*s'", w, (int)text.count, text.at);
            if (check_failures()) break;
        }
        CHECK_EQ(w, words.count);
        rpi_pieces_free(&words);
        rpi_text_free(&text);
    }
    rpi_matcher_free(matcher);
    rpi_pattern_free(pattern);
}

static void bytes_have_printable_characters(void) {
    int themselves = 0;
    for (int byte = 0; byte < 256; byte++) {
        int32_t code = rpi_byte_level_code((uint8_t)byte);
        themselves += code == byte;
        CHECK(code == byte || (code >= 256 && code <= 323));
        CHECK_EQ(rpi_byte_level_byte(code), byte);
    }
    CHECK_EQ(themselves, 188);
    CHECK_EQ(rpi_byte_level_code(' '), 0x120);
    CHECK_EQ(rpi_byte_level_byte(324), -1);
    CHECK_EQ(rpi_byte_level_byte('\n'), -1);
}

static void repairs_what_is_no_utf8(void) {
    static const struct {
        const char *from;
        size_t replaced;
    } cases[] = {{"plain", 0},           {"\xff", 1},         {"a\xc3", 1},
                 {"\xe2\x82 x", 1},      {"\xed\xa0\x80", 3}, {"\xf4\x90\x80\x80", 4},
                 {"\xc0\xaf", 2},        {"\xf0\x9f\x98", 1}, {"\xf0\x9f\x98\x80", 0},
                 {"\xe2\x82\xe2\x82", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpi_text out = {0};
        size_t replaced, bytes = strlen(cases[i].from);
        REQUIRE_OK(rpi_utf8_repair(cases[i].from, bytes, &out, &replaced));
        CHECK_EQ(replaced, cases[i].replaced);
        CHECK_EQ(rpi_utf8_valid(out.at, out.count), out.count);
        CHECK_EQ(rpi_utf8_valid(cases[i].from, bytes) == bytes, replaced == 0);
        rpi_text_free(&out);
    }
}

/* A file that goes on behind its end has been damaged, or is another kind of file. */
static void json_ends_with_its_value(void) {
    static const char *const whole[] = {"{}", " [1] ", "{\"a\": 1}\n", "1\r\n\t "};
    static const char *const longer[] = {"{}x", "{} {}", "{}\n\n]", "1 2", "\"a\"\"b\""};
    cJSON *root = NULL;
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        CHECK_OK(rpi_json_parse("file", whole[i], strlen(whole[i]), &root));
        cJSON_Delete(root);
        root = NULL;
    }
    for (size_t i = 0; i < sizeof longer / sizeof longer[0]; i++)
        CHECK_FAILS(rpi_json_parse("file", longer[i], strlen(longer[i]), &root), CORRUPT,
                    i == 2 ? "file goes on behind its JSON: line 3"
                           : "goes on behind its JSON");
    CHECK_FAILS(rpi_json_parse("file", "{}\0", 3, &root), CORRUPT, "goes on behind its JSON");
    static const char nul[] = "{\"a\\\\u0000\":\n\"\\u0000b\"}";
    CHECK_FAILS(rpi_json_parse("file", nul, sizeof nul - 1, &root), CORRUPT,
                "file: line 2 has the character \\u0000, which no text here can");
    CHECK(!root);
}

/* ---- one tokenizer, several threads ---- */

static const rpi_tokenizer *shared;
static const cJSON *shared_cases;

static void *encode_all(void *unused) {
    rpi_encoder *encoder = NULL;
    const cJSON *one;
    (void)unused;
    CHECK_OK(rpi_encoder_create(shared, &encoder));
    if (encoder) cJSON_ArrayForEach(one, shared_cases) check_text("shared", one, encoder);
    rpi_encoder_destroy(encoder);
    return NULL;
}

static void threads_share_one(void) {
    static const char *const names[] = {"llama3.json", "unigram.json", "bert_cased.json"};
    for (int n = 0; n < 3; n++) {
        cJSON *root = read_golden(names[n]);
        rpi_tokenizer *tokenizer = NULL;
        pthread_t threads[4];
        REQUIRE(root);
        REQUIRE_OK(open_golden(names[n], root, &tokenizer));
        shared = tokenizer;
        shared_cases = cJSON_GetObjectItemCaseSensitive(root, "cases");
        for (int i = 0; i < 4; i++)
            CHECK(pthread_create(&threads[i], NULL, encode_all, NULL) == 0);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        rpi_tokenizer_close(tokenizer);
        cJSON_Delete(root);
    }
}

CASES({"agrees_with_golden_files", agrees_with_golden_files},
      {"cuts_words_as_the_expression_does", cuts_words_as_the_expression_does},
      {"bytes_have_printable_characters", bytes_have_printable_characters},
      {"repairs_what_is_no_utf8", repairs_what_is_no_utf8},
      {"json_ends_with_its_value", json_ends_with_its_value},
      {"threads_share_one", threads_share_one})
