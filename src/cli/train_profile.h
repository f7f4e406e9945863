/* The table that `redpoll train --profile` ends with. */
#ifndef RPI_CLI_TRAIN_PROFILE_H
#define RPI_CLI_TRAIN_PROFILE_H

#include "train/profile.h"

#include <stdio.h>

/* Nothing without steps. */
void rpi_train_profile_print(const rpi_profile *profile, FILE *stream);

#endif
