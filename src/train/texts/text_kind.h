/* What a file holds, by its first bytes as they are unpacked: names of files say little. */
#ifndef RPI_TRAIN_TEXT_KIND_H
#define RPI_TRAIN_TEXT_KIND_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum rpi_text_kind {
    RPI_TEXT_PLAIN,
    RPI_TEXT_JSON_LINES,  /* an object a line */
    RPI_TEXT_JSON_VALUES, /* a list of objects, or objects over several lines */
} rpi_text_kind;

enum { RPI_TEXT_KIND_BYTES = 1 << 16 }; /* that are looked at */

/* `bytes` are the first of the file, RPI_TEXT_KIND_BYTES where it has so many. RP_UNSUPPORTED:
 * it is no text but of a known kind (text_kind.c has the table), which is named with what to
 * do, as Parquet, zip, UTF-16. The path is for messages; whether it ends in .json or .jsonl
 * counts where bytes do not tell. */
rp_status rpi_text_kind_of(const char *path, const char *bytes, size_t count,
                           rpi_text_kind *out_kind);

/* Does the name say JSON, before the end that says how it is packed? */
bool rpi_text_name_is_json(const char *path);
/* Does it say rows and columns (.csv, .tsv), which are read as text alone? */
bool rpi_text_name_is_table(const char *path);

#endif
