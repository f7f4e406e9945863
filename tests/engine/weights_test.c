/* The arenas: order, places, versions. */
#include "engine/weights.h"
#include "harness/check.h"

#include "base/memory.h"
#include "engine/layers.h"
#include "op_fixture.h"

/* Two linear layers; the first one's weight is used again by the second; one parameter is not
 * used at all. */
static rpi_value_id build(rpi_graph *graph) {
    rpi_value_id x =
        rpi_graph_input(graph, "x", RP_F32, SHAPE(rpi_graph_dimension(graph, "batch"), 4));
    rpi_value_id labels =
        rpi_graph_input(graph, "labels", RP_I32, SHAPE(rpi_graph_dimension(graph, "batch")));
    rpi_value_id scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id unused = rpi_graph_parameter(graph, "unused", SHAPE(5));
    rpi_value_id tied = rpi_graph_parameter(graph, "tied", SHAPE(4, 4));
    rpi_value_id first_bias = rpi_graph_parameter(graph, "first.bias", SHAPE(4));
    rpi_value_id second_bias = rpi_graph_parameter(graph, "second.bias", SHAPE(4));
    rpi_value_id last = rpi_graph_parameter(graph, "last", SHAPE(3, 4));
    rpi_graph_state(graph, "a", SHAPE(2));
    rpi_graph_state(graph, "b", SHAPE(3));
    (void)unused;
    x = rpi_linear(graph, "first", x, tied, first_bias);
    x = rpi_linear(graph, "second", x, tied, second_bias);
    x = rpi_linear(graph, "third", x, last, RPI_NO_VALUE);
    return rpi_softmax_cross_entropy(graph, "loss", x, labels, scale);
}

static void order(void) {
    static const struct {
        const char *name;
        int64_t first, count;
    } wanted[] = {{"last", 0, 12},
                  {"second.bias", 12, 4},
                  {"tied", 16, 16},
                  {"first.bias", 32, 4},
                  {"unused", 36, 5}};
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id loss = build(graph);
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    CHECK_EQ(rpi_weights_parameter_count(weights), 5);
    CHECK_EQ(rpi_weights_count(weights), 41);
    for (int i = 0; i < 5; i++) {
        const rpi_weight *weight = rpi_weights_parameter(weights, i);
        CHECK_MSG(!strcmp(weight->name, wanted[i].name), "%d is %s", i, weight->name);
        CHECK_EQ(weight->first, wanted[i].first);
        CHECK_EQ(weight->count, wanted[i].count);
        CHECK(weight->index == i && !weight->is_state);
        CHECK(rpi_weights_find(weights, weight->name) == weight);
    }
    CHECK_EQ(rpi_weights_state_count(weights), 2);
    CHECK_EQ(rpi_weights_states_count(weights), 5);
    CHECK_EQ(rpi_weights_find(weights, "b")->first, 2);
    CHECK(rpi_weights_find(weights, "c") == NULL);
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

/* ---- a part ---- */

static rpi_value_id output_of(const rpi_graph *graph, const char *name) {
    for (int i = 0; i < rpi_graph_node_count(graph); i++)
        if (!strcmp(rpi_graph_node(graph, i)->name, name))
            return rpi_graph_node(graph, i)->outputs[0];
    return RPI_NO_VALUE;
}

static void check_names(const rpi_weights *weights, const char *const *names, int count) {
    int64_t first = 0;
    CHECK_EQ(rpi_weights_parameter_count(weights), count);
    for (int i = 0; i < count; i++) {
        const rpi_weight *weight = rpi_weights_parameter(weights, i);
        CHECK_MSG(!strcmp(weight->name, names[i]), "%d is %s", i, weight->name);
        CHECK_EQ(weight->first, first);
        first += weight->count;
    }
    CHECK_EQ(rpi_weights_count(weights), first);
}

/* In the order in which the part makes gradients: the tie is the second part's first use. */
static void parts(void) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id loss = build(graph);
    rpi_value_id cut = output_of(graph, "first"), other = output_of(graph, "second");
    rpi_weights_source source = {
        .graph = graph, .loss = RPI_NO_VALUE, .seed_count = 1, .seeds = &cut};
    REQUIRE_OK(rpi_weights_create_shared(&source, 1, &weights));
    check_names(weights, (const char *[]){"tied", "first.bias"}, 2);
    CHECK_EQ(rpi_weights_state_count(weights), 0); /* no node reads them */
    rpi_weights_destroy(weights);
    source =
        (rpi_weights_source){.graph = graph, .loss = loss, .given_count = 1, .given = &cut};
    REQUIRE_OK(rpi_weights_create_shared(&source, 1, &weights));
    check_names(weights, (const char *[]){"last", "tied", "second.bias"}, 3);
    rpi_weights_destroy(weights);
    source = (rpi_weights_source){.graph = graph,
                                  .loss = RPI_NO_VALUE,
                                  .given_count = 1,
                                  .given = &cut,
                                  .seed_count = 1,
                                  .seeds = &other};
    REQUIRE_OK(rpi_weights_create_shared(&source, 1, &weights));
    check_names(weights, (const char *[]){"tied", "second.bias"}, 2);
    rpi_weights_destroy(weights);
    source.seeds = &(rpi_value_id){999};
    CHECK_FAILS(rpi_weights_create_shared(&source, 1, &weights), INVALID,
                "a seed (value 999) is no value of the graph");
    source.given = &(rpi_value_id){-3};
    CHECK_FAILS(rpi_weights_create_shared(&source, 1, &weights), INVALID, "a given value");
    rpi_graph_destroy(graph);
}

/* Elements that lie elsewhere, and back. */
static void places(void) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL, *table = NULL;
    float elsewhere[3][16] = {{0}};
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id loss = build(graph);
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    REQUIRE_OK(rpi_weights_create_table(graph, loss, &table));
    for (int i = 0; i < rpi_weights_parameter_count(weights); i++) {
        int64_t first = rpi_weights_parameter(weights, i)->first;
        CHECK(rpi_weights_value_at(weights, i) == rpi_weights_values(weights) + first);
        CHECK(rpi_weights_gradient_at(weights, i) == rpi_weights_gradients(weights) + first);
        CHECK(!rpi_weights_value_at(table, i) && !rpi_weights_gradient_at(table, i));
    }
    CHECK(rpi_weights_state_at(weights, 1) == rpi_weights_states(weights) + 2);
    rpi_weights *both[] = {weights, table};
    for (int k = 0; k < 2; k++) {
        rpi_weights_place_values(both[k], 2, elsewhere[0]);
        rpi_weights_place_gradient(both[k], 3, elsewhere[1]);
        rpi_weights_place_state(both[k], 0, elsewhere[2]);
        CHECK(rpi_weights_value_at(both[k], 2) == elsewhere[0]);
        CHECK(rpi_weights_gradient_at(both[k], 3) == elsewhere[1]);
        CHECK(rpi_weights_gradient_at(both[k], 2) != elsewhere[1]);
        CHECK(rpi_weights_state_at(both[k], 0) == elsewhere[2]);
        rpi_weights_place_values(both[k], 2, NULL);
        rpi_weights_place_gradient(both[k], 3, NULL);
        rpi_weights_place_state(both[k], 0, NULL);
    }
    CHECK(rpi_weights_value_at(weights, 2) == rpi_weights_values(weights) + 16);
    CHECK(rpi_weights_gradient_at(weights, 3) == rpi_weights_gradients(weights) + 32);
    CHECK(rpi_weights_state_at(weights, 0) == rpi_weights_states(weights));
    CHECK(!rpi_weights_value_at(table, 2) && !rpi_weights_state_at(table, 0));
    rpi_weights_destroy(weights);
    rpi_weights_destroy(table);
    rpi_graph_destroy(graph);
}

/* An arena of values for a while: what was placed elsewhere stays there. */
static void values_come_and_go(void) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    float elsewhere[16] = {0};
    REQUIRE_OK(rpi_graph_create(&graph));
    const rpi_weights_source source = {.graph = graph, .loss = build(graph)};
    REQUIRE_OK(rpi_weights_create_with(&source, 1, &(rpi_weights_memory){0}, &weights));
    CHECK(!rpi_weights_values(weights) && !rpi_weights_gradients(weights));
    CHECK(rpi_weights_state_at(weights, 1) == rpi_weights_states(weights) + 2);
    for (int time = 0; time < 2; time++) {
        rpi_weights_place_values(weights, 2, elsewhere);
        CHECK_OK(rpi_weights_open_values(weights));
        float *values = rpi_weights_values(weights);
        CHECK_OK(rpi_weights_open_values(weights)); /* once more is nothing */
        CHECK(values && rpi_weights_values(weights) == values);
        for (int i = 0; i < rpi_weights_parameter_count(weights); i++)
            CHECK(rpi_weights_value_at(weights, i) ==
                  (i == 2 ? elsewhere : values + rpi_weights_parameter(weights, i)->first));
        CHECK(values[0] == 0);
        values[0] = 1;
        rpi_weights_close_values(weights);
        rpi_weights_close_values(weights);
        for (int i = 0; i < rpi_weights_parameter_count(weights); i++)
            CHECK(rpi_weights_value_at(weights, i) == (i == 2 ? elsewhere : NULL));
        rpi_weights_place_values(weights, 2, NULL);
    }
    rpi_memory_fail_after(1);
    CHECK(rpi_weights_open_values(weights) == RP_NOMEM);
    rpi_memory_fail_after(0);
    CHECK(!rpi_weights_values(weights) && !rpi_weights_value_at(weights, 0));
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

static void versions(void) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id loss = build(graph);
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    rpi_weights_changed(weights, 11, 2); /* the end of "last", the start of "second.bias" */
    for (int i = 0; i < rpi_weights_parameter_count(weights); i++)
        CHECK_EQ(rpi_weights_version(weights, i), i < 2 ? 2 : 1);
    rpi_weights_changed(weights, 11, 0);
    CHECK_EQ(rpi_weights_version(weights, 0), 2);
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

static void failures(void) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id loss = build(graph);
    CHECK_FAILS(rpi_weights_create(graph, 999, &weights), INVALID, "no value");
    rpi_memory_fail_after(0);
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    long total = rpi_memory_fail_after(0);
    rpi_weights_destroy(weights);
    for (long n = 1; n <= total; n++) {
        rpi_memory_fail_after(n);
        CHECK_FAILS(rpi_weights_create(graph, loss, &weights), NOMEM, "no memory");
    }
    rpi_memory_fail_after(0);
    rpi_graph_fail(graph, RP_INVALID, "a broken model");
    CHECK_FAILS(rpi_weights_create(graph, loss, &weights), INVALID, "a broken model");
    rpi_graph_destroy(graph);
    rpi_weights_destroy(NULL);
}

/* ---- arenas in memory of others ---- */

typedef struct lender {
    size_t bytes;
    float memory[64];
    bool refuses;
} lender;

static int given_back;

static rp_status lend(void *context, size_t bytes, const char *what, void **out_memory) {
    lender *l = context;
    (void)what;
    if (l->refuses) return RP_FAIL(NOMEM, "not today");
    l->bytes = bytes;
    *out_memory = l->memory;
    return RP_OK;
}

static void take_back(void *memory) {
    given_back += memory != NULL;
}

static void check_lent(const rpi_weights_source *source, bool are_values) {
    rpi_weights *weights = NULL;
    lender l = {0};
    const rpi_arena_memory lent = {.take = lend, .give = take_back, .context = &l};
    const rpi_weights_memory memory = {are_values ? &lent : &rpi_arena_memory_own,
                                       are_values ? &rpi_arena_memory_own : &lent};
    given_back = 0;
    REQUIRE_OK(rpi_weights_create_with(source, 1, &memory, &weights));
    REQUIRE(rpi_weights_count(weights) <= 64);
    CHECK_EQ(l.bytes, (size_t)rpi_weights_count(weights) * sizeof(float));
    CHECK((rpi_weights_values(weights) == l.memory) == are_values);
    CHECK((rpi_weights_gradients(weights) == l.memory) == !are_values);
    CHECK_EQ(given_back, 0);
    rpi_weights_destroy(weights);
    CHECK_EQ(given_back, 1);
    l.refuses = true;
    CHECK_FAILS(rpi_weights_create_with(source, 1, &memory, &weights), NOMEM, "not today");
    CHECK_EQ(given_back, 1);
}

static void arenas_lie_where_they_are_put(void) {
    rpi_graph *graph = NULL;
    REQUIRE_OK(rpi_graph_create(&graph));
    const rpi_weights_source source = {.graph = graph, .loss = build(graph)};
    check_lent(&source, true);
    check_lent(&source, false);
    rpi_graph_destroy(graph);
}

/* Whatever room a graph has made for its nodes, the last of them included. */
static void any_number_of_nodes(void) {
    for (int count = 0; count < 70; count++) {
        rpi_graph *graph = NULL;
        rpi_weights *weights = NULL;
        REQUIRE_OK(rpi_graph_create(&graph));
        rpi_value_id x = rpi_graph_parameter(graph, "w", SHAPE(1, 2));
        for (int i = 0; i < count; i++) {
            char name[16];
            snprintf(name, sizeof name, "relu %d", i);
            x = rpi_relu(graph, name, x);
        }
        rpi_value_id labels = rpi_graph_input(graph, "labels", RP_I32, SHAPE(1));
        rpi_value_id scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
        rpi_value_id loss = rpi_softmax_cross_entropy(graph, "loss", x, labels, scale);
        REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
        CHECK_EQ(rpi_weights_count(weights), 2);
        rpi_weights_destroy(weights);
        rpi_graph_destroy(graph);
    }
}

CASES({"order", order}, {"any_number_of_nodes", any_number_of_nodes}, {"versions", versions},
      {"parts", parts}, {"places", places}, {"values come and go", values_come_and_go},
      {"failures", failures}, {"arenas_lie_where_they_are_put", arenas_lie_where_they_are_put})
