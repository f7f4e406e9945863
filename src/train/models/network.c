#include "train/models/network.h"

#include "base/status.h"
#include "engine/layers.h"
#include "plan/context_lengths.h"

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

/* Of a slice of the logits: every rank tells the others a few numbers a row. */
static rpi_value_id add_split_loss(rpi_network *network, const rpi_builder *builder,
                                   const char *name, double smoothing) {
    rpi_graph *graph = network->graph;
    rpi_value_id labels = network->inputs[network->task->label_input];
    if (network->statistics == RPI_NO_VALUE) {
        rpi_value_id own = rpi_logit_statistics(
            graph, "logit_statistics", network->logits, labels,
            (rpi_logit_slice){.first = builder->first_logit, .whole = builder->whole_logits});
        network->statistics = rpi_tensor_split_node(graph, &builder->split, RPI_TENSOR_GATHER,
                                                    "logit_statistics.gather", own);
    }
    return rpi_statistics_cross_entropy(
        graph, name, network->statistics, labels, network->scale,
        (rpi_statistics_loss){.whole = builder->whole_logits, .smoothing = (float)smoothing});
}

static rpi_value_id add_task_loss(rpi_network *network, const rpi_builder *builder,
                                  const char *name, double smoothing) {
    const rpi_task *task = network->task;
    if (builder->whole_logits)
        return add_split_loss(network, builder, task->loss_name ? task->loss_name : name,
                              smoothing);
    return task->add_loss(network->graph, name, network->logits, network->inputs,
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
                                : add_task_loss(network, builder, "loss", smoothing);
    if (rpi_graph_check(graph) != RP_OK) return;
    network->correct = rpi_graph_output(graph, network->loss, 1);
    if (network->task->sample_metric) add_sample_loss(network);
    network->plain_loss = network->loss;
    network->plain_correct = network->correct;
    if (loss->mixes) add_mixed_loss(network, smoothing);
    if (!(smoothing > 0) && !loss->mixes) return;
    network->plain_loss = add_task_loss(network, builder, "plain_loss", 0);
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
    rpi_task_add_inputs(network->task, graph, shape, network->context_ranks, network->inputs);
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
    network->first_logit = builder->first_logit;
    network->gathered_keys = builder->gathered_keys;
    network->whole_logits = builder->whole_logits;
    network->adaptive = builder->adaptive;
    network->cluster_scores = builder->cluster_scores;
}

typedef void (*nodes_adder)(rpi_network *network, rpi_builder *builder,
                            const rpi_model_choice *choice, const rpi_data_shape *shape,
                            const rpi_loss_options *loss);

static rp_status build(const char *model_text, const rpi_model_choice *choice,
                       const rpi_data_shape *shape, nodes_adder add,
                       const rpi_loss_options *loss, const rpi_tensor_split *split,
                       rpi_network *out_network) {
    rpi_network network = {.task = rpi_task_find(rpi_model_task(choice)),
                           .shape = *shape,
                           .sample_scale = RPI_NO_VALUE,
                           .label_loss = RPI_NO_VALUE,
                           .sample_loss = RPI_NO_VALUE,
                           .sample_correct = RPI_NO_VALUE,
                           .position = RPI_NO_VALUE,
                           .statistics = RPI_NO_VALUE,
                           .tensor_ranks = rpi_tensor_is_split(split) ? split->ranks : 1,
                           .tensor_rank = rpi_tensor_is_split(split) ? split->rank : 0,
                           .context_ranks =
                               rpi_context_is_split(&split->context) ? split->context.ranks : 1,
                           .mixed_labels = RPI_NO_VALUE,
                           .mixed_scale = RPI_NO_VALUE};
    if (!network.task) return RP_FAIL(INTERNAL, "model %s is for no task", choice->model->name);
    snprintf(network.text, sizeof network.text, "%s", model_text);
    network.shape.sequence = (int)rpi_context_own(&split->context, shape->sequence);
    RP_TRY(rpi_graph_create(&network.graph));
    rpi_builder builder = {.graph = network.graph,
                           .split = *split,
                           .sequence = network.shape.sequence,
                           .whole_sequence = shape->sequence,
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

static const rpi_tensor_split alone;

rp_status rpi_network_build_for(const char *model_text, const rpi_data_shape *shape,
                                const rpi_loss_options *loss, rpi_network *out_network) {
    return rpi_network_build_split(model_text, shape, loss, &alone, out_network);
}

static rp_status check_split(const rpi_model_choice *choice, const rpi_tensor_split *split) {
    char names[128];
    size_t used = 0;
    if (!rpi_tensor_is_split(split)) return RP_OK;
    if (split->rank < 0 || split->rank >= split->ranks)
        return RP_FAIL(INVALID, "tensor rank %d of %d", split->rank, split->ranks);
    if (choice->model->check_split) return choice->model->check_split(choice->options, split);
    for (int i = 0; rpi_model_at(i) && used < sizeof names; i++)
        if (rpi_model_at(i)->check_split)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used ? ", " : "", rpi_model_at(i)->name);
    return RP_FAIL(INVALID,
                   "%s is held by one rank as a whole; models that tensor ranks share "
                   "are %s",
                   choice->model->name, names);
}

rp_status rpi_network_check_split(const char *model_text, int tensor_ranks) {
    const rpi_tensor_split split = {.ranks = tensor_ranks};
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(model_text, &choice));
    rp_status fits = check_split(&choice, &split);
    return fits == RP_OK ? RP_OK : rpi_fail_context(fits, "model %s: ", model_text);
}

static rp_status check_context(const rpi_model_choice *choice, const rpi_context_split *context,
                               int64_t sequence) {
    char names[128] = "";
    size_t used = 0;
    if (!rpi_context_is_split(context)) return RP_OK;
    if (context->rank < 0 || context->rank >= context->ranks)
        return RP_FAIL(INVALID, "context rank %d of %d", context->rank, context->ranks);
    if (choice->model->shares_sequences)
        return rpi_context_lengths_check(context->ranks, sequence,
                                         rpi_model_number(choice, "positions"));
    for (int i = 0; rpi_model_at(i) && used < sizeof names; i++)
        if (rpi_model_at(i)->shares_sequences)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used ? ", " : "", rpi_model_at(i)->name);
    return RP_FAIL(INVALID,
                   "%s has its samples on one rank as wholes; models whose sequences context "
                   "ranks share are %s%s",
                   choice->model->name, names,
                   choice->model->check_split ? "; --tp N with --sequence-parallel shares its "
                                                "tokens, of any number"
                                              : "");
}

rp_status rpi_network_check_context(const char *model_text, int context_ranks,
                                    int64_t sequence) {
    const rpi_context_split context = {.ranks = context_ranks};
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(model_text, &choice));
    rp_status fits = check_context(&choice, &context, sequence);
    return fits == RP_OK ? RP_OK : rpi_fail_context(fits, "model %s: ", model_text);
}

rp_status rpi_network_build_split(const char *model_text, const rpi_data_shape *shape,
                                  const rpi_loss_options *loss, const rpi_tensor_split *split,
                                  rpi_network *out_network) {
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(model_text, &choice));
    rp_status fits = check_split(&choice, split);
    if (fits == RP_OK) fits = check_context(&choice, &split->context, shape->sequence);
    if (fits != RP_OK) return rpi_fail_context(fits, "model %s: ", model_text);
    const rpi_task *task = rpi_task_find(rpi_model_task(&choice));
    if (task && loss->smoothing > 0 && !task->takes_smoothing)
        return RP_FAIL(INVALID,
                       "--label-smoothing is for classification and for language models; %s "
                       "learns %s",
                       choice.model->name, task->name);
    if (task && loss->mixes && !task->takes_mixing)
        return RP_FAIL(INVALID, "--mixup is for classification; %s learns %s",
                       choice.model->name, task->name);
    return build(model_text, &choice, shape, add_nodes, loss, split, out_network);
}

rp_status rpi_network_build_decoder(const char *model_text, rpi_network *out_network) {
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(model_text, &choice));
    if (strcmp(rpi_model_task(&choice), "language-model") != 0)
        return RP_FAIL(INVALID, "%s is no language model: it is for %s", choice.model->name,
                       rpi_model_task(&choice));
    return build(model_text, &choice, &(rpi_data_shape){.sequence = 1}, add_decoder_nodes,
                 &plain, &alone, out_network);
}

void rpi_network_close(rpi_network *network) {
    rpi_builder builder = {.parameters = network->parameters};
    rpi_builder_close(&builder);
    rpi_graph_destroy(network->graph);
    *network = (rpi_network){0};
}

int64_t rpi_network_tokens(const rpi_network *network) {
    return (int64_t)network->shape.sequence * network->context_ranks;
}

size_t rpi_network_input_bytes(const rpi_network *network, int index) {
    const rpi_task_input *input = &network->task->inputs[index];
    size_t bytes = rpi_task_input_bytes(input, &network->shape);
    return rpi_task_input_is_whole(input) ? bytes * (size_t)network->context_ranks : bytes;
}

float *rpi_network_elements(const rpi_network *network, rpi_weights *weights, int index) {
    const rpi_weight *weight = rpi_weights_find(weights, network->parameters[index].name);
    if (!weight) return NULL;
    return weight->is_state ? rpi_weights_state_at(weights, weight->index)
                            : rpi_weights_value_at(weights, weight->index);
}

rp_status rpi_network_runs(const rpi_network *network, int index, rpi_network_run_function each,
                           void *context) {
    const rpi_grid grid = {{network->tensor_ranks, 1, 1, 1}};
    rpi_shard_record record = rpi_parameter_record(&network->parameters[index]);
    rpi_shard_cursor cursor;
    RP_TRY(rpi_shard_begin(&record, &grid, network->tensor_rank, RPI_REPLICAS_COPY, &cursor));
    for (rpi_shard_run run; rpi_shard_next(&cursor, &run);)
        RP_TRY(each(context, &network->parameters[index], &run));
    return RP_OK;
}

typedef struct beginning {
    uint64_t seed;
    float *elements;
} beginning;

static rp_status initialise_run(void *context, const rpi_parameter *parameter,
                                const rpi_shard_run *run) {
    const beginning *b = context;
    rpi_parameter_initialise(parameter, b->seed, run->whole, run->count,
                             b->elements + run->local);
    return RP_OK;
}

/* Records were checked when they were declared: their runs cannot fail. */
void rpi_network_initialise(const rpi_network *network, rpi_weights *weights, uint64_t seed) {
    for (int i = 0; i < network->parameter_count; i++) {
        beginning b = {seed, rpi_network_elements(network, weights, i)};
        if (b.elements) (void)rpi_network_runs(network, i, initialise_run, &b);
    }
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
}
