/* What the ranks of a replica make parts of: gradients of tables that two stages hold, and the
 * norm of all gradients, of which tensor ranks have slices and copies. Both after the replicas
 * have summed theirs, and always in the same order, so that every copy is stepped by the same
 * bits. */
#ifndef RPI_TRAIN_PARTIAL_SUMS_H
#define RPI_TRAIN_PARTIAL_SUMS_H

#include "redpoll/comm.h"
#include "train/optimizer_state.h"
#include "train/parallel/stage.h"

typedef struct rpi_partial_sums {
    const rpi_model_stage *stage; /* borrowed, as all; NULL: it is the only one */
    const rpi_network *network;
    rpi_weights *weights;
    rp_comm *stages; /* by stage */
    float *theirs;   /* room for a run of a tied table's gradient; NULL: there is none */
} rpi_partial_sums;

/* Borrows what it is given; stage NULL: there are no others. The optimizer, for the call, says
 * what this rank owns. Zeros are a rank that holds a whole model. */
rp_status rpi_partial_sums_open(const rpi_model_stage *stage, const rpi_network *network,
                                rpi_weights *weights, const rpi_optimizer_state *optimizer,
                                rp_comm *stages, rpi_partial_sums *out_sums);
void rpi_partial_sums_close(rpi_partial_sums *sums); /* zeros are fine */

/* Gradients of tied tables, of what this rank owns of them, become those of both ends, at which
 * the same is owned. Collective over the stages that have some. */
rp_status rpi_partial_sums_tie(const rpi_partial_sums *sums,
                               const rpi_optimizer_state *optimizer);
/* What this rank owns of the gradients that its stage counts joins the norm of the step at
 * hand: a tied table's on one stage alone, and of what several tensor ranks hold the first
 * one's. Local: sums over ranks are
 * rpi_optimizer_state_sum().
 */
void rpi_partial_sums_measure(const rpi_partial_sums *sums, rpi_optimizer_state *optimizer);

#endif
