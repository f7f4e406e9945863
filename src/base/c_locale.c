#include "base/c_locale.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale; /* (locale_t)0 for lack of memory: the program's own then */

static void make(void) {
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static locale_t the_locale(void) {
    pthread_once(&once, make);
    return c_locale;
}

double rpi_strtod(const char *text, char **out_end) {
    locale_t locale = the_locale();
    return locale ? strtod_l(text, out_end, locale) : strtod(text, out_end);
}

/* The locale of this thread alone is changed, and restored before the function returns. */
int rpi_vprint(char *text, size_t bytes, const char *format, va_list arguments) {
    locale_t before = uselocale(the_locale());
    int length = vsnprintf(text, bytes, format, arguments);
    uselocale(before);
    return length;
}

int rpi_print(char *text, size_t bytes, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = rpi_vprint(text, bytes, format, arguments);
    va_end(arguments);
    return length;
}

char rpi_upper(char letter) {
    return letter >= 'a' && letter <= 'z' ? (char)(letter - 'a' + 'A') : letter;
}
