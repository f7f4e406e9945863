/* Numbers are written and read with a point, whatever language a program has chosen: after
 * setlocale(LC_ALL, "de_DE.UTF-8") the C library's own functions take and give commas, also for
 * what travels to other ranks and what is compared with theirs. Nothing else in src/ reads a
 * floating-point number (tools/locale.sh), and in the rooms of libredpoll nothing else prints
 * one. */
#ifndef RPI_BASE_C_LOCALE_H
#define RPI_BASE_C_LOCALE_H

#include "redpoll/status.h"

#include <stdarg.h>
#include <stddef.h>

/* As strtod(), vsnprintf() and snprintf() in the C locale. Never block. */
double rpi_strtod(const char *text, char **out_end);
int rpi_vprint(char *text, size_t bytes, const char *format, va_list arguments);
int rpi_print(char *text, size_t bytes, const char *format, ...) RP_PRINTF(3, 4);

/* ASCII alone: a Turkish i has another capital. */
char rpi_upper(char letter);

#endif
