/* Building graphs: shapes, and failures that name the node. */
#include "harness/check.h"

#include "base/memory.h"
#include "engine/layers.h"
#include "engine/op.h"
#include "op_fixture.h"

typedef struct parts {
    rpi_graph *graph;
    rpi_value_id images, labels, scale, weight, vector, state;
} parts;

static void open_parts(parts *p) {
    *p = (parts){0};
    REQUIRE_OK(rpi_graph_create(&p->graph));
    p->images = rpi_graph_input(p->graph, "images", RP_F32,
                                SHAPE(rpi_graph_dimension(p->graph, "batch"), 3, 8, 8));
    p->labels = rpi_graph_input(p->graph, "labels", RP_I32,
                                SHAPE(rpi_graph_dimension(p->graph, "batch")));
    p->scale = rpi_graph_input(p->graph, "scale", RP_F32, (rpi_shape){0});
    p->weight = rpi_graph_parameter(p->graph, "weight", SHAPE(16, 3, 3, 3));
    p->vector = rpi_graph_parameter(p->graph, "vector", SHAPE(16));
    p->state = rpi_graph_state(p->graph, "state", SHAPE(16));
}

static void shapes(void) {
    parts p;
    open_parts(&p);
    rpi_value_id x = rpi_conv2d(p.graph, "conv", p.images, p.weight, RPI_NO_VALUE,
                                (rpi_conv2d_attributes){.stride = 2, .padding = 1});
    const int64_t batch = rpi_graph_dimension(p.graph, "batch");
    rpi_value_id pooled =
        rpi_max_pool2d(p.graph, "pool", x, (rpi_max_pool2d_attributes){.kernel = 2});
    rpi_value_id mean = rpi_global_avg_pool(p.graph, "mean", x);
    rpi_value_id flat = rpi_flatten(p.graph, "flat", pooled);
    rpi_value_id loss = rpi_softmax_cross_entropy(p.graph, "loss", mean, p.labels, p.scale);
    rpi_value_id correct = rpi_graph_output(p.graph, loss, 1);
    CHECK_OK(rpi_graph_check(p.graph));
    const struct {
        rpi_value_id value;
        rpi_shape shape;
    } rows[] = {{x, SHAPE(batch, 16, 4, 4)},
                {pooled, SHAPE(batch, 16, 2, 2)},
                {mean, SHAPE(batch, 16)},
                {flat, SHAPE(batch, 64)},
                {loss, {0}},
                {correct, {0}}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK(rpi_shape_equal(&rpi_graph_value(p.graph, rows[i].value)->shape, &rows[i].shape));
    CHECK(rpi_graph_value(p.graph, correct)->dtype == RP_I32);
    CHECK(rpi_graph_output(p.graph, loss, 3) == RPI_NO_VALUE);
    CHECK(rpi_graph_find(p.graph, RPI_VALUE_PARAMETER, "weight") == p.weight);
    CHECK(rpi_graph_find(p.graph, RPI_VALUE_STATE, "weight") == RPI_NO_VALUE);
    CHECK_EQ(rpi_graph_kind_count(p.graph, RPI_VALUE_INPUT), 3);
    CHECK(rpi_graph_kind_at(p.graph, RPI_VALUE_INPUT, 1) == p.labels);
    rpi_graph_destroy(p.graph);
}

/* ---- failures: each row builds one wrong thing ---- */

static void wrong_channels(parts *p) {
    rpi_value_id w = rpi_graph_parameter(p->graph, "w", SHAPE(8, 4, 3, 3));
    rpi_conv2d(p->graph, "stem", p->images, w, RPI_NO_VALUE, (rpi_conv2d_attributes){0});
}

static void wrong_window(parts *p) {
    rpi_value_id w = rpi_graph_parameter(p->graph, "w", SHAPE(8, 3, 9, 9));
    rpi_conv2d(p->graph, "stem", p->images, w, RPI_NO_VALUE, (rpi_conv2d_attributes){0});
}

static void wrong_stride(parts *p) {
    rpi_conv2d(p->graph, "stem", p->images, p->weight, RPI_NO_VALUE,
               (rpi_conv2d_attributes){.stride = -1});
}

static void wrong_bias(parts *p) {
    rpi_value_id bias = rpi_graph_parameter(p->graph, "b", SHAPE(3));
    rpi_conv2d(p->graph, "stem", p->images, p->weight, bias, (rpi_conv2d_attributes){0});
}

static void weight_is_no_parameter(parts *p) {
    rpi_conv2d(p->graph, "stem", p->images, p->images, RPI_NO_VALUE,
               (rpi_conv2d_attributes){0});
}

static void state_is_no_state(parts *p) {
    rpi_batch_norm2d(p->graph, "bn", p->images, p->vector, p->vector, p->vector, p->state,
                     (rpi_batch_norm2d_attributes){0});
}

static void wrong_norm(parts *p) {
    rpi_batch_norm2d(p->graph, "bn", p->images, p->vector, p->vector, p->state, p->state,
                     (rpi_batch_norm2d_attributes){0});
}

static void wrong_groups(parts *p) {
    rpi_group_norm(p->graph, "gn", p->images, p->vector, p->vector,
                   (rpi_group_norm_attributes){.groups = 2});
}

static void wrong_group_norm(parts *p) {
    rpi_group_norm(p->graph, "gn", p->images, p->vector, p->vector,
                   (rpi_group_norm_attributes){.groups = 3});
}

static void wrong_momentum(parts *p) {
    rpi_batch_norm2d(p->graph, "bn", p->images, p->vector, p->vector, p->state, p->state,
                     (rpi_batch_norm2d_attributes){.momentum = 2});
}

static void labels_as_images(parts *p) {
    rpi_relu(p->graph, "relu", p->labels);
}

static void unequal_sum(parts *p) {
    rpi_add(p->graph, "sum", p->images, p->vector);
}

static void wrong_pool(parts *p) {
    rpi_max_pool2d(p->graph, "pool", p->images,
                   (rpi_max_pool2d_attributes){.kernel = 2, .padding = 2});
}

static void large_pool(parts *p) {
    rpi_max_pool2d(p->graph, "pool", p->images, (rpi_max_pool2d_attributes){.kernel = 9});
}

static void wrong_linear(parts *p) {
    rpi_value_id w = rpi_graph_parameter(p->graph, "w", SHAPE(10, 99));
    rpi_linear(p->graph, "fc", rpi_flatten(p->graph, "flat", p->images), w, RPI_NO_VALUE);
}

static void image_into_linear(parts *p) {
    rpi_linear(p->graph, "fc", p->images, p->weight, RPI_NO_VALUE);
}

static void wrong_logits(parts *p) {
    rpi_softmax_cross_entropy(p->graph, "loss", p->images, p->labels, p->scale);
}

static void wrong_labels(parts *p) {
    rpi_value_id labels = rpi_graph_input(p->graph, "short", RP_I32, SHAPE(3));
    rpi_softmax_cross_entropy(p->graph, "loss", rpi_flatten(p->graph, "flat", p->images),
                              labels, p->scale);
}

static void same_node_twice(parts *p) {
    rpi_relu(p->graph, "relu", p->images);
    rpi_relu(p->graph, "relu", p->images);
}

static void same_parameter_twice(parts *p) {
    rpi_graph_parameter(p->graph, "weight", SHAPE(1));
}

static void state_named_like_parameter(parts *p) {
    rpi_graph_state(p->graph, "weight", SHAPE(1));
}

static void empty_dimension(parts *p) {
    rpi_graph_parameter(p->graph, "w", SHAPE(3, 0));
}

static void batch_in_a_parameter(parts *p) {
    rpi_graph_parameter(p->graph, "w", SHAPE(rpi_graph_dimension(p->graph, "batch"), 2));
}

static void nameless(parts *p) {
    rpi_relu(p->graph, "", p->images);
}

static void missing_input(parts *p) {
    rpi_add(p->graph, "sum", p->images, RPI_NO_VALUE);
}

static void external_of_nothing(parts *p) {
    rpi_external(p->graph, "wire", p->images, (rpi_external_attributes){0});
}

static void told_by_the_model(parts *p) {
    rpi_graph_fail(p->graph, RP_INVALID, "wants %d channels", 5);
}

static void failures(void) {
    static const struct {
        void (*build)(parts *p);
        const char *where, *why;
    } rows[] = {
        {wrong_channels, "node 'stem' (conv2d)", "weight is 8 x 4 x 3 x 3; K x 3 x R x S"},
        {wrong_window, "node 'stem' (conv2d)", "larger than the padded input"},
        {wrong_stride, "node 'stem' (conv2d)", "stride -1"},
        {wrong_bias, "node 'stem' (conv2d)", "bias is 3; 16"},
        {weight_is_no_parameter, "node 'stem' (conv2d)", "weight 'images' is of kind input"},
        {state_is_no_state, "node 'bn' (batch_norm2d)", "running mean 'vector' is of kind"},
        {wrong_norm, "node 'bn' (batch_norm2d)", "scale is 16; 3"},
        {wrong_groups, "node 'gn' (group_norm)", "2 groups do not divide 3 channels"},
        {wrong_group_norm, "node 'gn' (group_norm)", "scale is 16; 3"},
        {wrong_momentum, "node 'bn' (batch_norm2d)", "momentum 2"},
        {labels_as_images, "node 'relu' (relu)", "'labels' is i32; f32"},
        {unequal_sum, "node 'sum' (add)", "b is 16"},
        {wrong_pool, "node 'pool' (max_pool2d)", "padding 2"},
        {large_pool, "node 'pool' (max_pool2d)", "kernel 9 is larger"},
        {wrong_linear, "node 'fc' (linear)",
         "weight is 10 x 99; O x 192 is wanted for input batch x 192"},
        {image_into_linear, "node 'fc' (linear)",
         "O x 8 is wanted for input batch x 3 x 8 x 8"},
        {wrong_logits, "node 'loss' (softmax_cross_entropy)",
         "labels are batch; one a row of the logits, batch x 3 x 8, is"},
        {wrong_labels, "node 'loss' (softmax_cross_entropy)", "labels are 3"},
        {same_node_twice, "node 'relu' (relu)", "there already"},
        {same_parameter_twice, "parameter 'weight'", "there already"},
        {state_named_like_parameter, "state 'weight'", "there already"},
        {empty_dimension, "parameter 'w'", "dimension 1 is 0"},
        {batch_in_a_parameter, "parameter 'w'", "dimension 0 is batch"},
        {nameless, "relu", "without a name"},
        {missing_input, "node 'sum' (add)", "b is missing"},
        {external_of_nothing, "node 'wire' (external)", "forward_start"},
        {told_by_the_model, "wants", "5 channels"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        parts p;
        open_parts(&p);
        rows[i].build(&p);
        CHECK_FAILS(rpi_graph_check(p.graph), INVALID, rows[i].where);
        CHECK_FAILS(rpi_graph_check(p.graph), INVALID, rows[i].why);
        int nodes = rpi_graph_node_count(p.graph);
        CHECK(rpi_relu(p.graph, "later", p.images) == RPI_NO_VALUE);
        CHECK_EQ(rpi_graph_node_count(p.graph), nodes);
        rpi_graph_destroy(p.graph);
    }
}

static rp_status build_some(void) {
    rpi_graph *graph = NULL;
    RP_TRY(rpi_graph_create(&graph));
    rpi_value_id x =
        rpi_graph_input(graph, "x", RP_F32, SHAPE(rpi_graph_dimension(graph, "batch"), 4));
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "relu%d", i);
        x = rpi_relu(graph, name, x);
    }
    rp_status status = rpi_graph_check(graph);
    rpi_graph_destroy(graph);
    return status;
}

static void allocation_failures(void) {
    rpi_memory_fail_after(0);
    CHECK_OK(build_some());
    long total = rpi_memory_fail_after(0);
    CHECK(total > 3);
    for (long n = 1; n <= total; n++) {
        rpi_memory_fail_after(n);
        CHECK_FAILS(build_some(), NOMEM, "no memory");
    }
    rpi_memory_fail_after(0);
}

CASES({"shapes", shapes}, {"failures", failures}, {"allocation_failures", allocation_failures})
