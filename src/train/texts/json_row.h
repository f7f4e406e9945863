/* A row of JSON lines: one object, written by whatever program. One reader for all of them.
 *
 * Read are what Python writes besides JSON (NaN, Infinity), NULs in texts (\u0000), halves of
 * characters (\ud83d alone) and bytes that are no UTF-8, which become U+FFFD and are counted,
 * whatever the tokenizer. */
#ifndef RPI_TRAIN_JSON_ROW_H
#define RPI_TRAIN_JSON_ROW_H

#include "train/texts/text_parts.h"

#include <cjson/cJSON.h>

/* The object in a part's text, which is changed; free it with cJSON_Delete(). RP_CORRUPT,
 * without a place: no JSON, no object, or more than one. */
rp_status rpi_json_row_read(rpi_text_part *part, cJSON **out_object);
/* The same where each text in it shall be a C string: NULs become U+FFFD, too. *out_replaced:
 * how many there are of them in all of it. */
rp_status rpi_json_row_read_plain(char *text, size_t bytes, cJSON **out_object,
                                  size_t *out_replaced);

/* The text under a key of an object of the first, until it goes; it may hold NULs. What is no
 * text becomes U+FFFD, in `room`; *out_replaced: how many. RP_CORRUPT, without a place: there
 * is no such key (others are named, and `usage` says what to do), or something else under it,
 * which is named. */
rp_status rpi_json_row_text(const cJSON *object, const char *key, const char *usage,
                            rpi_text *room, const char **out_text, size_t *out_bytes,
                            size_t *out_replaced);

/* "null", "a number", "a list" */
const char *rpi_json_kind_name(const cJSON *item);

#endif
