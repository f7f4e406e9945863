#include "train/parallel/tensor_sums.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>

/* Where a run of elements begins: a parameter of the weights, and an element of this rank's
 * part of it. */
typedef struct shared_place {
    int parameter;
    int64_t local;
} shared_place;

/* Runs of elements that the same number of consecutive ranks hold: one operation sums them. */
typedef struct shared_by {
    int holders;
    rp_comm *comm;
    rp_segment *segments; /* without data: gradients may lie elsewhere in each pass */
    shared_place *places; /* where they lie, found before each sum */
    size_t count, room;
} shared_by;

enum { KINDS = 4 }; /* by the number of ranks that share: all ranks, or those of one key head */

/* The segments of one tensor, which follow each other among the segments of a kind. */
typedef struct shared_tensor {
    int parameter; /* an index of the weights, whose order is the same on all ranks */
    int kind;
    size_t first, count;
} shared_tensor;

struct rpi_tensor_sums {
    const rpi_network *network;
    rpi_weights *weights;
    shared_by kinds[KINDS];
    int kind_count;
    int64_t elements;
    shared_tensor *tensors; /* in the order of the arena */
    size_t tensor_count;
};

static rp_status kind_of(rpi_tensor_sums *sums, int holders, shared_by **out_kind) {
    for (int i = 0; i < sums->kind_count; i++) {
        *out_kind = &sums->kinds[i];
        if (sums->kinds[i].holders == holders) return RP_OK;
    }
    if (sums->kind_count == KINDS)
        return RP_FAIL(INTERNAL, "tensors are shared by more than %d numbers of ranks", KINDS);
    *out_kind = &sums->kinds[sums->kind_count++];
    (*out_kind)->holders = holders;
    return RP_OK;
}

static rp_status make_room(shared_by *kind) {
    if (kind->count < kind->room) return RP_OK;
    size_t room = kind->room ? 2 * kind->room : 16;
    RP_TRY(rpi_grow_array(kind->room, room, sizeof *kind->segments, "shared gradients",
                          &kind->segments));
    RP_TRY(rpi_grow_array(kind->room, room, sizeof *kind->places, "shared gradients",
                          &kind->places));
    kind->room = room;
    return RP_OK;
}

static rp_status add_run(void *context, const rpi_parameter *parameter,
                         const rpi_shard_run *run) {
    rpi_tensor_sums *sums = context;
    const rpi_weight *weight = rpi_weights_find(sums->weights, parameter->name);
    shared_by *kind = NULL;
    if (run->holders < 2 || !weight) return RP_OK;
    RP_TRY(kind_of(sums, run->holders, &kind));
    RP_TRY(make_room(kind));
    kind->places[kind->count] = (shared_place){weight->index, run->local};
    kind->segments[kind->count++] = (rp_segment){.count = (size_t)run->count,
                                                 .dtype = RP_F32,
                                                 .tensor = (uint32_t)parameter->index,
                                                 .first = (uint64_t)run->whole};
    sums->elements += run->count;
    return RP_OK;
}

/* The ranks that hold an element are consecutive. */
static rp_status open_comm(rp_comm *group, shared_by *kind) {
    const rp_comm_options options = RP_COMM_OPTIONS(.name = "tensor-shared");
    int first = rp_comm_rank(group) / kind->holders * kind->holders, *ranks = NULL;
    RP_TRY(rpi_alloc_array((size_t)kind->holders, sizeof *ranks, "holders", &ranks));
    for (int r = 0; r < kind->holders; r++) ranks[r] = first + r;
    rp_status status = rp_comm_group(group, ranks, kind->holders, &options, &kind->comm);
    rpi_free(ranks);
    return status;
}

static size_t end_of_tensor(const shared_by *kind, size_t first) {
    size_t end = first;
    while (end < kind->count && kind->segments[end].tensor == kind->segments[first].tensor)
        end++;
    return end;
}

static int by_place(const void *a, const void *b) {
    const shared_tensor *x = a, *y = b;
    return x->parameter < y->parameter ? -1 : x->parameter > y->parameter;
}

static rp_status list_tensors(rpi_tensor_sums *sums) {
    size_t most = 0;
    for (int k = 0; k < sums->kind_count; k++) most += sums->kinds[k].count;
    if (!most) return RP_OK;
    RP_TRY(rpi_alloc_array(most, sizeof *sums->tensors, "shared gradients", &sums->tensors));
    for (int k = 0; k < sums->kind_count; k++)
        for (size_t i = 0, end; i < sums->kinds[k].count; i = end) {
            end = end_of_tensor(&sums->kinds[k], i);
            sums->tensors[sums->tensor_count++] =
                (shared_tensor){.parameter = sums->kinds[k].places[i].parameter,
                                .kind = k,
                                .first = i,
                                .count = end - i};
        }
    qsort(sums->tensors, sums->tensor_count, sizeof *sums->tensors, by_place);
    return RP_OK;
}

static rp_status open_sums(rp_comm *group, rpi_tensor_sums *sums) {
    for (int i = 0; i < sums->network->parameter_count; i++)
        if (sums->network->parameters[i].adds)
            RP_TRY(rpi_network_runs(sums->network, i, add_run, sums));
    for (int i = 0; i < sums->kind_count; i++) RP_TRY(open_comm(group, &sums->kinds[i]));
    return list_tensors(sums);
}

rp_status rpi_tensor_sums_create(rp_comm *group, const rpi_network *network,
                                 rpi_weights *weights, rpi_tensor_sums **out_sums) {
    rpi_tensor_sums *sums = NULL;
    RP_TRY(rpi_alloc(sizeof *sums, "shared gradients", &sums));
    *sums = (rpi_tensor_sums){.network = network, .weights = weights};
    rp_status status = open_sums(group, sums);
    if (status == RP_OK)
        *out_sums = sums;
    else
        rpi_tensor_sums_destroy(sums);
    return status;
}

void rpi_tensor_sums_destroy(rpi_tensor_sums *sums) {
    if (!sums) return;
    for (int i = 0; i < sums->kind_count; i++) {
        rp_comm_destroy(sums->kinds[i].comm);
        rpi_free(sums->kinds[i].segments);
        rpi_free(sums->kinds[i].places);
    }
    rpi_free(sums->tensors);
    rpi_free(sums);
}

int64_t rpi_tensor_sums_count(const rpi_tensor_sums *sums) {
    return sums->elements;
}

/* Sums segments [first, first + count) of a kind, where their gradients lie now. */
static rp_status sum(const rpi_tensor_sums *sums, shared_by *kind, size_t first, size_t count) {
    const rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = RP_SUM);
    for (size_t i = first; i < first + count; i++)
        kind->segments[i].data =
            rpi_weights_gradient_at(sums->weights, kind->places[i].parameter) +
            kind->places[i].local;
    return rp_all_reduce(kind->comm, kind->segments + first, count, &options);
}

rp_status rpi_tensor_sums_run(rpi_tensor_sums *sums) {
    for (int i = 0; i < sums->kind_count; i++)
        RP_TRY(sum(sums, &sums->kinds[i], 0, sums->kinds[i].count));
    return RP_OK;
}

rp_status rpi_tensor_sums_final(rpi_tensor_sums *sums, int64_t first, int64_t count) {
    for (size_t i = 0; i < sums->tensor_count; i++) {
        const shared_tensor *tensor = &sums->tensors[i];
        int64_t at = rpi_weights_parameter(sums->weights, tensor->parameter)->first;
        if (at < first || at >= first + count) continue;
        RP_TRY(sum(sums, &sums->kinds[tensor->kind], tensor->first, tensor->count));
    }
    return RP_OK;
}

/* ---- the norm ---- */

typedef struct squares {
    const rpi_weights *weights;
    rpi_square_sum sum;
} squares;

/* If several ranks hold an element, the first of them counts it. */
static rp_status add_squares(void *context, const rpi_parameter *parameter,
                             const rpi_shard_run *run) {
    squares *s = context;
    const rpi_kernel_run one_thread = {.threads = 1, .isa = rpi_cpu_isa()};
    const rpi_weight *weight = rpi_weights_find(s->weights, parameter->name);
    if (run->holder > 0 || !weight || weight->is_state) return RP_OK;
    rpi_kernel_square_sum(&one_thread,
                          rpi_weights_gradient_at(s->weights, weight->index) + run->local,
                          run->count, &s->sum);
    return RP_OK;
}

rp_status rpi_tensor_square_sum(rp_comm *group, const rpi_network *network,
                                const rpi_weights *weights, rpi_square_sum *out_sum) {
    squares s = {.weights = weights};
    const rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = RP_SUM);
    for (int i = 0; i < network->parameter_count; i++)
        RP_TRY(rpi_network_runs(network, i, add_squares, &s));
    const rp_segment segment = {
        .data = &s.sum, .count = sizeof s.sum / sizeof(int64_t), .dtype = RP_I64};
    RP_TRY(rp_all_reduce(group, &segment, 1, &options));
    *out_sum = s.sum;
    return RP_OK;
}
