/* Why a layout may differ from one rank, and by how much. A new reason is a row. */
#include "base/memory.h"
#include "base/status.h"
#include "plan/plan.h"
#include "redpoll/adaptive.h"
#include "train/models/model.h"
#include "train/parallel/activation_codec.h"
#include "train/parallel/node_costs.h"
#include "train/parallel/stage.h"
#include "train/parallel/verify.h"

#include <math.h>
#include <string.h>

/* Sums of f32 in another order are off by some units in the last place. */
#define OTHER_ORDER                                                                            \
    {                                                                                          \
        { 1e-6, 1e-5, 1e-5, 1e-5, 0 }                                                          \
    }
#define ROUNDED                                                                                \
    {                                                                                          \
        { 2e-2, 2e-2, 2e-2, 2e-2, 2e-2 }                                                       \
    }
#define NOTHING_PROMISED                                                                       \
    {                                                                                          \
        { INFINITY, INFINITY, INFINITY, INFINITY, INFINITY }                                   \
    }

static bool is_tied(const rpi_verify_layout *l) {
    return l->stages > 1 && l->has_ties;
}

static bool shares_in_replicas(const rpi_verify_layout *l) {
    return l->replicas > 1 && l->has_shared;
}

static bool adds_in_replicas(const rpi_verify_layout *l) {
    return l->options->zero < 2 && l->replicas > 1 && l->micro_batches > 1;
}

static bool adds_run_by_run(const rpi_verify_layout *l) {
    return l->options->zero >= 2 && l->replicas > 1 && l->micro_batches > 1;
}

/* Sums of two ranks are the same in either order, so that only more ranks matter. */
static bool adds_elsewhere(const rpi_verify_layout *l) {
    const rpi_algorithm *algorithm = NULL;
    const char *name = l->options->algorithm;
    if (l->replicas < 3 || !name) return false;
    return rpi_algorithm_find(RPI_ALL_REDUCE, name, &algorithm) == RP_OK &&
           !algorithm->rank_order;
}

static bool cuts_short_batches(const rpi_verify_layout *l) {
    return l->replicas > 1 && l->has_short_batch;
}

static bool is_bf16(const rpi_verify_layout *l) {
    const char *dtype = l->options->dtype;
    bool is_layout =
        l->stages > 1 || l->replicas > 1 || l->tensor_ranks > 1 || l->context_ranks > 1;
    return is_layout && dtype && strcmp(dtype, "bf16") == 0;
}

/* Are gradients summed over replicas, or over the tokens of several ranks? */
static bool sums_gradients(const rpi_verify_layout *l) {
    return l->replicas > 1 || l->context_ranks > 1;
}

static bool is_lossy(const rpi_verify_layout *l) {
    rp_adaptive_codec codec;
    if (!sums_gradients(l) || rp_adaptive_codec_parse(l->options->codec, &codec) != RP_OK)
        return false;
    return codec.every > 0 || !rp_codec_is_exact(&codec.codec, RP_F32);
}

static bool has_lossy_weights(const rpi_verify_layout *l) {
    rp_codec codec;
    const char *text = l->options->weights_codec;
    if (!sums_gradients(l) || !text || rp_codec_parse(text, &codec) != RP_OK) return false;
    return !rp_codec_is_exact(&codec, RP_F32);
}

static bool is_lossy_between(const rpi_verify_layout *l, bool wanted_bf16) {
    rp_codec codec, bf16;
    if (l->stages == 1 && l->tensor_ranks == 1) return false;
    if (rpi_activation_codec_parse(l->options->activations_codec, &codec) != RP_OK ||
        rp_codec_parse("bf16", &bf16) != RP_OK || rp_codec_is_exact(&codec, RP_F32))
        return false;
    return (codec.kind == bf16.kind) == wanted_bf16;
}

static bool hands_on_bf16(const rpi_verify_layout *l) {
    return is_lossy_between(l, true);
}

static bool hands_on_less(const rpi_verify_layout *l) {
    return is_lossy_between(l, false);
}

static bool shares_layers(const rpi_verify_layout *l) {
    return l->tensor_ranks > 1;
}

static bool shares_sequences(const rpi_verify_layout *l) {
    return l->context_ranks > 1;
}

static bool has_replicas(const rpi_verify_layout *l) {
    return l->replicas > 1;
}

static const rpi_verify_reason reasons[] = {
    {"tie", "a table is used at both ends of the model: its two gradients are added last",
     is_tied, OTHER_ORDER},
    {"tensor",
     "ranks that share a layer add up their parts of its inputs' gradients and of each "
     "token's loss, rank by rank",
     shares_layers, OTHER_ORDER},
    {"context",
     "ranks that share a sequence add up their tokens' gradients of parameters, and of keys "
     "and values, rank by rank",
     shares_sequences, OTHER_ORDER},
    {"kernels",
     "some kernels add to the gradients of earlier micro-batches while they sum; replicas "
     "round their own gradients first",
     has_replicas, OTHER_ORDER},
    {"shared",
     "a parameter is used at several places: one rank adds up its gradients place by place, "
     "replicas add up their own first",
     shares_in_replicas, OTHER_ORDER},
    {"order", "each replica adds up the gradients of its own micro-batches first",
     adds_in_replicas, OTHER_ORDER},
    {"runs",
     "the gradients of each micro-batch are summed over the replicas, and then owners add up "
     "these sums",
     adds_run_by_run, OTHER_ORDER},
    {"algorithm", "the named all-reduce does not add up in the order of ranks", adds_elsewhere,
     OTHER_ORDER},
    {"short batch",
     "the last batch of the data is short, and replicas divide it into other parts",
     cuts_short_batches, OTHER_ORDER},
    {"bf16", "products of bf16 have 8 bits, so the order of sums changes results", is_bf16,
     ROUNDED},
    {"codec", "gradients are sent by a lossy codec: only --tolerance sets a bound", is_lossy,
     NOTHING_PROMISED},
    {"weights codec", "parameters are sent by a lossy codec: only --tolerance sets a bound",
     has_lossy_weights, NOTHING_PROMISED},
    {"bf16 activations",
     "activations and their gradients have 8 bits when they are sent between ranks",
     hands_on_bf16, ROUNDED},
    {"activations codec",
     "activations are sent by a lossy codec: only --tolerance sets a bound", hands_on_less,
     NOTHING_PROMISED},
    {"statistics",
     "running statistics of batches are the mean of the replicas' own; on one rank they "
     "continue from each micro-batch to the next",
     has_replicas,
     {{0, 0, 0, 0, INFINITY}}},
};
enum { REASONS = sizeof reasons / sizeof reasons[0] };

const rpi_verify_reason *rpi_verify_reason_at(int index) {
    return index >= 0 && index < REASONS ? &reasons[index] : NULL;
}

rpi_verify_bounds rpi_verify_bounds_of(const rpi_verify_layout *layout) {
    rpi_verify_bounds all = {{0}};
    for (int i = 0; i < REASONS; i++) {
        if (!reasons[i].applies(layout)) continue;
        for (int k = 0; k < RPI_VERIFY_KINDS; k++)
            all.of[k] = fmax(all.of[k], reasons[i].bounds.of[k]);
    }
    return all;
}

/* ---- ties ---- */

/* Ties of a network, which do not depend on the length of a sequence. */
static rp_status count_ties(const rpi_network *network, const rpi_train_options *o,
                            int *out_ties) {
    const rpi_pipeline_kind *schedule = NULL;
    rpi_model_stage stage = {0};
    double *costs = NULL;
    bool is_auto = !o->schedule || strcmp(o->schedule, "auto") == 0;
    RP_TRY(rpi_pipeline_kind_find(is_auto ? "1f1b" : o->schedule, &schedule));
    RP_TRY(rpi_node_costs(network, &costs));
    rp_status status = rpi_stage_open(network, costs, schedule, (int)o->stages, 0, &stage);
    if (status == RP_OK) *out_ties = stage.tie_count;
    rpi_stage_close(&stage);
    rpi_free(costs);
    return status;
}

static bool is_shared(const rpi_graph *graph, rpi_value_id value) {
    int readers = 0;
    for (int n = 0; n < rpi_graph_node_count(graph); n++) {
        const rpi_node *node = rpi_graph_node(graph, n);
        for (int i = 0; i < node->input_count; i++) readers += node->inputs[i] == value;
    }
    return readers > 1;
}

static bool has_shared(const rpi_network *network) {
    for (int p = 0; p < network->parameter_count; p++)
        if (!network->parameters[p].is_state &&
            is_shared(network->graph, network->parameters[p].value))
            return true;
    return false;
}

/* Models of images share no parameters, and could not be built without the size of an image. */
rp_status rpi_verify_find_ties(const rpi_train_options *o, rpi_verify_layout *layout) {
    enum { SHORT_SEQUENCE = 8 };
    rpi_model_choice choice;
    rpi_network network = {0};
    rpi_data_shape shape = {.sequence = SHORT_SEQUENCE};
    int ties = 0;
    rp_status status = RP_OK;
    layout->has_ties = layout->has_shared = false;
    RP_TRY(rpi_model_parse(o->model, &choice));
    if (strcmp(rpi_model_task(&choice), "classification") == 0) return RP_OK;
    RP_TRY(rpi_network_build(o->model, &shape, &network));
    layout->has_shared = has_shared(&network);
    if (o->stages > 1) status = count_ties(&network, o, &ties);
    layout->has_ties = ties > 0;
    rpi_network_close(&network);
    return status;
}
