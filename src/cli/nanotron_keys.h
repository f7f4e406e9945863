/* The keys of nanotron's configuration files, as its dataclasses have them: what each may say
 * here, which have another place by now, and which mark a family of models. */
#ifndef RPI_CLI_NANOTRON_KEYS_H
#define RPI_CLI_NANOTRON_KEYS_H

#include "base/option.h"

/* A key of theirs, and what it may say. */
typedef struct rpi_nanotron_key {
    const char *path;
    /* Words with '|' between them, "null" for nothing; NULL: anything, as it changes nothing
     * here; RPI_NANOTRON_SECTION: keys of this table, or nothing. */
    const char *words;
    const char *why; /* for the message; NULL: the key says it */
} rpi_nanotron_key;
#define RPI_NANOTRON_SECTION "{}"

/* A NULL path ends each. Of the whole file, of model.model_config and of an element of
 * data_stages; keys that are ours, too, stand in our own table alone. */
extern const rpi_nanotron_key rpi_nanotron_settings[], rpi_nanotron_model[],
    rpi_nanotron_stage[];

/* Options of our llama: their key in model_config, and what it is where it is left out. */
typedef struct rpi_nanotron_option {
    const char *key, *option, *absent;
} rpi_nanotron_option;
extern const rpi_nanotron_option rpi_nanotron_options[]; /* a NULL key ends it */

/* Keys of model_config that only another family has, and its name. A NULL ends it. */
typedef struct rpi_nanotron_family {
    const char *key, *name;
} rpi_nanotron_family;
extern const rpi_nanotron_family rpi_nanotron_families[];

/* Keys of older releases: where to write them. A NULL ends each. */
typedef struct rpi_nanotron_moved {
    const char *path, *now;
} rpi_nanotron_moved;
extern const rpi_nanotron_moved rpi_nanotron_moved_keys[], rpi_nanotron_moved_in_stage[];

/* Do keys of theirs, or ours, lie below a path? */
bool rpi_nanotron_has_below(const char *path, const rpi_option *table);

/* The key nearest to one that is unknown, among those beside it, of nanotron's and of ours; as
 * rpi_suggest_text(). */
const char *rpi_nanotron_suggest(const char *path, const rpi_option *table, char *text,
                                 size_t bytes);

#endif
