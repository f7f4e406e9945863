/* Programs over one network, compiled when they are first wanted: one for training, one for
 * evaluation, and one more for each short batch. */
#ifndef RPI_TRAIN_PROGRAM_SET_H
#define RPI_TRAIN_PROGRAM_SET_H

#include "engine/program.h"
#include "train/network.h"

enum { RPI_PROGRAM_SET = 8 };

typedef struct rpi_program_set {
    const rpi_network *network;
    rpi_weights *weights;
    const rpi_backend *backend;
    rpi_backend_options backend_options;
    struct {
        rpi_program *program;
        int64_t batch;
        bool training;
    } entries[RPI_PROGRAM_SET]; /* the oldest makes room */
    int count, next;
} rpi_program_set;

rp_status rpi_program_set_get(rpi_program_set *set, bool training, int64_t batch,
                              rpi_program **out_program);
void rpi_program_set_close(rpi_program_set *set); /* zeros are fine */

#endif
