/* What a rank has of the tensors of its network, as pieces (piece.h). */
#ifndef RPI_TRAIN_NETWORK_PIECE_H
#define RPI_TRAIN_NETWORK_PIECE_H

#include "train/checkpoint/piece_files.h"
#include "train/models/network.h"

/* All that this tensor rank has of record `index`: the whole tensor if no other rank has a part
 * of the model. Borrows the name. */
rpi_tensor_piece rpi_network_piece(const rpi_network *network, int index);

/* A run of it, which begins with element `first` of what this rank has, for another tensor that
 * is cut like the record, such as one of the optimizer. Borrows `tensor`. */
rpi_tensor_piece rpi_network_piece_run(const rpi_network *network, int index,
                                       const char *tensor, int64_t first, int64_t count);

/* Reads the values of all records that the weights have, from any pieces. Fails as
 * rpi_piece_files_read() does. */
rp_status rpi_network_read(const rpi_network *network, const rpi_piece_files *files,
                           rpi_weights *weights);

#endif
