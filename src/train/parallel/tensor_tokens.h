/* Nodes between the tokens of one rank and those of all ranks (train/models/tensor_split.h).
 * Their context is an rpi_one_tensor_node. */
#ifndef RPI_TRAIN_TENSOR_TOKENS_H
#define RPI_TRAIN_TENSOR_TOKENS_H

#include "engine/layers.h"

extern const rpi_external_attributes rpi_split_tokens_functions, rpi_join_tokens_functions,
    rpi_all_tokens_functions, rpi_own_tokens_functions, rpi_first_functions;

#endif
