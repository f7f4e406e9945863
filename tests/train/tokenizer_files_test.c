/* Where tokenizers come from: names, folders of older files, and what is refused there. */
#include "tokenizer_golden.h"

#include "base/regular_file.h"
#include "train/tokenizers/tokenizer_config.h"

#include <sys/stat.h>

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
        {"tokenizer_config.json", "{\"mask_token\":{\"content\":\"[MASK]\",\"rstrip\":true}}",
         "'[MASK]' takes what is beside it"},
        {"tokenizer_config.json",
         "{\"mask_token\":{\"content\":\"[MASK]\",\"single_word\":true}}",
         "'[MASK]' takes what is beside it"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"5\":{\"content\":\"[MASK]\"}}}",
         "the token '[MASK]'"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"0\":{\"content\":\"[MASK]\"}}}",
         "the token '[MASK]'"},
        {"special_tokens_map.json", "{\"additional_special_tokens\":[\"e\"]}",
         "special_tokens_map.json: the token 'e'"},
        {"added_tokens.json", "{\"<x>\":11}", "added_tokens.json: the token '<x>'"},
        {"added_tokens.json", "{\"[MASK]\":5}", "added_tokens.json: the token '[MASK]'"},
        {"added_tokens.json", "{", "added_tokens.json is no JSON"},
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

/* No id of a file fits a token that has none. */
static void a_token_that_the_vocabulary_lacks_has_no_id(void) {
    static const char *const specials[] = {"[MASK]", NULL};
    cJSON *vocab = cJSON_CreateObject();
    cJSON *config = cJSON_Parse("{\"added_tokens_decoder\":{\"4\":{\"content\":\"[MASK]\"}}}");
    empty_old_files();
    CHECK_FAILS(rpi_tokenizer_config_check(check_folder(), config, specials, vocab),
                UNSUPPORTED, "the token '[MASK]'");
    cJSON_Delete(vocab);
    cJSON_Delete(config);
}

static void the_longest_path_is_read(void) {
    char folder[RPI_PATH_BYTES + 1];
    cJSON *config = NULL;
    size_t longest = RPI_PATH_BYTES - sizeof "/tokenizer_config.json";
    memset(folder, '/', sizeof folder);
    memcpy(folder, check_folder(), strlen(check_folder()));
    put("tokenizer_config.json", "{\"here\":1}");
    folder[longest] = '\0';
    CHECK_OK(rpi_tokenizer_config_read(folder, &config));
    CHECK(cJSON_HasObjectItem(config, "here"));
    cJSON_Delete(config);
    folder[longest] = '/';
    folder[longest + 1] = '\0';
    CHECK_FAILS(rpi_tokenizer_config_read(folder, &config), INVALID, "is too long");
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
    snprintf(spec, sizeof spec, "%s/here/tokenizer.model", check_folder());
    CHECK(mkdir(spec, 0777) == 0);
    snprintf(spec, sizeof spec, "%s/here", check_folder());
    CHECK_FAILS(rpi_tokenizer_open(spec, &tokenizer), NOT_FOUND,
                "tokenizer.model is there: transformers'");
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

CASES({"each_chinese_character_is_a_word", each_chinese_character_is_a_word},
      {"bytes_are_their_own_tokens", bytes_are_their_own_tokens},
      {"reads_vocab_json_and_merges_txt", reads_vocab_json_and_merges_txt},
      {"old_files_mean_what_stands_beside_them", old_files_mean_what_stands_beside_them},
      {"a_token_that_the_vocabulary_lacks_has_no_id",
       a_token_that_the_vocabulary_lacks_has_no_id},
      {"the_longest_path_is_read", the_longest_path_is_read},
      {"old_files_of_gpt2_have_options", old_files_of_gpt2_have_options},
      {"reads_vocab_txt", reads_vocab_txt}, {"names_what_is_missing", names_what_is_missing},
      {"refuses_by_name", refuses_by_name},
      {"spaces_behind_a_token_are_looked_through", spaces_behind_a_token_are_looked_through},
      {"survives_lack_of_memory", survives_lack_of_memory})
