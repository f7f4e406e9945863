#include "train/checkpoint/network_piece.h"

#include "base/status.h"

rpi_tensor_piece rpi_network_piece(const rpi_network *network, int index) {
    const rpi_parameter *parameter = &network->parameters[index];
    rpi_tensor_piece piece = rpi_piece_whole(parameter->name, &parameter->shape);
    if (network->tensor_ranks == 1) return piece;
    rpi_shard_record record = rpi_parameter_record(parameter);
    piece.shard = parameter->shard;
    piece.ranks = network->tensor_ranks;
    piece.rank = network->tensor_rank;
    piece.count = rpi_shard_count(&record, piece.ranks, piece.rank);
    return piece;
}

rpi_tensor_piece rpi_network_piece_run(const rpi_network *network, int index,
                                       const char *tensor, int64_t first, int64_t count) {
    rpi_tensor_piece piece = rpi_network_piece(network, index);
    piece.tensor = tensor;
    piece.first = first;
    piece.count = count;
    return piece;
}

rp_status rpi_network_read(const rpi_network *network, const rpi_piece_files *files,
                           rpi_weights *weights) {
    for (int i = 0; i < network->parameter_count; i++) {
        rpi_tensor_piece piece = rpi_network_piece(network, i);
        float *elements = rpi_network_elements(network, weights, i);
        if (elements) RP_TRY(rpi_piece_files_read(files, &piece, elements));
    }
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
    return RP_OK;
}
