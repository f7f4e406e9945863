/* Prompts and completions: what of them is learnt, alone and over ranks, and what is refused.
 */
#include "harness/check.h"
#include "train/data/prompt_pairs.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE = 12, MOST = 4 };

static bool skips; /* broken rows */

static rp_status open_pairs(const char *path, rpi_prompt_pairs **out_pairs) {
    rpi_tokenizer *bytes = NULL;
    *out_pairs = NULL;
    CHECK_OK(rpi_tokenizer_open("byte", &bytes));
    rp_status status = rpi_prompt_pairs_open(path, bytes, SEQUENCE, skips, out_pairs);
    rpi_tokenizer_close(bytes);
    return status;
}

static void completions_alone_are_learnt(void) {
    static const char text[] = "{\"prompt\": \"ab>\", \"completion\": \"cd\"}\n\n"
                               "{\"completion\": \"xyz\", \"prompt\": \"\"}\r\n"
                               "{\"prompt\": \"twelve bytes\", \"completion\": \"!?\"}\n"
                               "{\"prompt\": \"0123456789\", \"completion\": \"abcdef\"}";
    enum { IGNORED = RPI_LABEL_IGNORED, END = 256 };
    static const int valid[MOST] = {3, 3, 1, 3};
    static const int labels[MOST][SEQUENCE] = {
        {0, 0, 'c', 'd', END}, {'y', 'z', END}, {[11] = '!'}, {[9] = 'a', 'b', 'c'}};
    static int32_t inputs[MOST][SEQUENCE], seen[MOST][SEQUENCE];
    rpi_token_rows rows = {inputs[0], seen[0], NULL};
    rpi_prompt_pairs *pairs = NULL;
    REQUIRE_OK(open_pairs(check_text_file("some.jsonl", text), &pairs));
    REQUIRE(rpi_prompt_pairs_count(pairs) == MOST);
    for (int p = 0; p < MOST; p++) {
        rpi_prompt_pair_read(pairs, p, &rows, p);
        CHECK_EQ(rpi_prompt_pair_valid(pairs, p), valid[p]);
        for (int i = 0; i < SEQUENCE; i++) {
            CHECK_EQ(seen[p][i], labels[p][i] ? labels[p][i] : IGNORED);
            if (seen[p][i] != IGNORED && i + 1 < SEQUENCE)
                CHECK_EQ(inputs[p][i + 1], seen[p][i]);
        }
    }
    CHECK(inputs[0][0] == 'a' && inputs[0][2] == '>' && inputs[0][6] == END);
    rpi_prompt_pairs_close(pairs);
}

static void a_nul_is_a_character(void) {
    int32_t inputs[SEQUENCE], labels[SEQUENCE];
    rpi_token_rows rows = {inputs, labels, NULL};
    rpi_prompt_pairs *pairs = NULL;
    REQUIRE_OK(
        open_pairs(check_text_file("nul.jsonl",
                                   "{\"prompt\": \"a\\u0000\", \"completion\": \"\\u0000b\"}"),
                   &pairs));
    CHECK_EQ(rpi_prompt_pair_valid(pairs, 0), 3);
    rpi_prompt_pair_read(pairs, 0, &rows, 0);
    CHECK(inputs[0] == 'a' && inputs[1] == 0 && inputs[2] == 0 && inputs[3] == 'b');
    CHECK(labels[1] == 0 && labels[2] == 'b' && labels[3] == 256);
    rpi_prompt_pairs_close(pairs);
}

static void broken_lines_are_named(void) {
    static const struct {
        const char *text, *part;
        rp_status status;
    } rows[] = {
        {"", "has no pairs", RP_INVALID},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}\n[1]", ":2: this is no JSON object",
         RP_CORRUPT},
        {"{\"prompt\": \"a\"}",
         ":1: no text under the key 'completion'; there are prompt; a row is {\"prompt\"",
         RP_CORRUPT},
        {"\n{\"prompt\": 3, \"completion\": \"b\"}",
         ":2: its 'prompt' is a number, and no text", RP_CORRUPT},
        {"{\"prompt\": \"thirteen byte\", \"completion\": \"b\"}",
         "the prompt has 13 tokens, which leaves no room for its completion: --seq-length 13",
         RP_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_prompt_pairs *pairs = NULL;
        rp_status status = open_pairs(check_text_file("broken.jsonl", rows[i].text), &pairs);
        CHECK_EQ(status, rows[i].status);
        CHECK_MSG(strstr(rp_last_error()->message, rows[i].part), "%s",
                  rp_last_error()->message);
    }
}

/* The first five are named; without them the others are read. */
static void broken_rows_can_be_left_out(void) {
    static const char text[] = "[{\"prompt\": \"a\", \"completion\": \"b\"},\n"
                               "{\"prompt\": null, \"completion\": \"b\"},\n"
                               "{\"prompt\": \"a\", \"complete\": \"b\"}, 3,\n"
                               "{\"prompt\": \"thirteen byte\", \"completion\": \"b\"},\n"
                               "{\"prompt\": \"\\ud83d\", \"completion\": \"d\", \"n\": NaN}]";
    rpi_prompt_pairs *pairs = NULL;
    const char *path = check_text_file("rows.json", text);
    CHECK_FAILS(
        open_pairs(path, &pairs), CORRUPT,
        "rows.json:2 (row 2): its 'prompt' is null, and no text; line 3 (row 3): no text under "
        "the "
        "key 'completion'; there are prompt, complete; a row is {\"prompt\": \"...\", "
        "\"completion\": \"...\"}; line 3 (row 4): this is no JSON object, but a number; "
        "line 4 (row 5): the prompt has 13 tokens");
    CHECK_FAILS(open_pairs(path, &pairs), CORRUPT,
                "; 4 of 6 rows are broken; --skip-broken leaves them out");
    skips = true;
    REQUIRE_OK(open_pairs(path, &pairs));
    skips = false;
    CHECK_EQ(rpi_prompt_pairs_count(pairs), 2);
    CHECK_EQ(rpi_prompt_pair_valid(pairs, 1), 2);
    rpi_prompt_pairs_close(pairs);
}

/* ---- training ---- */

/* What to do with a word, and the word. */
static const char *some_pairs(void) {
    static char data[800];
    static const char *const words[] = {"seed", "wing", "nest", "song", "tail", "beak"};
    char text[4000] = "";
    for (size_t i = 0; i < 60; i++) {
        const char *word = words[i % 6];
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used,
                 "{\"prompt\": \"%s %s: \", \"completion\": \"%s\"}\n", i % 5 ? "say" : "tell",
                 word, word);
    }
    snprintf(data, sizeof data, "pairs:%s,tokenizer=byte",
             check_text_file("pairs.jsonl", text));
    return data;
}

static rpi_train_options small(void) {
    rpi_train_options options = ranks_options();
    options.model = "llama:layers=2,hidden=32,heads=2,vocabulary=257,positions=32";
    options.data = some_pairs();
    options.train_images = options.test_images = 0;
    options.seq_length = 20;
    options.global_batch_size = 10;
    options.optimizer = "adamw";
    options.lr = 1e-2;
    options.clip = 1;
    options.steps = 60;
    return options;
}

static void answers_are_learnt(void) {
    rpi_train_options options = small();
    rpi_train_result result = {0};
    options.backend = NULL; /* the fastest */
    options.out = ranks_folder("answers");
    REQUIRE_OK(ranks_train(&options, 2, &result));
    CHECK_EQ(result.test.count, 3 * 5); /* the last 5 % of 60; four letters and the end each */
    CHECK_MSG(result.test.accuracy > 0.9, "accuracy is %g", result.test.accuracy);
    CHECK_NEAR(result.test.perplexity / exp(result.test.loss), 1, 1e-12);
}

/* An epoch of 57 ends in a batch of 7. */
static void any_number_of_ranks_equals_one(void) {
    rpi_train_options options = small();
    rpi_train_result one = {0}, some = {0};
    options.optimizer = "sgd";
    options.lr = 0.1;
    options.steps = 7;
    REQUIRE_OK(ranks_train(&options, 1, &one));
    options.accumulate = 2;
    for (int world = 1; world <= 5; world += 4) {
        if (world == 5) options.accumulate = 1;
        REQUIRE_OK(ranks_train(&options, world, &some));
        CHECK_MSG(fabs(some.last_loss - one.last_loss) < 1e-4, "%d ranks: %.9g, %.9g", world,
                  some.last_loss, one.last_loss);
        CHECK_NEAR(some.test.loss, one.test.loss, 1e-4);
    }
}

static void what_is_missing_is_told(void) {
    static const struct {
        const char *data, *part;
    } rows[] = {
        {"pairs:some.jsonl", "which tokenizer? write pairs:FILE.jsonl,tokenizer=NAME"},
        {"pairs:,tokenizer=byte", "no file is named; write pairs:FILE.jsonl"},
        {"pairs:a.jsonl,tokeniser=byte", "'tokeniser=byte' is no option of pairs"},
        {"pairs:a.jsonl,validation=", "validation= is empty; write pairs:PATH"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_train_options options = small();
        options.data = rows[i].data;
        CHECK_FAILS(ranks_train(&options, 1, NULL), INVALID, rows[i].part);
    }
    rpi_train_options options = small();
    options.data = "pairs:/nowhere/a.jsonl,tokenizer=byte";
    CHECK_FAILS(ranks_train(&options, 1, NULL), NOT_FOUND, "/nowhere/a.jsonl");
}

CASES({"completions_alone_are_learnt", completions_alone_are_learnt},
      {"a NUL is a character", a_nul_is_a_character},
      {"broken_lines_are_named", broken_lines_are_named},
      {"broken_rows_can_be_left_out", broken_rows_can_be_left_out},
      {"answers_are_learnt", answers_are_learnt},
      {"any_number_of_ranks_equals_one", any_number_of_ranks_equals_one},
      {"what_is_missing_is_told", what_is_missing_is_told})
