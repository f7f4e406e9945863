/* What a terminal is given of a text; a row for each kind of text that somebody may print. */
#include "cli/visible_text.h"

#include "base/rng.h"
#include "harness/check.h"

#include <stdlib.h>

typedef struct row {
    const char *text;
    size_t bytes; /* 0: up to its NUL */
    const char *shown;
} row;

#define SIXTY "0;1;2;3;4;5;6;7;8;9;0;1;2;3;4;5;6;7;8;9;0;1;2;3;4;5;6;7;8;9;"

static const row rows[] = {
    {"plain text, 100 %", 0, "plain text, 100 %"},
    {"a\tb", 0, "a\tb"},
    {"Größe 3 µs → ∞ 漢字 🚀", 0, "Größe 3 µs → ∞ 漢字 🚀"},
    /* colours */
    {"\033[31mred\033[0m", 0, "\033[31mred\033[0m"},
    {"\033[31mred\033[m", 0, "\033[31mred\033[m"},
    {"\033[1;38;5;200mloud", 0, "\033[1;38;5;200mloud\033[m"},
    {"\033[38:2::1:2:3mloud\033[0m not", 0, "\033[38:2::1:2:3mloud\033[0m not"},
    {"\033[mplain", 0, "\033[mplain"},
    {"\033[31mred\033[0m \033[32mgreen", 0, "\033[31mred\033[0m \033[32mgreen\033[m"},
    /* what moves, clears, renames, asks */
    {"\033[2J\033[H", 0, "^[[2J^[[H"},
    {"\033[?1049h", 0, "^[[?1049h"},
    {"\033[>4;1m", 0, "^[[>4;1m"},
    {"\033[?4m", 0, "^[[?4m"},
    {"\033[31 m", 0, "^[[31 m"},
    {"\033[1;", 0, "^[[1;"},
    {"\033", 0, "^["},
    {"\033]0;title\007", 0, "^[]0;title^G"},
    {"\033]8;;http://x\033\\link", 0, "^[]8;;http://x^[\\link"},
    {"\033]52;c;aGk=\007", 0, "^[]52;c;aGk=^G"},
    {"\033P+q544e\033\\", 0, "^[P+q544e^[\\"},
    {"\033c", 0, "^[c"},
    {"\033(0lqk", 0, "^[(0lqk"},
    {"\033[6n\033[c\005", 0, "^[[6n^[[c^E"},
    {"ab\b\bcd", 0, "ab^H^Hcd"},
    {"a\vb\fc\016d\017", 0, "a^Kb^Lc^Nd^O"},
    {"a\rb\nc", 0, "a^Mb^Jc"},
    {"a\0b", 3, "a^@b"},
    {"\x7f", 0, "^?"},
    /* the same in 8 bits and in UTF-8 */
    {"\x9b"
     "2J",
     0, "<9b>2J"},
    {"\x90q\x9c", 0, "<90>q<9c>"},
    {"\xc2\x9b"
     "31m",
     0, "<U+009B>31m"},
    {"\xc2\x85\xc2\x80", 0, "<U+0085><U+0080>"},
    /* what turns the direction or the line */
    {"\xe2\x80\xae"
     "txt.exe",
     0, "<U+202E>txt.exe"},
    {"\xe2\x81\xa6"
     "a\xe2\x81\xa9",
     0, "<U+2066>a<U+2069>"},
    {"a\xe2\x80\xa8"
     "b",
     0, "a<U+2028>b"},
    /* the neighbours of all those are shown as they are */
    {"\xc2\x9f\xc2\xa0", 0, "<U+009F>\xc2\xa0"},
    {"\xe2\x80\xa7\xe2\x80\xa9", 0, "\xe2\x80\xa7<U+2029>"},
    {"\xe2\x80\xaa\xe2\x80\xaf", 0, "<U+202A>\xe2\x80\xaf"},
    {"\xe2\x81\xa5\xe2\x81\xaa", 0, "\xe2\x81\xa5\xe2\x81\xaa"},
    {"\x1f ~", 0, "^_ ~"},
    /* colours as long as any, and longer */
    {"\033[" SIXTY "1m", 0, "\033[" SIXTY "1m\033[m"},
    {"\033[" SIXTY "12m", 0, "\033[" SIXTY "12m\033[m"},
    {"\033[" SIXTY "123m", 0, "^[[" SIXTY "123m"},
    {"\033[1m", 0, "\033[1m\033[m"},
    {"\033[1m\033[0m", 0, "\033[1m\033[0m"},
    {"\033[10m", 0, "\033[10m\033[m"},
    /* what is no UTF-8 */
    {"gr\xf6\xdf"
     "e",
     0, "gr<f6><df>e"},
    {"\xe2\x82", 0, "<e2><82>"},
    {"a\xe2\x82\xac", 3, "a<e2><82>"}, /* what lies behind is none of it */
    {"\xc0\x9b", 0, "<c0><9b>"},
    {"\xed\xa0\x80", 0, "<ed><a0><80>"},
    {"\xf4\x90\x80\x80", 0, "<f4><90><80><80>"},
    {"\xff\xfe", 0, "<ff><fe>"},
};

static size_t shown(const char *text, size_t bytes, char *out, size_t room) {
    memset(out, 0, room);
    FILE *sink = fmemopen(out, room, "w");
    CHECK(sink);
    rpi_visible_put(text, bytes, sink);
    long length = ftell(sink);
    fclose(sink);
    return (size_t)length;
}

static void kinds_of_text(void) {
    char out[400];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        shown(rows[i].text, rows[i].bytes ? rows[i].bytes : strlen(rows[i].text), out,
              sizeof out);
        CHECK_MSG(strcmp(out, rows[i].shown) == 0, "row %zu is shown as '%s', not '%s'", i, out,
                  rows[i].shown);
    }
}

/* Of any bytes: the only escape that comes out is a colour, and no C1 code does. */
static void any_bytes(void) {
    static const char likely[] = "\033[[0;1m\x9b\xc2\xe2\x80\xae]\007\r\nab";
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int round = 0; round < 20000; round++) {
        char text[24], out[400];
        for (size_t i = 0; i < sizeof text; i++) {
            uint32_t drawn = rpi_rng_u32(&rng);
            text[i] =
                drawn & 1 ? likely[(drawn >> 8) % (sizeof likely - 1)] : (char)(drawn >> 8);
        }
        size_t length = shown(text, sizeof text, out, sizeof out);
        for (size_t i = 0; i < length; i++) {
            unsigned char c = (unsigned char)out[i];
            size_t end = i + 2;
            if (c != 0x1b) CHECK_MSG((c >= 0x20 || c == '\t') && c != 0x7f, "byte %02x", c);
            if (c != 0x1b) continue;
            while (end < length && strchr("0123456789;:", out[end])) end++;
            CHECK_MSG(out[i + 1] == '[' && out[end] == 'm', "an escape at %zu of '%s'", i, out);
        }
    }
}

static void breaks_fall_between_characters(void) {
    static const struct {
        const char *text;
        size_t before;
    } breaks[] = {{"abc", 3},
                  {"ab\xc3", 2},
                  {"ab\xc3\xb6", 4},
                  {"ab\xe2\x82", 2},
                  {"ab\xe2\x82\xac", 5},
                  {"ab\xf0\x9f\x9a", 2},
                  {"ab\033", 2},
                  {"ab\033[", 2},
                  {"ab\033[1;31", 2},
                  {"ab\033[1;31m", 9},
                  {"ab\033[2J", 6},
                  {"ab\x80\x80\x80\x80", 6},
                  {"\xc3", 1},
                  {"ab\xff", 3},
                  {"ab\xc1", 3},
                  {"ab\xc2", 2},
                  {"ab\xdf", 2},
                  {"ab\xdf\xbf", 4},
                  {"ab\xe0\xa0", 2},
                  {"ab\xef\xbf", 2},
                  {"ab\xf0\x9f", 2},
                  {"ab\xf4\x8f\xbf", 2},
                  {"ab\xf4\x8f\xbf\xbf", 6},
                  {"ab\xf5", 3},
                  {"ab\xf0\x9f\x9a\x80", 6},
                  {"ab\033[" SIXTY, 2},
                  {"ab\033[" SIXTY "1", 2},
                  {"\033", 1},
                  {"\033[", 2}};
    for (size_t i = 0; i < sizeof breaks / sizeof breaks[0]; i++) {
        size_t before = rpi_visible_break(breaks[i].text, strlen(breaks[i].text));
        CHECK_MSG(before == breaks[i].before, "row %zu breaks behind %zu, not %zu", i, before,
                  breaks[i].before);
    }
}

CASES({"kinds of text", kinds_of_text}, {"any bytes", any_bytes},
      {"breaks fall between characters", breaks_fall_between_characters})
