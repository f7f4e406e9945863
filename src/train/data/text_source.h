/* Documents out of text files, one after the other: a file of text is one (or each of its lines
 * is), a line of JSON lines is one. What ends in .gz is unpacked. */
#ifndef RPI_TRAIN_TEXT_SOURCE_H
#define RPI_TRAIN_TEXT_SOURCE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rpi_text_source_options {
    const char *const *paths; /* *.jsonl and *.ndjson, also with .gz, are JSON lines */
    int path_count;
    const char *key;  /* of a JSON line's text; NULL: "text" */
    bool split_lines; /* each line of a text file is a document */
} rpi_text_source_options;

typedef struct rpi_document {
    const char *text; /* until the next one */
    size_t bytes;
    const char *path; /* of the options */
    int64_t line;     /* 0: the whole file */
} rpi_document;

typedef struct rpi_text_source rpi_text_source;

/* Every file is looked for at once: RP_NOT_FOUND, RP_IO, RP_CORRUPT (a folder, a device). The
 * options' paths and key are borrowed. */
rp_status rpi_text_source_open(const rpi_text_source_options *options,
                               rpi_text_source **out_source);
void rpi_text_source_close(rpi_text_source *source); /* NULL is fine */

/* The next document that holds anything; *out_done: there is none. RP_CORRUPT names the file
 * and the line: no JSON, no such key, a damaged gzip, a document that is too long. */
rp_status rpi_text_source_next(rpi_text_source *source, bool *out_done,
                               rpi_document *out_document);
/* Back to the first. */
void rpi_text_source_rewind(rpi_text_source *source);

/* Of the files as they lie on the disk: read so far, and all. */
int64_t rpi_text_source_read(const rpi_text_source *source);
int64_t rpi_text_source_total(const rpi_text_source *source);

#endif
