/* Numbers and letters as the C locale has them, whatever a program has set: comm/locale_test
 * asks the same of the whole library. */
#include "base/c_locale.h"

#include "harness/check.h"

#include <locale.h>
#include <string.h>

static void letters(void) {
    for (int c = -128; c < 128; c++) {
        char wanted = (char)c;
        const char *at = c ? strchr("abcdefghijklmnopqrstuvwxyz", c) : NULL;
        if (at) wanted = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[at - "abcdefghijklmnopqrstuvwxyz"];
        CHECK_EQ(rpi_upper((char)c), wanted);
    }
}

/* Each row in every locale that is there: those with a comma are tried where they are. */
static const struct {
    const char *text;
    double value;
    int used; /* characters */
} numbers[] = {
    {"1.5", 1.5, 3}, {"1,5", 1, 1},  {"-2e3x", -2000, 4}, {"", 0, 0},
    {"x", 0, 0},     {".5.", .5, 2}, {"0x1p4", 16, 5},
};

static void check_numbers(const char *locale) {
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char *end = NULL;
        double value = rpi_strtod(numbers[i].text, &end);
        CHECK_MSG(value == numbers[i].value && end - numbers[i].text == numbers[i].used,
                  "'%s' in %s: %g, %d characters", numbers[i].text, locale, value,
                  (int)(end - numbers[i].text));
    }
}

static void check_prints(const char *locale) {
    char text[8], before[64], after[64];
    snprintf(before, sizeof before, "%.1f", .5);
    CHECK_EQ(rpi_print(text, sizeof text, "%.2f|%s", 1.25, "ab"), 7);
    CHECK_MSG(strcmp(text, "1.25|ab") == 0, "'%s' in %s", text, locale);
    CHECK_EQ(rpi_print(text, sizeof text, "%.2f|%s", 1.25, "abc"), 8); /* as snprintf() */
    CHECK_MSG(strcmp(text, "1.25|ab") == 0, "'%s' in %s", text, locale);
    snprintf(after, sizeof after, "%.1f", .5);
    CHECK_MSG(strcmp(before, after) == 0, "%s is left with '%s'", locale, after);
}

static void numbers_in_any_locale(void) {
    static const char *const locales[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ru_RU"};
    for (size_t i = 0; i < sizeof locales / sizeof locales[0]; i++) {
        if (!setlocale(LC_ALL, locales[i])) continue;
        check_numbers(locales[i]);
        check_prints(locales[i]);
    }
    setlocale(LC_ALL, "C");
}

CASES({"letters", letters}, {"numbers in any locale", numbers_in_any_locale})
