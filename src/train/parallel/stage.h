/* The stage of a model that one rank of a pipeline holds: stretches of the graph between two
 * blocks, one for each chunk of the schedule.
 *
 *     embedding  block 0  block 1 | block 2  block 3  norm  head  loss
 *              part 0             |                        part 1
 *
 * A cut stands behind a block from which exactly one activation goes on; values that depend on
 * inputs only are computed on both sides. Stretches are chosen by their operations, and are the
 * same on all ranks. If several parts read a table, each has a copy (ties). */
#ifndef RPI_TRAIN_STAGE_H
#define RPI_TRAIN_STAGE_H

#include "plan/pipelines/pipeline_kind.h"
#include "train/parallel/model_layers.h"

/* The dtype in which a value at the end of a part, and its gradient, are handed on; 0: f32. */
typedef struct rpi_border_dtypes {
    rp_dtype value, gradient;
} rpi_border_dtypes;

/* A stretch of a network. */
typedef struct rpi_network_part {
    int part;                 /* its place in the model */
    int first_node, end_node; /* in the graph: [first, end) */
    /* the activations at its ends; RPI_NO_VALUE: the ends are the model's */
    rpi_value_id given, seed;
    rpi_border_dtypes given_as, seed_as; /* their dtypes (border_dtypes.h) */
} rpi_network_part;

/* A parameter that two stages hold, whose gradients are added up. */
typedef struct rpi_stage_tied {
    int parameter; /* an index of the network's records */
    int stages[2]; /* the first one counts it */
} rpi_stage_tied;

enum { RPI_STAGE_TIES = 8, RPI_MODEL_STAGE_TEXT = 1024 };

typedef struct rpi_model_stage {
    const rpi_pipeline_kind *schedule;
    int stages, stage, chunks;
    rpi_network_part *parts; /* [chunks], of this stage */
    rpi_network_part *all;   /* [stages x chunks], of the model */
    rpi_stage_tied ties[RPI_STAGE_TIES];
    int tie_count;
    /* Do several of this stage's own chunks read a parameter? */
    bool shares;
    /* "1f1b over 2 stages: wte to h.1 (46 % of the operations), h.2 to loss (54 %)" */
    char text[RPI_MODEL_STAGE_TEXT];
} rpi_model_stage;

/* How a model is cut; borrowed. */
typedef struct rpi_stage_cut_plan {
    const rpi_pipeline_kind *schedule;
    const rpi_model_layers *layers;
    const int *first;    /* [parts + 1] part k has the layers first[k] ... first[k + 1] - 1 */
    const double *costs; /* of each layer, in one unit; for the text */
    const char *measure; /* what they count: "operations" */
} rpi_stage_cut_plan;

/* Makes one stage by a cut. RP_INVALID: there are fewer layers than parts; the message says how
 * many parts fit. RP_UNSUPPORTED: three stages read a parameter. Pure: the same on all ranks.
 */
rp_status rpi_stage_open_at(const rpi_network *network, const rpi_stage_cut_plan *plan,
                            int stages, int stage, rpi_model_stage *out_stage);
/* Chooses plan.first so that the part with the most costs has as few as possible
 * (plan/stage_cut.h); the caller frees it with rpi_free(). */
rp_status rpi_stage_cut_counted(const rpi_network *network, const rpi_model_layers *layers,
                                const double *costs, const rpi_pipeline_kind *schedule,
                                int stages, int **out_first);

/* Does both, by the costs of nodes: cuts a network for a schedule and makes this stage. costs:
 * of each node of the graph, in one unit. RP_INVALID: there are fewer blocks than parts; the
 * message says how many parts fit. RP_UNSUPPORTED: three stages read a parameter. Pure: the
 * same on all ranks. */
rp_status rpi_stage_open(const rpi_network *network, const double *costs,
                         const rpi_pipeline_kind *schedule, int stages, int stage,
                         rpi_model_stage *out_stage);
void rpi_stage_close(rpi_model_stage *stage); /* zeros are fine */

/* Does the stage have the end of the model, where losses are computed? */
bool rpi_stage_ends(const rpi_model_stage *stage);
/* Does this part of a network read the parameter or state of a record? */
bool rpi_network_part_reads(const rpi_network *network, const rpi_network_part *part,
                            int record);
/* The stages that hold a record: one, or two that share it. false: this stage does not hold it.
 */
bool rpi_stage_holds(const rpi_model_stage *stage, const rpi_network *network, int record,
                     int *out_first_stage, int *out_last_stage);
/* Does this stage count the record: is it the first of the stages that hold it? */
bool rpi_stage_counts(const rpi_model_stage *stage, int record);

/* Parameters, gradients and states of this stage only. memory NULL: elements are only counted.
 */
rp_status rpi_stage_weights(const rpi_model_stage *stage, const rpi_network *network,
                            const rpi_weights_memory *memory, rpi_weights **out_weights);
/* Elements that cross the border after or before a part, in a run of so many samples. */
int64_t rpi_stage_crossing(const rpi_network *network, rpi_value_id value, int64_t samples);

#endif
