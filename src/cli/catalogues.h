/* The catalogues of all rooms: what `redpoll info` lists, and what options can be chosen from.
 */
#ifndef RPI_CLI_CATALOGUES_H
#define RPI_CLI_CATALOGUES_H

#include "base/option.h"

typedef struct rpi_entry {
    const char *name, *summary; /* name NULL: past the end */
} rpi_entry;

typedef struct rpi_catalogue {
    const char *title;  /* "data_sets", as a key of JSON */
    const char *option; /* "data": the option whose values these are */
    rpi_entry (*at)(int index);
} rpi_catalogue;

/* NULL past the end. */
const rpi_catalogue *rpi_catalogue_at(int index);

/* The values of an option, separated by spaces, for completion; "" if they cannot be listed.
 * Returns text. */
const char *rpi_option_choices(const rpi_option *option, char *text, size_t bytes);

#endif
