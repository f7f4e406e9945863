/* The layers of a model into stretches, one for each part of a pipeline, by what layers cost.
 */
#ifndef RPI_PLAN_STAGE_CUT_H
#define RPI_PLAN_STAGE_CUT_H

#include "redpoll/status.h"

enum { RPI_STAGE_LAYERS = 4096 }; /* at most */

typedef struct rpi_stage_layer {
    const char *name;
    double cost;     /* as measured: seconds of a micro-batch; 0 or more, one unit for all */
    const char *tie; /* a word for the table that it shares with other layers; NULL: none */
} rpi_stage_layer;

/* Part k gets the layers out_first[k] ... out_first[k + 1] - 1, at least one; out_first has
 * parts + 1 entries. The costliest part costs as little as can be, and of such cuts it is the
 * most even one (the least sum of squares). Pure: alike on all ranks. O(parts x layers^2) at
 * worst. RP_INVALID: more parts than layers, or a cost that is negative or no number. RP_NOMEM.
 */
rp_status rpi_stage_cut(const rpi_stage_layer *layers, int count, int parts, int *out_first);

/* The costs of a part's layers together. */
double rpi_stage_cost(const rpi_stage_layer *layers, const int *first, int part);
/* Of the costliest part. */
double rpi_stage_most(const rpi_stage_layer *layers, const int *first, int parts);

/* A table of which several parts hold a copy: their gradients are added up. */
typedef struct rpi_stage_tie {
    const char *tie;
    int first_layer, last_layer, first_part, last_part;
} rpi_stage_tie;

/* Those ties whose layers lie in different parts, in the order of their first layers; at most
 * `most` are written. Returns how many there are. */
int rpi_stage_ties(const rpi_stage_layer *layers, int count, const int *first, int parts,
                   rpi_stage_tie *out_ties, int most);

#endif
