/* What a training costs, node by node of its graph: operations of a sample, forward and
 * backward, counted and not measured, so that all ranks have the same numbers. */
#ifndef RPI_TRAIN_NODE_COSTS_H
#define RPI_TRAIN_NODE_COSTS_H

#include "train/models/network.h"

/* *out_costs: the caller's to free, one a node. */
rp_status rpi_node_costs(const rpi_network *network, double **out_costs);

#endif
