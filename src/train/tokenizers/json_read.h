/* Members of a JSON object, with messages that name them. */
#ifndef RPI_TRAIN_JSON_READ_H
#define RPI_TRAIN_JSON_READ_H

#include "base/memory.h"
#include "base/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

/* A member that is absent or null gives the fallback. RP_CORRUPT: it is something else. */
rp_status rpi_json_flag(const cJSON *object, const char *key, bool fallback, bool *out);
rp_status rpi_json_number(const cJSON *object, const char *key, double fallback, double *out);
/* The text is the JSON's, or the fallback, which may be NULL. */
rp_status rpi_json_text(const cJSON *object, const char *key, const char *fallback,
                        const char **out);
/* The member, which must be there. */
rp_status rpi_json_member(const cJSON *object, const char *key, const cJSON **out);
/* What "type" says; "" where it says nothing. */
const char *rpi_json_type(const cJSON *object);
/* Is there such a member that is not null? */
bool rpi_json_has(const cJSON *object, const char *key);

/* Text that is one value, and nothing but blanks behind it; NULL when it is not. *out_end:
 * where it stops being so; *out_longer: what stands up to there is a value. */
cJSON *rpi_json_whole(const char *text, size_t bytes, const char **out_end, bool *out_longer);
/* The same of texts that people and Python have written: before, what a parser or a C string
 * cannot hold is put otherwise, in place, and the new length given; behind it, a text of the
 * JSON is taken, with its length. Escapes of U+0000 are then NUL bytes, and those of halves of
 * characters bytes that are no UTF-8, each one place for rpi_utf8_repair(). NaN and Infinity
 * are 0. */
size_t rpi_json_shield(char *text, size_t bytes);
size_t rpi_json_unshield(char *text);
/* Instead of both, of UTF-8: NULs and halves become U+FFFD, which is counted, and every text of
 * the JSON is a C string. */
size_t rpi_json_shield_plain(char *text, size_t bytes, size_t *out_replaced);
/* Of members of one name, in any object, the last stays; as Python reads them. */
rp_status rpi_json_keep_last(cJSON *root);
/* The root of a whole file; of members of one name the last. RP_CORRUPT names it, and the line
 * where it is no JSON, or has a NUL in a text. */
rp_status rpi_json_parse(const char *name, const char *text, size_t bytes, cJSON **out_root);

/* RP_INVALID: "PATH: 'KEY' is VALUE; KNOWN". */
rp_status rpi_json_refuse(const char *path, const cJSON *item, const char *known);

#endif
