/* Tokenizers against Hugging Face's: files of make_tokenizer_golden.py hold what those make of
 * nasty texts. REDPOLL_TOKENIZER_GOLDEN=FOLDER reads the files of another folder. */
#include "harness/check.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "train/tokenizers/byte_level.h"
#include "train/tokenizers/json_read.h"
#include "train/tokenizers/pattern.h"
#include "train/tokenizers/tokenizer.h"
#include "train/tokenizers/tokenizer_train.h"
#include "train/tokenizers/utf8_text.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

static size_t from_hex(const char *hex, char **out_bytes) {
    size_t count = strlen(hex) / 2;
    char *bytes = malloc(count + 1);
    for (size_t i = 0; i < count; i++) {
        unsigned byte = 0;
        sscanf(hex + 2 * i, "%2x", &byte);
        bytes[i] = (char)byte;
    }
    bytes[count] = '\0';
    *out_bytes = bytes;
    return count;
}

static bool same_ids(const cJSON *wanted, const rpi_ids *ids) {
    if ((size_t)cJSON_GetArraySize(wanted) != ids->count) return false;
    const cJSON *id;
    size_t i = 0;
    cJSON_ArrayForEach(id, wanted) if ((uint32_t)id->valuedouble != ids->at[i++]) return false;
    return true;
}

static void ids_text(const rpi_ids *ids, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < ids->count && used + 12 < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%u,", ids->at[i]);
}

static void check_ids(const char *file, const cJSON *one, const char *key, unsigned flags,
                      rpi_encoder *encoder, const char *text, size_t bytes, rpi_ids *ids) {
    const cJSON *wanted = cJSON_GetObjectItemCaseSensitive(one, key);
    if (cJSON_IsNull(wanted)) wanted = cJSON_GetObjectItemCaseSensitive(one, "ids");
    char got[600], *shown = cJSON_PrintUnformatted(wanted);
    ids->count = 0;
    CHECK_OK(rpi_encode(encoder, text, bytes, flags, ids, NULL));
    ids_text(ids, got, sizeof got);
    CHECK_MSG(same_ids(wanted, ids), "%s %s of %.300s (%.100s): %.400s, not %.400s", file, key,
              cJSON_GetObjectItemCaseSensitive(one, "text")->valuestring, text, got, shown);
    cJSON_free(shown);
}

/* Bytes that are no text are kept here, and U+FFFD there. */
static void check_decoded(const char *file, const cJSON *one, const char *key, unsigned flags,
                          rpi_encoder *encoder, const rpi_ids *ids) {
    char *wanted;
    size_t count = from_hex(cJSON_GetObjectItemCaseSensitive(one, key)->valuestring, &wanted);
    size_t replaced;
    rpi_text raw = {0}, text = {0};
    CHECK_OK(rpi_decode(encoder, ids->at, ids->count, flags, &raw));
    CHECK_OK(rpi_utf8_repair(raw.at, raw.count, &text, &replaced));
    CHECK_MSG(text.count == count && (count == 0 || memcmp(text.at, wanted, count) == 0),
              "%s %s of %.300s: '%.*s', not '%s'", file, key,
              cJSON_GetObjectItemCaseSensitive(one, "text")->valuestring, (int)text.count,
              text.at ? text.at : "", wanted);
    rpi_text_free(&raw);
    rpi_text_free(&text);
    free(wanted);
}

static void check_text(const char *file, const cJSON *one, rpi_encoder *encoder) {
    char *text;
    size_t bytes = from_hex(cJSON_GetObjectItemCaseSensitive(one, "text")->valuestring, &text);
    rpi_ids ids = {0};
    check_ids(file, one, "ids", 0, encoder, text, bytes, &ids);
    check_ids(file, one, "plain_special", RPI_ENCODE_PLAIN_SPECIAL, encoder, text, bytes, &ids);
    check_ids(file, one, "special", RPI_ENCODE_ADD_SPECIAL, encoder, text, bytes, &ids);
    check_decoded(file, one, "decoded", 0, encoder, &ids);
    check_decoded(file, one, "skipped", RPI_DECODE_SKIP_SPECIAL, encoder, &ids);
    rpi_ids_free(&ids);
    free(text);
}

static const char *golden_folder(void) {
    const char *folder = getenv("REDPOLL_TOKENIZER_GOLDEN");
    return folder ? folder : TOKENIZER_GOLDEN;
}

static cJSON *read_golden(const char *name) {
    char path[RPI_PATH_BYTES], *text = NULL;
    size_t bytes;
    cJSON *root = NULL;
    snprintf(path, sizeof path, "%s/%s", golden_folder(), name);
    CHECK_OK(rpi_regular_file_read(path, 1 << 30, &text, &bytes));
    if (text) CHECK_OK(rpi_json_parse(path, text, bytes, &root));
    rpi_free(text);
    return root;
}

static rp_status open_golden(const char *name, const cJSON *root, rpi_tokenizer **out) {
    char *json = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(root, "tokenizer"));
    rp_status status = rpi_tokenizer_parse(name, json, strlen(json), out);
    cJSON_free(json);
    return status;
}

static int check_file(const char *name) {
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
        cases += check_file(entry->d_name);
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
        REQUIRE_OK(rpi_byte_level_words((rpi_piece){0, (uint32_t)text.count}, &words));
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

/* ---- training ---- */

static const rpi_training_stop never;

static const rpi_tokenizer_training *kind_named(const char *name) {
    for (int i = 0; rpi_tokenizer_training_at(i); i++)
        if (strcmp(rpi_tokenizer_training_at(i)->name, name) == 0)
            return rpi_tokenizer_training_at(i);
    return NULL;
}

static rp_status add_texts(rpi_tokenizer_trainer *trainer, const cJSON *texts) {
    const cJSON *text;
    cJSON_ArrayForEach(text, texts) RP_TRY(
        rpi_tokenizer_trainer_add(trainer, text->valuestring, strlen(text->valuestring)));
    return RP_OK;
}

static void check_same_model(const cJSON *wanted, const cJSON *got) {
    const cJSON *want = cJSON_GetObjectItemCaseSensitive(wanted, "vocab")->child;
    const cJSON *have = cJSON_GetObjectItemCaseSensitive(got, "vocab");
    int count = 0;
    for (; want; want = want->next, count++) {
        const cJSON *id = cJSON_GetObjectItemCaseSensitive(have, want->string);
        CHECK_MSG(id && id->valuedouble == want->valuedouble, "token '%s'", want->string);
    }
    CHECK_EQ(cJSON_GetArraySize(have), count);
    const cJSON *pair = cJSON_GetObjectItemCaseSensitive(wanted, "merges")->child;
    const cJSON *merge = cJSON_GetObjectItemCaseSensitive(got, "merges")->child;
    for (; pair && merge; pair = pair->next, merge = merge->next) {
        char text[200];
        snprintf(text, sizeof text, "%s %s", cJSON_GetArrayItem(pair, 0)->valuestring,
                 cJSON_GetArrayItem(pair, 1)->valuestring);
        CHECK_MSG(strcmp(text, merge->valuestring) == 0, "'%s', not '%s'", merge->valuestring,
                  text);
    }
    CHECK(!pair && !merge);
}

static void trains_the_same_bpe(void) {
    cJSON *root = read_golden("gpt2.json"), *made = NULL;
    rpi_tokenizer_trainer *trainer = NULL;
    char *json = NULL;
    REQUIRE(root);
    const cJSON *wanted = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(root, "tokenizer"), "model");
    int size = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(wanted, "vocab"));
    REQUIRE_OK(rpi_tokenizer_trainer_create(kind_named("bpe"), &trainer));
    REQUIRE_OK(add_texts(trainer, cJSON_GetObjectItemCaseSensitive(root, "corpus")));
    REQUIRE_OK(rpi_tokenizer_trainer_finish(trainer, (uint32_t)size, never, &json));
    REQUIRE_OK(rpi_json_parse("trained", json, strlen(json), &made));
    check_same_model(wanted, cJSON_GetObjectItemCaseSensitive(made, "model"));
    rpi_tokenizer *tokenizer = NULL;
    CHECK_OK(rpi_tokenizer_parse("trained", json, strlen(json), &tokenizer));
    if (tokenizer) CHECK_EQ(rpi_tokenizer_size(tokenizer), size);
    rpi_tokenizer_close(tokenizer);
    rpi_tokenizer_trainer_destroy(trainer);
    cJSON_free(json);
    cJSON_Delete(made);
    cJSON_Delete(root);
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

static bool stop_training(void *context) {
    return --*(int *)context < 0;
}

static void training_ends_early_or_stops(void) {
    for (int i = 0; i < 3; i++) {
        rpi_tokenizer_trainer *trainer = NULL;
        char *json = NULL;
        int merges = 1;
        rpi_training_stop soon = {stop_training, &merges};
        REQUIRE_OK(rpi_tokenizer_trainer_create(kind_named("bpe"), &trainer));
        CHECK_OK(rpi_tokenizer_trainer_add(trainer, "aab aab\xff", 8));
        if (i == 0)
            CHECK_FAILS(rpi_tokenizer_trainer_finish(trainer, 256, never, &json), INVALID,
                        "257 to");
        if (i == 1)
            CHECK_FAILS(rpi_tokenizer_trainer_finish(trainer, 300, soon, &json), CANCELLED,
                        "stopped");
        if (i == 2) {
            rpi_tokenizer *tokenizer = NULL;
            REQUIRE_OK(rpi_tokenizer_trainer_finish(trainer, 4000, never, &json));
            CHECK_OK(rpi_tokenizer_parse("small", json, strlen(json), &tokenizer));
            uint32_t size = tokenizer ? rpi_tokenizer_size(tokenizer) : 0;
            CHECK_MSG(size > 257 && size < 270, "%u tokens of three words", size);
            rpi_tokenizer_close(tokenizer);
        }
        cJSON_free(json);
        rpi_tokenizer_trainer_destroy(trainer);
    }
}

static void count_tokens(const rpi_tokenizer *tokenizer, const cJSON *texts,
                         size_t *out_count) {
    rpi_encoder *encoder = NULL;
    rpi_ids ids = {0};
    const cJSON *text;
    REQUIRE_OK(rpi_encoder_create(tokenizer, &encoder));
    cJSON_ArrayForEach(text, texts) CHECK_OK(
        rpi_encode(encoder, text->valuestring, strlen(text->valuestring), 0, &ids, NULL));
    *out_count = ids.count;
    rpi_ids_free(&ids);
    rpi_encoder_destroy(encoder);
}

/* There, ids of "##e" and its like follow a hash table, and with them who wins a tie. So what
 * is compared are the characters, and how well the two do: both end with each word as a token.
 */
static void trains_a_wordpiece_as_good(void) {
    cJSON *root = read_golden("gpt2.json");
    rpi_tokenizer_trainer *trainer = NULL;
    cJSON *golden = read_golden("bert_uncased.json");
    rpi_tokenizer *ours = NULL, *theirs = NULL;
    char *json = NULL;
    REQUIRE(root && golden);
    REQUIRE_OK(open_golden("bert_uncased.json", golden, &theirs));
    const cJSON *texts = cJSON_GetObjectItemCaseSensitive(root, "corpus");
    REQUIRE_OK(rpi_tokenizer_trainer_create(kind_named("wordpiece"), &trainer));
    REQUIRE_OK(add_texts(trainer, texts));
    REQUIRE_OK(rpi_tokenizer_trainer_finish(trainer, 300, never, &json));
    REQUIRE_OK(rpi_tokenizer_parse("trained", json, strlen(json), &ours));
    size_t count = 0, wanted = 0;
    count_tokens(ours, texts, &count);
    count_tokens(theirs, texts, &wanted);
    CHECK_EQ(count, wanted);
    uint32_t id = 0;
    for (; strncmp(rpi_tokenizer_token(theirs, id), "##", 2) != 0; id++)
        CHECK_MSG(strcmp(rpi_tokenizer_token(ours, id), rpi_tokenizer_token(theirs, id)) == 0,
                  "token %u is '%s', not '%s'", id, rpi_tokenizer_token(ours, id),
                  rpi_tokenizer_token(theirs, id));
    CHECK(id > 60);
    rpi_tokenizer_close(ours);
    rpi_tokenizer_close(theirs);
    rpi_tokenizer_trainer_destroy(trainer);
    cJSON_free(json);
    cJSON_Delete(golden);
    cJSON_Delete(root);
}

static rp_status train_tokenizer(const char *kind, const char *text, uint32_t size,
                                 rpi_tokenizer **out_tokenizer) {
    rpi_tokenizer_trainer *trainer = NULL;
    char *json = NULL;
    RP_TRY(rpi_tokenizer_trainer_create(kind_named(kind), &trainer));
    rp_status status = rpi_tokenizer_trainer_add(trainer, text, strlen(text));
    if (status == RP_OK) status = rpi_tokenizer_trainer_finish(trainer, size, never, &json);
    if (status == RP_OK)
        status = rpi_tokenizer_parse("trained", json, strlen(json), out_tokenizer);
    cJSON_free(json);
    rpi_tokenizer_trainer_destroy(trainer);
    return status;
}

static void check_tokens(const rpi_tokenizer *tokenizer, const char *const *wanted) {
    for (uint32_t id = 0; wanted[id]; id++) {
        const char *got = rpi_tokenizer_token(tokenizer, id);
        CHECK_MSG(got && strcmp(got, wanted[id]) == 0, "token %u is '%s', not '%s'", id,
                  got ? got : "none", wanted[id]);
    }
}

/* By hand: "ab" stands in all five words, "##c" follows it in three. */
static void vocabularies_are_in_order(void) {
    static const char *const pieces[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b",
                                         "c",     "##b",   "##c",   "ab",    "abc",    NULL};
    static const char *const cased[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
                                        "A",     "a",     "b",     "c",     NULL};
    static const char *const words[] = {"<|endoftext|>", "[UNK]", ",", "ab", "abc", NULL};
    static const char text[] = "ab, abc, abc ab \303\200bc";
    rpi_tokenizer *tokenizer = NULL;
    REQUIRE_OK(train_tokenizer("wordpiece", "ab abc abc ab \303\200bc", 12, &tokenizer));
    check_tokens(tokenizer, pieces);
    CHECK_EQ(rpi_tokenizer_size(tokenizer), 12);
    rpi_tokenizer_close(tokenizer);
    REQUIRE_OK(train_tokenizer("wordpiece-cased", "ab abc Abc", 20, &tokenizer));
    check_tokens(tokenizer, cased);
    rpi_tokenizer_close(tokenizer);
    REQUIRE_OK(train_tokenizer("wordlevel", text, 5, &tokenizer));
    check_tokens(tokenizer, words);
    rpi_tokenizer_close(tokenizer);
    CHECK_FAILS(train_tokenizer("wordpiece", "ab abc abc ab", 7, &tokenizer), INVALID,
                "a vocabulary of 7 tokens; the characters of this text alone are 10: ask for "
                "more");
    REQUIRE_OK(train_tokenizer("wordpiece", "", 10, &tokenizer));
    CHECK_EQ(rpi_tokenizer_size(tokenizer), 5);
    rpi_tokenizer_close(tokenizer);
}

static void training_survives_lack_of_memory_as(const rpi_tokenizer_training *kind) {
    bool done = false;
    for (long after = 1; !done; after++) {
        rpi_tokenizer_trainer *trainer = NULL;
        char *json = NULL;
        rpi_memory_fail_after(after);
        rp_status status = rpi_tokenizer_trainer_create(kind, &trainer);
        if (status == RP_OK)
            status = rpi_tokenizer_trainer_add(trainer, "abab abc bcbc aaaa", 18);
        if (status == RP_OK) status = rpi_tokenizer_trainer_finish(trainer, 300, never, &json);
        rpi_memory_fail_after(0);
        CHECK_MSG(status == RP_OK || status == RP_NOMEM, "%s", rp_last_error()->message);
        done = status == RP_OK || check_failures() > 0;
        cJSON_free(json);
        rpi_tokenizer_trainer_destroy(trainer);
    }
}

static void training_survives_lack_of_memory(void) {
    for (int i = 0; rpi_tokenizer_training_at(i); i++)
        training_survives_lack_of_memory_as(rpi_tokenizer_training_at(i));
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

/* ---- names, files, refusals ---- */

static void put(const char *name, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", check_folder(), name);
    FILE *stream = fopen(path, "wb");
    if (!stream) return;
    fwrite(text, 1, strlen(text), stream);
    fclose(stream);
}

static void bytes_are_their_own_tokens(void) {
    rpi_tokenizer *tokenizer = NULL;
    rpi_encoder *encoder = NULL;
    rpi_ids ids = {0};
    rpi_text text = {0};
    uint32_t end = 0;
    static const char all[] = "a\xff\0z";
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_encoder_create(tokenizer, &encoder));
    CHECK_EQ(rpi_tokenizer_size(tokenizer), 257);
    CHECK(rpi_tokenizer_special(tokenizer, RPI_SPECIAL_END, &end) && end == 256);
    CHECK_OK(rpi_encode(encoder, all, 4, RPI_ENCODE_ADD_SPECIAL, &ids, NULL));
    CHECK(ids.count == 4 && ids.at[1] == 255 && ids.at[2] == 0);
    CHECK_OK(rpi_decode(encoder, ids.at, ids.count, 0, &text));
    CHECK(text.count == 4 && memcmp(text.at, all, 4) == 0);
    ids.at[3] = 257;
    CHECK_FAILS(rpi_decode(encoder, ids.at, ids.count, 0, &text), INVALID,
                "token 257 at position 3; byte has 257 tokens");
    rpi_ids_free(&ids);
    rpi_text_free(&text);
    rpi_encoder_destroy(encoder);
    rpi_tokenizer_close(tokenizer);
}

/* The older files of a golden tokenizer, and the same ids. */
static void reads_vocab_json_and_merges_txt(void) {
    char spec[700];
    cJSON *root = read_golden("gpt2.json");
    REQUIRE(root);
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(root, "tokenizer"), "model");
    char *vocab = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(model, "vocab"));
    put("vocab.json", vocab);
    cJSON_free(vocab);
    rpi_text merges = {0};
    const cJSON *merge;
    REQUIRE_OK(rpi_text_append(&merges, "#version: 0.2\n", 14));
    cJSON_ArrayForEach(merge, cJSON_GetObjectItemCaseSensitive(model, "merges")) {
        for (int side = 0; side < 2; side++) {
            const char *part = cJSON_GetArrayItem(merge, side)->valuestring;
            REQUIRE_OK(rpi_text_append(&merges, part, strlen(part)));
            REQUIRE_OK(rpi_text_append(&merges, side ? "\n" : " ", 1));
        }
    }
    REQUIRE_OK(rpi_text_append(&merges, "", 1));
    put("merges.txt", merges.at);
    rpi_tokenizer *tokenizer = NULL;
    rpi_encoder *encoder = NULL;
    snprintf(spec, sizeof spec, "gpt2:%s", check_folder());
    REQUIRE_OK(rpi_tokenizer_open(spec, &tokenizer));
    CHECK(strcmp(rpi_tokenizer_name(tokenizer), "gpt2") == 0);
    REQUIRE_OK(rpi_encoder_create(tokenizer, &encoder));
    const cJSON *one;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(root, "cases"))
        check_text("gpt2", one, encoder);
    rpi_encoder_destroy(encoder);
    rpi_tokenizer_close(tokenizer);
    put("merges.txt", "#version: 0.2\na b c\n");
    CHECK_FAILS(rpi_tokenizer_open(spec, &tokenizer), CORRUPT, "merges.txt:2: 'a b c'");
    put("merges.txt", "qq zz\n");
    CHECK_FAILS(rpi_tokenizer_open(spec, &tokenizer), CORRUPT, "'qq' + 'zz'");
    rpi_text_free(&merges);
    cJSON_Delete(root);
}

static void reads_vocab_txt(void) {
    char spec[700];
    rpi_tokenizer *tokenizer = NULL;
    rpi_encoder *encoder = NULL;
    rpi_ids ids = {0};
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhe\n##llo\nH\nworld\n!\n");
    snprintf(spec, sizeof spec, "bert:%s", check_folder());
    REQUIRE_OK(rpi_tokenizer_open(spec, &tokenizer));
    REQUIRE_OK(rpi_encoder_create(tokenizer, &encoder));
    CHECK_OK(rpi_encode(encoder, "H\xc3\x89llo [MASK]xyz world!", 23, 1, &ids, NULL));
    static const uint32_t wanted[] = {2, 5, 6, 4, 1, 8, 9, 3};
    CHECK(ids.count == 8 && memcmp(ids.at, wanted, sizeof wanted) == 0);
    rpi_encoder_destroy(encoder);
    rpi_tokenizer_close(tokenizer);
    rpi_ids_free(&ids);
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n");
    CHECK_FAILS(rpi_tokenizer_open(spec, &tokenizer), CORRUPT,
                "vocab.txt lacks the token [SEP]");
}

static void check_encoded(const char *spec, const char *text, const char *wanted) {
    rpi_tokenizer *tokenizer = NULL;
    rpi_encoder *encoder = NULL;
    rpi_ids ids = {0};
    char got[200];
    REQUIRE_OK(rpi_tokenizer_open(spec, &tokenizer));
    REQUIRE_OK(rpi_encoder_create(tokenizer, &encoder));
    CHECK_OK(rpi_encode(encoder, text, strlen(text), 0, &ids, NULL));
    ids_text(&ids, got, sizeof got);
    CHECK_MSG(strcmp(got, wanted) == 0, "%s: %s, not %s", text, got, wanted);
    rpi_encoder_destroy(encoder);
    rpi_tokenizer_close(tokenizer);
    rpi_ids_free(&ids);
}

static void empty_old_files(void) {
    put("tokenizer_config.json", "{}");
    put("special_tokens_map.json", "{}");
    put("added_tokens.json", "{}");
}

/* Old files say in others what their vocabulary does not; the ids are those of transformers. */
static void old_files_mean_what_stands_beside_them(void) {
    static const char text[] = "\xc3\x89\xe4\xb8\xad\xe6\x96\x87"; /* a capital, two Chinese */
    static const struct {
        const char *config, *ids;
    } berts[] = {{"{}", "5,9,1,"},
                 {"{\"strip_accents\":false}", "6,9,1,"},
                 {"{\"strip_accents\":true,\"do_lower_case\":false}", "7,9,1,"},
                 {"{\"do_lower_case\":false,\"strip_accents\":null}", "8,9,1,"},
                 {"{\"tokenize_chinese_chars\":false,\"mask_token\":\"[MASK]\"}", "10,"}};
    static const struct {
        const char *file, *json, *says;
    } refused[] = {
        {"tokenizer_config.json", "{\"mask_token\":\"e\"}", "config.json: the token 'e'"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"11\":{\"content\":\"<x>\"}}}",
         "the token '<x>'"},
        {"tokenizer_config.json",
         "{\"added_tokens_decoder\":{\"4\":{\"content\":\"[MASK]\",\"lstrip\":true}}}",
         "'[MASK]' takes what is beside it"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"5\":{\"content\":\"[MASK]\"}}}",
         "the token '[MASK]'"},
        {"special_tokens_map.json", "{\"additional_special_tokens\":[\"e\"]}",
         "special_tokens_map.json: the token 'e'"},
        {"added_tokens.json", "{\"<x>\":11}", "added_tokens.json: the token '<x>'"},
        {"tokenizer_config.json", "[]", "tokenizer_config.json is no JSON object"},
        {"tokenizer_config.json", "{\"strip_accents\":1}", "is neither true nor false"}};
    char spec[700];
    rpi_tokenizer *tokenizer = NULL;
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ne\n\xc3\xa9\nE\n\xc3\x89\n"
                     "\xe4\xb8\xad\ne\xe4\xb8\xad\xe6\x96\x87\n");
    snprintf(spec, sizeof spec, "bert:%s", check_folder());
    for (size_t i = 0; i < sizeof berts / sizeof berts[0]; i++) {
        put("tokenizer_config.json", berts[i].config);
        check_encoded(spec, text, berts[i].ids);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        put("tokenizer_config.json", "{}");
        put("special_tokens_map.json", "{\"mask_token\":{\"content\":\"[MASK]\"}}");
        put("added_tokens.json", "{\"[MASK]\":4}");
        check_encoded(spec, "e[MASK]", "5,4,");
        put(refused[i].file, refused[i].json);
        rp_status status = rpi_tokenizer_open(spec, &tokenizer);
        CHECK_MSG(status != RP_OK && strstr(rp_last_error()->message, refused[i].says),
                  "row %zu: %s", i, rp_last_error()->message);
        if (status == RP_OK) rpi_tokenizer_close(tokenizer);
    }
    empty_old_files();
}

static void old_files_of_gpt2_have_options(void) {
    char spec[700];
    rpi_tokenizer *tokenizer = NULL;
    put("vocab.json", "{\"a\":0,\"\xc4\xa0\":1,\"\xc4\xa0\x61\":2,\"<|endoftext|>\":3}");
    put("merges.txt", "\xc4\xa0 a\n");
    snprintf(spec, sizeof spec, "gpt2:%s", check_folder());
    put("tokenizer_config.json", "{\"eos_token\":\"<|endoftext|>\"}");
    check_encoded(spec, "aa", "0,0,");
    put("tokenizer_config.json", "{\"add_prefix_space\":true}");
    check_encoded(spec, "aa", "2,0,");
    put("tokenizer_config.json", "{\"add_bos_token\":true}");
    CHECK_FAILS(rpi_tokenizer_open(spec, &tokenizer), UNSUPPORTED, "'add_bos_token' is true");
    put("tokenizer_config.json", "{\"pad_token\":\"<pad>\"}");
    CHECK_FAILS(rpi_tokenizer_open(spec, &tokenizer), UNSUPPORTED, "the token '<pad>'");
    empty_old_files();
}

/* The ends of the blocks whose characters are words by themselves, and what lies beside them.
 */
static void each_chinese_character_is_a_word(void) {
    static const char json[] =
        "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":false,"
        "\"handle_chinese_chars\":true,\"strip_accents\":false,\"lowercase\":false},"
        "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"type\":\"WordLevel\","
        "\"vocab\":{\"[UNK]\":0,\"a\":1,\"b\":2},\"unk_token\":\"[UNK]\"}}";
    static const int32_t blocks[][2] = {
        {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},  {0x20000, 0x2a6df},
        {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
    rpi_tokenizer *tokenizer = NULL;
    rpi_encoder *encoder = NULL;
    rpi_ids ids = {0};
    REQUIRE_OK(rpi_tokenizer_parse("t.json", json, sizeof json - 1, &tokenizer));
    REQUIRE_OK(rpi_encoder_create(tokenizer, &encoder));
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        const int32_t codes[] = {blocks[i][0] - 1, blocks[i][0], blocks[i][1],
                                 blocks[i][1] + 1};
        for (int k = 0; k < 4; k++) {
            char text[8] = "a";
            size_t bytes = 1 + rpi_utf8_write(codes[k], text + 1);
            text[bytes++] = 'b';
            ids.count = 0;
            CHECK_OK(rpi_encode(encoder, text, bytes, 0, &ids, NULL));
            CHECK_MSG(ids.count == (k == 1 || k == 2 ? 3 : 1), "U+%04X: %zu words",
                      (unsigned)codes[k], (size_t)ids.count);
        }
    }
    rpi_ids_free(&ids);
    rpi_encoder_destroy(encoder);
    rpi_tokenizer_close(tokenizer);
}

/* As Hugging Face's: the spaces behind a token belong to it, and it is looked for in them once
 * more. */
static void spaces_behind_a_token_are_looked_through(void) {
    static const char json[] =
        "{\"added_tokens\":[{\"id\":3,\"content\":\"  \",\"rstrip\":true}],\"model\":{"
        "\"type\":\"WordLevel\",\"unk_token\":\"[UNK]\","
        "\"vocab\":{\"[UNK]\":0,\"a\":1,\" \":2,\"  \":3}}}";
    static const struct {
        const char *text, *ids;
    } rows[] = {{"a", "1,"},
                {"  ", "3,"},
                {"   ", "3,"},
                {"    ", "3,3,"},
                {"a     a", "1,3,3,1,"},
                {"     a   a", "3,3,1,3,1,"}};
    rpi_tokenizer *tokenizer = NULL;
    rpi_encoder *encoder = NULL;
    REQUIRE_OK(rpi_tokenizer_parse("spaces", json, sizeof json - 1, &tokenizer));
    REQUIRE_OK(rpi_encoder_create(tokenizer, &encoder));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_ids ids = {0};
        char text[64];
        CHECK_OK(rpi_encode(encoder, rows[i].text, strlen(rows[i].text), 0, &ids, NULL));
        ids_text(&ids, text, sizeof text);
        CHECK_MSG(strcmp(text, rows[i].ids) == 0, "'%s': %s, not %s", rows[i].text, text,
                  rows[i].ids);
        rpi_ids_free(&ids);
    }
    rpi_encoder_destroy(encoder);
    rpi_tokenizer_close(tokenizer);
}

static void names_what_is_missing(void) {
    rpi_tokenizer *tokenizer = NULL;
    char spec[700];
    unsetenv("REDPOLL_TOKENIZERS");
    CHECK_FAILS(rpi_tokenizer_open("gpt2", &tokenizer), NOT_FOUND,
                "put tokenizer.json, or vocab.json and merges.txt into a folder and write "
                "--tokenizer gpt2:FOLDER");
    CHECK_FAILS(rpi_tokenizer_open("gtp2", &tokenizer), NOT_FOUND, "did you mean 'gpt2'");
    CHECK_FAILS(rpi_tokenizer_open("byte:x", &tokenizer), INVALID, "needs no file");
    CHECK_FAILS(rpi_tokenizer_open("llama:/nowhere", &tokenizer), NOT_FOUND,
                "/nowhere is missing");
    snprintf(spec, sizeof spec, "llama:%s", check_folder());
    CHECK_FAILS(rpi_tokenizer_open(spec, &tokenizer), NOT_FOUND, "has no file tokenizer.json");
    snprintf(spec, sizeof spec, "%s/here", check_folder());
    CHECK(mkdir(spec, 0777) == 0);
    setenv("REDPOLL_TOKENIZERS", check_folder(), 1);
    snprintf(spec, sizeof spec, "%s/gpt2", check_folder());
    CHECK_FAILS(rpi_tokenizer_open("gpt2", &tokenizer), NOT_FOUND, spec);
    unsetenv("REDPOLL_TOKENIZERS");
}

#define MODEL                                                                                  \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static void refuses_by_name(void) {
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"", "no JSON"},
        {"{\"model\":\n{\"type\":}", "line 2"},
        {"[]", "no JSON object"},
        {"{\n\"normalizer\":{\"type\":\"Replace\",\"content\":\"\xff\"}}", "no UTF-8: line 2"},
        {"{}", "'model' is missing"},
        {"{\"model\":{\"type\":\"GPT\"}}", "model 'GPT' is not supported; there are BPE"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "id of 'a'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1e9},\"merges\":[]}}", "id of 'a'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}",
         "id 1 has two tokens, 'a' and 'b'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a z\"]}}",
         "'a' + 'z'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[[\"a\"]]}}", "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[],\"dropout\":0.1}}",
         "dropout is 0.1"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[],"
         "\"unk_token\":\"<unk>\"}}",
         "lacks the unk_token '<unk>'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[],"
         "\"end_of_word_suffix\":\"</w>\"}}",
         "end_of_word_suffix is '</w>'"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "entry 0"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]],\"unk_id\":5}}",
         "unk_id is 5"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":1}}}", "'unk_token' is missing"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\"}}",
         "normalizer Precompiled: not supported"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}",
         "pre_tokenizer UnicodeScripts: not supported"},
        {"{" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", "decoder CTC: not supported"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"Magic\"}}", "'Magic' is not supported"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\","
         "\"pattern\":{\"Regex\":\"(a\"}}}",
         "cannot be read"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\","
         "\"pattern\":{\"Regex\":\"\\\\h\"}}}",
         "holds \\h, which is not supported"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\","
         "\"pattern\":{\"Regex\":\"\\\\X\"}}}",
         "holds \\X, which is not supported"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Replace\",\"content\":\"a\","
         "\"pattern\":{\"Regex\":\"b*\"}}}",
         "b* matches where there is nothing, which is not supported"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Sideways\","
         "\"pattern\":{\"Regex\":\"a\"}}}",
         "behavior 'Sideways'"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":3}}",
         "pre_tokenizer ByteLevel: 'use_regex' is neither true nor false"},
        {"{" MODEL ",\"added_tokens\":[{\"id\":7,\"content\":\"ab\"}]}",
         "'ab' has id 7, and 2"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"x\",99],"
         "\"sep\":[\"y\",1]}}",
         "adds id 99; the vocabulary has 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpi_tokenizer *tokenizer = NULL;
        rp_status status =
            rpi_tokenizer_parse("t.json", cases[i].json, strlen(cases[i].json), &tokenizer);
        CHECK_MSG(status < 0 && strstr(rp_last_error()->message, cases[i].says) &&
                      strstr(rp_last_error()->message, "t.json"),
                  "%s: %s, without '%s'", cases[i].json, rp_last_error()->message,
                  cases[i].says);
        rpi_tokenizer_close(tokenizer);
    }
}

static void survives_lack_of_memory(void) {
    static const char *const names[] = {"added.json", "unigram_bytes.json", "bert_cased.json"};
    for (int n = 0; n < 3; n++) {
        cJSON *root = read_golden(names[n]);
        REQUIRE(root);
        bool done = false;
        for (long after = 1; !done && after < 100000; after += 1 + after / 20) {
            rpi_tokenizer *tokenizer = NULL;
            rpi_encoder *encoder = NULL;
            rpi_ids ids = {0};
            rpi_memory_fail_after(after);
            rp_status status = open_golden(names[n], root, &tokenizer);
            if (status == RP_OK) status = rpi_encoder_create(tokenizer, &encoder);
            if (status == RP_OK)
                status =
                    rpi_encode(encoder, "God said <a> \xff caf\xc3\xa9", 18, 1, &ids, NULL);
            rpi_memory_fail_after(0);
            CHECK_MSG(status == RP_OK || status == RP_NOMEM, "%s", rp_last_error()->message);
            done = status == RP_OK;
            rpi_ids_free(&ids);
            rpi_encoder_destroy(encoder);
            rpi_tokenizer_close(tokenizer);
        }
        CHECK(done);
        cJSON_Delete(root);
    }
}

CASES({"agrees_with_golden_files", agrees_with_golden_files},
      {"cuts_words_as_the_expression_does", cuts_words_as_the_expression_does},
      {"bytes_have_printable_characters", bytes_have_printable_characters},
      {"repairs_what_is_no_utf8", repairs_what_is_no_utf8},
      {"trains_a_wordpiece_as_good", trains_a_wordpiece_as_good},
      {"vocabularies_are_in_order", vocabularies_are_in_order},
      {"trains_the_same_bpe", trains_the_same_bpe},
      {"json_ends_with_its_value", json_ends_with_its_value},
      {"training_ends_early_or_stops", training_ends_early_or_stops},
      {"each_chinese_character_is_a_word", each_chinese_character_is_a_word},
      {"training_survives_lack_of_memory", training_survives_lack_of_memory},
      {"threads_share_one", threads_share_one},
      {"bytes_are_their_own_tokens", bytes_are_their_own_tokens},
      {"reads_vocab_json_and_merges_txt", reads_vocab_json_and_merges_txt},
      {"old_files_mean_what_stands_beside_them", old_files_mean_what_stands_beside_them},
      {"old_files_of_gpt2_have_options", old_files_of_gpt2_have_options},
      {"reads_vocab_txt", reads_vocab_txt}, {"names_what_is_missing", names_what_is_missing},
      {"refuses_by_name", refuses_by_name},
      {"spaces_behind_a_token_are_looked_through", spaces_behind_a_token_are_looked_through},
      {"survives_lack_of_memory", survives_lack_of_memory})
