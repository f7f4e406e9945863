#include "train/parallel/context_nodes.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>

enum { FORWARD, BACKWARD, PASSES };

/* A buffer for what ranks send: ranks x parts x batch x the tokens of a rank x keys. An
 * operation holds it from its start to its finish; later operations use it again. */
typedef struct travel {
    struct travel *next;
    float *data;
    size_t room;
    bool is_taken;
} travel;

/* Between start and finish of a pass of this node, no other pass of the node starts. */
typedef struct one_node {
    rpi_context_nodes *all;
    struct one_node *next;
    rpi_context_gather gather;
    rp_request *requests[PASSES];
    travel *travels[PASSES];
} one_node;

struct rpi_context_nodes {
    /* NULL: waits are not reported */
    void (*waited)(void *context, int64_t start_ns, int64_t end_ns);
    void *waited_context;
    rp_comm *comm;
    int ranks, rank;
    one_node *nodes;
    travel *travels;
    rpi_context_traffic traffic;
};

/* ---- memory ---- */

static rp_status add_travel(rpi_context_nodes *nodes, travel **out) {
    travel *added = NULL;
    RP_TRY(rpi_alloc(sizeof *added, "keys and values that travel", &added));
    added->next = nodes->travels;
    nodes->travels = *out = added;
    return RP_OK;
}

/* Takes a free buffer, the largest first: programs that run repeatedly soon have one that is
 * large enough for all of them. */
static rp_status take(rpi_context_nodes *nodes, size_t count, travel **out) {
    travel *best = NULL;
    for (travel *t = nodes->travels; t; t = t->next)
        if (!t->is_taken && (!best || t->room > best->room)) best = t;
    if (!best) RP_TRY(add_travel(nodes, &best));
    if (best->room < count) {
        rpi_free(best->data);
        best->data = NULL;
        best->room = 0;
        RP_TRY(rpi_alloc_array(count, sizeof *best->data, "keys and values that travel",
                               &best->data));
        best->room = count;
    }
    best->is_taken = true;
    *out = best;
    return RP_OK;
}

/* ---- where keys and values lie ---- */

/* The layout of a node whose shapes are bound. */
typedef struct layout {
    int64_t batch, tokens, keys; /* tokens: of one rank, in two pieces */
    /* elements of an input token; of its queries, which lie before the keys */
    int64_t width, queries;
    int ranks, parts; /* parts: keys and values, or one tensor */
    bool is_packed;
} layout;

static layout layout_of(const one_node *node, const rpi_tensor *own) {
    const rpi_context_gather *gather = &node->gather;
    return (layout){.batch = own->shape.size[0],
                    .tokens = own->shape.size[1],
                    .keys = gather->keys,
                    .width = own->shape.size[2],
                    .queries = gather->queries,
                    .ranks = node->all->ranks,
                    .parts = rpi_context_parts(gather),
                    .is_packed = gather->queries > 0};
}

/* The number of elements of one rank. */
static size_t block_of(const layout *l) {
    return (size_t)(l->parts * l->batch * l->tokens * l->keys);
}

static float *part_of(const layout *l, float *block, int part) {
    return block + part * l->batch * l->tokens * l->keys;
}

/* Where the tokens of a part begin in a rank's tensor, or its gradient, and the distance from
 * each token to the next. */
static float *own_part(const layout *l, const rpi_tensor *tensors, int part, int64_t *stride) {
    *stride = l->is_packed ? l->width : l->keys;
    if (!l->is_packed) return tensors[part].data;
    float *packed = tensors[0].data;
    return packed ? packed + l->queries + part * l->keys : NULL;
}

static void copy_rows(float *to, int64_t to_stride, const float *from, int64_t from_stride,
                      int64_t rows, int64_t count) {
    if (to_stride == count && from_stride == count) {
        memcpy(to, from, (size_t)(rows * count) * sizeof *to);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * to_stride, from + r * from_stride, (size_t)count * sizeof *to);
}

/* Copies between a rank's block and the keys or values of whole sequences. */
static void copy_pieces(const layout *l, int rank, float *block, float *whole, bool to_whole) {
    const rpi_context_split split = {.ranks = l->ranks, .rank = rank};
    const rpi_token_pieces pieces = rpi_context_pieces(&split, 0);
    for (int64_t b = 0; b < l->batch; b++)
        for (int i = 0; i < rpi_token_runs(&pieces); i++) {
            rpi_token_run run = rpi_token_run_at(&pieces, l->tokens, i);
            float *own = block + (b * l->tokens + run.first) * l->keys;
            float *there = whole + (b * l->tokens * l->ranks + run.place) * l->keys;
            size_t bytes = (size_t)(run.count * l->keys) * sizeof *own;
            if (to_whole)
                memcpy(there, own, bytes);
            else
                memcpy(own, there, bytes);
        }
}

/* ---- forward ---- */

static rp_status start_gather(void *context, const rpi_external_io *io) {
    one_node *node = context;
    layout l = layout_of(node, &io->inputs[0]);
    size_t block = block_of(&l);
    travel *t = NULL;
    RP_TRY(take(node->all, block * (size_t)l.ranks, &t));
    node->travels[FORWARD] = t;
    float *own = t->data + block * (size_t)node->all->rank;
    for (int part = 0; part < l.parts; part++) {
        int64_t stride;
        const float *from = own_part(&l, io->inputs, part, &stride);
        copy_rows(part_of(&l, own, part), l.keys, from, stride, l.batch * l.tokens, l.keys);
    }
    return rp_all_gather_start(node->all->comm, own, t->data, block, RP_F32, NULL, NULL,
                               &node->requests[FORWARD]);
}

static rp_status finish(one_node *node, int pass) {
    rpi_context_traffic *traffic = &node->all->traffic;
    int64_t begun = rpi_now_ns();
    rp_status status = rp_request_wait(&node->requests[pass]);
    int64_t ended = rpi_now_ns();
    traffic->wait_ns += ended - begun;
    if (node->all->waited) node->all->waited(node->all->waited_context, begun, ended);
    node->travels[pass]->is_taken = false;
    return status;
}

static rp_status finish_gather(void *context, const rpi_external_io *io) {
    one_node *node = context;
    layout l = layout_of(node, &io->inputs[0]);
    size_t block = block_of(&l);
    float *data = node->travels[FORWARD]->data;
    RP_TRY(finish(node, FORWARD));
    for (int r = 0; r < l.ranks; r++)
        for (int part = 0; part < l.parts; part++)
            copy_pieces(&l, r, part_of(&l, data + block * (size_t)r, part),
                        io->outputs[l.is_packed + part].data, true);
    if (l.is_packed)
        copy_rows(io->outputs[0].data, l.queries, io->inputs[0].data, l.width,
                  l.batch * l.tokens, l.queries);
    node->all->traffic.gathers++;
    node->all->traffic.gathered_bytes += (int64_t)(block * (size_t)l.ranks * sizeof(float));
    return RP_OK;
}

/* ---- backward ---- */

/* A gradient is zero where the loss does not depend on the value. */
static void pack_gradients(const layout *l, const rpi_external_io *io, float *data) {
    size_t block = block_of(l), part_bytes = block / (size_t)l->parts * sizeof *data;
    for (int r = 0; r < l->ranks; r++)
        for (int part = 0; part < l->parts; part++) {
            float *to = part_of(l, data + block * (size_t)r, part);
            float *from = io->inputs[l->is_packed + part].data;
            if (from)
                copy_pieces(l, r, to, from, false);
            else
                memset(to, 0, part_bytes);
        }
}

static rp_status start_scatter(void *context, const rpi_external_io *io) {
    one_node *node = context;
    layout l = layout_of(node, &io->outputs[0]);
    size_t block = block_of(&l);
    travel *t = NULL;
    RP_TRY(take(node->all, block * (size_t)l.ranks, &t));
    node->travels[BACKWARD] = t;
    pack_gradients(&l, io, t->data);
    return rp_reduce_scatter_start(node->all->comm, t->data,
                                   t->data + block * (size_t)node->all->rank, block, RP_F32,
                                   NULL, NULL, &node->requests[BACKWARD]);
}

static void unpack_queries(const layout *l, const rpi_external_io *io) {
    float *to = io->outputs[0].data;
    const float *from = io->inputs[0].data;
    int64_t rows = l->batch * l->tokens;
    if (!l->is_packed || !to) return;
    if (from)
        copy_rows(to, l->width, from, l->queries, rows, l->queries);
    else
        for (int64_t r = 0; r < rows; r++)
            memset(to + r * l->width, 0, (size_t)l->queries * sizeof *to);
}

static rp_status finish_scatter(void *context, const rpi_external_io *io) {
    one_node *node = context;
    layout l = layout_of(node, &io->outputs[0]);
    size_t block = block_of(&l);
    float *own = node->travels[BACKWARD]->data + block * (size_t)node->all->rank;
    RP_TRY(finish(node, BACKWARD));
    for (int part = 0; part < l.parts; part++) {
        int64_t stride;
        float *to = own_part(&l, io->outputs, part, &stride);
        if (to)
            copy_rows(to, stride, part_of(&l, own, part), l.keys, l.batch * l.tokens, l.keys);
    }
    unpack_queries(&l, io);
    node->all->traffic.scatters++;
    node->all->traffic.scattered_bytes += (int64_t)(block * (size_t)l.ranks * sizeof(float));
    return RP_OK;
}

/* ---- nodes ---- */

/* A run that fails on one rank has failed on all ranks: the group ends, and its memory is free.
 */
static void cancel(void *context, uint64_t run, bool is_backward) {
    one_node *node = context;
    (void)run;
    rp_comm_abort(node->all->comm, RP_PEER,
                  "a run failed between the halves of a context node");
    (void)finish(node, is_backward ? BACKWARD : FORWARD);
}

static rp_status describe(void *context, const rpi_context_gather *gather,
                          rpi_external_attributes *out) {
    rpi_context_nodes *nodes = context;
    one_node *node = NULL;
    RP_TRY(rpi_alloc(sizeof *node, "a context node", &node));
    *node = (one_node){.all = nodes, .next = nodes->nodes, .gather = *gather};
    nodes->nodes = node;
    *out = (rpi_external_attributes){.context = node,
                                     .forward_start = start_gather,
                                     .forward_finish = finish_gather,
                                     .backward_start = start_scatter,
                                     .backward_finish = finish_scatter,
                                     .cancel = cancel};
    return RP_OK;
}

rpi_context_split rpi_context_nodes_split(rpi_context_nodes *nodes) {
    return (rpi_context_split){
        .ranks = nodes->ranks, .rank = nodes->rank, .describe = describe, .nodes = nodes};
}

void rpi_context_nodes_hear(rpi_context_nodes *nodes,
                            void (*waited)(void *context, int64_t start_ns, int64_t end_ns),
                            void *context) {
    nodes->waited = waited;
    nodes->waited_context = context;
}

rpi_context_traffic rpi_context_nodes_traffic(const rpi_context_nodes *nodes) {
    return nodes->traffic;
}

/* ---- the communicator ---- */

rp_comm *rpi_context_nodes_comm(const rpi_context_nodes *nodes) {
    return nodes->comm;
}

static rp_status open_comm(rp_comm *group, const char *name, rpi_context_nodes *nodes) {
    const rp_comm_options options =
        RP_COMM_OPTIONS(.name = name ? name : "context", .priority = RP_PRIORITY_URGENT,
                        .progress_thread = 1);
    int *ranks = NULL;
    RP_TRY(rpi_alloc_array((size_t)nodes->ranks, sizeof *ranks, "context ranks", &ranks));
    for (int r = 0; r < nodes->ranks; r++) ranks[r] = r;
    rp_status status = rp_comm_group(group, ranks, nodes->ranks, &options, &nodes->comm);
    rpi_free(ranks);
    return status;
}

rp_status rpi_context_nodes_create(rp_comm *group, const char *name,
                                   rpi_context_nodes **out_nodes) {
    rpi_context_nodes *nodes = NULL;
    RP_TRY(rpi_alloc(sizeof *nodes, "context nodes", &nodes));
    *nodes = (rpi_context_nodes){.ranks = rp_comm_world(group), .rank = rp_comm_rank(group)};
    rp_status status = open_comm(group, name, nodes);
    if (status != RP_OK) {
        rpi_free(nodes);
        return status;
    }
    *out_nodes = nodes;
    return RP_OK;
}

static void free_travels(rpi_context_nodes *nodes) {
    for (travel *t = nodes->travels, *next; t; t = next) {
        next = t->next;
        rpi_free(t->data);
        rpi_free(t);
    }
}

void rpi_context_nodes_destroy(rpi_context_nodes *nodes) {
    if (!nodes) return;
    rp_comm_destroy(nodes->comm);
    for (one_node *node = nodes->nodes, *next; node; node = next) {
        next = node->next;
        rpi_free(node);
    }
    free_travels(nodes);
    rpi_free(nodes);
}
