#include "cli/config.h"

#include "harness/check.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct settings {
    int64_t dp;
    double rate;
    const char *model;
    bool feedback, trace;
} settings;

static const rpi_option table[] = {
    {"ranks", NULL, "parallelism.dp", RPI_OPTION_COUNT, offsetof(settings, dp), "1", 1, 64, "N",
     "ranks", NULL},
    {"lr", NULL, "optimizer.learning_rate", RPI_OPTION_REAL, offsetof(settings, rate), "0.1", 0,
     0, "R", "rate", NULL},
    {"model", NULL, "model.name", RPI_OPTION_TEXT, offsetof(settings, model), NULL, 0, 0,
     "NAME", "model", NULL},
    {"feedback", NULL, "feedback", RPI_OPTION_FLAG, offsetof(settings, feedback), "on", 0, 0,
     "on|off", "a switch with a value", NULL},
    {"trace", NULL, "trace", RPI_OPTION_FLAG, offsetof(settings, trace), NULL, 0, 0, NULL,
     "a switch without one", NULL},
    {0},
};

static rp_status read_bytes(const char *text, size_t bytes, settings *s, rpi_config **config) {
    *s = (settings){0};
    RP_TRY(rpi_options_defaults(table, s));
    return rpi_config_read(check_file("config.yaml", text, bytes), table, s, config);
}

static rp_status read_text(const char *text, settings *s, rpi_config **config) {
    return read_bytes(text, strlen(text), s, config);
}

static void nested_keys_are_paths(void) {
    settings s;
    rpi_config *config = NULL;
    REQUIRE_OK(read_text("parallelism:\n  dp: 8\noptimizer: {learning_rate: 0.5}\nmodel:\n  "
                         "name: resnet18 # comment\n",
                         &s, &config));
    CHECK_EQ(s.dp, 8);
    CHECK_NEAR(s.rate, 0.5, 0);
    CHECK(strcmp(s.model, "resnet18") == 0);
    rpi_config_free(config);
}

/* A file that was meant to say something, as one that was emptied by mistake. */
static void a_file_that_sets_nothing_is_refused(void) {
    static const char *const rows[] = {
        "",    "\n\n", "# parallelism: {dp: 8}\n", "---\n...\n",
        "~\n", "{}\n", "null # nothing\n",         "%YAML 1.1\n---\n"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        settings s;
        rpi_config *config = NULL;
        CHECK_FAILS(read_text(rows[i], &s, &config), INVALID,
                    "config.yaml sets nothing: the file is empty, or holds comments alone");
    }
}

static void options_stand_below_a_name(void) {
    static const struct {
        const char *text, *model;
    } good[] = {
        {"model: {name: {mlp: {hidden: 8, depth: 2}}}\n", "mlp:hidden=8,depth=2"},
        {"model:\n  name:\n    mlp:\n", "mlp"},
        {"model: {name: {a: {b: {c: {d: 1, e: on}}, f: 2}}}\n", "a:b=c:d=1,e=on,f=2"},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        settings s;
        rpi_config *config = NULL;
        REQUIRE_OK(read_text(good[i].text, &s, &config));
        CHECK_MSG(strcmp(s.model, good[i].model) == 0, "'%s', not '%s'", s.model,
                  good[i].model);
        rpi_config_free(config);
    }
}

static void mistakes_are_named_with_file_and_line(void) {
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"parallelism:\n  pd: 8\n",
         "config.yaml:2: unknown key 'parallelism.pd'; did you mean 'parallelism.dp'?"},
        {"parallelism:\n  dp: 0\n", "config.yaml:2: parallelism.dp: '0' is out of range"},
        {"parallelism:\n  dp: [1, 2]\n",
         "config.yaml:2: a list stands where a value is wanted: parallelism.dp"},
        {"model:\n  name: a\n  name: b\n", "written twice: name"},
        {"- a\n- b\n", "keys and values"},
        {"model: {name: \n", "not YAML"},
        {"? {a: b}\n: c\n", "a key must be a word"},
        {"model: {name: a}\n---\nmodel: {name: b}\n", "config.yaml:2: a second document"},
        {"model: {name: a}\n...\n---\n[]\n", "a second document"},
        {"modle:\n", "config.yaml:1: unknown key 'modle'"},
        {"modle: {}\n", "config.yaml:1: unknown key 'modle'"},
        {"model: {nmae: null}\n", "unknown key 'model.nmae'; did you mean 'model.name'?"},
        {"model:\n  name: {a: {b: 1}, c: {}}\n",
         "config.yaml:2: one name, with its options below it, is wanted here"},
        {"model:\n  name: {a: 1}\n",
         "config.yaml:2: options with their values are wanted below a"},
        {"model: {name: {a: {b: 1, b: 2}}}\n", "written twice: b"},
        {"model: {name: {a: {b: [1]}}}\n", "config.yaml:1: a list stands where"},
        {"model: {name: &n {a: {b: *n}}}\n", "config.yaml:1: too long a value"},
        {"parallelism: {dp: {a: {b: 1}}}\n", "unknown key 'parallelism.dp.a"},
        {"model: &m {name: a, more: *m}\n", "config.yaml:1: "},
        {"model: name\n", "config.yaml:1: unknown key 'model'"},
        {"feedback: maybe\n", "config.yaml:1: feedback: 'maybe' is neither on nor off"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        settings s;
        rpi_config *config = NULL;
        CHECK_FAILS(read_text(bad[i].text, &s, &config), INVALID, bad[i].part);
    }
}

static void switches_are_written_in_any_way(void) {
    static const char *const yes[] = {"on", "true", "yes", "1", "On", "TRUE", "True", "Yes"};
    static const char *const no[] = {"off", "false", "no", "0", "Off", "FALSE", "False", "No"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        settings s;
        rpi_config *config = NULL;
        char text[64];
        snprintf(text, sizeof text, "feedback: %s\ntrace: %s\n", no[i], yes[i]);
        REQUIRE_OK(read_text(text, &s, &config));
        CHECK(!s.feedback && s.trace);
        rpi_config_free(config);
    }
}

static void an_empty_section_is_none(void) {
    settings s;
    rpi_config *config = NULL;
    CHECK_OK(read_text("---\nmodel: # nothing yet\noptimizer: {}\nparallelism: {dp: ~}\n...\n",
                       &s, &config));
    CHECK_EQ(s.dp, 1);
    rpi_config_free(config);
    CHECK_OK(read_text("parallelism: {dp: &n 4}\nmodel: {name: *n}\n", &s, &config));
    CHECK(s.dp == 4 && strcmp(s.model, "4") == 0);
    rpi_config_free(config);
}

static void bytes_that_are_no_text_are_refused(void) {
    settings s;
    rpi_config *config = NULL;
    static const char nul[] = "parallelism:\n  dp: 8\n\0\noptimizer: {learning_rate: 0.5}\n";
    CHECK_FAILS(read_bytes(nul, sizeof nul - 1, &s, &config), INVALID,
                "config.yaml:3: a NUL byte");
    CHECK_FAILS(read_bytes("a\xff: b\n", 6, &s, &config), INVALID, "not YAML");
}

/* Files that are small to write and would take seconds, or gigabytes, to follow. */
static void bombs_are_refused_at_once(void) {
    enum { LENGTH = 900 << 10, LEVELS = 12, WIDTH = 9 };
    settings s;
    rpi_config *config = NULL;
    char *text = malloc(LENGTH + 64);
    REQUIRE(text);
    alarm(20);
    static const char *const nests[] = {"[", "{a: ", "- ", "? ", "a: {"};
    for (size_t n = 0; n < sizeof nests / sizeof nests[0]; n++) {
        size_t at = 0, length = strlen(nests[n]);
        for (; at + length < LENGTH; at += length) memcpy(text + at, nests[n], length);
        CHECK_FAILS(read_bytes(text, at, &s, &config), INVALID, "config.yaml:1: ");
        CHECK_MSG(strstr(rp_last_error()->message, "nested"), "%s", rp_last_error()->message);
    }
    size_t at = (size_t)snprintf(text, 64, "parallelism: &a0 {}\n");
    for (int level = 1; level < LEVELS; level++) {
        at += (size_t)snprintf(text + at, 64, "optimizer: &a%d {", level);
        for (int i = 0; i < WIDTH; i++)
            at += (size_t)snprintf(text + at, 64, "k%d: *a%d, ", i, level - 1);
        at += (size_t)snprintf(text + at, 64, "}\n");
    }
    CHECK_FAILS(read_bytes(text, at, &s, &config), INVALID, "config.yaml");
    at = 0;
    for (int i = 0; at + 64 < LENGTH; i++)
        at += (size_t)snprintf(text + at, 64, "model%d: {}\n", i);
    CHECK_FAILS(read_bytes(text, at, &s, &config), INVALID, "config.yaml:");
    memset(text, ' ', LENGTH);
    memset(text, '#', 1);
    CHECK_FAILS(read_bytes(text, LENGTH, &s, &config), INVALID, "config.yaml sets nothing");
    free(text);
    CHECK_FAILS(rpi_config_read("/dev/zero", table, &s, &config), INVALID,
                "/dev/zero is a device, not a regular file");
    const char *path = check_text_file("config.yaml", "");
    REQUIRE(truncate(path, 2 << 20) == 0);
    CHECK_FAILS(rpi_config_read(path, table, &s, &config), INVALID,
                "2097152 bytes; 1048576 are the most");
    REQUIRE(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    CHECK_FAILS(rpi_config_read(path, table, &s, &config), INVALID,
                "config.yaml is a named pipe, not a regular file");
    CHECK_FAILS(rpi_config_read(check_folder(), table, &s, &config), INVALID, "is a folder");
    alarm(0);
}

static void a_missing_file_is_named(void) {
    settings s;
    rpi_config *config = NULL;
    CHECK_FAILS(rpi_config_read("/nowhere/x.yaml", table, &s, &config), NOT_FOUND,
                "the configuration /nowhere/x.yaml is missing");
}

CASES({"a file that sets nothing is refused", a_file_that_sets_nothing_is_refused},
      {"nested keys are paths", nested_keys_are_paths},
      {"options stand below a name", options_stand_below_a_name},
      {"mistakes are named with file and line", mistakes_are_named_with_file_and_line},
      {"switches are written in any way", switches_are_written_in_any_way},
      {"an empty section is none", an_empty_section_is_none},
      {"bytes that are no text are refused", bytes_that_are_no_text_are_refused},
      {"bombs are refused at once", bombs_are_refused_at_once},
      {"a missing file is named", a_missing_file_is_named})
