/* Numbers of config.json, with messages that name them. */
#ifndef RPI_TRAIN_HF_NUMBER_H
#define RPI_TRAIN_HF_NUMBER_H

#include "redpoll/status.h"

#include <cjson/cJSON.h>

enum { RPI_HF_LARGEST = 1000000000 };

/* A whole number of at least `least`, 0 or 1. RP_CORRUPT: something else; RP_INVALID: more than
 * `most`, which is said. `key` as a message shall have it. */
rp_status rpi_hf_whole_check(const char *path, const char *key, const cJSON *item, double least,
                             double most);
/* RP_CORRUPT: no number; RP_INVALID: one that no double holds. */
rp_status rpi_hf_real_check(const char *path, const char *key, const cJSON *item);

#endif
