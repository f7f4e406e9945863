/* The ranks that take part in a neighbour operation of this rank, and their weights.
 *
 * The operation runs a schedule of a small world of its own, whose ranks are places: this
 * rank's sources and itself by rank, since sums are made in that order, and then its
 * destinations. A rank that is both has two places. So one schedule serves all rounds in which
 * this rank has as many neighbours, whichever they are. */
#ifndef RPI_COMM_NEIGHBORHOOD_H
#define RPI_COMM_NEIGHBORHOOD_H

#include "comm/core/compiled_schedule.h"
#include "redpoll/comm.h"

#include <stdbool.h>

/* Zeros are an empty one; `places` keeps its room from call to call. */
typedef struct rpi_neighborhood {
    int sources, destinations;
    int self;     /* our place */
    bool divides; /* all weights are 1 / (sources + 1): added first, divided once */
    rp_neighbor
        *places; /* [sources + 1 + destinations]; weights: of destinations the sender's */
    size_t room;
} rpi_neighborhood;

/* RP_INVALID: a rank that does not exist, this rank, a rank that is named twice, a weight that
 * is not a number. */
rp_status rpi_neighborhood_make(rpi_neighborhood *neighborhood, int rank, int world,
                                const rp_neighbors *neighbors);
void rpi_neighborhood_free(rpi_neighborhood *neighborhood);

/* Places; -1: the rank is none of these. */
int rpi_neighborhood_source(const rpi_neighborhood *neighborhood, int rank);
int rpi_neighborhood_destination(const rpi_neighborhood *neighborhood, int rank);

/* Whether this compiled schedule was made for neighbourhoods of this form. device: as of
 * rpi_schedule_compile(). */
bool rpi_neighborhood_fits(const rpi_neighborhood *neighborhood, bool device,
                           const rpi_compiled_schedule *compiled);
rp_status rpi_neighborhood_compiled_schedule(const rpi_neighborhood *neighborhood, bool device,
                                             rpi_compiled_schedule **out_compiled);

/* "expects vectors from ranks 1 and 3 and sends to none" */
const char *rpi_neighborhood_text(const rpi_neighborhood *neighborhood, char *text,
                                  size_t bytes);

#endif
