#include "train/parallel/tensor_nodes.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/parallel/tensor_tokens.h"

#include <string.h>

typedef rpi_one_tensor_node one_node;

struct rpi_tensor_nodes {
    rpi_tensor_meeting all;
    rpi_tensor_nodes_options options;
    one_node *nodes;
    uint32_t count;
};

static size_t count_of(const rpi_tensor *tensor) {
    return (size_t)rpi_shape_count(&tensor->shape);
}

/* ---- sums ---- */

static rp_status start_sum(one_node *node, const rpi_external_io *io, int pass) {
    const rpi_tensor *from = &io->inputs[0], *to = &io->outputs[0];
    size_t count = count_of(to);
    const rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = RP_SUM);
    RP_TRY(rpi_tensor_node_measure(node, pass, from->data, count));
    memcpy(to->data, from->data, count * sizeof(float));
    const rp_segment segment = {.data = to->data,
                                .count = count,
                                .dtype = RP_F32,
                                .codec = rpi_tensor_node_codec(node),
                                .tensor = rpi_tensor_node_identity(node, pass)};
    return rp_all_reduce_start(node->all->comm, &segment, 1, &options, &node->requests[pass]);
}

static rp_status finish_sum(one_node *node, const rpi_external_io *io, int pass) {
    RP_TRY(rpi_tensor_node_wait(node, pass));
    node->all->traffic.sums++;
    node->all->traffic.summed_bytes += (int64_t)(count_of(&io->outputs[0]) * sizeof(float));
    return RP_OK;
}

static rp_status start_forward_sum(void *context, const rpi_external_io *io) {
    return start_sum(context, io, RPI_NODE_FORWARD);
}

static rp_status finish_forward_sum(void *context, const rpi_external_io *io) {
    return finish_sum(context, io, RPI_NODE_FORWARD);
}

static rp_status start_backward_sum(void *context, const rpi_external_io *io) {
    return start_sum(context, io, RPI_NODE_BACKWARD);
}

static rp_status finish_backward_sum(void *context, const rpi_external_io *io) {
    return finish_sum(context, io, RPI_NODE_BACKWARD);
}

/* ---- gathers ---- */

static rp_status start_gather(void *context, const rpi_external_io *io) {
    one_node *node = context;
    return rp_all_gather_start(node->all->comm, io->inputs[0].data, io->outputs[0].data,
                               count_of(&io->inputs[0]), RP_F32, NULL, NULL,
                               &node->requests[RPI_NODE_FORWARD]);
}

static rp_status finish_gather(void *context, const rpi_external_io *io) {
    one_node *node = context;
    RP_TRY(rpi_tensor_node_wait(node, RPI_NODE_FORWARD));
    node->all->traffic.gathers++;
    node->all->traffic.gathered_bytes += (int64_t)(count_of(&io->outputs[0]) * sizeof(float));
    return RP_OK;
}

/* All ranks compute the same from what they have gathered, so that only the gradient of a
 * rank's own part reaches it. */
static rp_status take_own_part(void *context, const rpi_external_io *io) {
    const one_node *node = context;
    size_t count = count_of(&io->outputs[0]);
    const float *gradients = io->inputs[0].data;
    memcpy(io->outputs[0].data, gradients + (size_t)node->all->rank * count,
           count * sizeof(float));
    return RP_OK;
}

/* ---- nodes ---- */

/* A run that fails on one rank has failed on all ranks: the group ends, and its memory is free.
 */
static void cancel(void *context, uint64_t run, bool is_backward) {
    one_node *node = context;
    (void)run;
    rp_comm_abort(node->all->comm, RP_PEER, "a run failed between the halves of a tensor node");
    (void)rp_request_wait(&node->requests[is_backward ? RPI_NODE_BACKWARD : RPI_NODE_FORWARD]);
}

static const rpi_external_attributes split_functions = {.backward_start = start_backward_sum,
                                                        .backward_finish = finish_backward_sum};
static const rpi_external_attributes join_functions = {.forward_start = start_forward_sum,
                                                       .forward_finish = finish_forward_sum};
static const rpi_external_attributes gather_functions = {.forward_start = start_gather,
                                                         .forward_finish = finish_gather,
                                                         .backward_finish = take_own_part};

static const rpi_external_attributes *const functions[] = {
    [RPI_TENSOR_SPLIT] = &split_functions,
    [RPI_TENSOR_JOIN] = &join_functions,
    [RPI_TENSOR_SPLIT_TOKENS] = &rpi_split_tokens_functions,
    [RPI_TENSOR_JOIN_TOKENS] = &rpi_join_tokens_functions,
    [RPI_TENSOR_ALL_TOKENS] = &rpi_all_tokens_functions,
    [RPI_TENSOR_OWN_TOKENS] = &rpi_own_tokens_functions,
    [RPI_TENSOR_FIRST] = &rpi_first_functions,
    [RPI_TENSOR_GATHER] = &gather_functions,
};

static rp_status describe(void *context, rpi_tensor_node kind, const char *name,
                          rpi_external_attributes *out) {
    rpi_tensor_nodes *nodes = context;
    one_node *node = NULL;
    (void)name;
    RP_TRY(rpi_alloc(sizeof *node, "a tensor node", &node));
    *node = (one_node){.all = &nodes->all, .next = nodes->nodes, .number = nodes->count++};
    nodes->nodes = node;
    *out = *functions[kind];
    out->cancel = cancel;
    out->context = node;
    return RP_OK;
}

rpi_tensor_split rpi_tensor_nodes_split(rpi_tensor_nodes *nodes) {
    return (rpi_tensor_split){.ranks = nodes->all.ranks,
                              .rank = nodes->all.rank,
                              .describe = describe,
                              .nodes = nodes,
                              .repeats = nodes->options.repeats_sums,
                              .tokens = nodes->options.cuts_tokens};
}

rpi_tensor_traffic rpi_tensor_nodes_traffic(const rpi_tensor_nodes *nodes) {
    return nodes->all.traffic;
}

/* ---- the communicator ---- */

rp_comm *rpi_tensor_nodes_comm(const rpi_tensor_nodes *nodes) {
    return nodes->all.comm;
}

static rp_status open_comm(rp_comm *group, rpi_tensor_nodes *nodes) {
    const rp_comm_options options =
        RP_COMM_OPTIONS(.name = nodes->options.name ? nodes->options.name : "tensor",
                        .priority = RP_PRIORITY_URGENT, .progress_thread = 1);
    int *ranks = NULL;
    RP_TRY(rpi_alloc_array((size_t)nodes->all.ranks, sizeof *ranks, "tensor ranks", &ranks));
    for (int r = 0; r < nodes->all.ranks; r++) ranks[r] = r;
    rp_status status =
        rp_comm_group(group, ranks, nodes->all.ranks, &options, &nodes->all.comm);
    rpi_free(ranks);
    return status;
}

rp_status rpi_tensor_nodes_create(rp_comm *group, const rpi_tensor_nodes_options *options,
                                  rpi_tensor_nodes **out_nodes) {
    rpi_tensor_nodes *nodes = NULL;
    RP_TRY(rpi_alloc(sizeof *nodes, "tensor nodes", &nodes));
    if (options) nodes->options = *options;
    nodes->all = (rpi_tensor_meeting){.activations = nodes->options.codec,
                                      .plain = nodes->options.plain,
                                      .waited = nodes->options.waited,
                                      .context = nodes->options.context,
                                      .ranks = rp_comm_world(group),
                                      .rank = rp_comm_rank(group)};
    rp_status status = open_comm(group, nodes);
    if (status != RP_OK) {
        rpi_free(nodes);
        return status;
    }
    *out_nodes = nodes;
    return RP_OK;
}

void rpi_tensor_nodes_destroy(rpi_tensor_nodes *nodes) {
    if (!nodes) return;
    rp_comm_destroy(nodes->all.comm);
    for (one_node *node = nodes->nodes, *next; node; node = next) {
        next = node->next;
        rpi_free(node);
    }
    rpi_free(nodes->all.segments);
    rpi_free(nodes);
}
