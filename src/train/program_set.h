/* The programs over one network and their instances, one for each kind and size of batch. They
 * share one session, so that another program costs its kernels but no memory for a run. */
#ifndef RPI_TRAIN_PROGRAM_SET_H
#define RPI_TRAIN_PROGRAM_SET_H

#include "engine/instance.h"
#include "train/models/network.h"
#include "train/parallel/stage.h"

enum { RPI_PROGRAM_SET = 8 };

typedef struct rpi_program_entry {
    rpi_program *program;
    rpi_instance *instance;
    int64_t batch;
    bool training;
} rpi_program_entry;

typedef struct rpi_program_set {
    const rpi_network *network;
    rpi_session *session;
    rp_dtype compute; /* of all programs */
    bool recompute; /* training programs recompute activations inside blocks (layer_names.h) */
    bool in_flight; /* several runs are in flight at a time */
    bool halves;    /* backward passes of training programs come in two halves */
    rpi_program_entry entries[RPI_PROGRAM_SET]; /* the least recently used one is replaced */
    int count;
} rpi_program_set;

/* Borrows the weights. */
rp_status rpi_program_set_open(const rpi_network *network, rpi_weights *weights,
                               const rpi_backend *backend, const rpi_backend_options *options,
                               rp_dtype compute, rpi_program_set *out_set);
/* Compiles it if it is not there yet. Borrowed until the next call. */
rp_status rpi_program_set_get(rpi_program_set *set, bool training, int64_t batch,
                              rpi_instance **out_instance);
/* Compiles a program that belongs to the caller and is not among the entries. */
rp_status rpi_program_set_compile(const rpi_program_set *set, bool training, int64_t batch,
                                  rpi_program **out_program);
/* The same for a part of the network: the activation that goes on from it is a result, and it
 * has no loss, unless it is the last part. */
rp_status rpi_program_set_compile_part(const rpi_program_set *set, const rpi_network_part *part,
                                       bool training, int64_t batch, rpi_program **out_program);
void rpi_program_set_close(rpi_program_set *set); /* zeros are fine */

#endif
