/* The dtype in which activations, and their gradients, go from stage to stage. Where units of
 * the whole graph hand on bf16 at a border, f32 would carry no more bits, so that stages send
 * bf16, which is half of the bytes. */
#ifndef RPI_TRAIN_BORDER_DTYPES_H
#define RPI_TRAIN_BORDER_DTYPES_H

#include "engine/backend.h"
#include "train/parallel/stage.h"

/* Finds the dtypes at the ends of all parts and notes those of the stage (rpi_network_part), by
 * compiling the parts without elements for so many samples. Does nothing unless the training
 * computes in bf16. Pure: the same on all ranks. RP_INVALID, RP_UNSUPPORTED: a program cannot
 * be compiled; RP_NOMEM. */
rp_status rpi_border_dtypes_find(const rpi_network *network, const rpi_backend *backend,
                                 rp_dtype compute, bool recompute, int64_t samples,
                                 rpi_model_stage *stage);

#endif
