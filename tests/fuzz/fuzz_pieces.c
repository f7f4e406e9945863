/* The list of pieces in a checkpoint file. */
#include "fuzz_input.h"

#include "train/checkpoint/piece.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

/* Runs lie in the tensor, in its order, and are as many elements as the piece says. */
static void walk(const rpi_tensor_piece *piece) {
    rpi_piece_walk walk;
    rpi_shard_run run;
    int64_t end = 0, sum = 0;
    rpi_piece_begin(piece, &walk);
    while (rpi_piece_next(&walk, &run)) {
        if (run.whole < end || run.count < 1 || run.local != sum) abort();
        end = run.whole + run.count;
        sum += run.count;
    }
    if (sum != piece->count || end > rpi_shape_count(&piece->shape)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    cJSON *list = cJSON_ParseWithLength((const char *)data, bytes);
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        rpi_tensor_piece piece;
        if (rpi_piece_from_json(item, &piece) != RP_OK) continue;
        if (piece.first + piece.count <= 1 << 16) walk(&piece);
    }
    cJSON_Delete(list);
    return 0;
}
