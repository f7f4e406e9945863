/* Chooses the schedule of a pipeline, and where its model is cut: as the options say, or the
 * quickest by the measured times of layers and links.
 *
 *     --schedule auto          priced as `redpoll plan pipeline` prices (plan/pipelines)
 *     --stage-cut counted      parts of as few operations as can be
 *     --stage-cut measured     parts of as little time as can be, moved where steps get shorter
 *     --stage-cut h.2,h.5      parts that begin with these layers
 *
 * Gradients add up in the same order with every choice. */
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
    const char *record;   /* of the resumed run; NULL or "": none */
    bool whole;           /* choose only kinds that are rpi_pipeline_is_whole() */
    /* The times of each layer, and the links, if rpi_stage_choice_measures(); else NULL. */
    const rpi_pipeline_layer *times;
    const rpi_pipeline_model *links;
    double memory_bytes; /* of a stage, for kept activations; 0: no limit */
} rpi_stage_request;

typedef struct rpi_stage_choice {
    const rpi_pipeline_kind *schedule;
    int *first;          /* owned: as in rpi_stage_cut_plan */
    double *costs;       /* owned */
    const char *measure; /* as in rpi_stage_cut_plan */
    char note[320];      /* one line: what was chosen and why; "": the options said it */
} rpi_stage_choice;

/* RP_INVALID: unknown; the message lists the kinds and "auto", and suggests the nearest. */
rp_status rpi_stage_schedule_check(const char *schedule);
/* Is "auto" asked for, or a cut by time? */
bool rpi_stage_choice_is_open(const char *schedule, const char *cut);
/* Does the choice need times and links? It does if it is open and a resumed run has not made it
 * for the same number of stages and micro-batches. */
bool rpi_stage_choice_measures(const rpi_stage_request *request);
/* Pure: the same on all ranks with the same request. RP_INVALID: the model does not have such
 * layers, or the schedule does not make that number of parts; the message says what would do.
 */
rp_status rpi_stage_choose(const rpi_stage_request *request, rpi_stage_choice *out_choice);
void rpi_stage_choice_free(rpi_stage_choice *choice); /* zeros are fine */

/* The record for a checkpoint, with which a resumed run keeps what was priced: "priced zb-h1 2
 * 8 h.3"; "" if it is too long. */
void rpi_stage_record(const rpi_stage_request *request, const rpi_stage_choice *choice,
                      char text[RPI_STAGE_RECORD]);

#endif
