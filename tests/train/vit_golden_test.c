/* The model vit against PyTorch in double precision: logits, loss and all gradients of one
 * batch, on every backend. tools/golden_transformers.py has the same model in PyTorch. */
#include "golden.h"
#include "harness/check.h"
#include "solo.h"

#include "train/models/network.h"

#include <stdio.h>
#include <string.h>

enum { BATCH = 3, CLASSES = 10 };
#define MODEL     "vit:layers=2,hidden=32,heads=4,patch=4"
#define TOLERANCE 1e-4 /* relative L2 of each tensor */

static const rpi_data_shape pictures = {
    .channels = 3, .height = 12, .width = 12, .classes = CLASSES};

/* Of the golden file: "layers.0.fc1.weight" for torchvision's
 * "encoder.layers.encoder_layer_0.mlp.0.weight". */
static void golden_name(const char *name, char text[128]) {
    static const char *const pairs[][2] = {{"encoder.layers.encoder_layer_", "layers."},
                                           {"encoder.", ""},
                                           {"heads.", ""},
                                           {"self_attention.in_proj_", "in_proj."},
                                           {"self_attention.", ""},
                                           {"mlp.0.", "fc1."},
                                           {"mlp.3.", "fc2."}};
    snprintf(text, 128, "%s", name);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char rest[128], *found = strstr(text, pairs[i][0]);
        if (!found) continue;
        snprintf(rest, sizeof rest, "%s", found + strlen(pairs[i][0]));
        snprintf(found, 128 - (size_t)(found - text), "%s%s", pairs[i][1], rest);
    }
}

static void load(const golden *file, const rpi_network *network, rpi_weights *weights) {
    for (int p = 0; p < network->parameter_count; p++) {
        char name[128];
        rpi_tensor tensor;
        golden_name(network->parameters[p].name, name);
        REQUIRE_OK(golden_tensor(file, &tensor, "initial/%s", name));
        int64_t count = rpi_shape_count(&network->parameters[p].shape);
        REQUIRE(rpi_shape_count(&tensor.shape) == count);
        memcpy(rpi_network_elements(network, weights, p), tensor.data,
               (size_t)count * sizeof(float));
    }
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
}

static void check_gradients(const golden *file, const rpi_network *network,
                            rpi_weights *weights, const char *backend) {
    for (int p = 0; p < network->parameter_count; p++) {
        char name[128];
        rpi_tensor wanted;
        const rpi_weight *weight = rpi_weights_find(weights, network->parameters[p].name);
        golden_name(network->parameters[p].name, name);
        REQUIRE_OK(golden_tensor(file, &wanted, "gradient/%s", name));
        double error = golden_distance(rpi_weights_gradients(weights) + weight->first,
                                       wanted.data, weight->count);
        CHECK_MSG(error <= TOLERANCE, "%s: gradient of %s is off by %.2e", backend,
                  weight->name, error);
    }
}

/* In evaluation the logits alone, in training the loss and the gradients. */
static void run(const golden *file, const rpi_network *network, rpi_weights *weights,
                const rpi_backend *backend, bool training) {
    rpi_tensor images, labels, wanted, got;
    rpi_instance *instance = NULL;
    rpi_value_id value = training ? network->loss : network->logits;
    rpi_program_options options = {.training = training, .dimensions = {{"batch", BATCH}}};
    if (!training) options.results[options.result_count++] = network->logits;
    float scale = 1.0f / BATCH;
    REQUIRE_OK(golden_tensor(file, &images, "images"));
    REQUIRE_OK(golden_tensor(file, &labels, "labels"));
    REQUIRE_OK(golden_tensor(file, &wanted, training ? "losses" : "logits"));
    REQUIRE_OK(solo_open(network->graph, weights, training ? network->loss : RPI_NO_VALUE,
                         backend, &options, &instance));
    const void *inputs[] = {images.data, labels.data, &scale};
    CHECK_OK(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs}));
    REQUIRE_OK(rpi_instance_result(instance, value, &got));
    double error = golden_distance(got.data, wanted.data, rpi_shape_count(&wanted.shape));
    CHECK_MSG(error <= 1e-5, "%s: %s are off by %.2e", backend->name,
              training ? "losses" : "logits", error);
    if (training) check_gradients(file, network, weights, backend->name);
    solo_close(instance);
}

static void equals_pytorch(void) {
    golden file;
    rpi_network network = {0};
    rpi_weights *weights = NULL;
    REQUIRE_OK(golden_open("vit", &file));
    REQUIRE_OK(rpi_network_build(MODEL, &pictures, &network));
    REQUIRE_OK(rpi_weights_create(network.graph, network.loss, &weights));
    load(&file, &network, weights);
    for (int b = 0; rpi_backend_at(b); b++) {
        run(&file, &network, weights, rpi_backend_at(b), false);
        run(&file, &network, weights, rpi_backend_at(b), true);
    }
    rpi_weights_destroy(weights);
    rpi_network_close(&network);
    golden_close(&file);
}

CASES({"equals PyTorch", equals_pytorch})
