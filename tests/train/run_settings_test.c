#include "train/checkpoint/run_settings.h"

#include "harness/check.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct settings {
    int64_t steps, ranks, chunk;
    double lr, timeout_s;
    bool eval, trace, feedback;
    const char *model, *link, *out;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option table[] = {
    {"steps", NULL, NULL, RPI_OPTION_COUNT, FIELD(steps), NULL, 0, 1e12, "N", "", NULL},
    {"ranks", "n", NULL, RPI_OPTION_COUNT, FIELD(ranks), NULL, 1, 64, "N", "", NULL},
    {"np", NULL, NULL, RPI_OPTION_COUNT, FIELD(ranks), NULL, 1, 64, "N", "", NULL},
    {"chunk", NULL, NULL, RPI_OPTION_BYTES, FIELD(chunk), "64K", 0, 1e9, "BYTES", "", NULL},
    {"lr", NULL, NULL, RPI_OPTION_REAL, FIELD(lr), "0.05", 0, 1e30, "RATE", "", NULL},
    {"timeout", NULL, NULL, RPI_OPTION_SECONDS, FIELD(timeout_s), "10min", 0.001, 1e9, "TIME",
     "", NULL},
    {"eval", NULL, NULL, RPI_OPTION_FLAG, FIELD(eval), "true", 0, 0, NULL, "", NULL},
    {"trace", NULL, NULL, RPI_OPTION_FLAG, FIELD(trace), NULL, 0, 0, NULL, "", NULL},
    {"feedback", NULL, NULL, RPI_OPTION_FLAG, FIELD(feedback), "on", 0, 0, "on|off", "", NULL},
    {"model", NULL, NULL, RPI_OPTION_TEXT, FIELD(model), "mlp", 0, 0, "NAME", "", NULL},
    {"link", NULL, NULL, RPI_OPTION_TEXT, FIELD(link), NULL, 0, 0, "LINK", "", NULL},
    {"out", NULL, NULL, RPI_OPTION_TEXT, FIELD(out), NULL, 0, 0, "FOLDER", "", NULL},
    {0},
};

static char path[600];

static rp_status write_settings(const settings *s, int world) {
    snprintf(path, sizeof path, "%s/settings.json", check_folder());
    rpi_train_options options = {.table = table, .given = s, .out = check_folder()};
    return rpi_run_settings_write(&options, world);
}

static settings unusual(void) {
    settings s = {0};
    CHECK_OK(rpi_options_defaults(table, &s));
    s.ranks = 2;
    s.lr = 1.0 / 3;
    s.timeout_s = 0.1 + 0.2;
    s.eval = s.feedback = false;
    s.trace = true;
    s.model = "a \"b\"\n\xc3\xa4";
    s.out = "elsewhere";
    return s;
}

static rp_status read_back(settings *s, rpi_run_settings **recorded) {
    *s = (settings){0};
    RP_TRY(rpi_options_defaults(table, s));
    RP_TRY(rpi_run_settings_read(check_folder(), recorded));
    return rpi_run_settings_apply(*recorded, table, s);
}

static void what_was_given_is_read_back(void) {
    settings s = unusual(), back;
    rpi_run_settings *recorded = NULL;
    REQUIRE_OK(write_settings(&s, 3));
    REQUIRE_OK(read_back(&back, &recorded));
    CHECK_EQ(rpi_run_settings_world(recorded), 3);
    CHECK_EQ(back.ranks, 2);
    CHECK_EQ(back.steps, 0);
    CHECK_EQ(back.chunk, 65536);
    CHECK(back.lr == s.lr && back.timeout_s == s.timeout_s);
    CHECK(!back.eval && !back.feedback);
    CHECK(strcmp(back.model, s.model) == 0);
    CHECK(back.link == NULL);
    CHECK(!back.trace && !back.out); /* of one start of the command */
    rpi_run_settings_free(recorded);
    s.ranks = 0; /* absent, where 0 is not allowed */
    REQUIRE_OK(write_settings(&s, 1));
    recorded = NULL;
    CHECK_OK(read_back(&back, &recorded));
    CHECK_EQ(back.ranks, 0);
    rpi_run_settings_free(recorded);
}

static char said[4096];

static void say(void *context, const char *line) {
    (void)context;
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", line);
}

static void changes_are_told(void) {
    settings before = unusual(), now = before;
    now.lr = 0.25;
    now.steps = 7;
    now.feedback = true;
    now.link = "1Gbit,50us";
    now.ranks = 5;
    now.model = "other"; /* of these the checkpoint tells */
    now.trace = false;
    now.out = NULL;
    rpi_run_settings_compare(table, &before, &now, say, NULL);
    CHECK_MSG(strcmp(said, "--steps was absent, now 7\n"
                           "--lr was 0.333333333333333, now 0.25\n"
                           "--feedback was off, now on\n"
                           "--link was absent, now 1Gbit,50us\n") == 0,
              "said: %s", said);
}

static void put(const char *text) {
    FILE *stream = fopen(path, "wb");
    fputs(text, stream);
    fclose(stream);
}

static void damage_is_named(void) {
    settings s = unusual(), back;
    rpi_run_settings *recorded = NULL;
    snprintf(path, sizeof path, "%s/settings.json", check_folder());
    unlink(path);
    CHECK_FAILS(rpi_run_settings_read(check_folder(), &recorded), NOT_FOUND, "settings.json");
    static const struct {
        const char *text, *said;
    } bad[] = {
        {"", "its end is missing"},
        {"\n", "it has no checksum"},
        {"{}\n", "it has no checksum"},
        {"{\"world\":1,\"options\":{}}\n", "it has no checksum"},
        {"{\"checksum\":\"crc32c:00000000\",\"world\":1,\"options\":{}}\n",
         "it does not match its checksum"},
        {"{\"checksum\":\"crc32c:0000000g\",\"world\":1,\"options\":{}}\n",
         "it has no checksum"},
        {"{\"checksum\":\"crc32c:xyz\n", "it has no checksum"}, /* ends among the digits */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put(bad[i].text);
        CHECK_FAILS(rpi_run_settings_read(check_folder(), &recorded), CORRUPT, bad[i].said);
        CHECK(strstr(rp_last_error()->message, "settings.json is damaged"));
    }
    REQUIRE_OK(write_settings(&s, 2));
    FILE *stream = fopen(path, "rb");
    static char whole[4096];
    size_t bytes = fread(whole, 1, sizeof whole - 1, stream);
    fclose(stream);
    for (size_t at = 0; at < bytes; at++) {
        char kept = whole[at];
        whole[at] ^= 4;
        put(whole);
        rp_status status = read_back(&back, &recorded);
        CHECK_MSG(status == RP_CORRUPT, "byte %zu: %s", at, rp_status_name(status));
        whole[at] = kept;
    }
    unlink(path);
    alarm(30);
    REQUIRE(mkfifo(path, 0600) == 0);
    CHECK_FAILS(rpi_run_settings_read(check_folder(), &recorded), CORRUPT, "a named pipe");
    alarm(0);
    unlink(path);
}

/* From another version of the command, or another command. */
static void an_unknown_option_is_named(void) {
    static const rpi_option older[] = {
        {"steps", NULL, NULL, RPI_OPTION_COUNT, FIELD(steps), NULL, 0, 1e12, "N", "", NULL},
        {0},
    };
    settings s = unusual(), back = {0};
    rpi_run_settings *recorded = NULL;
    REQUIRE_OK(write_settings(&s, 2));
    REQUIRE_OK(rpi_run_settings_read(check_folder(), &recorded));
    CHECK_FAILS(rpi_run_settings_apply(recorded, older, &back), INVALID,
                "settings.json, written by redpoll ");
    rpi_run_settings_free(recorded);
}

CASES({"what was given is read back", what_was_given_is_read_back},
      {"changes are told", changes_are_told}, {"damage is named", damage_is_named},
      {"an unknown option is named", an_unknown_option_is_named})
