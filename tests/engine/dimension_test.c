/* Named dimensions: products, texts, and programs of several sizes over one graph. */
#include "engine/dimension.h"
#include "harness/check.h"

#include "base/rng.h"
#include "engine/layers.h"
#include "op_fixture.h"

#include <string.h>

static const char *const names[] = {"batch", "sequence", "memory", "heads", "", "", "", ""};

/* Any product equals, divides and binds as its factors say. */
static void products(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    const int64_t sizes[RPI_DIMENSIONS] = {2, 3, 5, 7};
    for (int trial = 0; trial < 2000; trial++) {
        int64_t forward = 1, backward = 1, number = 1, bound = 0;
        int64_t factors[5];
        for (int i = 0; i < 5; i++) {
            int64_t constant = 1 + rpi_rng_below(&rng, 9);
            int index = (int)rpi_rng_below(&rng, 4);
            bool is_named = rpi_rng_below(&rng, 2);
            factors[i] = is_named ? rpi_dimension_symbol(index) : constant;
            number *= is_named ? sizes[index] : constant;
        }
        for (int i = 0; i < 5; i++) {
            CHECK(rpi_dimension_multiply(forward, factors[i], &forward));
            CHECK(rpi_dimension_multiply(factors[4 - i], backward, &backward));
        }
        CHECK_EQ(forward, backward);
        CHECK(rpi_dimension_bind(forward, sizes, &bound));
        CHECK_EQ(bound, number);
        for (int i = 0; i < 5; i++) CHECK(rpi_dimension_divide(forward, factors[i], &forward));
        CHECK_EQ(forward, 1);
    }
}

static void bounds(void) {
    int64_t batch = rpi_dimension_symbol(0), out = 17, power = batch;
    const int64_t sizes[RPI_DIMENSIONS] = {INT64_C(1) << 40};
    for (int i = 0; i < 6; i++) CHECK(rpi_dimension_multiply(power, batch, &power));
    CHECK(!rpi_dimension_multiply(power, batch, &out) && out == 17);
    CHECK(!rpi_dimension_multiply(batch, INT64_C(1) << 31, &out) && out == 17);
    CHECK(!rpi_dimension_divide(batch, rpi_dimension_symbol(1), &out) && out == 17);
    CHECK(!rpi_dimension_divide(6, 4, &out) && out == 17);
    CHECK(!rpi_dimension_bind(power, sizes, &out) && out == -1); /* 2^280 */
    CHECK(!rpi_dimension_bind(rpi_dimension_symbol(3), sizes, &out) && out == 3);
}

static void texts(void) {
    int64_t size = rpi_dimension_symbol(0);
    char text[64], named[64];
    CHECK(rpi_dimension_multiply(size, rpi_dimension_symbol(1), &size));
    CHECK(rpi_dimension_multiply(size, 4, &size));
    CHECK(!strcmp(rpi_dimension_text(size, names, text, sizeof text), "4*batch*sequence"));
    CHECK(!strcmp(rpi_dimension_text(12, names, text, sizeof text), "12"));
    CHECK(!strcmp(rpi_dimension_text(size, NULL, text, sizeof text), "4*$0*$1"));
    rpi_dimension_name_all(text, names, 2, named, sizeof named);
    CHECK(!strcmp(named, "4*batch*sequence"));
    rpi_dimension_name_all("$0 costs $7", names, 2, named, 8);
    CHECK(!strcmp(named, "batch c"));
}

/* A sequence model: batch x sequence x 4 through linear to one answer a position, or flattened
 * to batch x 4*sequence; programs of any sizes over one graph. */
static void two_sizes(void) {
    enum { WIDTH = 4, MOST = 24 };
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    float x[MOST * WIDTH];
    int32_t labels[MOST];
    const float scale = 1;
    const void *inputs[] = {x, labels, &scale};
    REQUIRE_OK(rpi_graph_create(&graph));
    int64_t batch = rpi_graph_dimension(graph, "batch");
    int64_t sequence = rpi_graph_dimension(graph, "sequence");
    CHECK(rpi_graph_dimension(graph, "batch") == batch && batch != sequence);
    rpi_value_id in = rpi_graph_input(graph, "x", RP_F32, SHAPE(batch, sequence, WIDTH));
    rpi_value_id labelled = rpi_graph_input(graph, "labels", RP_I32, SHAPE(batch, sequence));
    rpi_value_id factor = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id w = rpi_graph_parameter(graph, "w", SHAPE(3, WIDTH));
    rpi_value_id y = rpi_linear(graph, "fc", in, w, RPI_NO_VALUE);
    rpi_value_id flat = rpi_flatten(graph, "flat", y);
    int64_t positions = 0; /* batch*sequence rows, and back */
    CHECK(rpi_dimension_multiply(batch, sequence, &positions));
    y = rpi_relu(graph, "relu", rpi_reshape(graph, "rows", y, SHAPE(positions, 3)));
    y = rpi_reshape(graph, "sequences", y, SHAPE(batch, sequence, 3));
    rpi_value_id loss = rpi_softmax_cross_entropy(graph, "loss", y, labelled, factor);
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < 3 * WIDTH; i++) rpi_weights_values(weights)[i] = rpi_rng_normal(&rng);
    for (int i = 0; i < MOST * WIDTH; i++) x[i] = rpi_rng_normal(&rng);
    for (int i = 0; i < MOST; i++) labels[i] = (int32_t)rpi_rng_below(&rng, 3);
    static const int64_t sizes[][2] = {{2, 12}, {24, 1}, {1, 24}, {4, 6}};
    float wanted_loss = 0, gradients[3 * WIDTH];
    for (int i = 0; i < 4; i++) {
        rpi_instance *instance = NULL;
        rpi_tensor result;
        rpi_program_options options = {
            .training = true,
            .dimensions = {{"sequence", sizes[i][1]}, {"batch", sizes[i][0]}},
            .result_count = 1,
            .results = {flat}};
        REQUIRE_OK(solo_open(graph, weights, loss, NULL, &options, &instance));
        REQUIRE_OK(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs}));
        REQUIRE_OK(rpi_instance_result(instance, flat, &result));
        CHECK(rpi_shape_equal(&result.shape, &SHAPE(sizes[i][0], 3 * sizes[i][1])));
        REQUIRE_OK(rpi_instance_result(instance, loss, &result));
        if (i == 0) wanted_loss = *(float *)result.data;
        if (i == 0) memcpy(gradients, rpi_weights_gradients(weights), sizeof gradients);
        CHECK(*(float *)result.data == wanted_loss);
        CHECK(!memcmp(gradients, rpi_weights_gradients(weights), sizeof gradients));
        solo_close(instance);
    }
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

/* Messages say names; what needs a number says so. */
static void messages(void) {
    static const struct {
        int axis;
        const char *part;
    } cases[] = {{0, NULL},
                 {2, "node 'conv' (conv2d): input is 8 x 8 x time x 8; numbers are wanted from "
                     "axis 1 on"}};
    for (int i = 0; i < 2; i++) {
        rpi_graph *graph = NULL;
        REQUIRE_OK(rpi_graph_create(&graph));
        rpi_shape shape = SHAPE(8, 8, 8, 8);
        shape.size[cases[i].axis] = rpi_graph_dimension(graph, "time");
        rpi_value_id x = rpi_graph_input(graph, "x", RP_F32, shape);
        rpi_value_id w = rpi_graph_parameter(graph, "w", SHAPE(4, 8, 3, 3));
        rpi_conv2d(graph, "conv", x, w, RPI_NO_VALUE, (rpi_conv2d_attributes){0});
        if (cases[i].part)
            CHECK_FAILS(rpi_graph_check(graph), INVALID, cases[i].part);
        else
            CHECK_OK(rpi_graph_check(graph));
        rpi_graph_destroy(graph);
    }
    rpi_graph *graph = NULL;
    REQUIRE_OK(rpi_graph_create(&graph));
    int64_t time = rpi_graph_dimension(graph, "time");
    rpi_value_id wave = rpi_graph_input(graph, "wave", RP_F32, SHAPE(time, 6));
    CHECK_EQ(rpi_reshape(graph, "view", wave, SHAPE(time, 4)), RPI_NO_VALUE);
    CHECK_FAILS(rpi_graph_check(graph), INVALID,
                "node 'view' (reshape): input is time x 6; as many elements as time x 4 has");
    rpi_graph_destroy(graph);
    REQUIRE_OK(rpi_graph_create(&graph));
    for (int i = 0; i <= RPI_DIMENSIONS; i++) {
        char name[8];
        snprintf(name, sizeof name, "d%d", i);
        rpi_graph_dimension(graph, name);
    }
    CHECK_FAILS(rpi_graph_check(graph), INVALID, "'d8': a graph has at most 8 named ones");
    rpi_graph_destroy(graph);
}

CASES({"products", products}, {"bounds", bounds}, {"texts", texts}, {"two_sizes", two_sizes},
      {"messages", messages})
