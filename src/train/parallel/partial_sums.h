/* Sums over the ranks of a replica: gradients of tables that two stages hold, and the norm of
 * all gradients, of which tensor ranks have slices and copies. Both follow the sums over
 * replicas, always in the same order, so that every copy of a parameter is updated by the same
 * bits. */
#ifndef RPI_TRAIN_PARTIAL_SUMS_H
#define RPI_TRAIN_PARTIAL_SUMS_H

#include "redpoll/comm.h"
#include "train/optimizer_state.h"
#include "train/parallel/stage.h"

typedef struct rpi_partial_sums {
    const rpi_model_stage *stage; /* borrowed, as all are; NULL: it is the only stage */
    const rpi_network *network;
    rpi_weights *weights;
    rp_comm *stages; /* the replica's stages; borrowed */
    float *theirs; /* receives a run of a tied table's gradient; NULL: there is no tied table */
} rpi_partial_sums;

/* Borrows its arguments; stage NULL: there are no other stages. The optimizer, which is read in
 * this call only, says what this rank owns. Zeros stand for a rank that holds a whole model. */
rp_status rpi_partial_sums_open(const rpi_model_stage *stage, const rpi_network *network,
                                rpi_weights *weights, const rpi_optimizer_state *optimizer,
                                rp_comm *stages, rpi_partial_sums *out_sums);
void rpi_partial_sums_close(rpi_partial_sums *sums); /* zeros are fine */

/* Adds the gradients of both ends of tied tables, as far as this rank owns them; both ends own
 * the same parts. Collective over the stages that have tied tables. */
rp_status rpi_partial_sums_tie(const rpi_partial_sums *sums,
                               const rpi_optimizer_state *optimizer);
/* Adds to the norm of the current step the gradients that this rank owns and its stage counts.
 * A tied table counts on one stage only, and what several tensor ranks hold on the first of
 * them. Local: rpi_optimizer_state_sum() sums over ranks. */
void rpi_partial_sums_measure(const rpi_partial_sums *sums, rpi_optimizer_state *optimizer);

#endif
