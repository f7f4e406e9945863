/* Text inside XML, which the page (XHTML-compatible HTML5) and its figures are. */
#ifndef RPI_CLI_REPORT_MARKUP_H
#define RPI_CLI_REPORT_MARKUP_H

#include "redpoll/status.h"

#include <stdio.h>

/* Text of others as text and nothing else, in elements and in quoted attributes: markup is
 * escaped, and what XML may not hold (control characters, broken UTF-8) becomes U+FFFD. */
void rpi_markup_text(FILE *stream, const char *text);

/* What a user reads as this many characters; continuation bytes of UTF-8 do not count. */
int rpi_markup_length(const char *text);

/* At most `limit` characters, with an ellipsis for what is left out of the middle: the ends of
 * names tell them apart. Written to `out`, which is returned. */
const char *rpi_markup_cut(const char *text, int limit, char *out, size_t bytes);
/* A cell of Markdown: what would end it, or begin markup, is escaped. */
void rpi_markdown_text(FILE *stream, const char *text);

#endif
