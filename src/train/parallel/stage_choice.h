/* Which schedule a pipeline runs, and where its model is cut: as was asked for, or the quickest
 * by what layers and links were measured to take.
 *
 *     --schedule auto          priced as `redpoll plan pipeline` prices (plan/pipelines)
 *     --stage-cut counted      parts of as few operations as can be
 *     --stage-cut measured     parts of as little time as can be, moved where steps get shorter
 *     --stage-cut h.2,h.5      parts that begin with these layers
 *
 * Gradients add up in one order whatever is taken. */
#ifndef RPI_TRAIN_STAGE_CHOICE_H
#define RPI_TRAIN_STAGE_CHOICE_H

#include "plan/pipelines/pipeline_choose.h"
#include "train/parallel/stage.h"

enum { RPI_STAGE_RECORD = 4096 };

typedef struct rpi_stage_request {
    const rpi_network *network;
    const rpi_model_layers *layers;
    const double *costs; /* operations of each layer */
    int stages, micro_batches;
    const char *schedule; /* a kind, or "auto"; NULL: 1f1b */
    const char *cut;      /* as above; NULL: measured with auto, else counted */
    const char *record;   /* of the run that goes on; NULL or "": none */
    bool whole;           /* of what is open, only kinds that rpi_pipeline_is_whole() */
    /* Where rpi_stage_choice_measures() says so, of each layer, and the links; else NULL. */
    const rpi_pipeline_layer *times;
    const rpi_pipeline_model *links;
    double memory_bytes; /* of a stage, for what passes keep; 0: no limit */
} rpi_stage_request;

typedef struct rpi_stage_choice {
    const rpi_pipeline_kind *schedule;
    int *first;          /* owned: as in rpi_stage_cut_plan, */
    double *costs;       /* owned */
    const char *measure; /* likewise */
    char note[320];      /* one line: what was taken and why; "": it was said */
} rpi_stage_choice;

/* RP_INVALID names the kinds there are and "auto", and the nearest of them. */
rp_status rpi_stage_schedule_check(const char *schedule);
/* Is "auto" asked for, or a cut by time? */
bool rpi_stage_choice_is_open(const char *schedule, const char *cut);
/* Does the choice need times and links? What is open, and was not chosen by the run that goes
 * on for as many stages and micro-batches. */
bool rpi_stage_choice_measures(const rpi_stage_request *request);
/* Pure: alike on all ranks that are told alike. RP_INVALID: layers that the model does not
 * have, or parts that the schedule does not make, and what would do. */
rp_status rpi_stage_choose(const rpi_stage_request *request, rpi_stage_choice *out_choice);
void rpi_stage_choice_free(rpi_stage_choice *choice); /* zeros are fine */

/* For a checkpoint, so that the run goes on with what was priced: "priced zb-h1 2 8 h.3"; ""
 * where it is too long. */
void rpi_stage_record(const rpi_stage_request *request, const rpi_stage_choice *choice,
                      char text[RPI_STAGE_RECORD]);

#endif
