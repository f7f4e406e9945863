/* All that a run holds, and the steps of its life; train_loop.c puts them in order
 * (training.h). */
#ifndef RPI_TRAIN_TRAINER_H
#define RPI_TRAIN_TRAINER_H

#include "redpoll/adaptive.h"
#include "train/consensus_watch.h"
#include "train/data/source.h"
#include "train/losses.h"
#include "train/mixup.h"
#include "train/optimizer_state.h"
#include "train/parallel/context_batch.h"
#include "train/parallel/context_nodes.h"
#include "train/parallel/grid_comms.h"
#include "train/parallel/partial_sums.h"
#include "train/parallel/replica.h"
#include "train/parallel/tensor_nodes.h"
#include "train/parallel/tensor_sums.h"
#include "train/parallel/train_place.h"
#include "train/program_set.h"
#include "train/schedules/lr_schedule.h"
#include "train/segment_memory.h"
#include "train/step_fault.h"
#include "train/step_picture.h"
#include "train/step_reports.h"
#include "train/strategies/bit_chooser.h"
#include "train/strategies/strategy.h"
#include "train/train.h"

typedef struct rpi_trainer {
    const rpi_train_options *options;
    rp_comm *comm; /* of all ranks */
    rpi_train_place place;
    rpi_grid_comms comms;  /* of some, where a replica has several ranks */
    rpi_model_stage stage; /* then: what this one holds of the model, */
    char stage_note[320];  /* why it was chosen so; "": it was said, */
    char *stage_record;    /* and for the run that goes on (stage_choice.h); NULL: nothing */
    double sample_flops;   /* of the whole model, forward and backward; 0: by its programs */
    rpi_activation_codec activations; /* of what they hand each other */
    rpi_stage_links links;
    rpi_tensor_nodes *tensor_nodes;   /* where ranks that share layers meet; NULL: none do */
    rpi_tensor_sums *tensor_sums;     /* of gradients of which each of them makes a part */
    rpi_context_nodes *context_nodes; /* where ranks that share sequences do; NULL: none do */
    rpi_context_batch context_batch;  /* this rank's tokens of the batch at hand, */
    rpi_token_pieces pieces;          /* and which these are */
    rpi_partial_sums sums;            /* of what several ranks of a replica make parts of */
    int64_t waited_ns; /* for others of the replica and for parameters, in the step at hand */
    rpi_losses losses;
    rp_adaptive_codec codec;
    rp_codec weights_codec; /* of ranks that share the optimizer; exact as a rule */
    int64_t global_batch;
    const rpi_lr_schedule *schedule;
    rpi_lr_options lr;

    rpi_source source;
    rpi_network network;
    rpi_program_set programs;
    rpi_memories memories;           /* of the rows of this rank's batches */
    int64_t micro_batch;             /* samples of this rank in one run of the model, at most */
    rpi_mixup mixup;                 /* of pictures and labels of the step at hand */
    const rpi_replica_kind *replica; /* what makes the gradients of this rank's share */
    void *replica_self;

    /* Training state: what a checkpoint holds. */
    int64_t step; /* steps done */
    rpi_weights *weights;
    rpi_optimizer_state optimizer;
    rpi_ownership ownership; /* of replicas that share it; zeros: each has all of it */
    float *residual;         /* error feedback, in the order of the arena, or NULL */
    uint8_t *levels;         /* of bits, one a parameter; NULL: none are chosen */
    int64_t lossy_from;      /* of codec auto alone: rpi_strategy_setup */

    int64_t total_steps;
    const rpi_strategy *strategy;
    void *strategy_self;
    rpi_timeline *timeline;
    rpi_step_picture picture; /* of ranks that hold a model together */
    rpi_profile *profile;     /* borrowed; NULL: nobody asks */
    rpi_step_reports reports; /* to the other ranks and from them */
    rp_comm_stats traffic;    /* of the communicators, as far as steps have counted it */
    char choice[RPI_BIT_CHOICE_TEXT]; /* other bits were chosen in this step; else empty */
    char note[2048];                  /* of the strategy, untold: lines; else empty */
    rpi_consensus_watch consensus_watch;
    double learning_rate; /* of the current step */
    /* What this rank wants to be done after a step (RPI_ASKED_*), called late in each and told
     * to the others with the reports; NULL: nothing. */
    int (*wishes)(void *context);
    void *wishes_context;

    rpi_step_fault fault;   /* of this rank: the first, that ends the run, */
    bool fault_is_traced;   /* and it is known where it arose */
    char good_folder[1024]; /* of the last checkpoint saved or loaded; "": none yet */
    int64_t good_step;      /* of that, else 0 */
    bool newest_is_good;    /* it is the newest of the folder which this run writes to */
} rpi_trainer;

/* A line that is told with the next ones, on rank 0. */
void rpi_trainer_note(rpi_trainer *trainer, const char *line);

/* Load and check everything; nothing is written yet. Closing is the caller's also after a
 * failure. */
rp_status rpi_trainer_open(rpi_trainer *trainer, const rpi_train_options *options,
                           rp_comm *comm);
/* Of a rank that comes back into a world in which it was `rank` of `world`: all but the
 * strategy, and no communicator yet. */
rp_status rpi_trainer_open_apart(rpi_trainer *trainer, const rpi_train_options *options,
                                 int rank, int world);
/* Then, over the trainer's communicator: collective. */
rp_status rpi_trainer_open_strategy(rpi_trainer *trainer);
void rpi_trainer_close_strategy(rpi_trainer *trainer); /* one that is not open is fine */
void rpi_trainer_close(rpi_trainer *trainer);          /* zeros are fine */

/* Those that hold what this rank holds. */
static inline rp_comm *rpi_trainer_replicas(const rpi_trainer *trainer) {
    return trainer->comms.replicas ? trainer->comms.replicas : trainer->comm;
}
/* Is a replica several stages? */
static inline bool rpi_trainer_is_staged(const rpi_trainer *trainer) {
    return trainer->place.grid.size[RPI_AXIS_STAGE] > 1;
}
/* Do several ranks share its layers? */
static inline bool rpi_trainer_is_split(const rpi_trainer *trainer) {
    return trainer->place.grid.size[RPI_AXIS_TENSOR] > 1;
}
/* Do several ranks have tokens of each of its sequences? */
static inline bool rpi_trainer_shares_sequences(const rpi_trainer *trainer) {
    return trainer->place.grid.size[RPI_AXIS_CONTEXT] > 1;
}
/* Has a rank a part of a model alone, by stages or by layers that are shared? */
static inline bool rpi_trainer_has_part(const rpi_trainer *trainer) {
    return rpi_trainer_is_staged(trainer) || rpi_trainer_is_split(trainer);
}

/* ---- trainer_tensor.c: of ranks that share each layer ---- */

/* What the network is built with, zeros where none do. Collective over them. */
rp_status rpi_trainer_open_split(rpi_trainer *trainer, rpi_tensor_split *out_split);
/* Once there are weights. Collective likewise. */
rp_status rpi_trainer_open_tensor_sums(rpi_trainer *trainer);
/* Gradients in a range of the arena are final on this rank: on all that make parts of them.
 * Collective likewise; blocks. */
rp_status rpi_trainer_sum_tensors(rpi_trainer *trainer, int64_t first, int64_t count);
/* How long the thread that computes has waited in layers, since the beginning. */
int64_t rpi_trainer_tensor_wait_ns(const rpi_trainer *trainer);
void rpi_trainer_tell_tensor(const rpi_trainer *trainer, char *text, size_t bytes);
void rpi_trainer_close_sums(rpi_trainer *trainer);
void rpi_trainer_close_split(rpi_trainer *trainer);

/* ---- trainer_context.c: of ranks that share each sequence ---- */

/* What the network is built with, zeros where none do. Collective over them. */
rp_status rpi_trainer_open_context(rpi_trainer *trainer, rpi_context_split *out_split);
/* Of a batch of whole sequences this rank's tokens, until the next call; nothing where they are
 * all. */
rp_status rpi_trainer_cut_batch(rpi_trainer *trainer, rpi_source_batch *batch);
/* How long the thread that computes has waited for keys and values, since the beginning. */
int64_t rpi_trainer_context_wait_ns(const rpi_trainer *trainer);
void rpi_trainer_tell_context(const rpi_trainer *trainer, char *text, size_t bytes);
void rpi_trainer_close_context(rpi_trainer *trainer);

/* What its programs run on, and compute in. */
rp_status rpi_trainer_backend(const rpi_trainer *trainer, const rpi_backend **out_backend,
                              rp_dtype *out_compute);
/* Before anything of this size is allocated: do all ranks of each host fit into its memory?
 * stage: NULL where a rank has all layers. Collective. *out_room: NULL, or of any stage the
 * bytes that are left for activations. RP_NOMEM, on all ranks with the same words: who needs
 * how much, and what would fit. */
rp_status rpi_trainer_check_memory(const rpi_trainer *trainer, const rpi_model_stage *stage,
                                   double *out_room);
/* Choose schedule and cut, and take this rank's stage, with its weights. Collective where
 * something is measured (stage_choice.h). */
rp_status rpi_trainer_open_stage(rpi_trainer *trainer);
/* Do ranks keep the gradients of what they own alone? They run the model alike then, as often
 * as the one with most samples does. */
static inline bool rpi_trainer_passes_gradients(const rpi_trainer *trainer) {
    return trainer->options->zero >= 2 && trainer->place.holders > 1;
}

/* Do they have the parameters of what they own alone, but where a pass uses them? */
static inline bool rpi_trainer_passes_values(const rpi_trainer *trainer) {
    return trainer->options->zero >= 3 && trainer->place.holders > 1;
}
/* Ranks of this one's host that keep a second copy of parameters that pass; 0: none does. */
int rpi_trainer_host_ranks(const rpi_trainer *trainer);
/* Then, their communicator. Collective over the replicas. */
rp_status rpi_trainer_open_hosts(rpi_trainer *trainer);
/* For whoever wants all parameters in one arena for a while: they are there, and gone again.
 * Nothing where they always are. The first is collective. */
rp_status rpi_trainer_hold_values(rpi_trainer *trainer);
void rpi_trainer_release_values(rpi_trainer *trainer);
/* The same, where they were written meanwhile: owners keep theirs. */
void rpi_trainer_take_values(rpi_trainer *trainer);

/* Once there are weights and programs: who makes gradients. */
rp_status rpi_trainer_open_replica(rpi_trainer *trainer);

/* Compile what the steps ahead need, short last batches and evaluation too, so that no step
 * waits for it. Local. */
rp_status rpi_trainer_compile(rpi_trainer *trainer);

/* Step the parameters whose elements lie in an arena range, any of it, by the rate of the step
 * at hand (rpi_optimizer_state_step). */
void rpi_trainer_update(rpi_trainer *trainer, int64_t first, int64_t count);

/* The gradients of this rank's part of a step: deal, forward, backward. Local. */
rp_status rpi_trainer_learn(rpi_trainer *trainer, int64_t step, rpi_source_batch *out_batch,
                            double *out_loss);

/* All values of parameters are there, for whoever reads them outside of a step: the last one
 * may have left some under way. Local. */
static inline rp_status rpi_trainer_complete(rpi_trainer *trainer) {
    if (!trainer->strategy_self || !trainer->strategy->complete) return RP_OK;
    return trainer->strategy->complete(trainer->strategy_self);
}

/* Step elements that lie elsewhere, of which the gradient does, too. Any thread, one for an
 * element. */
void rpi_trainer_update_apart(const rpi_trainer *trainer, const rpi_strategy_update *update);

/* What its communicators have sent up to now is no step's: a communicator is new. Local. */
void rpi_trainer_count_from_here(rpi_trainer *trainer);
/* No step's is what they have sent since *since, which rpi_grid_comms_stats() gave. Local. */
void rpi_trainer_count_not(rpi_trainer *trainer, const rp_comm_stats *since);

/* Where a span of steps has ended, as rank 0 knows it. */
typedef struct rpi_span_end {
    int64_t step;
    int asked;
} rpi_span_end;

/* Steps up to last_step, or fewer if a rank is asked for something, by a strategy whose ranks
 * have roles. Collective. `tell`: on rank 0, each step when it is done. The communicator may be
 * one of fewer ranks afterwards. */
rp_status rpi_trainer_span(rpi_trainer *trainer, int64_t last_step,
                           rp_status (*tell)(void *context, const rpi_step_metrics *metrics),
                           void *context, rpi_span_end *out_end);
/* What all agree on behind it: in, what this rank knows; out, what rank 0 does. Collective; may
 * be done again. */
rp_status rpi_trainer_close_span(rpi_trainer *trainer, rpi_span_end *in_out_end);
/* Between spans: what all ranks have done together has ended with `status` on this one.
 * *out_again: they do it again, over a communicator of those that are left. Collective. */
rp_status rpi_trainer_confirm(rpi_trainer *trainer, rp_status status, bool *out_again);

/* One step of the world. Collective. The loss and the skew are this rank's alone; those of all
 * are told by `reports`, some steps later. Where a rank has died and the run goes on, the step
 * is done, and losses.is_pending. */
rp_status rpi_trainer_step(rpi_trainer *trainer, rpi_step_metrics *out_metrics);

rp_status rpi_trainer_compile_evaluation(rpi_trainer *trainer);
/* Over the held-out samples, shared by the ranks. Collective. Leaves the training state as it
 * was. */
rp_status rpi_trainer_evaluate(rpi_trainer *trainer, rpi_evaluation *out_evaluation);

/* The mean of all ranks' running statistics, into states_count floats. Collective, exact. */
rp_status rpi_trainer_average_states(rpi_trainer *trainer, float *out_states);

/* The rates that the options ask for, at the schedule's peak and with decay. */
rpi_optimizer_rates rpi_train_rates(const rpi_train_options *options);

/* The global batch that the options ask for; RP_INVALID when they contradict each other or it
 * cannot be shared by `world` ranks. world 0: not known yet. */
rp_status rpi_train_global_batch(const rpi_train_options *options, int world,
                                 int64_t *out_batch);
/* Runs of the model that a replica makes of its share of such a batch, the last of which may be
 * short. `world`: replicas. */
int64_t rpi_train_micro_batches(const rpi_train_options *options, int world, int64_t batch);
/* What several ranks that hold a model together do not go with, yet or ever; RP_INVALID. */
rp_status rpi_train_check_replica(const rpi_train_options *options,
                                  const rpi_strategy *strategy, bool chooses_bits, int world);
/* Of what says no more than a model, an optimizer, --zero, and how a replica is made of `world`
 * ranks (0: not known yet): whether a training would take it; RP_INVALID. */
rp_status rpi_train_check_layout(const rpi_train_options *options, int world);
enum { RPI_TENSOR_RANKS = 4096, RPI_CONTEXT_RANKS = 4096 };
/* How a replica is made of ranks; RP_INVALID: no number of ranks, or no schedule. */
rp_status rpi_train_grid(const rpi_train_options *options, rpi_grid *out_model);

#endif
