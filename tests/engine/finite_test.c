#include "base/rng.h"
#include "engine/finite.h"
#include "harness/check.h"
#include "op_fixture.h"

#include "engine/layers.h"

#include <float.h>
#include <stdlib.h>

enum { MOST = 5000 };

static void finds_the_first(void) {
    static float x[MOST];
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int trial = 0; trial < 200; trial++) {
        int64_t count = 1 + rpi_rng_below(&rng, MOST - 1);
        for (int64_t i = 0; i < count; i++) x[i] = rpi_rng_normal(&rng);
        x[rpi_rng_below(&rng, (uint32_t)count)] = trial % 2 ? FLT_MAX : -FLT_MIN / 4;
        CHECK_EQ(rpi_first_nonfinite(x, count), -1);
        int64_t a = rpi_rng_below(&rng, (uint32_t)count);
        int64_t b = rpi_rng_below(&rng, (uint32_t)count);
        x[a] = bad[trial % 4];
        x[b] = bad[(trial + 1) % 4];
        CHECK_EQ(rpi_first_nonfinite(x, count), a < b ? a : b);
    }
    CHECK_EQ(rpi_first_nonfinite(x, 0), -1);
}

static void finds_the_first_of_bf16(void) {
    uint16_t x[] = {0x3f80, 0x7f7f, 0xff7f, 0x0001, 0x8000, 0, 0};
    static const uint16_t bad[] = {0x7f80, 0xff80, 0x7fc0, 0x7f81};
    CHECK_EQ(rpi_first_nonfinite_bf16(x, 7), -1);
    for (int i = 0; i < 4; i++) {
        x[5] = x[6] = bad[i];
        CHECK_EQ(rpi_first_nonfinite_bf16(x, 7), 5);
        CHECK_EQ(rpi_first_nonfinite_bf16(x, 5), -1);
    }
}

/* A chain of three on every backend: the node that begins is named, not those that follow. */
static void the_first_node_is_named(void) {
    for (int b = 0; rpi_backend_at(b); b++) {
        op_fixture f = {0};
        rpi_instance *instance = NULL;
        const char *name = "?";
        REQUIRE_OK(rpi_graph_create(&f.graph));
        rpi_value_id x = rpi_graph_parameter(f.graph, "x", SHAPE(2, 3));
        rpi_value_id y = rpi_graph_parameter(f.graph, "y", SHAPE(2, 3));
        x = rpi_relu(f.graph, "first", x);
        x = rpi_relu(f.graph, "sum and relu", rpi_add(f.graph, "sum", x, y));
        x = rpi_relu(f.graph, "last", x);
        REQUIRE_OK(op_fixture_add_loss(&f, x));
        rpi_program_options options = {.training = true};
        REQUIRE_OK(
            solo_open(f.graph, f.weights, f.loss, rpi_backend_at(b), &options, &instance));
        CHECK_OK(rpi_instance_find_nonfinite(instance, &(rpi_run_options){0}, &name));
        CHECK(name == NULL);
        rpi_weights_values(f.weights)[rpi_weights_find(f.weights, "y")->first + 4] = NAN;
        CHECK_OK(rpi_instance_find_nonfinite(instance, &(rpi_run_options){0}, &name));
        CHECK_MSG(name && !strcmp(name, "sum"), "%s: '%s'", rpi_backend_at(b)->name,
                  name ? name : "nothing");
        solo_close(instance);
        op_fixture_close(&f);
    }
}

CASES({"finds the first", finds_the_first},
      {"finds the first of bf16", finds_the_first_of_bf16},
      {"the first node is named", the_first_node_is_named})
