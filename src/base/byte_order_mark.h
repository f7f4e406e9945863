/* What spreadsheets and editors write in front of a file in UTF-8. */
#ifndef RPI_BASE_BYTE_ORDER_MARK_H
#define RPI_BASE_BYTE_ORDER_MARK_H

#include <string.h>

static inline char *rpi_after_byte_order_mark(char *text) {
    return strncmp(text, "\xef\xbb\xbf", 3) == 0 ? text + 3 : text;
}

#endif
