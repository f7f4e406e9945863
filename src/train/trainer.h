/* Everything that a run holds, and the steps of its life; train_loop.c calls them in order
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
    rpi_grid_comms comms;  /* groups of ranks, if a replica has several ranks */
    rpi_model_stage stage; /* this rank's stage in that case */
    char stage_note[320];  /* why it was chosen; "": the options said it */
    char *stage_record;    /* its record for a resumed run (stage_choice.h); NULL: none */
    double sample_flops;   /* of the whole model, forward and backward; 0: by its programs */
    rpi_activation_codec activations; /* the codec of activations that ranks send each other */
    rpi_stage_links links;
    rpi_tensor_nodes *tensor_nodes;   /* nodes of ranks that share layers; NULL: none do */
    rpi_tensor_sums *tensor_sums;     /* sums of gradients that each of them has in parts */
    rpi_context_nodes *context_nodes; /* nodes of ranks that share sequences; NULL: none do */
    rpi_context_batch context_batch;  /* this rank's tokens of the current batch */
    rpi_token_pieces pieces;          /* which tokens these are */
    rpi_partial_sums sums;            /* sums over the ranks of a replica */
    int64_t waited_ns; /* for other ranks of the replica and for parameters, in this step */
    rpi_losses losses;
    rp_adaptive_codec codec;
    rp_codec weights_codec; /* of parameters that owners send; usually exact */
    int64_t global_batch;
    const rpi_lr_schedule *schedule;
    rpi_lr_options lr;

    rpi_source source;
    rpi_network network;
    rpi_program_set programs;
    rpi_memories memories;           /* of the rows of this rank's batches */
    int64_t micro_batch;             /* the most samples in one run of the model */
    rpi_mixup mixup;                 /* of pictures and labels of the current step */
    const rpi_replica_kind *replica; /* computes the gradients of this rank's share */
    void *replica_self;

    /* Training state: what a checkpoint holds. */
    int64_t step; /* steps done */
    rpi_weights *weights;
    rpi_optimizer_state optimizer;
    rpi_ownership ownership; /* which replica owns what; zeros: each has everything */
    float *residual;         /* error feedback, in the order of the arena, or NULL */
    uint8_t *levels;         /* chosen bits, one a parameter; NULL: none are chosen */
    int64_t lossy_from;      /* with codec auto only: rpi_strategy_setup */

    int64_t total_steps;
    const rpi_strategy *strategy;
    void *strategy_self;
    rpi_timeline *timeline;
    rpi_step_picture picture; /* of ranks that hold a model together */
    rpi_profile *profile;     /* borrowed; NULL: not requested */
    rpi_step_reports reports; /* of the ranks to each other */
    rp_comm_stats traffic;    /* of the communicators, as far as steps have counted it */
    char choice[RPI_BIT_CHOICE_TEXT]; /* other bits were chosen in this step; else "" */
    char note[2048]; /* notes of the strategy that were not told yet; else "" */
    rpi_consensus_watch consensus_watch;
    double learning_rate; /* of the current step */
    /* What this rank was asked to do after a step (RPI_ASKED_*). Called late in each step; the
     * reports tell the others. NULL: nothing. */
    int (*wishes)(void *context);
    void *wishes_context;

    rpi_step_fault fault;   /* of this rank: the first one, which ends the run */
    bool fault_is_traced;   /* its origin is known */
    char good_folder[1024]; /* of the last checkpoint saved or loaded; "": none yet */
    int64_t good_step;      /* its step, else 0 */
    bool newest_is_good;    /* it is the newest one of the folder to which this run writes */
} rpi_trainer;

/* Adds a line, which rank 0 tells with the next ones. */
void rpi_trainer_note(rpi_trainer *trainer, const char *line);

/* Loads and checks everything, and writes nothing. The caller must close it, also after a
 * failure. */
rp_status rpi_trainer_open(rpi_trainer *trainer, const rpi_train_options *options,
                           rp_comm *comm);
/* For a rank that comes back into a world in which it was `rank` of `world`: opens everything
 * except the strategy, without a communicator. */
rp_status rpi_trainer_open_apart(rpi_trainer *trainer, const rpi_train_options *options,
                                 int rank, int world);
/* Opens the strategy then, over the trainer's communicator: collective. */
rp_status rpi_trainer_open_strategy(rpi_trainer *trainer);
void rpi_trainer_close_strategy(rpi_trainer *trainer); /* one that is not open is fine */
void rpi_trainer_close(rpi_trainer *trainer);          /* zeros are fine */

/* The ranks that hold the same part of the model. */
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
/* Does a rank have only a part of a model, by stages or by shared layers? */
static inline bool rpi_trainer_has_part(const rpi_trainer *trainer) {
    return rpi_trainer_is_staged(trainer) || rpi_trainer_is_split(trainer);
}

/* ---- trainer_tensor.c: of ranks that share each layer ---- */

/* What the network is built with; zeros if no ranks share layers. Collective over those that
 * do. */
rp_status rpi_trainer_open_split(rpi_trainer *trainer, rpi_tensor_split *out_split);
/* Call it when there are weights. Collective over the same ranks. */
rp_status rpi_trainer_open_tensor_sums(rpi_trainer *trainer);
/* Gradients in a range of the arena are final on this rank: sums them over the ranks that have
 * parts of them. Collective over the same ranks; blocks. */
rp_status rpi_trainer_sum_tensors(rpi_trainer *trainer, int64_t first, int64_t count);
/* The time for which the computing thread has waited in layers, since the beginning. */
int64_t rpi_trainer_tensor_wait_ns(const rpi_trainer *trainer);
void rpi_trainer_tell_tensor(const rpi_trainer *trainer, char *text, size_t bytes);
void rpi_trainer_close_sums(rpi_trainer *trainer);
void rpi_trainer_close_split(rpi_trainer *trainer);

/* ---- trainer_context.c: of ranks that share each sequence ---- */

/* What the network is built with; zeros if no ranks share sequences. Collective over those that
 * do. */
rp_status rpi_trainer_open_context(rpi_trainer *trainer, rpi_context_split *out_split);
/* Cuts from a batch of whole sequences this rank's tokens, until the next call; does nothing if
 * it has all. */
rp_status rpi_trainer_cut_batch(rpi_trainer *trainer, rpi_source_batch *batch);
/* Does this rank, of those that share a sequence, count the loss of whole samples? The one with
 * the first token does. And that of the labels? All do if the labels are of tokens, else that
 * rank. */
bool rpi_trainer_has_sample_loss(const rpi_trainer *trainer);
bool rpi_trainer_has_label_loss(const rpi_trainer *trainer);
/* The time for which the computing thread has waited for keys and values, since the beginning.
 */
int64_t rpi_trainer_context_wait_ns(const rpi_trainer *trainer);
void rpi_trainer_tell_context(const rpi_trainer *trainer, char *text, size_t bytes);
void rpi_trainer_close_context(rpi_trainer *trainer);

/* The backend of its programs, and the dtype in which they compute. */
rp_status rpi_trainer_backend(const rpi_trainer *trainer, const rpi_backend **out_backend,
                              rp_dtype *out_compute);
/* Before anything large is allocated: do all ranks of each host fit into its memory? stage:
 * NULL if a rank has all layers. Collective. *out_room: NULL, or the bytes that are left for
 * the activations of any stage. RP_NOMEM, with the same message on all ranks: which rank needs
 * how much, and what would fit. */
rp_status rpi_trainer_check_memory(const rpi_trainer *trainer, const rpi_model_stage *stage,
                                   double *out_room);
/* Chooses schedule and cut, and opens this rank's stage with its weights in such memory.
 * Collective if something is measured (stage_choice.h). */
rp_status rpi_trainer_open_stage(rpi_trainer *trainer, const rpi_weights_memory *memory);
/* Do ranks keep only the gradients that they own? They then run the model together, as often as
 * the one with most samples does. */
static inline bool rpi_trainer_passes_gradients(const rpi_trainer *trainer) {
    return trainer->options->zero >= 2 && trainer->place.holders > 1;
}

/* Do they have only the parameters that they own, except while a pass uses others? */
static inline bool rpi_trainer_passes_values(const rpi_trainer *trainer) {
    return trainer->options->zero >= 3 && trainer->place.holders > 1;
}
/* The ranks of this host that keep a second copy of gathered parameters; 0: none do. */
int rpi_trainer_host_ranks(const rpi_trainer *trainer);
/* Opens their communicator in that case. Collective over the replicas. */
rp_status rpi_trainer_open_hosts(rpi_trainer *trainer);
/* hold: brings all parameters into one arena; release: frees that arena again. Both do nothing
 * if the parameters always are in one. hold is collective. */
rp_status rpi_trainer_hold_values(rpi_trainer *trainer);
void rpi_trainer_release_values(rpi_trainer *trainer);
/* Ends it after they were written: owners keep their values. */
void rpi_trainer_take_values(rpi_trainer *trainer);

/* When there are weights and programs: opens the replica, which computes gradients. */
rp_status rpi_trainer_open_replica(rpi_trainer *trainer);

/* Compiles the programs for all steps ahead, for short last batches and evaluations, too, so
 * that no step waits for it. Local. */
rp_status rpi_trainer_compile(rpi_trainer *trainer);

/* Updates the parameters whose elements lie in any range of the arena, at the rate of the
 * current step (rpi_optimizer_state_step). */
void rpi_trainer_update(rpi_trainer *trainer, int64_t first, int64_t count);

/* Computes the gradients of this rank's part of a step: takes a batch, runs forward and
 * backward. Local. */
rp_status rpi_trainer_learn(rpi_trainer *trainer, int64_t step, rpi_source_batch *out_batch,
                            double *out_loss);

/* Waits until all values of parameters are there, to be read outside of a step: the last step
 * may have left some under way. Local. */
static inline rp_status rpi_trainer_complete(rpi_trainer *trainer) {
    if (!trainer->strategy_self || !trainer->strategy->complete) return RP_OK;
    return trainer->strategy->complete(trainer->strategy_self);
}

/* Updates elements that lie elsewhere, with their gradient. May run in any thread, if no two
 * update the same element. */
void rpi_trainer_update_apart(const rpi_trainer *trainer, const rpi_strategy_update *update);

/* Bytes that its communicators have sent up to now belong to no step: a communicator is new.
 * Local. */
void rpi_trainer_count_from_here(rpi_trainer *trainer);
/* Bytes that they have sent since *since, which rpi_grid_comms_stats() gave, belong to no step.
 * Local. */
void rpi_trainer_count_not(rpi_trainer *trainer, const rp_comm_stats *since);

/* The end of a span of steps, as rank 0 knows it. */
typedef struct rpi_span_end {
    int64_t step;
    int asked;
} rpi_span_end;

/* Steps up to last_step, or fewer if a rank is asked for something, by a strategy whose ranks
 * have roles. Collective. `tell`: called on rank 0 when each step is done. Afterwards the
 * communicator may have fewer ranks. */
rp_status rpi_trainer_span(rpi_trainer *trainer, int64_t last_step,
                           rp_status (*tell)(void *context, const rpi_step_metrics *metrics),
                           void *context, rpi_span_end *out_end);
/* What all ranks agree on after it. In: what this rank knows; out: what rank 0 knows.
 * Collective; may be repeated. */
rp_status rpi_trainer_close_span(rpi_trainer *trainer, rpi_span_end *in_out_end);
/* Between spans: what all ranks have done together has ended with `status` on this rank.
 * *out_again: they must repeat it, over a communicator of the ranks that are left. Collective.
 */
rp_status rpi_trainer_confirm(rpi_trainer *trainer, rp_status status, bool *out_again);

/* One step of all ranks. Collective. The loss and the skew are this rank's; `reports` have
 * those of all ranks some steps later. If a rank has died and the run goes on, the step is
 * done, and losses.is_pending is set. */
rp_status rpi_trainer_step(rpi_trainer *trainer, rpi_step_metrics *out_metrics);

rp_status rpi_trainer_compile_evaluation(rpi_trainer *trainer);
/* Evaluates the held-out samples, which the ranks share. Collective. The training state does
 * not change. */
rp_status rpi_trainer_evaluate(rpi_trainer *trainer, rpi_evaluation *out_evaluation);

/* The mean of all ranks' running statistics, into states_count floats. Collective, exact. */
rp_status rpi_trainer_average_states(rpi_trainer *trainer, float *out_states);

/* The optimizer's rates in the options, at the schedule's peak and with decay. */
rpi_optimizer_rates rpi_train_rates(const rpi_train_options *options);

/* The global batch in the options; RP_INVALID: they contradict each other, or `world` ranks
 * cannot share it. world 0: not known yet. */
rp_status rpi_train_global_batch(const rpi_train_options *options, int world,
                                 int64_t *out_batch);
/* The runs of the model that a replica makes of its share of such a batch; the last one may be
 * short. `world`: replicas. */
int64_t rpi_train_micro_batches(const rpi_train_options *options, int world, int64_t batch);
/* Checks what does not go with several ranks that hold a model together; RP_INVALID. */
rp_status rpi_train_check_replica(const rpi_train_options *options,
                                  const rpi_strategy *strategy, bool chooses_bits, int world);
/* Would a training accept these options, which only give a model, an optimizer, --zero, and the
 * arrangement of a replica of `world` ranks (0: not known yet)? RP_INVALID: no. */
rp_status rpi_train_check_layout(const rpi_train_options *options, int world);
enum { RPI_TENSOR_RANKS = 4096, RPI_CONTEXT_RANKS = 4096 };
/* The arrangement of a replica's ranks; RP_INVALID: an impossible number of ranks, or no such
 * schedule. */
rp_status rpi_train_grid(const rpi_train_options *options, rpi_grid *out_model);

#endif
