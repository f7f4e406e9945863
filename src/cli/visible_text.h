/* Text of others on a terminal: what it says is shown, and nothing in it moves the cursor,
 * renames the window or hides a line. */
#ifndef RPI_CLI_VISIBLE_TEXT_H
#define RPI_CLI_VISIBLE_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* Print text, without its end of line. Characters of UTF-8, tabs and colours (ESC [ ... m) are
 * printed as they are; colours end with the text. Of what else a terminal might obey or not
 * know the name is shown: ^[ for ESC and so on, <U+009B> for C1 codes and for characters that
 * turn the direction or the line, <9b> for bytes that are no UTF-8. */
void rpi_visible_put(const char *text, size_t bytes, FILE *sink);

/* How much of a text that is to be broken here goes before the break: all but a character or a
 * colour that is not complete. */
size_t rpi_visible_break(const char *text, size_t bytes);

#endif
