/* A file of texts, part by part: the whole of it, its lines, or its JSON objects, as their
 * text. What is packed is unpacked on the way; a byte order mark of UTF-8 in front is passed
 * over. */
#ifndef RPI_TRAIN_TEXT_PARTS_H
#define RPI_TRAIN_TEXT_PARTS_H

#include "train/texts/text_kind.h"
#include "train/tokenizers/text_buffer.h"

typedef struct rpi_text_parts rpi_text_parts;

typedef enum rpi_text_format {
    RPI_FORMAT_AUTO, /* first bytes tell */
    RPI_FORMAT_TEXT, /* text, whatever it looks like */
    RPI_FORMAT_JSON, /* objects, one a line, or a list of them */
    RPI_FORMATS,
} rpi_text_format;

const char *rpi_text_format_name(int format); /* "auto"; NULL past the end */

typedef struct rpi_text_part {
    char *text; /* until the next one, and may be changed; a NUL stands behind it */
    size_t bytes;
    int64_t line; /* where it begins; 0: the whole file */
    int64_t row;  /* of objects that may share lines, as in a list: which of the file's it is,
                     from 1 on; 0: its line tells */
    bool is_json;
} rpi_text_part;

/* split_lines: a text comes by its lines, without their ends. Failures as of
 * rpi_unpacked_file_open() and rpi_text_kind_of(). */
rp_status rpi_text_parts_open(const char *path, rpi_text_format format, bool split_lines,
                              rpi_text_parts **out_parts);
void rpi_text_parts_close(rpi_text_parts *parts); /* NULL is fine */

/* What it turned out to be. */
rpi_text_kind rpi_text_parts_kind(const rpi_text_parts *parts);

/* The next part; blank ones between objects are passed over. *out_done: there is none.
 * RP_CORRUPT: damaged, or a list that does not end; RP_INVALID: a text of more than
 * RPI_DOCUMENT_MOST bytes, an object of more than 1 GiB. */
rp_status rpi_text_parts_next(rpi_text_parts *parts, bool *out_done, rpi_text_part *out_part);
/* What stands behind a part's line in messages: " (row 3)", or nothing. Returns mark. */
enum { RPI_ROW_MARK = 32 };
const char *rpi_text_row_mark(int64_t row, char mark[RPI_ROW_MARK]);
/* How much was read of the file as it lies on the disk. */
int64_t rpi_text_parts_offset(const rpi_text_parts *parts);

#endif
