/* Every op of the catalogue: its contract, and its gradients on the reference backend against
 * central differences. */
#include "harness/check.h"
#include "op_fixture.h"

#include <math.h>

enum { ELEMENTS = 40 }; /* tried of each input */

static double loss_at(const op_fixture *fixture, rpi_instance *instance, float *element,
                      float value) {
    float kept = *element;
    *element = value;
    CHECK_OK(op_fixture_run(fixture, instance, false));
    double loss = op_fixture_loss(fixture, instance); /* the output may view the input */
    *element = kept;
    return loss;
}

static double largest(const float *x, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs((double)x[i]));
    return most;
}

/* Outputs are f32, so a difference carries rounding of about 1e-7 |y| / step. */
static void check_input(const op_fixture *fixture, rpi_instance *instance, int input,
                        const float *gradient) {
    const rpi_weight *weight = op_fixture_weight(fixture, input);
    float *values = rpi_weights_values(fixture->weights) + weight->first;
    const float step = 4e-3f;
    double scale = fmax(1, largest(gradient, weight->count));
    int64_t stride = weight->count / ELEMENTS + 1;
    for (int64_t i = 0; i < weight->count; i += stride) {
        float above = values[i] + step, below = values[i] - step;
        double slope = (loss_at(fixture, instance, &values[i], above) -
                        loss_at(fixture, instance, &values[i], below)) /
                       ((double)above - (double)below);
        CHECK_MSG(fabs(slope - (double)gradient[i]) <= 3e-3 * scale,
                  "%s (%s): gradient of %s[%lld] is %g, the difference says %g",
                  fixture->op->name, fixture->example->name, fixture->op->inputs[input].name,
                  (long long)i, (double)gradient[i], slope);
    }
}

static void check_example(const rpi_op *op, const rpi_op_example *example) {
    op_fixture fixture;
    rpi_instance *instance = NULL;
    float gradients[16384];
    REQUIRE_OK(op_fixture_open(op, example, check_seed(), &fixture));
    REQUIRE_OK(op_fixture_compile(&fixture, rpi_backend_at(0), true, &instance));
    int64_t count = rpi_weights_count(fixture.weights);
    REQUIRE(count <= (int64_t)(sizeof gradients / sizeof gradients[0]));
    REQUIRE_OK(op_fixture_run(&fixture, instance, false));
    memcpy(gradients, rpi_weights_gradients(fixture.weights), (size_t)count * sizeof(float));
    for (int i = 0; i < example->input_count; i++) {
        const rpi_weight *weight = op_fixture_weight(&fixture, i);
        if (op->inputs[i].has_gradient && weight)
            check_input(&fixture, instance, i, gradients + weight->first);
    }
    solo_close(instance);
    op_fixture_close(&fixture);
}

static void finite_differences(void) {
    for (int i = 0; rpi_op_at(i); i++)
        for (int j = 0; !rpi_op_has_cache(rpi_op_at(i)) && j < rpi_op_at(i)->example_count; j++)
            check_example(rpi_op_at(i), &rpi_op_at(i)->examples[j]);
}

static void contracts(void) {
    for (int i = 0; rpi_op_at(i); i++) {
        const rpi_op *op = rpi_op_at(i);
        CHECK(op->name && op->summary && op->infer);
        CHECK(rpi_op_find(op->name) == op);
        CHECK(op->input_count >= 1 && op->input_count <= RPI_NODE_INPUTS);
        CHECK(op->output_count >= 1 && op->output_count <= RPI_NODE_OUTPUTS);
        CHECK_MSG(op->example_count > 0 || !strcmp(op->name, "external"), "%s has no examples",
                  op->name);
        for (int j = 0; j < op->input_count; j++) CHECK(op->inputs[j].name != NULL);
    }
    CHECK(rpi_op_find("conv7d") == NULL);
}

/* In evaluation batch norm uses its states and leaves them alone; in training it moves them. */
static void states(void) {
    const rpi_op *op = rpi_op_find("batch_norm2d");
    for (int training = 0; training < 2; training++) {
        op_fixture fixture;
        rpi_instance *instance = NULL;
        float before[64];
        REQUIRE_OK(op_fixture_open(op, &op->examples[0], 7, &fixture));
        REQUIRE_OK(op_fixture_compile(&fixture, rpi_backend_at(0), training, &instance));
        size_t bytes = sizeof(float) * (size_t)rpi_weights_states_count(fixture.weights);
        REQUIRE(bytes <= sizeof before);
        memcpy(before, rpi_weights_states(fixture.weights), bytes);
        CHECK_OK(op_fixture_run(&fixture, instance, false));
        bool same = !memcmp(before, rpi_weights_states(fixture.weights), bytes);
        CHECK(same == !training);
        solo_close(instance);
        op_fixture_close(&fixture);
    }
}

CASES({"finite_differences", finite_differences}, {"contracts", contracts}, {"states", states})
