#include "cli/report/csv_cell.h"

#include <stdbool.h>
#include <string.h>

static const char digits[] = "0123456789";

/* [+-]digits[.digits][e[+-]digits], whatever the locale */
static bool is_number(const char *text) {
    const char *at = text + (*text == '+' || *text == '-');
    size_t whole = strspn(at, digits), part = 0;
    at += whole;
    if (*at == '.') {
        part = strspn(++at, digits);
        at += part;
    }
    if (whole + part == 0) return false;
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-';
        size_t exponent = strspn(at, digits);
        if (exponent == 0) return false;
        at += exponent;
    }
    return *at == '\0';
}

/* With blanks in front, some spreadsheets still execute it. */
static bool is_formula(const char *text) {
    const char *at = text + strspn(text, " ");
    return (*at && strchr("=+-@\t\r\n", *at)) && !is_number(at);
}

void rpi_csv_put_text(FILE *stream, const char *text) {
    bool is_shielded = is_formula(text), is_quoted = text[strcspn(text, ",\"\t\r\n;")] != '\0';
    if (!is_shielded && !is_quoted) {
        fputs(text, stream);
        return;
    }
    fputs(is_shielded ? "\"'" : "\"", stream);
    for (; *text; text++) {
        if (*text == '"') fputc('"', stream);
        fputc(*text, stream);
    }
    fputc('"', stream);
}
