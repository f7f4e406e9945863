/* Documents out of text files, one after the other: a file of text is one (or each of its lines
 * is), an object of JSON lines, or of a list, is one. What a file holds, and how it is packed,
 * its first bytes tell (train/texts/). */
#ifndef RPI_TRAIN_TEXT_SOURCE_H
#define RPI_TRAIN_TEXT_SOURCE_H

#include "train/texts/text_parts.h"

typedef struct rpi_text_source_options {
    const char *const *paths;
    int path_count;
    const char *key;  /* of a JSON object's text; NULL: "text" */
    bool split_lines; /* each line of a text file is a document */
    rpi_text_format format;
    bool skip_broken; /* JSON rows that cannot be used are left out, and told */
} rpi_text_source_options;

typedef struct rpi_document {
    const char *text; /* until the next one */
    size_t bytes;
    const char *path; /* of the options */
    int64_t line;     /* 0: the whole file */
    int64_t row;      /* as of an rpi_text_part */
    size_t replaced;  /* U+FFFD in it, for what JSON had that is no text */
} rpi_document;

typedef struct rpi_text_source rpi_text_source;

/* Every file is looked for at once: RP_NOT_FOUND, RP_IO, RP_CORRUPT (a folder, a device). The
 * options' paths and key are borrowed. */
rp_status rpi_text_source_open(const rpi_text_source_options *options,
                               rpi_text_source **out_source);
void rpi_text_source_close(rpi_text_source *source); /* NULL is fine */

/* The next document that holds anything; *out_done: there is none. RP_CORRUPT names the file
 * and the line, of JSON rows up to five that are broken: no JSON, no such key; or a packed file
 * that is damaged, a document that is too long. RP_UNSUPPORTED: see rpi_text_kind_of(). */
rp_status rpi_text_source_next(rpi_text_source *source, bool *out_done,
                               rpi_document *out_document);
/* Back to the first. */
void rpi_text_source_rewind(rpi_text_source *source);

/* Rows that were left out so far. */
int64_t rpi_text_source_broken(const rpi_text_source *source);

/* Of the files as they lie on the disk: read so far, and all. */
int64_t rpi_text_source_read(const rpi_text_source *source);
int64_t rpi_text_source_total(const rpi_text_source *source);

#endif
