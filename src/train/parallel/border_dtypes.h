/* In which dtype activations, and their gradients, go from stage to stage: where units of the
 * whole graph hand bf16 on at a border, their elements have no more bits, and half of the bytes
 * bring all of it. */
#ifndef RPI_TRAIN_BORDER_DTYPES_H
#define RPI_TRAIN_BORDER_DTYPES_H

#include "engine/backend.h"
#include "train/parallel/stage.h"

/* Of all parts, noted in those of the stage (rpi_network_part); found by compiling them,
 * without elements, for so many samples. Nothing but in bf16. Pure: alike on all ranks.
 * RP_INVALID, RP_UNSUPPORTED: a program that cannot be; RP_NOMEM. */
rp_status rpi_border_dtypes_find(const rpi_network *network, const rpi_backend *backend,
                                 rp_dtype compute, bool recompute, int64_t samples,
                                 rpi_model_stage *stage);

#endif
