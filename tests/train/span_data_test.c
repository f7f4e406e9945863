/* Questions and their texts: what of a file is read, how it is cut into windows, what a model's
 * logits come to, and what is refused. */
#include "harness/check.h"
#include "redpoll/log.h"
#include "train/data/span_answers.h"
#include "train/data/span_windows.h"

#include <math.h>
#include <string.h>

enum { MOST = 8, LENGTH = 16, CLS = 257, SEP = 258, PAD = 260 };

static bool skips; /* broken questions */

static rp_status open_questions(const char *text, rpi_span_questions **out) {
    rpi_tokenizer *bytes = NULL;
    *out = NULL;
    CHECK_OK(rpi_tokenizer_open("byte", &bytes));
    rp_status status =
        rpi_span_questions_open(check_text_file("questions.json", text), bytes, skips, out);
    rpi_tokenizer_close(bytes);
    return status;
}

/* One paragraph; text of `qas`. */
static const char *paragraph(const char *context, const char *qas) {
    static char text[2000];
    snprintf(text, sizeof text,
             "{\"version\": \"1.1\", \"data\": [{\"title\": \"T\", \"paragraphs\": "
             "[{\"context\": \"%s\", \"qas\": [%s]}]}]}",
             context, qas);
    return text;
}

static rpi_span_windows *open_windows(const rpi_span_questions *q, int64_t stride) {
    rpi_tokenizer *bytes = NULL;
    rpi_span_windows *windows = NULL;
    CHECK_OK(rpi_tokenizer_open("byte", &bytes));
    rpi_span_options options = {.sequence = LENGTH,
                                .stride = stride,
                                .max_answer = 3,
                                .tokens = rpi_bert_tokens_of(bytes)};
    rpi_tokenizer_close(bytes);
    CHECK_OK(rpi_span_windows_open(q, &options, &windows));
    return windows;
}

/* ---- rows ---- */

typedef struct row {
    int32_t tokens[LENGTH], segments[LENGTH], documents[LENGTH], ends[2];
    float outside[2 * LENGTH];
} row;

static row read_row(const rpi_span_windows *windows, int64_t index) {
    static row rows[2];
    rpi_span_rows at = {rows[0].tokens, rows[0].segments, rows[0].documents, rows[0].outside,
                        rows[0].ends};
    rpi_span_window_read(windows, index, &at, 0);
    return rows[0];
}

static void check_row(const row *r, const char *asked, const char *text, int first, int last) {
    int used = 0;
    CHECK_EQ(r->tokens[used++], CLS);
    for (const char *c = asked; *c; c++) CHECK_EQ(r->tokens[used++], (unsigned char)*c);
    CHECK_EQ(r->tokens[used++], SEP);
    int begin = used;
    for (const char *c = text; *c; c++) CHECK_EQ(r->tokens[used++], (unsigned char)*c);
    CHECK_EQ(r->tokens[used++], SEP);
    for (int i = 0; i < LENGTH; i++) {
        if (i >= used) CHECK_EQ(r->tokens[i], PAD);
        CHECK_EQ(r->segments[i], i >= begin && i < used);
        CHECK_EQ(r->documents[i], i >= used);
        CHECK((r->outside[i] != 0) == (i >= used));
        CHECK(r->outside[LENGTH + i] == r->outside[i]);
    }
    CHECK_EQ(r->ends[0], first);
    CHECK_EQ(r->ends[1], last);
}

/* Ten bytes of the text fit beside a question of three: windows begin every 6, and hold the
 * answer whole or not at all. */
static void texts_are_cut_into_windows(void) {
    rpi_span_questions *q = NULL;
    REQUIRE_OK(open_questions(
        paragraph(
            "0123456789abcdefghij",
            "{\"id\": \"a\", \"question\": \"who\", \"answers\": [{\"text\": \"89a\", "
            "\"answer_start\": 8}]},"
            "{\"id\": \"b\", \"question\": \"?\", \"answers\": [], \"is_impossible\": true}"),
        &q));
    CHECK_EQ(q->unanswerable, 1);
    rpi_span_windows *windows = open_windows(q, 6);
    REQUIRE(windows);
    CHECK_EQ(rpi_span_windows_first(windows, 1), 3);
    CHECK_EQ(rpi_span_windows_count(windows), 6);
    row rows[6];
    for (int i = 0; i < 6; i++) rows[i] = read_row(windows, i);
    check_row(&rows[0], "who", "0123456789", 0, 0); /* which ends before the answer does */
    check_row(&rows[1], "who", "6789abcdef", 7, 9);
    check_row(&rows[2], "who", "cdefghij", 0, 0);
    check_row(&rows[3], "?", "0123456789ab", 0, 0);
    check_row(&rows[4], "?", "6789abcdefgh", 0, 0);
    check_row(&rows[5], "?", "cdefghij", 0, 0);
    rpi_span_windows_close(windows);
    rpi_span_questions_close(q);
}

/* A step is never longer than a window: nothing is left out. */
static void no_text_is_left_out(void) {
    rpi_span_questions *q = NULL;
    REQUIRE_OK(open_questions(paragraph("0123456789abcdefghij",
                                        "{\"id\": \"a\", \"question\": \"who\", \"answers\": "
                                        "[{\"text\": \"j\", \"answer_start\": 19}]}"),
                              &q));
    rpi_span_windows *windows = open_windows(q, 1000);
    REQUIRE(windows);
    CHECK_EQ(rpi_span_windows_count(windows), 2);
    row last = read_row(windows, 1);
    check_row(&last, "who", "abcdefghij", 14, 14);
    rpi_span_windows_close(windows);
    rpi_span_questions_close(q);
}

/* answer_start counts characters, tokens are bytes. */
static void characters_are_counted(void) {
    rpi_span_questions *q = NULL;
    REQUIRE_OK(open_questions(paragraph("\xc3\xa9t\xc3\xa9 \\u4e2d 42",
                                        "{\"id\": \"a\", \"question\": \"who\", \"answers\": "
                                        "[{\"text\": \"42\", \"answer_start\": 6}]}"),
                              &q));
    CHECK_EQ(q->questions[0].start_token, 10);
    CHECK_EQ(q->questions[0].end_token, 11);
    rpi_span_questions_close(q);
}

/* ---- answers ---- */

static void set_logits(float *logits, int start, float start_value, int end, float end_value) {
    logits[start] = start_value;
    logits[LENGTH + end] = end_value;
}

static void best_spans_are_found(void) {
    static const char qas[] = "{\"id\": \"a\", \"question\": \"who\", \"answers\": [{\"text\": "
                              "\"89a\", \"answer_start\": 8}]}";
    rpi_span_questions *q = NULL;
    double verdicts[3][RPI_SPAN_VERDICT];
    float logits[3][2 * LENGTH] = {{0}};
    rpi_scores scores;
    REQUIRE_OK(open_questions(paragraph("0123456789abcdefghij", qas), &q));
    rpi_span_windows *windows = open_windows(q, 6);
    REQUIRE(windows);
    set_logits(logits[0], 0, 3, 0, 1);   /* no answer */
    set_logits(logits[1], 7, 5, 9, 2);   /* 8 to a */
    set_logits(logits[1], 2, 90, 3, 90); /* in the question: of no account */
    set_logits(logits[1], 6, 1, 10, 9);  /* 7 to b is too long; [8, b] too; [9, b] has 9 */
    for (int i = 0; i < 3; i++) rpi_span_window_judge(windows, i, logits[i], verdicts[i]);
    CHECK_NEAR(verdicts[0][0], 4, 0);
    CHECK_NEAR(verdicts[1][1], 9, 0);
    CHECK_NEAR(verdicts[1][2], 9, 0); /* the first of those with the best sum */
    logits[1][7] = 8;                 /* 8 + 2 */
    logits[1][LENGTH + 10] = 0;
    rpi_span_window_judge(windows, 1, logits[1], verdicts[1]);
    CHECK(verdicts[1][1] == 10 && verdicts[1][2] == 8 && verdicts[1][3] == 10);
    CHECK_OK(rpi_span_windows_score(windows, 0, 3, verdicts[0], true, &scores));
    CHECK(scores.over == 1 && scores.at[0].percent == 100 && scores.at[1].percent == 100);
    CHECK(strcmp(scores.at[0].key, "exact_match") == 0 && strcmp(scores.at[1].key, "f1") == 0);
    for (int i = 0; i < 3; i++) verdicts[i][0] = 10.5; /* the least of all windows */
    CHECK_OK(rpi_span_windows_score(windows, 0, 3, verdicts[0], true, &scores));
    CHECK(scores.at[0].percent == 0);
    CHECK_OK(rpi_span_windows_score(windows, 0, 3, verdicts[0], false, &scores));
    CHECK(scores.at[0].percent == 100);
    verdicts[2][0] = 1;
    CHECK_OK(rpi_span_windows_score(windows, 0, 3, verdicts[0], true, &scores));
    CHECK(scores.at[0].percent == 100);
    CHECK_OK(rpi_span_windows_score(windows, 0, 2, verdicts[0], true, &scores));
    CHECK(scores.over == 0 && isnan(scores.at[0].percent)); /* a window is missing */
    rpi_span_windows_close(windows);
    rpi_span_questions_close(q);
}

static void not_a_number_is_no_answer(void) {
    rpi_span_questions *q = NULL;
    double verdict[RPI_SPAN_VERDICT];
    float logits[2 * LENGTH];
    rpi_scores scores;
    for (int i = 0; i < 2 * LENGTH; i++) logits[i] = NAN;
    REQUIRE_OK(open_questions(paragraph("0123", "{\"id\": \"a\", \"question\": \"who\", "
                                                "\"answers\": [{\"text\": \"1\", "
                                                "\"answer_start\": 1}]}"),
                              &q));
    rpi_span_windows *windows = open_windows(q, 6);
    REQUIRE(windows);
    rpi_span_window_judge(windows, 0, logits, verdict);
    CHECK(verdict[1] == -INFINITY);
    CHECK_OK(rpi_span_windows_score(windows, 0, 1, verdict, false, &scores));
    CHECK(scores.over == 1 && scores.at[0].percent == 0 && scores.at[1].percent == 0);
    rpi_span_windows_close(windows);
    rpi_span_questions_close(q);
}

/* ---- scores ---- */

static void answers_are_scored_as_squad_does(void) {
    static const struct {
        const char *said, *right[3];
        double exact, f1;
    } rows[] = {
        {"the  Norman Conquest!", {"Norman conquest"}, 1, 1},
        {"in 1066 AD", {"1066"}, 0, 0.5},
        {"a b b", {"b b c"}, 0, 0.8},
        {"b", {"b b b c"}, 0, 0.4},
        {"don't-stop", {"dont stop"}, 0, 0},
        {"An\xc2\xa0"
         "apple",
         {"pear", "apple", "red apple"},
         1,
         1},
        {"red", {"pear", "red apple"}, 0, 2.0 / 3},
        {"\xc3\x89tait", {"\xc3\xa9tait"}, 1, 1},
        {"\xc3\xa9 a\xe2\x80\x94z", {"\xc3\xa9 \xe2\x80\x94z"}, 1, 1},
        {"$5", {"5"}, 1, 1},
        {"", {NULL}, 1, 1},
        {"x", {NULL}, 0, 0},
        {"the", {"The!"}, 1, 1},
        {"x", {"a"}, 0, 0},
        {"", {"x"}, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_answer right[3];
        rpi_answer_score score = {0};
        size_t count = 0;
        for (; count < 3 && rows[i].right[count]; count++)
            right[count] = (rpi_answer){rows[i].right[count], strlen(rows[i].right[count])};
        CHECK_OK(rpi_answer_score_best((rpi_answer){rows[i].said, strlen(rows[i].said)}, right,
                                       count, &score));
        CHECK_MSG(score.exact == rows[i].exact && fabs(score.f1 - rows[i].f1) < 1e-12,
                  "'%s': %g and %g, not %g and %g", rows[i].said, score.exact, score.f1,
                  rows[i].exact, rows[i].f1);
    }
}

/* ---- spellings ---- */

/* Files as programs write them: a layout that is not here yet is a row. */
#define FOX        "the quick fox jumps"
#define FLAT(rest) "{\"id\": \"a\", \"context\": \"" FOX "\", \"question\": \"who\"" rest "}"
#define FOX_AT_10  "{\"text\": \"fox\", \"answer_start\": 10}"
#define NOTHING    ", \"is_impossible\": true, "

static const struct spelling {
    const char
        *text; /* of a file; or of the questions of one paragraph, which begin with '+' */
    int questions, unanswerable;
    const char *id; /* of the first; NULL: any */
    int broken;     /* questions that are left out */
} spellings[] = {
    /* ids */
    {"+{\"id\": 12345, \"question\": \"who\", \"answers\": [" FOX_AT_10 "]}", 1, 0, "12345", 0},
    {"+{\"id\": 1234567890123, \"question\": \"who\", \"answers\": []}", 1, 1, "1234567890123",
     0},
    {"+{\"id\": null, \"question\": \"who\", \"answers\": []}", 0, 0, NULL, 1},
    {"+{\"question\": \"who\", \"answers\": []}", 0, 0, NULL, 1},

    /* no answer */
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": []}", 1, 1, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": null}", 1, 1, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"is_impossible\": true}", 1, 1, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"is_impossible\": 1}", 1, 1, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\"" NOTHING "\"answers\": null}", 1, 1, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\"" NOTHING "\"plausible_answers\": [" FOX_AT_10 "]}",
     1, 1, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\"" NOTHING
     "\"answers\": [{\"text\": \"\", \"answer_start\": 0}]}",
     1, 1, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": [{\"text\": \"\", \"answer_start\": "
     "-1}]}",
     1, 1, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": {\"text\": [], \"answer_start\": "
     "[]}}",
     1, 1, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": {\"text\": [\"\"], "
     "\"answer_start\": [-1]}}",
     1, 1, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": {\"text\": null, \"answer_start\": "
     "null}}",
     1, 1, "a", 0},

    /* answers */
    {"+{\"id\": \"a\", \"question\": \"who\", \"is_impossible\": false, \"answers\": "
     "[" FOX_AT_10 "]}",
     1, 0, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"is_impossible\": null, \"answers\": [" FOX_AT_10
     "]}",
     1, 0, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": " FOX_AT_10 "}", 1, 0, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": {\"text\": [\"fox\", \"quick "
     "fox\"], \"answer_start\": [10, 4]}}",
     1, 0, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": {\"text\": [\"fox\"], "
     "\"answer_start\": []}}",
     0, 0, NULL, 1},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": \"fox\"}", 0, 0, NULL, 1},
    {"+{\"id\": \"a\", \"question\": \"who\"}", 0, 0, NULL, 1},
    {"+{\"id\": \"a\", \"question\": \"w\\ud83d\", \"score\": NaN, \"answers\": [" FOX_AT_10
     "]}",
     1, 0, "a", 0},

    {"+{\"id\": \"a\", \"question\": \"w\xff\", \"answers\": [" FOX_AT_10 "]}", 1, 0, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"is_impossible\": 0, \"answers\": [" FOX_AT_10
     "]}",
     1, 0, "a", 0},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": {\"text\": \"fox\", "
     "\"answer_start\": [10, 4]}}",
     0, 0, NULL, 1},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": {\"text\": null, "
     "\"answer_start\": 10}}",
     0, 0, NULL, 1},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": {\"text\": \"\", "
     "\"answer_start\": 10}}",
     0, 0, NULL, 1},
    {"+{\"id\": \"a\", \"question\": \"who\", \"answers\": [{\"text\": null, "
     "\"answer_start\": null}, " FOX_AT_10 "]}",
     1, 0, "a", 0},

    /* rows */
    {FLAT(", \"answers\": {\"text\": [\"fox\"], \"answer_start\": [10]}"), 1, 0, "a", 0},
    {FLAT(", \"answers\": []") "\r\n\n" FLAT(", \"answers\": [" FOX_AT_10 "]"), 2, 1, "a", 0},
    {"[" FLAT(", \"answers\": []") ",\n" FLAT(", \"answers\": [" FOX_AT_10 "]") "]", 2, 1, "a",
     0},
    {"{\"version\": \"1\", \"data\": [" FLAT(", \"answers\": []") "]}", 1, 1, "a", 0},
    {"\xef\xbb\xbf{\"context\": \"" FOX "\", \"question\": \"who\", \"answers\": []}", 1, 1,
     "row 1", 0},
    {"{\"title\": \"t\", \"paragraphs\": [{\"context\": \"" FOX
     "\", \"qas\": [{\"id\": 1, \"question\": \"who\", \"answers\": []}]}]}",
     1, 1, "1", 0},
    {"{\"context\": \"" FOX
     "\", \"qas\": [{\"id\": 1, \"question\": \"who\", \"answers\": []}]}",
     1, 1, "1", 0},
    {"{\"context\": \"" FOX "\", \"qas\": [{\"question\": \"who\", \"answers\": []}]}", 0, 0,
     NULL, 1}, /* only rows go without */
    {FLAT(", \"answers\": []") "\n{\"context\": 3, \"question\": \"who\"}\nx\n", 1, 1, "a", 2},
};

static const char *text_of(const struct spelling *s) {
    return s->text[0] == '+' ? paragraph(FOX, s->text + 1) : s->text;
}

static void check_spelling(size_t i) {
    const struct spelling *s = &spellings[i];
    rpi_span_questions *q = NULL;
    skips = false;
    rp_status status = open_questions(text_of(s), &q);
    CHECK_MSG((status == RP_OK) == (s->broken == 0), "row %zu: %s", i,
              status ? rp_last_error()->message : "it is read");
    rpi_span_questions_close(q);
    skips = true;
    status = open_questions(text_of(s), &q);
    skips = false;
    if (s->questions == 0) {
        CHECK_MSG(status != RP_OK &&
                      strstr(rp_last_error()->message, "leaves none of 1 question"),
                  "row %zu: %s", i, rp_last_error()->message);
        return;
    }
    REQUIRE_OK(status);
    CHECK_MSG((int)q->question_count == s->questions && (int)q->unanswerable == s->unanswerable,
              "row %zu: %zu questions, %zu without an answer", i, q->question_count,
              q->unanswerable);
    CHECK_MSG(q->broken.count == s->broken, "row %zu: %lld are broken", i,
              (long long)q->broken.count);
    if (s->id)
        CHECK_MSG(!strcmp(q->questions[0].id, s->id), "row %zu: %s", i, q->questions[0].id);
    if (s->unanswerable == 0) CHECK_EQ((int)q->questions[0].start_token, 10);
    rpi_span_questions_close(q);
}

static void every_spelling_is_read(void) {
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) check_spelling(i);
}

/* All that are said are kept, in their order, and nothing of what is broken. */
static void every_answer_is_kept(void) {
    static const struct {
        const char *answers;
        int count, starts[3]; /* below 0: the question is broken */
    } cases[] = {
        {"[" FOX_AT_10 ", {\"text\": \"the\", \"answer_start\": 0}]", 2, {10, 0}},
        {"{\"text\": [\"fox\", \"\", \"jumps\"], \"answer_start\": [10, -1, 14]}", 2, {10, 14}},
        {"{\"text\": \"fox\", \"answer_start\": 10}", 1, {10}},
        {"[" FOX_AT_10 ", {\"text\": \"cat\", \"answer_start\": 0}]", -1, {0}},
        {"[" FOX_AT_10 ", {\"text\": \"jumps\", \"answer_start\": 14}, " FOX_AT_10 "]",
         3,
         {10, 14, 10}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char qas[600];
        rpi_span_questions *q = NULL;
        snprintf(qas, sizeof qas,
                 "{\"id\": 1, \"question\": \"who\", \"answers\": %s}, {\"id\": 2, "
                 "\"question\": \"which\", \"answers\": [" FOX_AT_10 "]}",
                 cases[i].answers);
        skips = true;
        REQUIRE_OK(open_questions(paragraph(FOX, qas), &q));
        skips = false;
        bool is_broken = cases[i].count < 0;
        int count = is_broken ? 0 : cases[i].count;
        CHECK_EQ((int)q->question_count, is_broken ? 1 : 2);
        CHECK_EQ((int)q->answer_count, count + 1);
        CHECK_EQ((int)q->question_ids.count, is_broken ? 5 : 3 + 5);
        CHECK_EQ((int)q->rows, 2);
        for (int a = 0; a < count; a++)
            CHECK_EQ((int)(q->answers[a].text - q->contexts[0].text), cases[i].starts[a]);
        const rpi_span_question *last = &q->questions[q->question_count - 1];
        CHECK_EQ((int)last->first_answer, count);
        CHECK_EQ((int)last->answers, 1);
        CHECK_EQ((int)last->first, is_broken ? 0 : 3);
        CHECK(last->start_token == 10 && last->end_token == 12);
        rpi_span_questions_close(q);
    }
}

/* More questions, answers and texts than there is room for at first. */
static void many_questions_are_read(void) {
    enum { MANY = 700 };
    static char text[MANY * 120];
    rpi_span_questions *q = NULL;
    size_t used = 0;
    for (int i = 0; i < MANY; i++)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "{\"id\": %d, \"context\": \"t%d\", \"question\": \"q\", "
                                 "\"answers\": [{\"text\": \"%d\", \"answer_start\": 1}]}\n",
                                 i, i, i);
    REQUIRE_OK(open_questions(text, &q));
    REQUIRE(q->question_count == MANY && q->context_count == MANY && q->answer_count == MANY);
    for (int i = 0; i < MANY; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", i);
        CHECK(strcmp(q->questions[i].id, id) == 0 && q->questions[i].context == i);
        CHECK(q->questions[i].start_token == 1 && q->questions[i].end_token == strlen(id));
    }
    rpi_span_questions_close(q);
}

static char told[800];

static void listen(void *context, rp_log_level level, const char *line) {
    (void)context, (void)level;
    snprintf(told, sizeof told, "%s", line);
}

static void what_is_no_text_is_told(void) {
    static const struct {
        const char *question, *told; /* "": nothing */
    } cases[] = {
        {"who", ""},
        {"w\xff", ": U+FFFD stands in 1 place, for what is no text"},
        {"w\xffh\xff\\ud83d", ": U+FFFD stands in 3 places, for what is no text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char qas[200];
        rpi_span_questions *q = NULL;
        snprintf(qas, sizeof qas, "{\"id\": 1, \"question\": \"%s\", \"answers\": []}",
                 cases[i].question);
        REQUIRE_OK(open_questions(paragraph(FOX, qas), &q));
        told[0] = '\0';
        rp_log_set_sink(listen, NULL);
        rpi_span_questions_tell(q);
        rp_log_set_sink(NULL, NULL);
        CHECK_MSG(*cases[i].told ? strstr(told, cases[i].told) != NULL : !told[0], "'%s'",
                  told);
        rpi_span_questions_close(q);
    }
}

/* Sixty bytes of a text are shown, and no part of a character. */
static void whole_characters_are_shown(void) {
    char text[80];
    for (int before = 55; before < 62; before++) {
        memset(text, 'a', sizeof text);
        memcpy(text + before, "\xe4\xb8\xad", 3);
        text[before + 3] = '\0';
        int shown = before + 3 <= 60 ? before + 3 : before < 60 ? before : 60;
        CHECK_EQ(rpi_shown_bytes(text), shown);
    }
    CHECK_EQ(rpi_shown_bytes(""), 0);
}

/* Rows of one text share it. */
static void rows_of_a_text_share_it(void) {
    rpi_span_questions *q = NULL;
    REQUIRE_OK(open_questions(FLAT(", \"answers\": []") "\n" FLAT(", \"answers\": null"), &q));
    CHECK_EQ(q->context_count, 1);
    CHECK_EQ(q->question_count, 2);
    rpi_span_questions_close(q);
}

static void five_broken_questions_are_named(void) {
    char qas[1800] = "";
    rpi_span_questions *q = NULL;
    for (int i = 0; i < 7; i++) {
        size_t used = strlen(qas);
        snprintf(qas + used, sizeof qas - used,
                 "{\"id\": %d, \"question\": \"who\", \"answers\": [{\"text\": \"%s\", "
                 "\"answer_start\": 10}]}%s",
                 i, i == 3 ? "fox" : "Fox", i < 6 ? "," : "");
    }
    CHECK_FAILS(
        open_questions(paragraph(FOX, qas), &q), CORRUPT,
        "questions.json: question 0: its answer 'Fox' does not stand at character 10 of "
        "its context, but 'fox jumps' does; answer_start counts characters from 0; "
        "question 1: the same; question 2: the same; question 4: the same; question 5: "
        "the same; 6 of 7 questions are broken; --skip-broken leaves them out");
    skips = true;
    REQUIRE_OK(open_questions(paragraph(FOX, qas), &q));
    skips = false;
    CHECK_EQ(q->question_count, 1);
    CHECK_EQ(q->broken.count, 6);
    CHECK(strcmp(q->questions[0].id, "3") == 0);
    rpi_span_questions_close(q);
}

/* ---- what is refused ---- */

#define QUESTION(rest) "{\"id\": \"q7\", \"question\": \"who\"" rest "}"

static void broken_files_are_named(void) {
    const struct {
        const char *text, *part;
        rp_status status;
    } rows[] = {
        {"", "questions.json has no questions", RP_INVALID},
        {"{\"data\": [", "questions.json:1: no JSON; --skip-broken", RP_CORRUPT},
        {"{}", "the file: 'data' is missing or no list; SQuAD's layout is {", RP_CORRUPT},
        {"{\"data\": []}", "questions.json has no questions", RP_INVALID},
        {"{\"data\": [{\"title\": 1}]}", "article 1: 'paragraphs' is missing", RP_CORRUPT},
        {"{\"data\": [{\"paragraphs\": [{}]}]}",
         "article 1, paragraph 1: 'context' is missing or no text", RP_CORRUPT},
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"a\"}]}]}",
         "article 1, paragraph 1: 'qas' is missing", RP_CORRUPT},
        {NULL, "paragraph 1, question 1: 'id' is missing", RP_CORRUPT},
        {"{\"id\": \"q7\"}", "question q7: 'question' is missing", RP_CORRUPT},
        {QUESTION(""), "question q7: 'answers' is missing or no list", RP_CORRUPT},
        {QUESTION(", \"answers\": [{\"text\": \"b\"}]"),
         "question q7: 'answer_start' is missing or no number", RP_CORRUPT},
        {QUESTION(", \"answers\": [{\"answer_start\": 1}]"), "question q7: 'text' is missing",
         RP_CORRUPT},
        {QUESTION(", \"answers\": [{\"text\": \"old\", \"answer_start\": 2}]"),
         "question q7: its answer 'old' does not stand at character 2 of its context, but 'e "
         "old tree' does",
         RP_CORRUPT},
        {QUESTION(", \"answers\": [{\"text\": \"old\", \"answer_start\": 900}]"),
         "does not stand at character 900 of its context, which ends before", RP_CORRUPT},
        {QUESTION(", \"answers\": [{\"text\": \"the\", \"answer_start\": -1}]"),
         "does not stand at character -1 of its context, which begins later", RP_CORRUPT},
        {QUESTION(", \"answers\": [{\"text\": \"\", \"answer_start\": 0}]"),
         "question q7: an answer is empty", RP_CORRUPT},
        {QUESTION(", \"is_impossible\": 3, \"answers\": []"), "question q7: 'is_impossible'",
         RP_CORRUPT},
        {QUESTION(", \"is_impossible\": true, \"answers\": [{\"text\": \"old\", "
                  "\"answer_start\": 4}]"),
         "question q7: it has answers, and is_impossible says it has none", RP_CORRUPT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_span_questions *q = NULL;
        bool whole = rows[i].text && (!*rows[i].text || strncmp(rows[i].text, "{\"d", 3) == 0 ||
                                      strcmp(rows[i].text, "{}") == 0);
        const char *text =
            whole ? rows[i].text : paragraph("the old tree", rows[i].text ? rows[i].text : "3");
        rp_status status = open_questions(text, &q);
        CHECK_MSG(status == rows[i].status && strstr(rp_last_error()->message, rows[i].part),
                  "row %zu: %s", i, rp_last_error()->message);
        rpi_span_questions_close(q);
    }
}

static void questions_without_room_are_named(void) {
    rpi_span_questions *q = NULL;
    rpi_span_windows *windows = NULL;
    REQUIRE_OK(open_questions(
        paragraph("abc", "{\"id\": \"q7\", \"question\": \"thirteen byte\", \"answers\": []}"),
        &q));
    rpi_span_options options = {.sequence = LENGTH, .stride = 8, .max_answer = 3};
    CHECK_FAILS(rpi_span_windows_open(q, &options, &windows), INVALID,
                "question q7 has 13 tokens, which leave its text no room in a row: "
                "--seq-length 17 or more");
    rpi_span_questions_close(q);
}

CASES({"texts_are_cut_into_windows", texts_are_cut_into_windows},
      {"no_text_is_left_out", no_text_is_left_out},
      {"characters_are_counted", characters_are_counted},
      {"best_spans_are_found", best_spans_are_found},
      {"not_a_number_is_no_answer", not_a_number_is_no_answer},
      {"answers_are_scored_as_squad_does", answers_are_scored_as_squad_does},
      {"every_spelling_is_read", every_spelling_is_read},
      {"every_answer_is_kept", every_answer_is_kept},
      {"many_questions_are_read", many_questions_are_read},
      {"what_is_no_text_is_told", what_is_no_text_is_told},
      {"whole_characters_are_shown", whole_characters_are_shown},
      {"rows_of_a_text_share_it", rows_of_a_text_share_it},
      {"five_broken_questions_are_named", five_broken_questions_are_named},
      {"broken_files_are_named", broken_files_are_named},
      {"questions_without_room_are_named", questions_without_room_are_named})
