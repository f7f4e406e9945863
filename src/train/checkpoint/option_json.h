/* The value of an option as a member of a JSON object, under the option's name. */
#ifndef RPI_TRAIN_OPTION_JSON_H
#define RPI_TRAIN_OPTION_JSON_H

#include "base/option.h"

struct cJSON;

/* Text, number, or for a switch true or false ("on" or "off" where it is written so); null for
 * what is not there. Nothing is added when memory ran out: the caller looks at the whole. */
void rpi_option_add_json(struct cJSON *object, const rpi_option *option, const void *target);
/* Set it from such a member; null sets nothing. Texts are borrowed. RP_INVALID names it. */
rp_status rpi_option_set_json(const rpi_option *table, const struct cJSON *member,
                              void *target);

#endif
