/* An optimizer at work on a model's parameters: its state of those elements that this rank
 * owns, a step over any of them, and the norm by which gradients are clipped.
 *
 * Owned are ranges of the parameter arena, which may cut tensors; a rank that holds a whole
 * model alone owns all of it. Elements that are not owned have no state here, and no step
 * touches them. Any cut of the arena into ranges gives the same bits, of values and of the
 * norm. */
#ifndef RPI_TRAIN_OPTIMIZER_STATE_H
#define RPI_TRAIN_OPTIMIZER_STATE_H

#include "engine/backends/cpu/kernels/kernel_square_sum.h"
#include "engine/optimizer.h"
#include "redpoll/comm.h"
#include "train/models/network.h"

typedef struct rpi_arena_range {
    int64_t first, count; /* elements */
} rpi_arena_range;

typedef struct rpi_optimizer_state_options {
    const rpi_optimizer *kind;
    const rpi_network *network;
    rpi_weights *weights;      /* borrowed, as the network */
    rpi_optimizer_rates rates; /* but for the learning rate and what gradients are scaled by */
    bool decays_all;           /* vectors, too (RPI_DECAY_VECTOR) */
    double clip;               /* gradients to this norm; 0: not */
    int threads;               /* up to 1: one; changes no bit */
    /* In the order of the arena, without overlap; NULL: all of it. */
    const rpi_arena_range *owned;
    int owned_count;
    /* What is stepped are values of the state's own, in a slot behind the kind's: the weights
     * hold what others made of them (an all-gather with a lossy codec). */
    bool keeps_values;
    /* Gradients of what is owned lie here, behind each other as state does, and not with the
     * weights: who sums them brings them. */
    bool keeps_gradients;
} rpi_optimizer_state_options;

/* One parameter in the arena. */
typedef struct rpi_optimized {
    rpi_arena_range range;
    bool decays;
} rpi_optimized;

typedef struct rpi_optimizer_state {
    const rpi_optimizer *kind;
    rpi_weights *weights;
    rpi_optimizer_rates rates;
    double clip;
    int threads;
    rpi_optimized *parameters;
    int parameter_count;
    rpi_arena_range *owned;
    int64_t *places; /* of each owned range in the slots */
    int owned_count;
    /* Of the owned elements, one range behind the other: the kind's, and values where they are
     * kept. */
    float *slots[RPI_OPTIMIZER_SLOTS + 1];
    int slot_count;
    float *gradients; /* likewise, where they are kept; NULL: they lie in the arena */
    bool keeps_values, has_values; /* the second: they are not to be taken from the weights */
    /* Of the step at hand: the squares of what was measured, their root (NaN: not measured),
     * and what gradients are therefore multiplied by (0: nothing). */
    rpi_square_sum squares;
    double norm;
    float scale;
} rpi_optimizer_state;

/* Slots are zero. RP_INVALID: ranges that overlap or leave the arena; RP_UNSUPPORTED: a range
 * cuts a tensor, of which this optimizer steps all or nothing. */
rp_status rpi_optimizer_state_open(const rpi_optimizer_state_options *options,
                                   rpi_optimizer_state *out_state);
void rpi_optimizer_state_close(rpi_optimizer_state *state); /* zeros are fine */

/* Where element `first` of the arena has its state; NULL: it is not owned. Those behind it
 * follow to the end of the owned range. */
float *rpi_optimizer_state_slot(const rpi_optimizer_state *state, int slot, int64_t first);

/* Where the owned elements from `first` on have their values: in the weights, or kept. */
float *rpi_optimizer_state_values(const rpi_optimizer_state *state, int64_t first);
/* "exp_avg", or of the slot behind the kind's, "value". */
const char *rpi_optimizer_state_slot_name(const rpi_optimizer_state *state, int slot);

/* Likewise their gradients. */
float *rpi_optimizer_state_gradients(const rpi_optimizer_state *state, int64_t first);

/* Values that are kept are taken from the weights, unless they are there (has_values); nothing
 * where none are kept. The first step does it, too. */
void rpi_optimizer_state_keep_values(rpi_optimizer_state *state);

/* Do ranks share what is owned, so that this one has state of a part alone? */
bool rpi_optimizer_state_is_part(const rpi_optimizer_state *state);
/* The owned elements of a range of the arena, run by run: the first behind the end of *run,
 * which is {0} at first. false: there are no more. */
bool rpi_optimizer_state_next(const rpi_optimizer_state *state, rpi_arena_range range,
                              rpi_arena_range *run);

/* A step begins: nothing is measured. */
void rpi_optimizer_state_begin(rpi_optimizer_state *state);
/* Add the squares of the owned gradients in a range of the arena. The sum is exact: any ranges
 * and any number of ranks that sum to the same gradients give the same norm. */
void rpi_optimizer_state_measure(rpi_optimizer_state *state, rpi_arena_range range);
/* What each rank has measured is a part of it: all of it, on all of them. Collective. */
rp_status rpi_optimizer_state_sum(rpi_optimizer_state *state, rp_comm *comm);
/* All is measured: the norm, and what clips to it. */
void rpi_optimizer_state_clip(rpi_optimizer_state *state);

/* Step the owned elements of a range in the weights, with what clips. updates: those before. */
void rpi_optimizer_state_step(rpi_optimizer_state *state, uint64_t updates,
                              double learning_rate, rpi_arena_range range);

/* The same of elements that lie elsewhere, of which the gradient does, too. */
typedef struct rpi_optimizer_step {
    rpi_arena_range range;
    uint64_t updates;
    double learning_rate;
    float gradient_scale;     /* 0: as it is */
    float *values, *gradient; /* of the range; what is left of the gradient means nothing */
} rpi_optimizer_step;
/* Any thread, one for an element. */
void rpi_optimizer_state_step_apart(const rpi_optimizer_state *state,
                                    const rpi_optimizer_step *step);

#endif
