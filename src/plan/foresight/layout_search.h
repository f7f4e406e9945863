/* All legal layouts of a training on a number of ranks, by their speed. */
#ifndef RPI_PLAN_LAYOUT_SEARCH_H
#define RPI_PLAN_LAYOUT_SEARCH_H

#include "plan/foresight/step_forecast.h"

/* What the search may choose; the layout of the request gives the rest. */
typedef struct rpi_open_choices {
    bool tensor, pipeline, data, zero, micro_batch, recompute, context;
} rpi_open_choices;

typedef struct rpi_candidate {
    rpi_training_layout layout;
    rpi_forecast forecast;
} rpi_candidate;

typedef struct rpi_found_layouts {
    rpi_candidate *best; /* the fastest that fit, fastest first; rpi_free() */
    int count;
    int64_t tried, fitting; /* legal layouts, and those of them that fit */
    rpi_candidate least;    /* if none fits: the layout that needs the least memory */
} rpi_found_layouts;

/* With so many tokens a sample or more, ranks may share sequences if that is open. */
enum { RPI_LONG_SEQUENCE = 16384 };

/* The `most` fastest layouts of so many ranks. Tensor-parallel ranks stay on a host. If it is
 * open, ranks share sequences (any number that divides the ranks, and whose two pieces each
 * divide the sequence) where these are long, or where nothing fits otherwise. RP_INVALID: no
 * layout is legal, with the reason of the last one, or the device does not multiply in its
 * dtype; RP_NOMEM. */
rp_status rpi_layouts_search(const rpi_training_layout *request, const rpi_open_choices *open,
                             const rpi_machine *machine, int64_t ranks, int most,
                             rpi_found_layouts *out);

/* All layouts of so many ranks that fit and that no other beats: none is as fast with no more
 * memory. Fastest first. Fails as the search does. */
rp_status rpi_layouts_frontier(const rpi_training_layout *request, const rpi_open_choices *open,
                               const rpi_machine *machine, int64_t ranks,
                               rpi_found_layouts *out);

#endif
