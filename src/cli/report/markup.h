/* Text inside XML, which the page (XHTML-compatible HTML5) and its figures are. */
#ifndef RPI_CLI_REPORT_MARKUP_H
#define RPI_CLI_REPORT_MARKUP_H

#include "redpoll/status.h"

#include <stdio.h>

/* Foreign text as plain text, in elements and in quoted attributes: markup is escaped, and
 * characters that XML does not allow (control characters, broken UTF-8) become U+FFFD. */
void rpi_markup_text(FILE *stream, const char *text);

/* The number of characters that a reader sees; continuation bytes of UTF-8 do not count. */
int rpi_markup_length(const char *text);

/* At most `limit` characters, with an ellipsis in the middle, because the ends of names
 * distinguish them. Written to `out`, which is returned. */
const char *rpi_markup_cut(const char *text, int limit, char *out, size_t bytes);
/* A cell of Markdown: characters that would end it, or begin markup, are escaped. */
void rpi_markdown_text(FILE *stream, const char *text);

#endif
