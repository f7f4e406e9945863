/* Records events for a trace that chrome://tracing and ui.perfetto.dev show. */
#ifndef RPI_TRAIN_TIMELINE_H
#define RPI_TRAIN_TIMELINE_H

#include "redpoll/comm.h"

typedef enum rpi_timeline_lane {
    RPI_LANE_STEP,
    RPI_LANE_COMPUTE,
    RPI_LANE_COMM,
    RPI_LANE_EXPOSED,
    RPI_LANES
} rpi_timeline_lane;

typedef struct rpi_timeline rpi_timeline;

/* Keeps up to `capacity` events of this rank; later ones are counted and dropped. */
rp_status rpi_timeline_create(int capacity, rpi_timeline **out_timeline);
void rpi_timeline_destroy(rpi_timeline *timeline); /* NULL is fine */

/* Times count from here; call it on all ranks after a barrier. NULL is fine. */
void rpi_timeline_start(rpi_timeline *timeline);

/* Adds an event; timeline NULL: does nothing. The name is copied (and cut at 39 bytes); number
 * is shown after it, -1: none. Never fails. */
void rpi_timeline_add(rpi_timeline *timeline, rpi_timeline_lane lane, const char *name,
                      int64_t number, int64_t start_ns, int64_t end_ns);

/* Writes the events of all ranks to one file, on rank 0. Collective. */
rp_status rpi_timeline_write(const rpi_timeline *timeline, rp_comm *comm, const char *path);

#endif
