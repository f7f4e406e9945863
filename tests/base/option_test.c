#include "base/option.h"

#include "harness/check.h"

#include <stdarg.h>
#include <stdlib.h>

typedef struct settings {
    int64_t ranks, size;
    double timeout_s, rate;
    bool trace;
    const char *codec;
} settings;

static rp_status check_codec(const char *text) {
    if (text[0] != 'q') return RP_FAIL(INVALID, "unknown codec '%s'", text);
    return RP_OK;
}

#define FIELD(name) offsetof(settings, name)
static const rpi_option table[] = {
    {"ranks", "n", "parallelism.dp", RPI_OPTION_COUNT, FIELD(ranks), "1", 1, 4096, "N", "ranks",
     NULL},
    {"size", NULL, NULL, RPI_OPTION_BYTES, FIELD(size), "64K", 0, 0, "BYTES", "bytes", NULL},
    {"timeout", NULL, "run.timeout", RPI_OPTION_SECONDS, FIELD(timeout_s), "10min", 0, 0,
     "TIME", "wait", NULL},
    {"learning-rate", NULL, "lr", RPI_OPTION_REAL, FIELD(rate), "0.1", 0, 10, "R", "rate",
     NULL},
    {"trace", NULL, "run.trace", RPI_OPTION_FLAG, FIELD(trace), NULL, 0, 0, NULL, "trace",
     NULL},
    {"codec", NULL, "codec", RPI_OPTION_TEXT, FIELD(codec), "q4", 0, 0, "CODEC", "codec",
     check_codec},
    {0},
};

static rp_status parse(settings *out, rpi_positional *positional, bool *help, int count, ...) {
    char *argv[16] = {"prog"};
    va_list arguments;
    va_start(arguments, count);
    for (int i = 0; i < count; i++) argv[i + 1] = va_arg(arguments, char *);
    va_end(arguments);
    memset(out, 0, sizeof *out);
    RP_TRY(rpi_options_defaults(table, out));
    return rpi_options_parse(table, count + 1, argv, out, positional, help);
}

static void defaults_are_parsed(void) {
    settings s = {0};
    REQUIRE_OK(rpi_options_defaults(table, &s));
    CHECK_EQ(s.ranks, 1);
    CHECK_EQ(s.size, 65536);
    CHECK_NEAR(s.timeout_s, 600, 0);
    CHECK(!s.trace);
    CHECK(strcmp(s.codec, "q4") == 0);
}

static void the_command_line_wins_in_every_spelling(void) {
    settings s;
    bool help;
    const char *words[4];
    rpi_positional positional = {.words = words, .capacity = 4};
    REQUIRE_OK(parse(&s, &positional, &help, 9, "-n", "8", "--size=1MB", "run", "--trace",
                     "--timeout", "50us", "--", "--size"));
    CHECK_EQ(s.ranks, 8);
    CHECK_EQ(s.size, 1000000);
    CHECK(s.trace);
    CHECK_NEAR(s.timeout_s, 50e-6, 1e-12);
    REQUIRE(positional.count == 2);
    CHECK(strcmp(words[0], "run") == 0 && strcmp(words[1], "--size") == 0);
    REQUIRE_OK(parse(&s, NULL, &help, 2, "--trace", "--no-trace"));
    CHECK(!s.trace);
}

static void mistakes_are_named_with_advice(void) {
    settings s;
    bool help;
    CHECK_FAILS(parse(&s, NULL, &help, 2, "--rank", "3"), INVALID, "did you mean '--ranks'");
    CHECK_FAILS(parse(&s, NULL, &help, 2, "-n", "0"), INVALID,
                "--ranks: '0' is out of range; 1 to 4096");
    CHECK_FAILS(parse(&s, NULL, &help, 2, "-n", "2x"), INVALID, "not a whole number");
    CHECK_FAILS(parse(&s, NULL, &help, 1, "-n"), INVALID, "needs a value");
    CHECK_FAILS(parse(&s, NULL, &help, 2, "--codec", "z"), INVALID,
                "--codec: unknown codec 'z'");
    CHECK_FAILS(parse(&s, NULL, &help, 1, "word"), INVALID, "unexpected word 'word'");
    CHECK_FAILS(parse(&s, NULL, &help, 1, "--learning-rate=nan"), INVALID, "not a number");
    CHECK_FAILS(rpi_options_set_yaml(table, "parallelism.pd", "2", &s), INVALID,
                "did you mean 'parallelism.dp'");
    CHECK_FAILS(rpi_options_set_yaml(table, "run.trace", "maybe", &s), INVALID,
                "run.trace: 'maybe'");
}

/* A limit that stands for none is named where it is met. */
static void numbers_beyond_a_limit_are_told_which(void) {
    static const rpi_option rate[] = {
        {"rate", NULL, NULL, RPI_OPTION_REAL, 0, "1", 0, 1e30, "R", "rate", NULL}, {0}};
    double value = 0;
    CHECK_OK(rpi_options_set_name(rate, "rate", "1e30", &value));
    CHECK_FAILS(rpi_options_set_name(rate, "rate", "2e30", &value), INVALID,
                "'2e30' is too large; at most 1e+30");
    CHECK_FAILS(rpi_options_set_name(rate, "rate", "-1", &value), INVALID,
                "'-1' is too small; at least 0");
}

static void help_stops_the_parsing(void) {
    settings s;
    bool help = false;
    CHECK_OK(parse(&s, NULL, &help, 2, "--nonsense", "--help"));
    CHECK(help);
}

static void another_programs_words_are_left_alone(void) {
    settings s;
    bool help;
    rpi_positional positional = {.stops_at_first = true};
    REQUIRE_OK(parse(&s, &positional, &help, 5, "-n", "4", "prog", "--help", "--nonsense"));
    CHECK_EQ(s.ranks, 4);
    CHECK_EQ(positional.first, 3);
    CHECK(!help);
    REQUIRE_OK(parse(&s, &positional, &help, 4, "--trace", "--", "--prog", "-n"));
    CHECK_EQ(positional.first, 3);
    REQUIRE_OK(parse(&s, &positional, &help, 1, "--trace"));
    CHECK_EQ(positional.first, 2);
    CHECK_FAILS(parse(&s, &positional, &help, 2, "--tracee", "prog"), INVALID, "--trace");
}

static char *stand_in(const char *name) {
    if (strcmp(name, "REDPOLL_LEARNING_RATE") == 0) return "0.5";
    if (strcmp(name, "REDPOLL_TRACE") == 0) return "yes";
    return NULL;
}

static char *broken_stand_in(const char *name) {
    return strcmp(name, "REDPOLL_RANKS") == 0 ? "many" : NULL;
}

static void the_environment_is_read(void) {
    settings s = {0};
    REQUIRE_OK(rpi_options_defaults(table, &s));
    REQUIRE_OK(rpi_options_environment(table, stand_in, &s));
    CHECK_NEAR(s.rate, 0.5, 0);
    CHECK(s.trace);
    CHECK_FAILS(rpi_options_environment(table, broken_stand_in, &s), INVALID,
                "REDPOLL_RANKS: 'many'");
}

static void help_and_markdown_name_every_option(void) {
    char text[8192];
    for (int markdown = 0; markdown < 2; markdown++) {
        FILE *stream = fmemopen(text, sizeof text, "w");
        REQUIRE(stream != NULL);
        if (markdown)
            rpi_options_markdown(table, stream);
        else
            rpi_options_help(table, stream);
        fclose(stream);
        for (const rpi_option *option = table; option->name; option++)
            CHECK(strstr(text, option->name) != NULL);
    }
    CHECK(strstr(text, "REDPOLL_LEARNING_RATE") != NULL);
}

static void values_print_as_text(void) {
    settings s = {0};
    char text[64];
    REQUIRE_OK(rpi_options_defaults(table, &s));
    static const char *const wanted[] = {"1", "65536", "600", "0.1", "false", "q4"};
    for (int i = 0; i < 6; i++)
        CHECK(strcmp(rpi_option_text(&table[i], &s, text, sizeof text), wanted[i]) == 0);
}

static void lists_grow_each_time(void) {
    static const rpi_option rows[] = {
        {"env", "x", NULL, RPI_OPTION_LIST, 0, NULL, 0, 0, "NAME", "names", check_codec}, {0}};
    rpi_option_list list = {.count = 0};
    char text[64], *argv[] = {"prog", "-x", "q1", "--env=q2=3"}, *wrong[] = {"prog", "-x", "f"};
    bool help = false;
    REQUIRE_OK(rpi_options_parse(rows, 4, argv, &list, NULL, &help));
    CHECK_EQ(list.count, 2);
    CHECK(strcmp(rpi_option_text(rows, &list, text, sizeof text), "q1 q2=3") == 0);
    CHECK_FAILS(rpi_options_parse(rows, 3, wrong, &list, NULL, &help), INVALID,
                "--env: unknown codec 'f'");
    while (list.count < RPI_OPTION_LIST_MAX) list.items[list.count++] = "q";
    CHECK_FAILS(rpi_options_parse(rows, 4, argv, &list, NULL, &help), INVALID, "64 times");
}

CASES({"defaults are parsed", defaults_are_parsed},
      {"the command line wins in every spelling", the_command_line_wins_in_every_spelling},
      {"mistakes are named with advice", mistakes_are_named_with_advice},
      {"numbers beyond a limit are told which", numbers_beyond_a_limit_are_told_which},
      {"help stops the parsing", help_stops_the_parsing},
      {"another program's words are left alone", another_programs_words_are_left_alone},
      {"the environment is read", the_environment_is_read},
      {"help and markdown name every option", help_and_markdown_name_every_option},
      {"values print as text", values_print_as_text},
      {"lists grow each time", lists_grow_each_time})
