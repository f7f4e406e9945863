/* Graphs as people write them: a list of edges or a matrix, one round behind the other. Lines;
 * `#` begins a comment; commas count as spaces.
 *
 *     ranks 4                       optional: the graph is refused for other worlds
 *     weights metropolis-hastings   or uniform, sender: of edges without weights
 *     undirected                    each edge of the list stands for both directions
 *     edges                         FROM TO [WEIGHT] lines follow
 *     0 1 1/3
 *     round                         the next step's graph follows, of the same form
 *     matrix                        or: one line a rank, what it puts on the vector of each
 *     1/2 1/2 0 0
 *
 * Weights are whole numbers, fractions (1/3) or decimals. Up to nine decimal digits are taken
 * as they are; of more the simplest fraction that is as near as the last digit says, so that
 * 0.3333333333333333 is a third. */
#ifndef RPI_PLAN_GRAPH_TEXT_H
#define RPI_PLAN_GRAPH_TEXT_H

#include "plan/topologies/mixing.h"

typedef struct rpi_graph_text { /* zeros: empty */
    rpi_mixing_entry *links;    /* of all rounds, one behind the other */
    size_t *first;              /* [rounds + 1] into links */
    int rounds;
    rpi_weight_rule weights; /* GIVEN where the links have weights */
    size_t used, room;
} rpi_graph_text;

/* Reads the text, which is changed by it; free with rpi_graph_text_free, also after a failure.
 * RP_INVALID names the line. */
rp_status rpi_graph_text_read(char *text, int ranks, rpi_graph_text *out_graph);
void rpi_graph_text_free(rpi_graph_text *graph);

/* "1/3", "0.25", "2" as a fraction. RP_INVALID: none, negative, or more than 31 bits. */
rp_status rpi_fraction_parse(const char *text, rpi_fraction *out_fraction);

#endif
