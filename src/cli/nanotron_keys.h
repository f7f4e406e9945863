/* The keys of nanotron's configuration files, as in its dataclasses: the values that each may
 * have here, the new places of moved keys, and the keys that identify a family of models. */
#ifndef RPI_CLI_NANOTRON_KEYS_H
#define RPI_CLI_NANOTRON_KEYS_H

#include "base/option.h"

/* A key of nanotron's, and its allowed values. */
typedef struct rpi_nanotron_key {
    const char *path;
    /* Words separated by '|', "null" for nothing; NULL: any value, as it has no effect here;
     * RPI_NANOTRON_SECTION: a section with keys of this table, or nothing. */
    const char *words;
    const char *why; /* for the message; NULL: the key is clear enough */
} rpi_nanotron_key;
#define RPI_NANOTRON_SECTION "{}"

/* Each ends with a NULL path. Of the whole file, of model.model_config and of an element of
 * data_stages; keys that Redpoll has, too, are only in Redpoll's own table. */
extern const rpi_nanotron_key rpi_nanotron_settings[], rpi_nanotron_model[],
    rpi_nanotron_stage[];

/* Options of Redpoll's llama: their key in model_config, and the value if it is left out. */
typedef struct rpi_nanotron_option {
    const char *key, *option, *absent;
} rpi_nanotron_option;
extern const rpi_nanotron_option rpi_nanotron_options[]; /* a NULL key ends it */

/* Keys of model_config that only another family has, and its name. Ends with a NULL. */
typedef struct rpi_nanotron_family {
    const char *key, *name;
} rpi_nanotron_family;
extern const rpi_nanotron_family rpi_nanotron_families[];

/* Keys of older releases, with their new places. Each ends with a NULL. */
typedef struct rpi_nanotron_moved {
    const char *path, *now;
} rpi_nanotron_moved;
extern const rpi_nanotron_moved rpi_nanotron_moved_keys[], rpi_nanotron_moved_in_stage[];

/* Are there keys of nanotron's, or of Redpoll's, below a path? */
bool rpi_nanotron_has_below(const char *path, const rpi_option *table);

/* The key nearest to an unknown one, among its neighbours in nanotron's tables and ours; as
 * rpi_suggest_text(). */
const char *rpi_nanotron_suggest(const char *path, const rpi_option *table, char *text,
                                 size_t bytes);

#endif
