/* Tokenizers that are trained: beside Hugging Face's of the same texts, and by hand. */
#include "tokenizer_golden.h"

#include "train/tokenizers/tokenizer_train.h"

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

CASES({"trains_a_wordpiece_as_good", trains_a_wordpiece_as_good},
      {"vocabularies_are_in_order", vocabularies_are_in_order},
      {"trains_the_same_bpe", trains_the_same_bpe},
      {"training_ends_early_or_stops", training_ends_early_or_stops},
      {"training_survives_lack_of_memory", training_survives_lack_of_memory})
