/* Nodes between the tokens of one rank and those of all ranks (tensor_tokens.h). Sequences lie
 * one after the other, so that a rank's part is a run in each of them, which is sent from and
 * received into its place. Parts have equal lengths. In the last parts some tokens, or all, are
 * padding, which is written as zeros and never sent. */
#include "train/parallel/tensor_tokens.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/parallel/tensor_node.h"

#include <string.h>

typedef rpi_one_tensor_node one_node;

typedef struct token_parts {
    int64_t batch, tokens, part, width;
} token_parts;

static token_parts parts_of(const rpi_tensor *whole, const rpi_tensor *part) {
    const int64_t *size = whole->shape.size;
    return (token_parts){size[0], size[1], part->shape.size[1], size[2]};
}

/* Tokens of a rank without padding. */
static int64_t own_count(const token_parts *p, int rank) {
    int64_t left = p->tokens - rank * p->part;
    if (left < 0) return 0;
    return left < p->part ? left : p->part;
}

static float *whole_at(const token_parts *p, float *whole, int64_t sample, int rank) {
    return whole + (sample * p->tokens + rank * p->part) * p->width;
}

static float *part_at(const token_parts *p, float *part, int64_t sample) {
    return part + sample * p->part * p->width;
}

static void clear_padding(const token_parts *p, int rank, float *part) {
    int64_t own = own_count(p, rank) * p->width, padding = p->part * p->width - own;
    for (int64_t s = 0; s < p->batch && padding; s++)
        memset(part_at(p, part, s) + own, 0, (size_t)padding * sizeof *part);
}

/* ---- segments: a run of each sequence for each rank ---- */

static rp_status make_room(rpi_tensor_meeting *all, size_t count) {
    if (count <= all->segment_room) return RP_OK;
    RP_TRY(rpi_grow_array(all->segment_room, count, sizeof *all->segments, "parts of tokens",
                          &all->segments));
    all->segment_room = count;
    return RP_OK;
}

static rp_owned_segment segment_of(const one_node *node, int pass, const token_parts *p,
                                   int64_t sample, int rank, float *whole, float *part) {
    rp_codec codec = rpi_tensor_node_codec(node);
    uint64_t granule = rp_codec_granule(&codec), run = (uint64_t)(p->part * p->width);
    uint64_t number = (uint64_t)sample * (uint64_t)node->all->ranks + (uint64_t)rank;
    return (rp_owned_segment){
        .segment = {.data = whole_at(p, whole, sample, rank),
                    .count = (size_t)(own_count(p, rank) * p->width),
                    .dtype = RP_F32,
                    .codec = codec,
                    .tensor = rpi_tensor_node_identity(node, pass),
                    .first = number * ((run + granule - 1) / granule * granule)},
        .owner = rank,
        .own = rank == node->all->rank ? part_at(p, part, sample) : NULL};
}

static rp_status list_segments(one_node *node, int pass, const token_parts *p, float *whole,
                               float *part, size_t *out_count) {
    rpi_tensor_meeting *all = node->all;
    size_t count = 0;
    if (p->part * all->ranks < p->tokens)
        return RP_FAIL(INTERNAL, "%d parts of %lld tokens are less than %lld", all->ranks,
                       (long long)p->part, (long long)p->tokens);
    RP_TRY(make_room(all, (size_t)p->batch * (size_t)all->ranks));
    for (int64_t s = 0; s < p->batch; s++)
        for (int r = 0; r < all->ranks && own_count(p, r); r++)
            all->segments[count++] = segment_of(node, pass, p, s, r, whole, part);
    *out_count = count;
    return RP_OK;
}

/* Gathers the parts into the whole; all ranks get the same output. */
static rp_status start_gather(one_node *node, const rpi_external_io *io, int pass) {
    const rpi_tensor *part = &io->inputs[0], *whole = &io->outputs[0];
    const token_parts p = parts_of(whole, part);
    size_t count = 0;
    RP_TRY(rpi_tensor_node_measure(node, pass, io->inputs[0].data,
                                   (size_t)rpi_shape_count(&io->inputs[0].shape)));
    RP_TRY(list_segments(node, pass, &p, whole->data, part->data, &count));
    return rp_all_gather_segments_start(node->all->comm, node->all->segments, count, NULL,
                                        &node->requests[pass]);
}

static rp_status finish_gather(one_node *node, const rpi_external_io *io, int pass) {
    rpi_tensor_traffic *traffic = &node->all->traffic;
    RP_TRY(rpi_tensor_node_wait(node, pass));
    traffic->token_gathers++;
    traffic->token_bytes += rpi_shape_count(&io->outputs[0].shape) * (int64_t)sizeof(float);
    return RP_OK;
}

/* Sums what all ranks have of the whole, and gives each rank its own part of the sum. */
static rp_status start_scatter(one_node *node, const rpi_external_io *io, int pass) {
    const rpi_tensor *whole = &io->inputs[0], *part = &io->outputs[0];
    const token_parts p = parts_of(whole, part);
    const rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = RP_SUM);
    size_t count = 0;
    RP_TRY(rpi_tensor_node_measure(node, pass, io->inputs[0].data,
                                   (size_t)rpi_shape_count(&io->inputs[0].shape)));
    RP_TRY(list_segments(node, pass, &p, whole->data, part->data, &count));
    clear_padding(&p, node->all->rank, part->data);
    return rp_reduce_scatter_segments_start(node->all->comm, node->all->segments, count,
                                            &options, &node->requests[pass]);
}

static rp_status finish_scatter(one_node *node, const rpi_external_io *io, int pass) {
    rpi_tensor_traffic *traffic = &node->all->traffic;
    RP_TRY(rpi_tensor_node_wait(node, pass));
    traffic->token_scatters++;
    traffic->token_bytes += rpi_shape_count(&io->inputs[0].shape) * (int64_t)sizeof(float);
    return RP_OK;
}

static rp_status start_forward_gather(void *context, const rpi_external_io *io) {
    return start_gather(context, io, RPI_NODE_FORWARD);
}
static rp_status finish_forward_gather(void *context, const rpi_external_io *io) {
    return finish_gather(context, io, RPI_NODE_FORWARD);
}
static rp_status start_backward_gather(void *context, const rpi_external_io *io) {
    return start_gather(context, io, RPI_NODE_BACKWARD);
}
static rp_status finish_backward_gather(void *context, const rpi_external_io *io) {
    return finish_gather(context, io, RPI_NODE_BACKWARD);
}
static rp_status start_forward_scatter(void *context, const rpi_external_io *io) {
    return start_scatter(context, io, RPI_NODE_FORWARD);
}
static rp_status finish_forward_scatter(void *context, const rpi_external_io *io) {
    return finish_scatter(context, io, RPI_NODE_FORWARD);
}
static rp_status start_backward_scatter(void *context, const rpi_external_io *io) {
    return start_scatter(context, io, RPI_NODE_BACKWARD);
}
static rp_status finish_backward_scatter(void *context, const rpi_external_io *io) {
    return finish_scatter(context, io, RPI_NODE_BACKWARD);
}

/* ---- what all ranks do alike: nothing travels that they have ---- */

static rp_status take_own(void *context, const rpi_external_io *io) {
    const one_node *node = context;
    const token_parts p = parts_of(&io->inputs[0], &io->outputs[0]);
    int rank = node->all->rank;
    size_t bytes = (size_t)(own_count(&p, rank) * p.width) * sizeof(float);
    for (int64_t s = 0; s < p.batch && bytes; s++)
        memcpy(part_at(&p, io->outputs[0].data, s), whole_at(&p, io->inputs[0].data, s, rank),
               bytes);
    clear_padding(&p, rank, io->outputs[0].data);
    return RP_OK;
}

/* The tokens of other ranks have no gradient here. */
static rp_status put_own(void *context, const rpi_external_io *io) {
    const one_node *node = context;
    const rpi_tensor *part = &io->inputs[0], *whole = &io->outputs[0];
    const token_parts p = parts_of(whole, part);
    int rank = node->all->rank;
    size_t bytes = (size_t)(own_count(&p, rank) * p.width) * sizeof(float);
    memset(whole->data, 0, (size_t)rpi_shape_count(&whole->shape) * sizeof(float));
    for (int64_t s = 0; s < p.batch && bytes; s++)
        memcpy(whole_at(&p, whole->data, s, rank), part_at(&p, part->data, s), bytes);
    return RP_OK;
}

static rp_status start_first(void *context, const rpi_external_io *io) {
    one_node *node = context;
    size_t count = (size_t)rpi_shape_count(&io->outputs[0].shape);
    const rp_collective_options options = RP_COLLECTIVE_OPTIONS(.root = 0);
    memcpy(io->outputs[0].data, io->inputs[0].data, count * sizeof(float));
    return rp_broadcast_start(node->all->comm, io->outputs[0].data, count, RP_F32, &options,
                              &node->requests[RPI_NODE_FORWARD]);
}

static rp_status finish_first(void *context, const rpi_external_io *io) {
    (void)io;
    return rpi_tensor_node_wait(context, RPI_NODE_FORWARD);
}

static rp_status keep_first(void *context, const rpi_external_io *io) {
    const one_node *node = context;
    size_t bytes = (size_t)rpi_shape_count(&io->outputs[0].shape) * sizeof(float);
    if (node->all->rank == 0)
        memcpy(io->outputs[0].data, io->inputs[0].data, bytes);
    else
        memset(io->outputs[0].data, 0, bytes);
    return RP_OK;
}

const rpi_external_attributes rpi_split_tokens_functions = {
    .forward_start = start_forward_gather,
    .forward_finish = finish_forward_gather,
    .backward_start = start_backward_scatter,
    .backward_finish = finish_backward_scatter};

const rpi_external_attributes rpi_join_tokens_functions = {
    .forward_start = start_forward_scatter,
    .forward_finish = finish_forward_scatter,
    .backward_start = start_backward_gather,
    .backward_finish = finish_backward_gather};

const rpi_external_attributes rpi_all_tokens_functions = {.forward_start = start_forward_gather,
                                                          .forward_finish =
                                                              finish_forward_gather,
                                                          .backward_finish = take_own};

const rpi_external_attributes rpi_own_tokens_functions = {.forward_finish = take_own,
                                                          .backward_finish = put_own};

const rpi_external_attributes rpi_first_functions = {.forward_start = start_first,
                                                     .forward_finish = finish_first,
                                                     .backward_finish = keep_first};
