/* The kinds that the catalogue lists, each defined in a file of its own. */
#ifndef RPI_PLAN_ALGORITHMS_H
#define RPI_PLAN_ALGORITHMS_H

#include "plan/plan.h"

extern const rpi_algorithm rpi_algorithm_sra;
extern const rpi_algorithm rpi_algorithm_ring;
extern const rpi_algorithm rpi_algorithm_two_level;
extern const rpi_algorithm rpi_algorithm_halving;
extern const rpi_algorithm rpi_algorithm_doubling;
extern const rpi_algorithm rpi_algorithm_oneshot;
extern const rpi_algorithm rpi_algorithm_star;
extern const rpi_algorithm rpi_algorithm_direct_scatter;
extern const rpi_algorithm rpi_algorithm_ring_scatter;
extern const rpi_algorithm rpi_algorithm_two_level_scatter;
extern const rpi_algorithm rpi_algorithm_direct_gather;
extern const rpi_algorithm rpi_algorithm_ring_gather;
extern const rpi_algorithm rpi_algorithm_two_level_gather;
extern const rpi_algorithm rpi_algorithm_tree_broadcast;
extern const rpi_algorithm rpi_algorithm_scatter_broadcast;
extern const rpi_algorithm rpi_algorithm_two_level_broadcast;
extern const rpi_algorithm rpi_algorithm_dissemination;
extern const rpi_algorithm rpi_algorithm_star_barrier;
extern const rpi_algorithm rpi_algorithm_rendezvous;
/* Not in the catalogue: two operations of the executor. */
extern const rpi_algorithm rpi_algorithm_neighbours;
/* Not in the catalogue: a request of it has a mixing. */
extern const rpi_algorithm rpi_algorithm_neighbour_all_reduce;
extern const rpi_algorithm rpi_algorithm_direct_reduce;
extern const rpi_algorithm rpi_algorithm_scatter_reduce;
extern const rpi_algorithm rpi_algorithm_tree_reduce;
extern const rpi_algorithm rpi_algorithm_root_gather;
extern const rpi_algorithm rpi_algorithm_root_scatter;
extern const rpi_algorithm rpi_algorithm_pairwise;

#endif
