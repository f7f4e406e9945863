#include "train/parallel/node_costs.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/program_set.h"

/* A program that is compiled to count its operations; its weights have no elements. */
typedef struct counted {
    rpi_weights *weights;
    rpi_program_set set;
    rpi_program *program;
} counted;

static rp_status compile(const rpi_network *network, counted *it) {
    static const rpi_backend_options usual;
    RP_TRY(rpi_weights_create_table(network->graph, network->loss, &it->weights));
    RP_TRY(rpi_program_set_open(network, it->weights, NULL, &usual, RP_F32, &it->set));
    return rpi_program_set_compile(&it->set, true, 1, &it->program);
}

static rp_status count(const rpi_network *network, const rpi_program *program,
                       double **out_costs) {
    int nodes = rpi_graph_node_count(network->graph);
    double *costs = NULL;
    RP_TRY(rpi_alloc_array((size_t)nodes, sizeof *costs, "costs of nodes", &costs));
    for (int n = 0; n < nodes; n++) {
        rpi_node_facts facts = rpi_program_get_node_facts(program, n);
        costs[n] = (double)facts.forward_flops + (double)facts.backward_flops;
    }
    *out_costs = costs;
    return RP_OK;
}

rp_status rpi_node_costs(const rpi_network *network, double **out_costs) {
    counted it = {0};
    rp_status status = compile(network, &it);
    if (status == RP_OK) status = count(network, it.program, out_costs);
    rpi_program_destroy(it.program);
    rpi_program_set_close(&it.set);
    rpi_weights_destroy(it.weights);
    return status;
}
