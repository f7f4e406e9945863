/* Activations under names of theirs. */
#ifndef RPI_TRAIN_HF_ACTIVATION_H
#define RPI_TRAIN_HF_ACTIVATION_H

#include "redpoll/status.h"

#include <cjson/cJSON.h>

/* Ours, of a member of config.json. RP_INVALID: one that we do not have, which is said. */
rp_status rpi_hf_activation_read(const char *path, const cJSON *item, char text[32]);
/* Theirs, of one of ours. */
const char *rpi_hf_activation_name(const char *ours);

#endif
