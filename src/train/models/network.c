#include "train/models/network.h"

#include "base/status.h"
#include "engine/layers.h"

#include <stdio.h>
#include <string.h>

static void add_sample_loss(rpi_network *network) {
    rpi_graph *graph = network->graph;
    network->label_loss = network->loss;
    network->sample_loss = network->task->add_sample_loss(
        graph, network->sample_logits, network->inputs, network->sample_scale);
    network->sample_correct = rpi_graph_output(graph, network->sample_loss, 1);
    network->loss = rpi_add(graph, "loss", network->label_loss, network->sample_loss);
}

/* Of the second label of each sample. */
static void add_mixed_loss(rpi_network *network, double smoothing) {
    rpi_graph *graph = network->graph;
    rpi_value_id inputs[RPI_TASK_INPUTS];
    memcpy(inputs, network->inputs, sizeof inputs);
    inputs[network->task->input_count - 1] = network->mixed_labels;
    rpi_value_id mixed = network->task->add_loss(graph, "mixed_loss", network->logits, inputs,
                                                 network->mixed_scale, smoothing);
    network->loss = rpi_add(graph, "sum_loss", network->loss, mixed);
}

static rpi_value_id add_task_loss(rpi_network *network, const char *name, double smoothing) {
    return network->task->add_loss(network->graph, name, network->logits, network->inputs,
                                   network->scale, smoothing);
}

static rpi_value_id add_adaptive_loss(const rpi_network *network, const rpi_builder *builder,
                                      double smoothing) {
    if (smoothing > 0)
        rpi_graph_fail(network->graph, RP_INVALID,
                       "label smoothing of %g, and an adaptive softmax has none: cutoffs=none",
                       smoothing);
    return rpi_adaptive_cross_entropy(
        network->graph, "loss", builder->adaptive_input, builder->adaptive_weights,
        network->inputs[network->task->input_count - 1], network->scale, builder->adaptive);
}

static void add_loss(rpi_network *network, const rpi_builder *builder,
                     const rpi_loss_options *loss) {
    double smoothing = loss->smoothing;
    rpi_graph *graph = network->graph;
    bool is_adaptive = builder->adaptive.cutoff_count > 0;
    network->loss = is_adaptive ? add_adaptive_loss(network, builder, smoothing)
                                : add_task_loss(network, "loss", smoothing);
    if (rpi_graph_check(graph) != RP_OK) return;
    network->correct = rpi_graph_output(graph, network->loss, 1);
    if (network->task->sample_metric) add_sample_loss(network);
    network->plain_loss = network->loss;
    network->plain_correct = network->correct;
    if (loss->mixes) add_mixed_loss(network, smoothing);
    if (!(smoothing > 0) && !loss->mixes) return;
    network->plain_loss = add_task_loss(network, "plain_loss", 0);
    network->plain_correct = rpi_graph_output(graph, network->plain_loss, 1);
}

static void add_mixed_inputs(rpi_network *network) {
    rpi_graph *graph = network->graph;
    rpi_value_id labels = network->inputs[network->task->input_count - 1];
    network->mixed_labels =
        rpi_graph_input(graph, "mixed_labels", RP_I32, rpi_graph_value(graph, labels)->shape);
    network->mixed_scale = rpi_graph_input(graph, "mixed_scale", RP_F32, (rpi_shape){0});
}

static void add_nodes(rpi_network *network, rpi_builder *builder,
                      const rpi_model_choice *choice, const rpi_data_shape *shape,
                      const rpi_loss_options *loss) {
    rpi_graph *graph = network->graph;
    rpi_task_add_inputs(network->task, graph, shape, network->inputs);
    network->scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    if (network->task->sample_metric)
        network->sample_scale = rpi_graph_input(graph, "sample_scale", RP_F32, (rpi_shape){0});
    if (loss->mixes) add_mixed_inputs(network);
    builder->inputs = network->inputs;
    network->logits = choice->model->build(builder, choice->options, shape, network->inputs[0]);
    network->sample_logits = builder->sample_logits;
    if (rpi_graph_check(graph) == RP_OK) add_loss(network, builder, loss);
}

static void add_decoder_nodes(rpi_network *network, rpi_builder *builder,
                              const rpi_model_choice *choice, const rpi_data_shape *shape,
                              const rpi_loss_options *loss) {
    (void)loss;
    rpi_graph *graph = network->graph;
    rpi_shape tokens = {
        2, {rpi_graph_dimension(graph, "batch"), rpi_graph_dimension(graph, "sequence")}};
    network->inputs[0] = rpi_graph_input(graph, "tokens", RP_I32, tokens);
    network->position = rpi_graph_input(graph, "position", RP_I32, (rpi_shape){0});
    network->loss = network->correct = network->scale = RPI_NO_VALUE;
    network->plain_loss = network->plain_correct = RPI_NO_VALUE;
    builder->is_decoder = true;
    builder->position = network->position;
    network->logits = choice->model->build(builder, choice->options, shape, network->inputs[0]);
}

static void take_results(rpi_network *network, const rpi_builder *builder,
                         const rpi_model_choice *choice) {
    network->memory_count = builder->memory_count;
    network->remembered = builder->remembered;
    memcpy(network->memories, builder->memories, sizeof network->memories);
    memcpy(network->remembers, builder->remembers, sizeof network->remembers);
    if (network->memory_count) network->memory_length = rpi_model_memory(choice);
    network->adaptive = builder->adaptive;
    network->cluster_scores = builder->cluster_scores;
}

typedef void (*nodes_adder)(rpi_network *network, rpi_builder *builder,
                            const rpi_model_choice *choice, const rpi_data_shape *shape,
                            const rpi_loss_options *loss);

static rp_status build(const char *model_text, const rpi_model_choice *choice,
                       const rpi_data_shape *shape, nodes_adder add,
                       const rpi_loss_options *loss, rpi_network *out_network) {
    rpi_network network = {.task = rpi_task_find(rpi_model_task(choice)),
                           .shape = *shape,
                           .sample_scale = RPI_NO_VALUE,
                           .label_loss = RPI_NO_VALUE,
                           .sample_loss = RPI_NO_VALUE,
                           .sample_correct = RPI_NO_VALUE,
                           .position = RPI_NO_VALUE,
                           .mixed_labels = RPI_NO_VALUE,
                           .mixed_scale = RPI_NO_VALUE};
    if (!network.task) return RP_FAIL(INTERNAL, "model %s is for no task", choice->model->name);
    snprintf(network.text, sizeof network.text, "%s", model_text);
    RP_TRY(rpi_graph_create(&network.graph));
    rpi_builder builder = {.graph = network.graph,
                           .sample_logits = RPI_NO_VALUE,
                           .remembered = RPI_NO_VALUE,
                           .cluster_scores = RPI_NO_VALUE};
    add(&network, &builder, choice, shape, loss);
    take_results(&network, &builder, choice);
    network.parameters = builder.parameters;
    network.parameter_count = builder.count;
    rp_status status = rpi_graph_check(network.graph);
    if (status != RP_OK) {
        rpi_network_close(&network);
        return rpi_fail_context(status, "model %s: ", model_text);
    }
    *out_network = network;
    return RP_OK;
}

static const rpi_loss_options plain;

rp_status rpi_network_build(const char *model_text, const rpi_data_shape *shape,
                            rpi_network *out_network) {
    return rpi_network_build_for(model_text, shape, &plain, out_network);
}

rp_status rpi_network_build_for(const char *model_text, const rpi_data_shape *shape,
                                const rpi_loss_options *loss, rpi_network *out_network) {
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(model_text, &choice));
    const rpi_task *task = rpi_task_find(rpi_model_task(&choice));
    if (task && loss->smoothing > 0 && !task->takes_smoothing)
        return RP_FAIL(INVALID,
                       "--label-smoothing is for classification and for language models; %s "
                       "learns %s",
                       choice.model->name, task->name);
    if (task && loss->mixes && !task->takes_mixing)
        return RP_FAIL(INVALID, "--mixup is for classification; %s learns %s",
                       choice.model->name, task->name);
    return build(model_text, &choice, shape, add_nodes, loss, out_network);
}

rp_status rpi_network_build_decoder(const char *model_text, rpi_network *out_network) {
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(model_text, &choice));
    if (strcmp(rpi_model_task(&choice), "language-model") != 0)
        return RP_FAIL(INVALID, "%s is no language model: it is for %s", choice.model->name,
                       rpi_model_task(&choice));
    return build(model_text, &choice, &(rpi_data_shape){.sequence = 1}, add_decoder_nodes,
                 &plain, out_network);
}

void rpi_network_close(rpi_network *network) {
    rpi_builder builder = {.parameters = network->parameters};
    rpi_builder_close(&builder);
    rpi_graph_destroy(network->graph);
    *network = (rpi_network){0};
}

float *rpi_network_elements(const rpi_network *network, rpi_weights *weights, int index) {
    const rpi_weight *weight = rpi_weights_find(weights, network->parameters[index].name);
    if (!weight) return NULL;
    return weight->is_state ? rpi_weights_state_at(weights, weight->index)
                            : rpi_weights_value_at(weights, weight->index);
}

void rpi_network_initialise(const rpi_network *network, rpi_weights *weights, uint64_t seed) {
    for (int i = 0; i < network->parameter_count; i++) {
        float *elements = rpi_network_elements(network, weights, i);
        if (elements) rpi_parameter_initialise(&network->parameters[i], seed, i, elements);
    }
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
}
