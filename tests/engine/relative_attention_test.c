/* Attention by distance: what is refused, and that tokens which are not remembered have no
 * part in it. On every backend. */
#include "harness/check.h"
#include "op_fixture.h"

#include "base/rng.h"
#include "base/status.h"
#include "engine/layers.h"

#include <math.h>

enum { BATCH = 2, MEMORY = 5, TOKENS = 4, ALL = MEMORY + TOKENS, HEADS = 2, HEAD = 3 };
enum { WIDTH = HEADS * HEAD };

/* memory and input -> tokens -> attention; what reads them has named dimensions. */
typedef struct net {
    rpi_graph *graph;
    rpi_value_id y;
    rpi_weights *weights;
    rpi_instance *instance;
} net;

static void build(net *n) {
    *n = (net){0};
    REQUIRE_OK(rpi_graph_create(&n->graph));
    rpi_graph *g = n->graph;
    int64_t length = rpi_graph_dimension(g, "length"), all = rpi_graph_dimension(g, "all");
    int64_t memory = rpi_graph_dimension(g, "memory");
    rpi_value_id m = rpi_graph_input(g, "m", RP_F32, SHAPE(BATCH, memory, 3 * WIDTH));
    rpi_value_id x = rpi_graph_input(g, "x", RP_F32, SHAPE(BATCH, length, 3 * WIDTH));
    rpi_value_id remembered = rpi_graph_input(g, "remembered", RP_I32, (rpi_shape){0});
    x = rpi_concat_tokens(g, "join", m, x, all);
    rpi_value_id wide =
        rpi_sinusoids(g, "sinusoids", x, (rpi_sinusoids_attributes){.rows = all});
    rpi_value_id distances =
        rpi_linear(g, "distances", wide, rpi_graph_parameter(g, "r", SHAPE(WIDTH, 3 * WIDTH)),
                   RPI_NO_VALUE);
    rpi_value_id u = rpi_graph_parameter(g, "u", SHAPE(HEADS, HEAD));
    rpi_value_id v = rpi_graph_parameter(g, "v", SHAPE(HEADS, HEAD));
    n->y = rpi_relative_attention(
        g, "attention", x, distances, u, v, remembered,
        (rpi_relative_attention_attributes){.heads = HEADS, .queries = length});
    REQUIRE_OK(rpi_graph_check(g));
    REQUIRE_OK(rpi_weights_create(g, RPI_NO_VALUE, &n->weights));
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    float *w = rpi_weights_values(n->weights);
    for (int64_t i = 0; i < rpi_weights_count(n->weights); i++) w[i] = rpi_rng_normal(&rng);
}

static rp_status compile(net *n, const rpi_backend *backend, int64_t memory, int64_t all) {
    rpi_program_options options = {
        .dimensions = {{"length", TOKENS}, {"all", all}, {"memory", memory}},
        .result_count = 1,
        .results = {n->y}};
    return solo_open(n->graph, n->weights, RPI_NO_VALUE, backend, &options, &n->instance);
}

static void close_net(net *n) {
    solo_close(n->instance);
    rpi_weights_destroy(n->weights);
    rpi_graph_destroy(n->graph);
}

static void draw(float *x, int64_t count, uint64_t stream) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, stream);
    for (int64_t i = 0; i < count; i++) x[i] = rpi_rng_normal(&rng);
}

static void run(net *n, const float *memory, const float *x, int32_t remembered, float *out) {
    rpi_tensor y;
    const void *inputs[] = {memory, x, &remembered};
    REQUIRE_OK(rpi_instance_run(n->instance, &(rpi_run_options){.inputs = inputs}));
    REQUIRE_OK(rpi_instance_result(n->instance, n->y, &y));
    memcpy(out, y.data, BATCH * TOKENS * WIDTH * sizeof *out);
}

/* The last tokens of a memory that is not full stand where those of a full one do. */
static void what_is_not_remembered_has_no_part(void) {
    static float memory[BATCH * MEMORY * 3 * WIDTH], x[BATCH * TOKENS * 3 * WIDTH];
    static float part[BATCH * 2 * 3 * WIDTH], wanted[BATCH * TOKENS * WIDTH];
    static float y[BATCH * TOKENS * WIDTH];
    draw(memory, BATCH * MEMORY * 3 * WIDTH, 2);
    draw(x, BATCH * TOKENS * 3 * WIDTH, 3);
    for (int b = 0; b < BATCH; b++)
        memcpy(part + b * 2 * 3 * WIDTH, memory + (b * MEMORY + MEMORY - 2) * 3 * WIDTH,
               2 * 3 * WIDTH * sizeof(float));
    for (int b = 0; rpi_backend_at(b); b++) {
        net all, two;
        build(&all);
        build(&two);
        REQUIRE_OK(compile(&all, rpi_backend_at(b), MEMORY, ALL));
        REQUIRE_OK(compile(&two, rpi_backend_at(b), 2, 2 + TOKENS));
        run(&two, part, x, 2, wanted);
        run(&all, memory, x, 2, y);
        for (int i = 0; i < BATCH * TOKENS * WIDTH; i++) CHECK_NEAR(y[i], wanted[i], 1e-5);
        run(&all, memory, x, MEMORY, y);
        double most = 0;
        for (int i = 0; i < BATCH * TOKENS * WIDTH; i++)
            most = fmax(most, fabs((double)y[i] - (double)wanted[i]));
        CHECK(most > 1e-3);
        close_net(&all);
        close_net(&two);
    }
}

static void lengths_are_checked(void) {
    for (int b = 0; rpi_backend_at(b); b++) {
        net n;
        float memory[BATCH * MEMORY * 3 * WIDTH] = {0}, x[BATCH * TOKENS * 3 * WIDTH] = {0};
        build(&n);
        CHECK_FAILS(compile(&n, rpi_backend_at(b), MEMORY, ALL + 1), INVALID,
                    "4 tokens behind a memory of 5 are not 10");
        REQUIRE_OK(compile(&n, rpi_backend_at(b), MEMORY, ALL));
        for (int32_t wrong = -1; wrong <= MEMORY + 1; wrong += MEMORY + 2) {
            const void *inputs[] = {memory, x, &wrong};
            char text[96];
            snprintf(text, sizeof text, "%d tokens are remembered; the memory has room for 5",
                     (int)wrong);
            CHECK_FAILS(rpi_instance_run(n.instance, &(rpi_run_options){.inputs = inputs}),
                        INVALID, text);
        }
        close_net(&n);
    }
}

static void refuse(rpi_shape input, rpi_shape distances, rpi_shape bias,
                   rpi_relative_attention_attributes attributes, const char *message) {
    rpi_graph *g = NULL;
    REQUIRE_OK(rpi_graph_create(&g));
    rpi_value_id x = rpi_graph_input(g, "x", RP_F32, input);
    rpi_value_id r = rpi_graph_input(g, "r", RP_F32, distances);
    rpi_value_id u = rpi_graph_parameter(g, "u", bias), v = rpi_graph_parameter(g, "v", bias);
    rpi_relative_attention(g, "attention", x, r, u, v, RPI_NO_VALUE, attributes);
    CHECK_FAILS(rpi_graph_check(g), INVALID, message);
    rpi_graph_destroy(g);
}

static void shapes_are_checked(void) {
    rpi_relative_attention_attributes good = {.heads = 2, .queries = 4};
    rpi_relative_attention_attributes none = {.heads = 0, .queries = 4};
    rpi_relative_attention_attributes many = {.heads = 2, .queries = 10};
    rpi_shape x = SHAPE(1, 9, 18), r = SHAPE(9, 6), bias = SHAPE(2, 3);
    refuse(x, r, bias, none, "heads is 0; 1 or more");
    refuse(x, r, bias, many, "10 queries among 9 tokens; they are the last of them");
    refuse(SHAPE(1, 9, 20), r, bias, good, "queries, keys and values of 2 heads");
    refuse(x, SHAPE(8, 6), bias, good, "distances is 8 x 6; 9 x 6 is wanted");
    refuse(x, r, SHAPE(3, 2), good, "content bias is 3 x 2; 2 x 3 is wanted");
}

static void widths_of_sinusoids(void) {
    rpi_graph *g = NULL;
    REQUIRE_OK(rpi_graph_create(&g));
    rpi_sinusoids(g, "rows", rpi_graph_input(g, "x", RP_F32, SHAPE(1, 4, 5)),
                  (rpi_sinusoids_attributes){.rows = 4});
    CHECK_FAILS(rpi_graph_check(g), INVALID,
                "the width is 5; half are sines, so an even one is wanted");
    rpi_graph_destroy(g);
}

CASES({"what_is_not_remembered_has_no_part", what_is_not_remembered_has_no_part},
      {"lengths_are_checked", lengths_are_checked}, {"shapes_are_checked", shapes_are_checked},
      {"widths_of_sinusoids", widths_of_sinusoids})
