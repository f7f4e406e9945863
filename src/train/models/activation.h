/* The function between the two linear layers of a transformer's block, which a user may
 * choose. */
#ifndef RPI_TRAIN_ACTIVATION_H
#define RPI_TRAIN_ACTIVATION_H

#include "train/models/model.h"

rp_status rpi_activation_check(const char *name);

/* A row of a model's option table; `field` is the name in its options. */
#define RPI_ACTIVATION_OPTION(type, field, fallback)                                           \
    RPI_MODEL_OPTION("activation", RPI_OPTION_TEXT, offsetof(type, field), fallback, 0, 0,     \
                     "gelu|gelu-tanh|relu|silu",                                               \
                     "inside of a block; gelu-tanh is gelu, approximated by tanh",             \
                     rpi_activation_check)

/* Adds the function of this name, which has passed the check. */
rpi_value_id rpi_block_activation(rpi_builder *builder, const char *name, rpi_value_id x,
                                  const char *activation);

#endif
