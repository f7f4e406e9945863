#include "cli/config.h"

#include "harness/check.h"

typedef struct settings {
    int64_t dp;
    double rate;
    const char *model;
} settings;

static const rpi_option table[] = {
    {"ranks", NULL, "parallelism.dp", RPI_OPTION_COUNT, offsetof(settings, dp), "1", 1, 64, "N",
     "ranks", NULL},
    {"lr", NULL, "optimizer.learning_rate", RPI_OPTION_REAL, offsetof(settings, rate), "0.1", 0,
     0, "R", "rate", NULL},
    {"model", NULL, "model.name", RPI_OPTION_TEXT, offsetof(settings, model), NULL, 0, 0,
     "NAME", "model", NULL},
    {0},
};

static char path[512];

static rp_status read_text(const char *text, settings *s, rpi_config **config) {
    snprintf(path, sizeof path, "%s/config.yaml", check_folder());
    FILE *stream = fopen(path, "wb");
    if (!stream) return RP_FAIL(IO, "cannot write the test's file");
    fputs(text, stream);
    fclose(stream);
    *s = (settings){0};
    RP_TRY(rpi_options_defaults(table, s));
    return rpi_config_read(path, table, s, config);
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
    REQUIRE_OK(read_text("", &s, &config));
    CHECK_EQ(s.dp, 1);
    rpi_config_free(config);
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
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        settings s;
        rpi_config *config = NULL;
        CHECK_FAILS(read_text(bad[i].text, &s, &config), INVALID, bad[i].part);
    }
}

static void a_missing_file_is_named(void) {
    settings s;
    rpi_config *config = NULL;
    CHECK_FAILS(rpi_config_read("/nowhere/x.yaml", table, &s, &config), IO,
                "/nowhere/x.yaml: No such file");
}

CASES({"nested keys are paths", nested_keys_are_paths},
      {"mistakes are named with file and line", mistakes_are_named_with_file_and_line},
      {"a missing file is named", a_missing_file_is_named})
