#include "train/parallel/tensor_nodes.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>

enum { FORWARD, BACKWARD, PASSES };

/* Between start and finish of a pass of a node there is no other of that pass and node. */
typedef struct one_node {
    rpi_tensor_nodes *all;
    struct one_node *next;
    uint32_t number; /* the same on all ranks, which build the same graph */
    rp_request *requests[PASSES];
} one_node;

struct rpi_tensor_nodes {
    rp_comm *comm;
    rpi_tensor_nodes_options options;
    int ranks, rank;
    one_node *nodes;
    uint32_t count;
    rpi_tensor_traffic traffic;
};

static size_t count_of(const rpi_tensor *tensor) {
    return (size_t)rpi_shape_count(&tensor->shape);
}

/* ---- sums ---- */

static rp_status start_sum(one_node *node, const rpi_external_io *io, int pass) {
    const rpi_tensor *from = &io->inputs[0], *to = &io->outputs[0];
    size_t count = count_of(to);
    const rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = RP_SUM);
    rpi_link_way way = pass == FORWARD ? RPI_LINK_ACTIVATION : RPI_LINK_GRADIENT;
    RP_TRY(rpi_activation_codec_measure(node->all->options.codec, way, from->data,
                                        (int64_t)count));
    memcpy(to->data, from->data, count * sizeof(float));
    const rp_segment segment = {.data = to->data,
                                .count = count,
                                .dtype = RP_F32,
                                .codec = rpi_activation_codec_now(node->all->options.codec),
                                .tensor = node->number * PASSES + (uint32_t)pass};
    return rp_all_reduce_start(node->all->comm, &segment, 1, &options, &node->requests[pass]);
}

static rp_status finish(one_node *node, int pass) {
    rpi_tensor_traffic *traffic = &node->all->traffic;
    int64_t begun = rpi_now_ns();
    rp_status status = rp_request_wait(&node->requests[pass]);
    int64_t ended = rpi_now_ns();
    const rpi_tensor_nodes_options *options = &node->all->options;
    traffic->wait_ns += ended - begun;
    if (options->waited) options->waited(options->context, begun, ended);
    return status;
}

static rp_status finish_sum(one_node *node, const rpi_external_io *io, int pass) {
    RP_TRY(finish(node, pass));
    node->all->traffic.sums++;
    node->all->traffic.summed_bytes += (int64_t)(count_of(&io->outputs[0]) * sizeof(float));
    return RP_OK;
}

static rp_status start_forward_sum(void *context, const rpi_external_io *io) {
    return start_sum(context, io, FORWARD);
}

static rp_status finish_forward_sum(void *context, const rpi_external_io *io) {
    return finish_sum(context, io, FORWARD);
}

static rp_status start_backward_sum(void *context, const rpi_external_io *io) {
    return start_sum(context, io, BACKWARD);
}

static rp_status finish_backward_sum(void *context, const rpi_external_io *io) {
    return finish_sum(context, io, BACKWARD);
}

/* ---- gathers ---- */

static rp_status start_gather(void *context, const rpi_external_io *io) {
    one_node *node = context;
    return rp_all_gather_start(node->all->comm, io->inputs[0].data, io->outputs[0].data,
                               count_of(&io->inputs[0]), RP_F32, NULL, NULL,
                               &node->requests[FORWARD]);
}

static rp_status finish_gather(void *context, const rpi_external_io *io) {
    one_node *node = context;
    RP_TRY(finish(node, FORWARD));
    node->all->traffic.gathers++;
    node->all->traffic.gathered_bytes += (int64_t)(count_of(&io->outputs[0]) * sizeof(float));
    return RP_OK;
}

/* All ranks make the same of what they have gathered: a rank's own part is all that reaches it.
 */
static rp_status take_own_part(void *context, const rpi_external_io *io) {
    const one_node *node = context;
    size_t count = count_of(&io->outputs[0]);
    const float *gradients = io->inputs[0].data;
    memcpy(io->outputs[0].data, gradients + (size_t)node->all->rank * count,
           count * sizeof(float));
    return RP_OK;
}

/* ---- nodes ---- */

/* A run that has failed on one rank has failed on all: the group ends, and its memory is free.
 */
static void cancel(void *context, uint64_t run, bool is_backward) {
    one_node *node = context;
    (void)run;
    rp_comm_abort(node->all->comm, RP_PEER, "a run failed between the halves of a tensor node");
    (void)rp_request_wait(&node->requests[is_backward ? BACKWARD : FORWARD]);
}

static const rpi_external_attributes functions[] = {
    [RPI_TENSOR_SPLIT] = {.backward_start = start_backward_sum,
                          .backward_finish = finish_backward_sum,
                          .cancel = cancel},
    [RPI_TENSOR_JOIN] = {.forward_start = start_forward_sum,
                         .forward_finish = finish_forward_sum,
                         .cancel = cancel},
    [RPI_TENSOR_GATHER] = {.forward_start = start_gather,
                           .forward_finish = finish_gather,
                           .backward_finish = take_own_part,
                           .cancel = cancel},
};

static rp_status describe(void *context, rpi_tensor_node kind, const char *name,
                          rpi_external_attributes *out) {
    rpi_tensor_nodes *nodes = context;
    one_node *node = NULL;
    (void)name;
    RP_TRY(rpi_alloc(sizeof *node, "a tensor node", &node));
    *node = (one_node){.all = nodes, .next = nodes->nodes, .number = nodes->count++};
    nodes->nodes = node;
    *out = functions[kind];
    out->context = node;
    return RP_OK;
}

rpi_tensor_split rpi_tensor_nodes_split(rpi_tensor_nodes *nodes) {
    return (rpi_tensor_split){.ranks = nodes->ranks,
                              .rank = nodes->rank,
                              .describe = describe,
                              .nodes = nodes,
                              .repeats = nodes->options.repeats_sums};
}

rpi_tensor_traffic rpi_tensor_nodes_traffic(const rpi_tensor_nodes *nodes) {
    return nodes->traffic;
}

/* ---- the communicator ---- */

rp_comm *rpi_tensor_nodes_comm(const rpi_tensor_nodes *nodes) {
    return nodes->comm;
}

static rp_status open_comm(rp_comm *group, rpi_tensor_nodes *nodes) {
    const rp_comm_options options =
        RP_COMM_OPTIONS(.name = nodes->options.name ? nodes->options.name : "tensor",
                        .priority = RP_PRIORITY_URGENT, .progress_thread = 1);
    int *ranks = NULL;
    RP_TRY(rpi_alloc_array((size_t)nodes->ranks, sizeof *ranks, "tensor ranks", &ranks));
    for (int r = 0; r < nodes->ranks; r++) ranks[r] = r;
    rp_status status = rp_comm_group(group, ranks, nodes->ranks, &options, &nodes->comm);
    rpi_free(ranks);
    return status;
}

rp_status rpi_tensor_nodes_create(rp_comm *group, const rpi_tensor_nodes_options *options,
                                  rpi_tensor_nodes **out_nodes) {
    rpi_tensor_nodes *nodes = NULL;
    RP_TRY(rpi_alloc(sizeof *nodes, "tensor nodes", &nodes));
    *nodes = (rpi_tensor_nodes){.ranks = rp_comm_world(group), .rank = rp_comm_rank(group)};
    if (options) nodes->options = *options;
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
    rp_comm_destroy(nodes->comm);
    for (one_node *node = nodes->nodes, *next; node; node = next) {
        next = node->next;
        rpi_free(node);
    }
    rpi_free(nodes);
}
