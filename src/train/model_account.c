#include "train/model_account.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/backend.h"
#include "train/parallel/context_nodes.h"
#include "train/program_set.h"
#include "train/shared_account.h"

#include <stdio.h>
#include <string.h>

/* ---- layers by name ---- */

static rpi_layer_account *layer_of(rpi_model_account *account, const char *node) {
    char name[RPI_LAYER_NAME];
    rpi_layer_of(node, name);
    for (int i = account->layer_count - 1; i >= 0; i--)
        if (strcmp(account->layers[i].name, name) == 0) return &account->layers[i];
    rpi_layer_account *layer = &account->layers[account->layer_count++];
    memcpy(layer->name, name, sizeof name);
    return layer;
}

/* "h.3.ln_1.weight" belongs to the layer of the node "h.3.ln_1". */
static rpi_layer_account *layer_of_parameter(rpi_model_account *account, const char *name) {
    const char *dot = strrchr(name, '.');
    char node[RPI_LAYER_NAME * 2];
    snprintf(node, sizeof node, "%.*s", (int)(dot ? dot - name : (long)strlen(name)), name);
    return layer_of(account, node);
}

static void add_node(rpi_model_account *account, const rpi_graph *graph,
                     const rpi_program *program, int index) {
    rpi_node_facts facts = rpi_program_get_node_facts(program, index);
    rpi_layer_account *layer = layer_of(account, rpi_graph_node(graph, index)->name);
    layer->facts.forward_flops += facts.forward_flops;
    layer->facts.backward_flops += facts.backward_flops;
    layer->facts.output_bytes += facts.output_bytes;
}

/* The number of elements that this rank has. */
static int64_t count_of(const rpi_network *network, const rpi_parameter *parameter) {
    return rpi_shape_count(&rpi_graph_value(network->graph, parameter->value)->shape);
}

static rp_status add_layers(rpi_model_account *account, const rpi_network *network,
                            const rpi_program *program) {
    int nodes = rpi_graph_node_count(network->graph);
    size_t most = (size_t)nodes + (size_t)network->parameter_count;
    RP_TRY(rpi_alloc_array(most, sizeof *account->layers, "layers", &account->layers));
    for (int i = 0; i < nodes; i++) add_node(account, network->graph, program, i);
    for (int i = 0; i < network->parameter_count; i++) {
        const rpi_parameter *parameter = &network->parameters[i];
        int64_t count = count_of(network, parameter);
        if (!parameter->is_state)
            layer_of_parameter(account, parameter->name)->parameters += count;
        *(parameter->is_state ? &account->states : &account->parameters) += count;
    }
    return RP_OK;
}

/* ---- the program that would run ---- */

typedef struct counted {
    rpi_network network;
    rpi_weights *weights;
    rpi_program_set set;
    rpi_program *program;
} counted;

static void close_counted(counted *it) {
    rpi_program_destroy(it->program);
    rpi_program_set_close(&it->set);
    rpi_weights_destroy(it->weights);
    rpi_network_close(&it->network);
}

static rp_status compile(const char *model, const rpi_account_options *options, counted *it) {
    static const rpi_backend_options usual;
    static const rpi_loss_options plain;
    const rpi_tensor_split split = {.ranks = options->tensor_ranks,
                                    .rank = options->tensor_rank,
                                    .repeats = options->repeats_sums,
                                    .tokens = options->sequence_parallel,
                                    .context = {.ranks = options->context_ranks}};
    RP_TRY(rpi_network_build_split(model, &options->shape, &plain, &split, &it->network));
    RP_TRY(rpi_weights_create_table(it->network.graph, it->network.loss, &it->weights));
    RP_TRY(rpi_program_set_open(&it->network, it->weights, rpi_backend_default(), &usual,
                                options->compute, &it->set));
    it->set.recompute = options->recompute;
    return rpi_program_set_compile(&it->set, true, options->batch, &it->program);
}

static rp_status count_shared(const rpi_account_options *options, const counted *it,
                              rpi_model_account *account) {
    const rpi_shared_account_options asked = {.network = &it->network,
                                              .weights = it->weights,
                                              .zero = options->zero ? options->zero : 1,
                                              .sharers = options->sharers,
                                              .whole_tensors = options->whole_tensors};
    rpi_shared_account shared;
    RP_TRY(rpi_shared_account_make(&asked, &shared));
    account->owned = shared.owned;
    account->gradients = shared.gradients;
    account->values = shared.values;
    account->travelling = rpi_context_nodes_bytes((double)options->batch,
                                                  (double)rpi_network_tokens(&it->network),
                                                  (double)it->network.gathered_keys);
    return RP_OK;
}

rp_status rpi_model_account_make(const char *model, const rpi_account_options *options,
                                 rpi_model_account *out_account) {
    counted it = {0};
    rpi_model_account account = {0};
    rp_status status = compile(model, options, &it);
    if (status == RP_OK) status = count_shared(options, &it, &account);
    if (status == RP_OK) status = add_layers(&account, &it.network, it.program);
    if (status == RP_OK) {
        account.facts = rpi_program_get_facts(it.program);
        *out_account = account;
    } else {
        rpi_model_account_free(&account);
    }
    close_counted(&it);
    return status;
}

void rpi_model_account_free(rpi_model_account *account) {
    rpi_free(account->layers);
    *account = (rpi_model_account){0};
}
