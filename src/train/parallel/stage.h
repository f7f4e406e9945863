/* What one rank of a pipeline holds of a model: stretches of its graph between two blocks, one
 * for each chunk of the schedule.
 *
 *     embedding  block 0  block 1 | block 2  block 3  norm  head  loss
 *              part 0             |                        part 1
 *
 * A cut stands behind a block from which one activation goes on; what follows from inputs alone
 * is made on both sides. Stretches are chosen by the operations that they cost, the same on all
 * ranks. Tables that several parts read have a copy on each (ties). */
#ifndef RPI_TRAIN_STAGE_H
#define RPI_TRAIN_STAGE_H

#include "plan/pipelines/pipeline_kind.h"
#include "train/parallel/model_layers.h"

/* How a value at the end of a part, and its gradient, are handed on there; 0: as f32. */
typedef struct rpi_border_dtypes {
    rp_dtype value, gradient;
} rpi_border_dtypes;

/* A stretch of a network. */
typedef struct rpi_network_part {
    int part;                 /* its place in the model */
    int first_node, end_node; /* of the graph: [first, end) */
    rpi_value_id given, seed; /* the activations at its ends; RPI_NO_VALUE: the model's own */
    rpi_border_dtypes given_as, seed_as; /* border_dtypes.h */
} rpi_network_part;

/* A parameter that two stages hold: their gradients are one. */
typedef struct rpi_stage_tied {
    int parameter; /* of the network's record */
    int stages[2]; /* the first of them counts it */
} rpi_stage_tied;

enum { RPI_STAGE_TIES = 8, RPI_MODEL_STAGE_TEXT = 1024 };

typedef struct rpi_model_stage {
    const rpi_pipeline_kind *schedule;
    int stages, stage, chunks;
    rpi_network_part *parts; /* [chunks], of this stage, */
    rpi_network_part *all;   /* and [stages x chunks], of the model */
    rpi_stage_tied ties[RPI_STAGE_TIES];
    int tie_count;
    /* A parameter that several of its own chunks read. */
    bool shares;
    /* "1f1b over 2 stages: wte to h.1 (46 % of the operations), h.2 to loss (54 %)" */
    char text[RPI_MODEL_STAGE_TEXT];
} rpi_model_stage;

/* How a model is cut. Borrowed. */
typedef struct rpi_stage_cut_plan {
    const rpi_pipeline_kind *schedule;
    const rpi_model_layers *layers;
    const int *first;    /* [parts + 1] part k has the layers first[k] ... first[k + 1] - 1 */
    const double *costs; /* of each layer, in one unit, for the text, */
    const char *measure; /* and what they count: "operations" */
} rpi_stage_cut_plan;

/* One stage of it. RP_INVALID: fewer layers than parts, and what would fit; RP_UNSUPPORTED: a
 * parameter that three stages read. Pure: alike on all ranks. */
rp_status rpi_stage_open_at(const rpi_network *network, const rpi_stage_cut_plan *plan,
                            int stages, int stage, rpi_model_stage *out_stage);
/* plan.first so that the part with the most costs has as few as can be (plan/stage_cut.h); the
 * caller's to free with rpi_free(). */
rp_status rpi_stage_cut_counted(const rpi_network *network, const rpi_model_layers *layers,
                                const double *costs, const rpi_pipeline_kind *schedule,
                                int stages, int **out_first);

/* Both, by what nodes cost. Cut a network for a schedule, of which this is one stage. costs: of
 * each node of the graph, in one unit. RP_INVALID: fewer blocks than parts, and what would fit;
 * RP_UNSUPPORTED: a parameter that three stages read. Pure: alike on all ranks. */
rp_status rpi_stage_open(const rpi_network *network, const double *costs,
                         const rpi_pipeline_kind *schedule, int stages, int stage,
                         rpi_model_stage *out_stage);
void rpi_stage_close(rpi_model_stage *stage); /* zeros are fine */

/* Has it the end of the model, where losses are made? */
bool rpi_stage_ends(const rpi_model_stage *stage);
/* Does a part of this network read the parameter or state of a record? */
bool rpi_network_part_reads(const rpi_network *network, const rpi_network_part *part,
                            int record);
/* The stages that hold a record: one, or two of a tie. false: this stage does not. */
bool rpi_stage_holds(const rpi_model_stage *stage, const rpi_network *network, int record,
                     int *out_first_stage, int *out_last_stage);
/* Is the record counted on this stage: held here, and of those that hold it the first? */
bool rpi_stage_counts(const rpi_model_stage *stage, int record);

/* What of them a stage has an arena of. */
typedef enum rpi_stage_arenas {
    RPI_STAGE_TABLE,     /* nothing: they are counted */
    RPI_STAGE_STATES,    /* states; values and gradients are placed when they are needed */
    RPI_STAGE_VALUES,    /* gradients are */
    RPI_STAGE_GRADIENTS, /* all have one */
} rpi_stage_arenas;

/* Parameters, gradients and states of the stage alone. */
rp_status rpi_stage_weights(const rpi_model_stage *stage, const rpi_network *network,
                            rpi_stage_arenas arenas, rpi_weights **out_weights);
/* Elements that cross the border behind or before a part in a run of so many samples. */
int64_t rpi_stage_crossing(const rpi_network *network, rpi_value_id value, int64_t samples);

#endif
