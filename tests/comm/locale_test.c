/* A program that has chosen a language with decimal commas: what the library reads, writes and
 * sends to other ranks has points, and the program's own numbers keep their commas. The locale
 * is made by localedef(1) in the test's folder. */
#include "comm/thread_world.h"

#include "base/c_locale.h"
#include "base/option.h"
#include "base/units.h"
#include "net/shaped/link_shape.h"
#include "plan/topologies/topology.h"

#include <locale.h>
#include <stdlib.h>
#include <unistd.h>

static locale_t comma; /* of one thread */

/* False, and the case is skipped: there is none. */
static bool choose(void) {
    char command[600];
    const char *folder = check_folder();
    snprintf(command, sizeof command,
             "localedef -c -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", folder);
    char text[16], path[600];
    snprintf(path, sizeof path, "%s/de_DE.UTF-8", folder);
    if (access(path, F_OK) != 0)
        (void)!system(command); /* before the first look, which lasts */
    setenv("LOCPATH", folder, 1);
    (void)setlocale(LC_ALL, "de_DE.UTF-8");
    snprintf(text, sizeof text, "%.1f", 1.5);
    if (!comma) comma = duplocale(LC_GLOBAL_LOCALE); /* to the end */
    if (strcmp(text, "1,5") == 0 && comma) return true;
    check_skip("there is no de_DE.UTF-8 (localedef is of the package locales)");
    return false;
}

static void numbers(void) {
    double value = 0;
    int64_t whole = 0;
    char text[64], *end;
    if (!choose()) return;
    CHECK_NEAR(rpi_strtod("2.5x", &end), 2.5, 0);
    CHECK_EQ(*end, 'x');
    CHECK_NEAR(rpi_strtod("2,5", &end), 2, 0);
    CHECK_EQ(rpi_print(text, sizeof text, "%g %d", 0.5, 3), 5);
    CHECK(strcmp(text, "0.5 3") == 0);
    CHECK_OK(rpi_parse_seconds("2.5ms", &value));
    CHECK_NEAR(value, 2.5e-3, 1e-12);
    CHECK_OK(rpi_parse_duration("1.5us", &value));
    CHECK_OK(rpi_parse_real("-0.25", &value));
    CHECK_NEAR(value, -0.25, 0);
    CHECK_OK(rpi_parse_bytes("1.5MB", &whole));
    CHECK_EQ(whole, 1500000);
    CHECK_FAILS(rpi_parse_real("0,25", &value), INVALID, "is not a number");
    CHECK_FAILS(RP_FAIL(INVALID, "%g is too much", 1.5), INVALID, "1.5 is too much");
    snprintf(text, sizeof text, "%.1f", 1.5); /* the program's own */
    CHECK(strcmp(text, "1,5") == 0);
}

/* What is written is read again, also by a rank of another language: canonical texts. */
static void texts(void) {
    static const char *const codecs[] = {"q4", "topk:k=32", "q4:bucket=512"};
    rpi_link_shape shape;
    rp_codec codec;
    char text[128];
    if (!choose()) return;
    CHECK_OK(rpi_link_shape_parse("2.5Gbit,1.5us", &shape));
    CHECK(strcmp(rpi_link_shape_text(&shape, text, sizeof text), "2.5Gbit,1.5us") == 0);
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        CHECK_OK(rp_codec_parse(codecs[i], &codec));
        rp_codec_text(&codec, text, sizeof text);
        char copy[sizeof text];
        CHECK_OK(rp_codec_parse(text, &codec));
        rp_codec_text(&codec, copy, sizeof copy);
        CHECK_MSG(strcmp(text, copy) == 0, "'%s' becomes '%s'", text, copy);
    }
    typedef struct settings {
        double rate;
    } settings;
    static const rpi_option table[] = {{.name = "rate",
                                        .type = RPI_OPTION_REAL,
                                        .offset = offsetof(settings, rate),
                                        .fallback = "0.125"},
                                       {0}};
    settings it = {0};
    CHECK_OK(rpi_options_defaults(table, &it));
    CHECK_NEAR(it.rate, 0.125, 0);
    CHECK(strcmp(rpi_option_text(&table[0], &it, text, sizeof text), "0.125") == 0);
}

/* Ranks of different languages agree. */
static void reduce(rp_comm *comm, int rank, int world, void *context) {
    float values[1000];
    locale_t before = rank == 1 ? uselocale(comma) : (locale_t)0;
    rp_segment segment = {.data = values, .count = 1000, .dtype = RP_F32};
    world_fill(3, rank, values, 1000);
    CHECK_OK(rp_codec_parse("topk:k=32", &segment.codec));
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    world_fill(3, rank, values, 1000);
    segment.codec = (rp_codec){0};
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    CHECK_NEAR(world_error(3, world, values, 1000, 1), 0, 1e-6);
    if (before) uselocale(before);
    (void)context;
}

static void ranks_of_two_languages(void) {
    if (!choose()) return;
    (void)setlocale(LC_ALL, "C");
    world_run(3, &(rp_comm_options)RP_COMM_OPTIONS(.link = "10.5Gbit,1.5us"), reduce, NULL);
}

CASES({"numbers", numbers}, {"texts", texts},
      {"ranks of two languages", ranks_of_two_languages})
