/* Words of YAML 1.1 by a table, yaml_words.txt, which test_yaml_words.py reads, too. */
#include "cli/config.h"

#include "harness/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    int64_t count;
    double real, seconds;
    const char *text;
    bool flag, other;
} settings;

static const rpi_option table[] = {
    {"count", NULL, "count", RPI_OPTION_COUNT, offsetof(settings, count), "-7", -1e9, 1e9, "N",
     "", NULL},
    {"real", NULL, "real", RPI_OPTION_REAL, offsetof(settings, real), "-7", 0, 0, "R", "",
     NULL},
    {"seconds", NULL, "seconds", RPI_OPTION_SECONDS, offsetof(settings, seconds), "7", 0, 0,
     "T", "", NULL},
    {"text", NULL, "text", RPI_OPTION_TEXT, offsetof(settings, text), "as before", 0, 0, "T",
     "", NULL},
    {"flag", NULL, "flag", RPI_OPTION_FLAG, offsetof(settings, flag), NULL, 0, 0, NULL, "",
     NULL},
    {"other", NULL, "a.other", RPI_OPTION_FLAG, offsetof(settings, other), NULL, 0, 0, NULL, "",
     NULL},
    {0},
};

static rp_status read_text(const char *text, settings *s, rpi_config **config) {
    *s = (settings){0};
    RP_TRY(rpi_options_defaults(table, s));
    return rpi_config_read(check_text_file("words.yaml", text), table, s, config);
}

static const rpi_option *option_of(const char *type) {
    for (const rpi_option *option = table; option->name; option++)
        if (strcmp(option->name, type) == 0) return option;
    return NULL;
}

static void check_row(const char *type, const char *scalar, const char *value) {
    char yaml[200], found[64];
    settings s, before;
    rpi_config *config = NULL;
    const rpi_option *option = option_of(type);
    REQUIRE(option);
    snprintf(yaml, sizeof yaml, "%s: %s\n", type, scalar);
    rp_status status = read_text(yaml, &s, &config);
    if (strcmp(value, "refused") == 0) {
        CHECK_MSG(status == RP_INVALID, "%s %s is taken", type, scalar);
        CHECK(strstr(rp_last_error()->message, type));
        const char *number = scalar + (*scalar == '-' || *scalar == '+');
        bool is_infinite = *number == '.' && strpbrk(number, "iInN");
        CHECK_MSG(!is_infinite || strstr(rp_last_error()->message, "' is no finite number"),
                  "%s", rp_last_error()->message);
    } else {
        CHECK_MSG(status == RP_OK, "%s %s: %s", type, scalar, rp_last_error()->message);
        before = (settings){0};
        REQUIRE_OK(rpi_options_defaults(table, &before));
        rpi_option_text(option, strcmp(value, "null") == 0 ? &before : &s, yaml, sizeof yaml);
        rpi_option_text(option, &s, found, sizeof found);
        const char *wanted = strcmp(value, "null") == 0    ? yaml
                             : strcmp(value, "null!") == 0 ? "null"
                                                           : value;
        CHECK_MSG(strcmp(found, wanted) == 0, "%s %s is %s, not %s", type, scalar, found,
                  wanted);
    }
    rpi_config_free(config);
}

static void every_row_is_read(void) {
    char line[200], type[20], scalar[60], value[60];
    int rows = 0;
    FILE *stream = fopen(YAML_WORDS, "r");
    REQUIRE(stream);
    while (fgets(line, sizeof line, stream)) {
        if (line[0] == '#') continue;
        REQUIRE(sscanf(line, "%19s %59s %59s", type, scalar, value) == 3);
        check_row(type, scalar, value);
        rows++;
    }
    fclose(stream);
    CHECK(rows > 50);
}

static void mappings_are_merged(void) {
    static const struct {
        const char *text;
        int64_t count;
        const char *word; /* or a part of the message */
        bool fails;
    } rows[] = {
        {"a: &a {other: on}\n<<: {count: 5, text: x}\n", 5, "x", false},
        {"<<: {count: 5, text: x}\ncount: 6\n", 6, "x", false},
        {"<<: [{count: 5}, {count: 4, text: y}]\n", 5, "y", false},
        {"<<: &a {<<: {text: z}, count: 3}\n", 3, "z", false},
        {"text: u\n<<: {count: 5}\n<<: {count: 4, text: v}\n", 5, "u", false},
        {"<<: {}\n<<: []\ncount: 1\ntext: t\n", 1, "t", false},
        {"<<: [{count: 5}, 6]\n", 0, "<< merges a mapping, or a list of them", true},
        {"<<: {[1]: 5}\n", 0, "a key must be a word", true},
        {"<<: 5\n", 0, "words.yaml:1: << merges a mapping, or a list of them", true},
        {"<<: [5]\n", 0, "<< merges a mapping", true},
        {"<<: {counts: 5}\n", 0, "words.yaml:1: unknown key 'counts'; did you mean", true},
        {"a: &a\n  <<: *a\n  other: on\ncount: 2\ntext: w\n", 2, "w", false},
        {"\"<<\": {count: 5}\n", 0, "unknown key '<<", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        settings s;
        rpi_config *config = NULL;
        if (rows[i].fails) {
            CHECK_FAILS(read_text(rows[i].text, &s, &config), INVALID, rows[i].word);
            continue;
        }
        CHECK_OK(read_text(rows[i].text, &s, &config));
        CHECK_MSG(s.count == rows[i].count && strcmp(s.text, rows[i].word) == 0,
                  "row %zu: %lld, %s", i, (long long)s.count, s.text);
        rpi_config_free(config);
    }
}

/* A list of merges that is small to write and would take minutes to follow. */
static void merged_bombs_are_refused_at_once(void) {
    enum { LENGTH = 900 << 10, KEYS = 5000 };
    settings s;
    rpi_config *config = NULL;
    char *text = malloc(LENGTH + 64);
    REQUIRE(text);
    alarm(20);
    size_t at = (size_t)snprintf(text, 64, "a: &a {");
    for (int i = 0; i < KEYS; i++) at += (size_t)snprintf(text + at, 64, "k%d: 1, ", i);
    at += (size_t)snprintf(text + at, 64, "}\nb: {<<: [");
    while (at < LENGTH) at += (size_t)snprintf(text + at, 64, "*a, ");
    snprintf(text + at, 64, "]}\n");
    CHECK_FAILS(read_text(text, &s, &config), INVALID, "words.yaml:1: too many keys");
    alarm(0);
    free(text);
}

/* Options below a name are words, too. */
static void words_below_a_name_are_read(void) {
    static const struct {
        const char *text, *wanted;
    } rows[] = {
        {"text: {mlp: {hidden: 1_000, depth: 010}}\n", "mlp:hidden=1000,depth=8"},
        {"text: {mlp: {hidden: ~, depth: 0x2, wide: yes}}\n", "mlp:depth=2,wide=yes"},
        {"text: {mlp: {hidden: null}}\n", "mlp"},
        {"text: {mlp: ~}\n", "mlp"},
        {"text: {mlp: {cutoffs: 10:20}}\n", "mlp:cutoffs=10:20"},
        {"text: {mlp: {hidden: '010'}}\n", "mlp:hidden=010"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        settings s;
        rpi_config *config = NULL;
        REQUIRE_OK(read_text(rows[i].text, &s, &config));
        CHECK_MSG(strcmp(s.text, rows[i].wanted) == 0, "%s", s.text);
        rpi_config_free(config);
    }
}

CASES({"every row is read", every_row_is_read}, {"mappings are merged", mappings_are_merged},
      {"merged bombs are refused at once", merged_bombs_are_refused_at_once},
      {"words below a name are read", words_below_a_name_are_read})
