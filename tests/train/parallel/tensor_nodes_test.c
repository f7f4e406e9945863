/* Known answers of tensor parallelism, worked out by hand, and what goes wrong elsewhere: a
 * bias that each rank adds, losses of a rank's own half, means of a part of the vocabulary. */
#include "engine/instance.h"
#include "harness/check.h"
#include "train/parallel/tensor_nodes.h"
#include "train/parallel/tensor_sums.h"
#include "train_ranks.h"

#include "base/status.h"
#include "train/models/network.h"

#include <math.h>
#include <stdatomic.h>
#include <time.h>

/* ---- a graph of a test's own on one rank of a group ---- */

typedef struct rank_graph {
    rpi_tensor_nodes *nodes;
    rpi_builder b;
    rpi_weights *weights;
    rpi_session *session;
    rpi_program *program;
    rpi_instance *instance;
} rank_graph;

static rp_status open_graph(rank_graph *g, rp_comm *comm) {
    *g = (rank_graph){0};
    RP_TRY(rpi_graph_create(&g->b.graph));
    if (rp_comm_world(comm) == 1) return RP_OK;
    RP_TRY(rpi_tensor_nodes_create(comm, NULL, &g->nodes));
    g->b.split = rpi_tensor_nodes_split(g->nodes);
    return RP_OK;
}

/* The loss, with right answers and valid labels, or a result whose gradient the caller gives.
 */
static rp_status make_program(rank_graph *g, rpi_value_id loss, rpi_value_id seed) {
    rpi_program_options options = {.training = true};
    RP_TRY(rpi_graph_check(g->b.graph));
    if (seed != RPI_NO_VALUE) {
        options.seed_count = options.result_count = 1;
        options.seeds[0] = options.results[0] = seed;
    } else {
        options.result_count = 2;
        for (int i = 0; i < 2; i++)
            options.results[i] = rpi_graph_output(g->b.graph, loss, i + 1);
    }
    RP_TRY(rpi_weights_create(g->b.graph, seed == RPI_NO_VALUE ? loss : seed, &g->weights));
    RP_TRY(rpi_session_create(g->weights, NULL, NULL, &g->session));
    RP_TRY(rpi_program_compile(g->session, g->b.graph, loss, &options, &g->program));
    return rpi_instance_create(g->program, &g->instance);
}

/* Nobody leaves before the others have noticed. Returns the status, with its words whatever is
 * said meanwhile. */
static rp_status close_graph(rank_graph *g, rp_comm *comm, rp_status status) {
    char words[RPI_ERROR_BYTES];
    snprintf(words, sizeof words, "%s", status == RP_OK ? "" : rp_last_error()->message);
    (void)rp_barrier(comm);
    rpi_instance_destroy(g->instance);
    rpi_program_destroy(g->program);
    rpi_session_destroy(g->session);
    rpi_weights_destroy(g->weights);
    rpi_builder_close(&g->b);
    rpi_graph_destroy(g->b.graph);
    rpi_tensor_nodes_destroy(g->nodes);
    return status == RP_OK ? RP_OK : rpi_fail(status, __FILE__, __LINE__, "%s", words);
}

/* Elements of this rank, of the whole in `known`; set, or compared with gradients. */
static void walk(const rank_graph *g, const char *name, const float *known, bool set) {
    const rpi_weight *weight = rpi_weights_find(g->weights, name);
    if (!weight) return;
    for (int i = 0; i < g->b.count; i++) {
        const rpi_parameter *parameter = &g->b.parameters[i];
        if (strcmp(parameter->name, name) != 0) continue;
        const rpi_grid grid = {{g->b.split.ranks > 1 ? g->b.split.ranks : 1, 1, 1, 1}};
        rpi_shard_record record = rpi_parameter_record(parameter);
        rpi_shard_cursor cursor;
        CHECK_OK(rpi_shard_begin(&record, &grid, g->b.split.rank, RPI_REPLICAS_COPY, &cursor));
        for (rpi_shard_run run; rpi_shard_next(&cursor, &run);)
            for (int64_t e = 0; e < run.count; e++) {
                int64_t local = weight->first + run.local + e;
                if (set)
                    rpi_weights_values(g->weights)[local] = known[run.whole + e];
                else
                    CHECK_NEAR((double)rpi_weights_gradients(g->weights)[local],
                               (double)known[run.whole + e], 1e-6);
            }
    }
}

/* ---- columns, then rows, with a bias ---- */

static const float first[] = {1, 0, 0, 1, 2, 1, -1, 3}, second[] = {1, 0, -1, 2, 2, 1, 1, 0};
static const float bias[] = {10, 20}, x_values[] = {1, 2};

static rp_status two_layers(void *context, rp_comm *comm) {
    rank_graph g;
    rpi_tensor y;
    const float dy[] = {1, -1};
    (void)context;
    RP_TRY(open_graph(&g, comm));
    rpi_value_id x = rpi_declare(&g.b, (rpi_parameter){.name = "x", .shape = {2, {1, 2}}});
    rpi_value_id h = rpi_block_split(&g.b, "first", x);
    h = rpi_block_linear_layer(
        &g.b, "first", h, &(rpi_linear_layer){.in = 2, .out = 4, .shard = rpi_shard_cut(0, 4)});
    h = rpi_relu(g.b.graph, "relu", h);
    h = rpi_block_linear_layer(
        &g.b, "second", h,
        &(rpi_linear_layer){.in = 4, .out = 2, .has_bias = true, .shard = rpi_shard_cut(1, 4)});
    rp_status status = make_program(&g, RPI_NO_VALUE, h);
    if (status == RP_OK) {
        walk(&g, "x", x_values, true);
        walk(&g, "first.weight", first, true);
        walk(&g, "second.weight", second, true);
        walk(&g, "second.bias", bias, true);
        rpi_weights_changed(g.weights, 0, rpi_weights_count(g.weights));
        status =
            rpi_instance_run(g.instance, &(rpi_run_options){.seeds = (const void *[]){dy}});
    }
    if (status == RP_OK) status = rpi_instance_result(g.instance, h, &y);
    if (status == RP_OK) {
        CHECK_NEAR((double)((const float *)y.data)[0], 17, 1e-6);
        CHECK_NEAR((double)((const float *)y.data)[1], 28, 1e-6);
        walk(&g, "x", (const float[]){-7, 3}, false);
        walk(&g, "first.weight", (const float[]){-1, -2, -1, -2, -2, -4, 2, 4}, false);
        walk(&g, "second.weight", (const float[]){1, 2, 4, 5, -1, -2, -4, -5}, false);
        walk(&g, "second.bias", dy, false);
    }
    return close_graph(&g, comm, status);
}

static void columns_and_rows(void) {
    for (int ranks = 1; ranks <= 4; ranks *= 2) CHECK_OK(ranks_run(ranks, two_layers, NULL));
}

/* ---- losses over a vocabulary that is cut ---- */

/* One row of logits. Of padding, classes from `whole` on, and of ignored labels nothing comes.
 */
static const struct loss_row {
    const char *name;
    float z[4];
    int label, whole;
    float smoothing, z_loss;
    double loss, dz[4];
    int correct, valid;
} losses[] = {
    {"plain",
     {0, 1, 2, 3},
     3,
     4,
     0,
     0,
     0.4401896986,
     {0.0320586033, 0.0871443187, 0.2368828181, -0.3560857401},
     1,
     1},
    {"smoothed",
     {0, 1, 2, 3},
     3,
     4,
     0.1f,
     0,
     0.5901896986,
     {0.0070586033, 0.0621443187, 0.2118828181, -0.2810857401},
     1,
     1},
    {"smoothed as Megatron-LM does, by K / (K - 1)",
     {0, 1, 2, 3},
     3,
     4,
     0.4f / 3,
     0,
     0.6401896986,
     {-0.0012747301, 0.0538109854, 0.2035494848, -0.2560857401},
     1,
     1},
    {"z-loss",
     {0, 1, 2, 3},
     3,
     4,
     0,
     1e-4f,
     0.4401896986 + 0.0011834905,
     {0.0320586033 * 1.00068803794, 0.0871443187 * 1.00068803794, 0.2368828181 * 1.00068803794,
      0.6439142599 * 1.00068803794 - 1},
     1,
     1},
    {"no underflow of probabilities",
     {0, 0, 0, 1000},
     0,
     4,
     0.1f,
     0,
     975,
     {-0.925, -0.025, -0.025, 0.975},
     0,
     1},
    {"padding",
     {0, 1, 2, 1e9f},
     2,
     3,
     0.1f,
     0,
     0.4076059644 + 0.1,
     {0.0900305732 - 0.1 / 3, 0.2447284711 - 0.1 / 3, 0.6652409558 - 0.9 - 0.1 / 3, 0},
     1,
     1},
    {"ignored", {0, 1, 2, 3}, -100, 4, 0.1f, 1, 0, {0, 0, 0, 0}, 0, 0},
    {"of equal ones the first",
     {5, 5, 1, 5},
     1,
     4,
     0,
     0,
     1.1046989403,
     {0.3313106115, 0.3313106115 - 1, 0.0060681655, 0.3313106115},
     0,
     1},
};

static rp_status one_loss(void *context, rp_comm *comm) {
    const struct loss_row *row = context;
    rank_graph g;
    const int32_t label = row->label;
    const float scale = 1;
    const void *inputs[] = {&label, &scale};
    float dz[4];
    RP_TRY(open_graph(&g, comm));
    int64_t from = 0, end = 0;
    rpi_graph *graph = g.b.graph;
    rpi_value_id labels = rpi_graph_input(graph, "labels", RP_I32, (rpi_shape){1, {1}});
    rpi_value_id factor = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id z = rpi_declare(
        &g.b, (rpi_parameter){.name = "z", .shape = {2, {1, 4}}, .shard = rpi_shard_cut(1, 4)});
    rpi_tensor_split_range(&g.b.split, 4, &from, &end);
    if (from > row->whole) from = row->whole;
    rpi_value_id own = rpi_logit_statistics(
        graph, "own", z, labels, (rpi_logit_slice){.first = from, .whole = row->whole});
    rpi_value_id all = rpi_tensor_split_node(graph, &g.b.split, RPI_TENSOR_GATHER, "all", own);
    rpi_value_id loss = rpi_statistics_cross_entropy(
        graph, "loss", all, labels, factor,
        (rpi_statistics_loss){
            .whole = row->whole, .smoothing = row->smoothing, .z_loss = row->z_loss});
    rp_status status = make_program(&g, loss, RPI_NO_VALUE);
    if (status == RP_OK) {
        walk(&g, "z", row->z, true);
        status = rpi_instance_run(g.instance, &(rpi_run_options){.inputs = inputs});
    }
    rpi_tensor value;
    if (status == RP_OK) status = rpi_instance_result(g.instance, loss, &value);
    if (status == RP_OK) {
        double got = (double)*(const float *)value.data;
        CHECK_MSG(fabs(got - row->loss) <= 1e-6 * fmax(1, row->loss),
                  "%s on rank %d: loss %.10f, %.10f is wanted", row->name, rp_comm_rank(comm),
                  got, row->loss);
        const int wanted[] = {row->correct, row->valid};
        for (int i = 0; i < 2; i++) {
            RP_TRY(
                rpi_instance_result(g.instance, rpi_graph_output(graph, loss, i + 1), &value));
            CHECK_EQ(*(const int32_t *)value.data, wanted[i]);
        }
        for (int i = 0; i < 4; i++) dz[i] = (float)row->dz[i];
        walk(&g, "z", dz, false);
    }
    return close_graph(&g, comm, status);
}

static void losses_are_of_the_whole_vocabulary(void) {
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++)
        for (int ranks = 2; ranks <= 4; ranks += 2)
            CHECK_OK(ranks_run(ranks, one_loss, (void *)&losses[i]));
}

static void labels_that_are_none(void) {
    static const struct loss_row high = {"4 of 4", {0}, 4, 4, 0, 0, 0, {0}, 0, 0};
    static const struct loss_row low = {"below", {0}, -1, 4, 0, 0, 0, {0}, 0, 0};
    CHECK_FAILS(ranks_run(2, one_loss, (void *)&high), INVALID, "label 4 at labels[0]");
    CHECK_FAILS(ranks_run(2, one_loss, (void *)&low), INVALID, "label -1 at labels[0]");
    for (int r = 0; r < 2; r++)
        CHECK_MSG(strstr(ranks_message(r), "label -1 at labels[0]") != NULL, "rank %d: %s", r,
                  ranks_message(r));
}

/* ---- the norm ---- */

/* Shards (1, 2) and (2, 4), and (3, 4) and (6, 8) on both ranks: each counts once. */
static rp_status one_norm(void *context, rp_comm *comm) {
    rank_graph g;
    (void)context;
    RP_TRY(open_graph(&g, comm));
    const rpi_parameter records[] = {
        {.name = "cut", .shape = {2, {2, 2}}, .shard = rpi_shard_cut(0, 2)},
        {.name = "norm", .shape = {1, {2}}},
        {.name = "tied", .shape = {1, {2}}}};
    const float values[][4] = {{1, 2, 2, 4}, {3, 4}, {6, 8}};
    for (int i = 0; i < 3; i++) (void)rpi_declare(&g.b, records[i]);
    rp_status status = rpi_weights_create(g.b.graph, RPI_NO_VALUE, &g.weights);
    const rpi_network network = {.parameters = g.b.parameters,
                                 .parameter_count = g.b.count,
                                 .tensor_ranks = rp_comm_world(comm),
                                 .tensor_rank = rp_comm_rank(comm)};
    rpi_square_sum squares = {{0}, 0};
    for (int i = 0; i < 3 && status == RP_OK; i++) walk(&g, records[i].name, values[i], true);
    if (status == RP_OK) {
        memcpy(rpi_weights_gradients(g.weights), rpi_weights_values(g.weights),
               sizeof(float) * (size_t)rpi_weights_count(g.weights));
        status = rpi_tensor_square_sum(comm, &network, g.weights, &squares);
    }
    CHECK_NEAR(sqrt(rpi_square_sum_value(&squares)), 12.2474487139, 1e-9);
    return close_graph(&g, comm, status);
}

static void norms_count_each_element_once(void) {
    for (int ranks = 1; ranks <= 2; ranks++) CHECK_OK(ranks_run(ranks, one_norm, NULL));
}

/* ---- a rank that does not come ---- */

/* The others' sums fail with its words, and wait for nothing; it leaves after them. */
static rp_status one_stays_away(void *context, rp_comm *comm) {
    atomic_int *left = context;
    if (rp_comm_rank(comm) == 1) {
        rpi_tensor_nodes *nodes = NULL;
        RP_TRY(rpi_tensor_nodes_create(comm, NULL, &nodes));
        rp_comm_abort(comm, RP_IO, "no more data at row 7");
        for (int ms = 0; ms < 60000 && !atomic_load(left); ms++)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        rpi_tensor_nodes_destroy(nodes);
        return RP_OK;
    }
    rp_status status = two_layers(NULL, comm);
    atomic_store(left, 1);
    return status;
}

static void one_rank_fails(void) {
    atomic_int left = 0;
    (void)ranks_run(2, one_stays_away, &left);
    CHECK(ranks_status(0) != RP_OK);
    CHECK_MSG(strstr(ranks_message(0), "no more data at row 7") != NULL, "rank 0: %s",
              ranks_message(0));
}

CASES({"columns and rows", columns_and_rows},
      {"losses are of the whole vocabulary", losses_are_of_the_whole_vocabulary},
      {"labels that are none", labels_that_are_none},
      {"norms count each element once", norms_count_each_element_once},
      {"one rank fails", one_rank_fails})
