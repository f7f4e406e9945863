/* The costs of a training by node of its graph: the operations of a sample, forward and
 * backward. They are counted and not measured, so that all ranks have the same numbers. */
#ifndef RPI_TRAIN_NODE_COSTS_H
#define RPI_TRAIN_NODE_COSTS_H

#include "train/models/network.h"

/* *out_costs: one number a node; the caller frees it. */
rp_status rpi_node_costs(const rpi_network *network, double **out_costs);

#endif
