/* Text for people, broken between words so that no line is wider than a terminal. */
#ifndef RPI_BASE_WRAP_H
#define RPI_BASE_WRAP_H

#include <stdio.h>

enum { RPI_TEXT_COLUMNS = 80 }; /* of help and of all else that is written once */

/* Print `text` from `column` on, where the cursor stands already, and every further line from
 * `indent` on, ending with a newline. A newline in the text ends a line, an empty line stays
 * empty; a line that begins with two spaces is printed as it is. Words longer than a line are
 * not broken. */
void rpi_print_wrapped(FILE *stream, const char *text, int column, int indent);

#endif
