/* The state of an optimizer for the elements that this rank owns, the update of any of them,
 * and the norm by which gradients are clipped.
 *
 * A rank owns ranges of the parameter arena, which may cut tensors; a rank alone owns all of
 * it. Elements that it does not own have no state here, and no update touches them. Any cut of
 * the arena into ranges gives the same bits, of values and of the norm. */
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
    rpi_weights *weights;      /* borrowed, like the network */
    rpi_optimizer_rates rates; /* without the learning rate and the scale of gradients */
    bool decays_all;           /* decay also applies to vectors (RPI_DECAY_VECTOR) */
    double clip;               /* the largest norm of gradients; 0: no limit */
    int threads;               /* up to 1: one; does not change bits */
    /* In the order of the arena, without overlap; NULL: all of it. */
    const rpi_arena_range *owned;
    int owned_count;
    /* The updated values are in the state itself, in a slot after the kind's: the weights hold
     * what an all-gather with a lossy codec makes of them. */
    bool keeps_values;
    /* The gradients of owned elements are in the state, in its order, and not in the weights:
     * the caller puts their sums here. */
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
    int64_t *places; /* where each owned range begins in the slots */
    int owned_count;
    /* Of the owned elements, one range after the other: the kind's slots, and values if they
     * are kept. */
    float *slots[RPI_OPTIMIZER_SLOTS + 1];
    int slot_count;
    float *gradients; /* likewise, if they are kept; NULL: they are in the weights' arena */
    /* has_values: they must not be taken from the weights again */
    bool keeps_values, has_values;
    /* Of the current step: the squares of the measured gradients, their root (NaN: not
     * measured), and the factor that clips gradients (0: none). */
    rpi_square_sum squares;
    double norm;
    float scale;
} rpi_optimizer_state;

/* All slots are zero. RP_INVALID: ranges overlap or leave the arena; RP_UNSUPPORTED: a range
 * cuts a tensor, and this optimizer updates whole tensors only. */
rp_status rpi_optimizer_state_open(const rpi_optimizer_state_options *options,
                                   rpi_optimizer_state *out_state);
void rpi_optimizer_state_close(rpi_optimizer_state *state); /* zeros are fine */

/* Where element `first` of the arena has its state; NULL: it is not owned. The elements after
 * it follow, to the end of the owned range. */
float *rpi_optimizer_state_slot(const rpi_optimizer_state *state, int slot, int64_t first);

/* Where the owned elements from `first` on have their values: in the weights, or in the state.
 */
float *rpi_optimizer_state_values(const rpi_optimizer_state *state, int64_t first);
/* "exp_avg"; "value" for the slot after the kind's. */
const char *rpi_optimizer_state_slot_name(const rpi_optimizer_state *state, int slot);

/* Where they have their gradients. */
float *rpi_optimizer_state_gradients(const rpi_optimizer_state *state, int64_t first);

/* Copies values from the weights if values are kept and are not there yet (has_values). The
 * first update does it, too. */
void rpi_optimizer_state_keep_values(rpi_optimizer_state *state);

/* Do ranks share the optimizer's state, so that this one has a part? */
bool rpi_optimizer_state_is_part(const rpi_optimizer_state *state);
/* The next run of owned elements in a range of the arena, after *run, which is {0} at first.
 * false: there are no more. */
bool rpi_optimizer_state_next(const rpi_optimizer_state *state, rpi_arena_range range,
                              rpi_arena_range *run);

/* Begins a step: nothing is measured yet. */
void rpi_optimizer_state_begin(rpi_optimizer_state *state);
/* Adds the squares of the owned gradients in a range of the arena. The sum is exact: any
 * ranges, and any number of ranks, give the same norm for the same gradients. */
void rpi_optimizer_state_measure(rpi_optimizer_state *state, rpi_arena_range range);
/* Sums what each rank has measured, on all of them. Collective. */
rp_status rpi_optimizer_state_sum(rpi_optimizer_state *state, rp_comm *comm);
/* After all is measured: computes the norm, and the factor that clips to it. */
void rpi_optimizer_state_clip(rpi_optimizer_state *state);

/* Updates the owned elements of a range in the weights, with clipping. updates: those before.
 */
void rpi_optimizer_state_step(rpi_optimizer_state *state, uint64_t updates,
                              double learning_rate, rpi_arena_range range);

/* An update of elements that lie elsewhere, with their gradient. */
typedef struct rpi_optimizer_step {
    rpi_arena_range range;
    uint64_t updates;
    double learning_rate;
    float gradient_scale;     /* 0: not scaled */
    float *values, *gradient; /* of the range; the gradient is undefined afterwards */
} rpi_optimizer_step;
/* May run in any thread, if no two update the same element. */
void rpi_optimizer_state_step_apart(const rpi_optimizer_state *state,
                                    const rpi_optimizer_step *step);

#endif
