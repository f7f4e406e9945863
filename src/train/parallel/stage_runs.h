/* Runs of a stage's parts that are in flight. Each micro-batch of a chunk has a slot from its
 * forward pass to the end of its backward pass, with an instance and the memory into which
 * messages are received.
 *
 *     free --> ahead            receives are posted; the slot is the next micro-batch's
 *          --> forward          its activations go on from the instance's own memory
 *          --> backward ...     its gradient likewise
 *          --> free             once what it has sent is gone
 *
 * Micro-batch m has slot m modulo the number of slots, as schedules keep micro-batches in
 * order. */
#ifndef RPI_TRAIN_STAGE_RUNS_H
#define RPI_TRAIN_STAGE_RUNS_H

#include "train/parallel/replica.h"

enum { RPI_STAGE_SIZES = 8 };

typedef struct rpi_stage_slot {
    float *given, *seed; /* received from the part before, and from the part after */
    void *arriving[RPI_LINK_WAYS],
        *leaving[RPI_LINK_WAYS]; /* encodings to send, where there is a codec */
    rp_request *given_request, *seed_request, *forward_sent, *backward_sent;
    rpi_instance *instance; /* of the slot's micro-batch */
    rpi_run_options options;
    const void *inputs[RPI_NETWORK_INPUTS], *givens[1], *seeds[1];
    double loss;
} rpi_stage_slot;

/* Programs of one part for one number of samples, and an instance of it for each slot. */
typedef struct rpi_stage_size {
    int64_t samples;
    bool training;
    rpi_program *program;
    rpi_instance **instances;
    int instance_count;
} rpi_stage_size;

typedef struct rpi_stage_chunk {
    const rpi_network_part *part;
    int before, behind; /* the stages of the neighbouring parts; -1: there is none */
    rpi_stage_slot *slots;
    int slot_count;
    int acquired, done; /* micro-batches that have got their slots, and that have freed them */
    rpi_stage_size sizes[RPI_STAGE_SIZES]; /* the latest used one is the first */
    int size_count;
} rpi_stage_chunk;

typedef struct rpi_stage_runs {
    const rpi_replica_setup *setup;
    const rpi_model_stage *stage;
    rpi_stage_chunk *chunks;
    rp_codec half;   /* bf16 */
    bool training;   /* of the current share */
    int64_t samples; /* of it */
    int micro_batches;
} rpi_stage_runs;

rp_status rpi_stage_runs_open(const rpi_replica_setup *setup, rpi_stage_runs *out_runs);
void rpi_stage_runs_close(rpi_stage_runs *runs); /* zeros are fine */

/* Makes room for so many micro-batches of a chunk in flight at a time. Waits for its sends. */
rp_status rpi_stage_runs_reserve(rpi_stage_runs *runs, int chunk, int slots);
/* Compile a part for so many samples, with an instance for each slot. */
rp_status rpi_stage_runs_compile(rpi_stage_runs *runs, int chunk, bool training,
                                 int64_t samples);

/* Begins a share, after the sends of the one before have ended. */
rp_status rpi_stage_runs_begin(rpi_stage_runs *runs, bool training, int64_t samples);
/* Samples of a micro-batch of the share; 0: only other replicas have samples in it. */
int64_t rpi_stage_runs_samples(const rpi_stage_runs *runs, int micro_batch);
/* Posts the receives of all micro-batches whose slots are free. */
rp_status rpi_stage_runs_post_ahead(rpi_stage_runs *runs, bool training);
/* The slot of a micro-batch, which the micro-batch has from now on. */
rp_status rpi_stage_runs_acquire(rpi_stage_runs *runs, int chunk, int micro_batch,
                                 bool training, rpi_stage_slot **out_slot);
/* Waits for the receive that was posted for the slot: activations, or a gradient. Does nothing
 * if none was posted. */
rp_status rpi_stage_runs_take(rpi_stage_runs *runs, int chunk, int micro_batch,
                              rpi_link_way way);
/* Hands on what the forward, or the backward, pass of a slot has computed. */
rp_status rpi_stage_runs_send(rpi_stage_runs *runs, int chunk, int micro_batch,
                              rpi_link_way way);
/* This stage's chunk that has a part; -1: another stage has it. */
int rpi_stage_runs_chunk_of(const rpi_stage_runs *runs, int part);

#endif
