/* Every legal layout of a training on some ranks, by how fast it is. */
#ifndef RPI_PLAN_LAYOUT_SEARCH_H
#define RPI_PLAN_LAYOUT_SEARCH_H

#include "plan/foresight/step_forecast.h"

/* What is left open; the layout of the request says the rest. */
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
    int64_t tried, fitting; /* layouts that are legal, and of them those that fit */
    rpi_candidate least;    /* where none fits: that which needs least memory */
} rpi_found_layouts;

/* From so many tokens of a sample on ranks may share sequences where that is open. */
enum { RPI_LONG_SEQUENCE = 16384 };

/* The `most` fastest layouts of so many ranks. Tensor-parallel ranks stay on a host. Where it
 * is open, ranks share sequences (in any number that divides the ranks, whose two pieces each
 * divide the sequence) where these are long, or where nothing fits otherwise.
 * RP_INVALID: no layout is legal, and why the last one was not, or the device does not multiply
 * in its dtype; RP_NOMEM. */
rp_status rpi_layouts_search(const rpi_training_layout *request, const rpi_open_choices *open,
                             const rpi_machine *machine, int64_t ranks, int most,
                             rpi_found_layouts *out);

/* Of all layouts of so many ranks that fit, those that no other beats: none is as fast with no
 * more memory. Fastest first. As above. */
rp_status rpi_layouts_frontier(const rpi_training_layout *request, const rpi_open_choices *open,
                               const rpi_machine *machine, int64_t ranks,
                               rpi_found_layouts *out);

#endif
