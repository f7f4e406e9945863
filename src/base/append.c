#include "base/append.h"

#include "base/c_locale.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void rpi_append(char *text, size_t bytes, const char *format, ...) {
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    rpi_vprint(text + used, bytes - used, format, arguments);
    va_end(arguments);
}
