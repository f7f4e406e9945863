/* Two models against PyTorch in double precision, on every backend: losses, gradients of the
 * first step, weights and running statistics after ten steps of SGD. A third, whose ReLUs are
 * open, for the gradients of images in bf16. */
#include "golden.h"
#include "harness/check.h"
#include "op_fixture.h"

#include "base/memory.h"
#include "engine/layers.h"
#include "engine/optimizer.h"

enum { BATCH = 8, SIZE = 10, CLASSES = 10, STEPS = 10 };
#define TOLERANCE             1e-4 /* relative L2 of each tensor */
/* A ReLU whose sign the rounding of bf16 flips moves the gradient of what lies in front of it:
 * PyTorch's own bf16 (autocast) is off by up to 1.6e-1 for this resnet. */
#define BF16_TOLERANCE        3e-2
#define BF16_RESNET_TOLERANCE 2e-1
#define BF16_SHIFT_TOLERANCE  3e-1

/* ---- the models ---- */

static rpi_value_id parameter(rpi_graph *graph, const char *layer, const char *what,
                              rpi_shape shape) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", layer, what);
    return rpi_graph_parameter(graph, name, shape);
}

static rpi_value_id linear(rpi_graph *graph, const char *name, rpi_value_id x, int64_t inputs,
                           int64_t outputs) {
    rpi_value_id weight = parameter(graph, name, "weight", SHAPE(outputs, inputs));
    rpi_value_id bias = parameter(graph, name, "bias", SHAPE(outputs));
    return rpi_linear(graph, name, x, weight, bias);
}

static rpi_value_id conv(rpi_graph *graph, const char *name, rpi_value_id x,
                         const int64_t weight[4], int stride) {
    rpi_value_id id =
        parameter(graph, name, "weight", SHAPE(weight[0], weight[1], weight[2], weight[3]));
    return rpi_conv2d(graph, name, x, id, RPI_NO_VALUE,
                      (rpi_conv2d_attributes){.stride = stride, .padding = (int)weight[2] / 2});
}

/* Channels of a group of the norms that are built; 0: they are batch norms. */
static int group_size;

static rpi_value_id norm(rpi_graph *graph, const char *name, rpi_value_id x, int64_t channels) {
    char mean[96], variance[96];
    rpi_shape shape = SHAPE(channels);
    snprintf(mean, sizeof mean, "%s.running_mean", name);
    snprintf(variance, sizeof variance, "%s.running_var", name);
    rpi_value_id scale = parameter(graph, name, "weight", shape);
    rpi_value_id shift = parameter(graph, name, "bias", shape);
    if (group_size > 0)
        return rpi_group_norm(
            graph, name, x, scale, shift,
            (rpi_group_norm_attributes){.groups = (int)channels / group_size});
    return rpi_batch_norm2d(graph, name, x, scale, shift, rpi_graph_state(graph, mean, shape),
                            rpi_graph_state(graph, variance, shape),
                            (rpi_batch_norm2d_attributes){0});
}

static const char *join(char *text, size_t bytes, const char *prefix, const char *name) {
    snprintf(text, bytes, "%s.%s", prefix, name);
    return text;
}

static rpi_value_id block(rpi_graph *graph, const char *name, rpi_value_id x, int64_t inputs,
                          int64_t outputs, int stride) {
    char text[64];
    rpi_value_id y, shortcut = x;
    y = conv(graph, join(text, sizeof text, name, "conv1"), x,
             (const int64_t[]){outputs, inputs, 3, 3}, stride);
    y = norm(graph, join(text, sizeof text, name, "bn1"), y, outputs);
    y = rpi_relu(graph, join(text, sizeof text, name, "relu1"), y);
    y = conv(graph, join(text, sizeof text, name, "conv2"), y,
             (const int64_t[]){outputs, outputs, 3, 3}, 1);
    y = norm(graph, join(text, sizeof text, name, "bn2"), y, outputs);
    if (inputs != outputs) {
        shortcut = conv(graph, join(text, sizeof text, name, "downsample.0"), x,
                        (const int64_t[]){outputs, inputs, 1, 1}, stride);
        shortcut =
            norm(graph, join(text, sizeof text, name, "downsample.1"), shortcut, outputs);
    }
    y = rpi_add(graph, join(text, sizeof text, name, "add"), y, shortcut);
    return rpi_relu(graph, join(text, sizeof text, name, "relu2"), y);
}

typedef struct widths {
    int64_t inputs, inner, outputs;
} widths;

static rpi_value_id bottleneck(rpi_graph *graph, const char *name, rpi_value_id x, widths of) {
    char text[64];
    rpi_value_id y, shortcut = x;
    y = conv(graph, join(text, sizeof text, name, "conv1"), x,
             (const int64_t[]){of.inner, of.inputs, 1, 1}, 1);
    y = norm(graph, join(text, sizeof text, name, "bn1"), y, of.inner);
    y = rpi_relu(graph, join(text, sizeof text, name, "relu1"), y);
    y = conv(graph, join(text, sizeof text, name, "conv2"), y,
             (const int64_t[]){of.inner, of.inner, 3, 3}, 1);
    y = norm(graph, join(text, sizeof text, name, "bn2"), y, of.inner);
    y = rpi_relu(graph, join(text, sizeof text, name, "relu2"), y);
    y = conv(graph, join(text, sizeof text, name, "conv3"), y,
             (const int64_t[]){of.outputs, of.inner, 1, 1}, 1);
    y = norm(graph, join(text, sizeof text, name, "bn3"), y, of.outputs);
    if (of.inputs != of.outputs) {
        shortcut = conv(graph, join(text, sizeof text, name, "downsample.0"), x,
                        (const int64_t[]){of.outputs, of.inputs, 1, 1}, 1);
        shortcut =
            norm(graph, join(text, sizeof text, name, "downsample.1"), shortcut, of.outputs);
    }
    y = rpi_add(graph, join(text, sizeof text, name, "add"), y, shortcut);
    return rpi_relu(graph, join(text, sizeof text, name, "relu3"), y);
}

static rpi_value_id mlp(rpi_graph *graph, rpi_value_id x) {
    x = rpi_flatten(graph, "flatten", x);
    x = linear(graph, "fc1", x, SIZE * SIZE, 32);
    return linear(graph, "fc2", rpi_relu(graph, "relu", x), 32, CLASSES);
}

static rpi_value_id resnet(rpi_graph *graph, rpi_value_id x) {
    x = conv(graph, "conv1", x, (const int64_t[]){16, 1, 3, 3}, 1);
    x = rpi_relu(graph, "relu", norm(graph, "bn1", x, 16));
    x = block(graph, "layer1.0", x, 16, 16, 1);
    x = block(graph, "layer2.0", x, 16, 32, 2);
    return linear(graph, "fc", rpi_global_avg_pool(graph, "pool", x), 32, CLASSES);
}

static rpi_value_id resnet_group(rpi_graph *graph, rpi_value_id x) {
    group_size = 8;
    x = resnet(graph, x);
    group_size = 0;
    return x;
}

static rpi_value_id resnet_open(rpi_graph *graph, rpi_value_id x) {
    x = conv(graph, "conv1", x, (const int64_t[]){16, 1, 3, 3}, 1);
    x = rpi_relu(graph, "relu", norm(graph, "bn1", x, 16));
    x = rpi_max_pool2d(graph, "maxpool", x,
                       (rpi_max_pool2d_attributes){.kernel = 3, .stride = 2, .padding = 1});
    x = bottleneck(graph, "layer1.0", x, (widths){16, 16, 32});
    x = bottleneck(graph, "layer1.1", x, (widths){32, 16, 32});
    return linear(graph, "fc", rpi_global_avg_pool(graph, "pool", x), 32, CLASSES);
}

/* ---- ten steps ---- */

typedef struct training {
    golden file;
    rpi_graph *graph;
    rpi_value_id loss;
    rpi_weights *weights;
    rpi_instance *instance;
    float *momentum;
    double tolerance;
} training;

static rp_status open_training(const char *name,
                               rpi_value_id (*model)(rpi_graph *graph, rpi_value_id images),
                               const rpi_backend *backend, rp_dtype compute, training *out) {
    RP_TRY(golden_open(name, &out->file));
    RP_TRY(rpi_graph_create(&out->graph));
    rpi_graph *graph = out->graph;
    rpi_value_id images = rpi_graph_input(
        graph, "images", RP_F32, SHAPE(rpi_graph_dimension(graph, "batch"), 1, SIZE, SIZE));
    rpi_value_id labels =
        rpi_graph_input(graph, "labels", RP_I32, SHAPE(rpi_graph_dimension(graph, "batch")));
    rpi_value_id scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    out->loss = rpi_softmax_cross_entropy(graph, "loss", model(graph, images), labels, scale);
    RP_TRY(rpi_weights_create(graph, out->loss, &out->weights));
    RP_TRY(rpi_alloc_array((size_t)rpi_weights_count(out->weights), sizeof(float), "momentum",
                           &out->momentum));
    rpi_program_options options = {
        .training = true, .compute = compute, .dimensions = {{"batch", BATCH}}};
    out->tolerance = TOLERANCE;
    return solo_open(graph, out->weights, out->loss, backend, &options, &out->instance);
}

static void close_training(training *t) {
    golden_close(&t->file);
    solo_close(t->instance);
    rpi_weights_destroy(t->weights);
    rpi_graph_destroy(t->graph);
    rpi_free(t->momentum);
}

static void load(const training *t, const rpi_weight *weight, float *arena) {
    rpi_tensor tensor;
    REQUIRE_OK(golden_tensor(&t->file, &tensor, "initial/%s", weight->name));
    REQUIRE(rpi_shape_equal(&tensor.shape, &weight->shape));
    memcpy(arena + weight->first, tensor.data, (size_t)weight->count * sizeof(float));
}

static void compare(const training *t, const rpi_weight *weight, const float *arena,
                    const char *what, const rpi_backend *backend) {
    rpi_tensor tensor;
    REQUIRE_OK(golden_tensor(&t->file, &tensor, "%s/%s", what, weight->name));
    double error = relative_l2(arena + weight->first, tensor.data, weight->count);
    CHECK_MSG(error <= t->tolerance, "%s: %s/%s is off by %.2e", backend->name, what,
              weight->name, error);
}

static void for_each_parameter(const training *t, const float *arena, const char *what,
                               const rpi_backend *backend) {
    for (int i = 0; i < rpi_weights_parameter_count(t->weights); i++)
        compare(t, rpi_weights_parameter(t->weights, i), arena, what, backend);
}

static void step(const training *t, int index, const rpi_backend *backend) {
    const float scale = 1.0f / BATCH;
    rpi_tensor images, labels, losses, loss;
    int64_t count = rpi_weights_count(t->weights);
    float *values = rpi_weights_values(t->weights);
    float *gradients = rpi_weights_gradients(t->weights);
    REQUIRE_OK(golden_tensor(&t->file, &images, "inputs"));
    REQUIRE_OK(golden_tensor(&t->file, &labels, "labels"));
    REQUIRE_OK(golden_tensor(&t->file, &losses, "losses"));
    const void *inputs[] = {(float *)images.data + index * BATCH * SIZE * SIZE,
                            (int32_t *)labels.data + index * BATCH, &scale};
    REQUIRE_OK(rpi_instance_run(t->instance, &(rpi_run_options){.inputs = inputs}));
    REQUIRE_OK(rpi_instance_result(t->instance, t->loss, &loss));
    double wanted = (double)((float *)losses.data)[index];
    CHECK_NEAR((double)*(float *)loss.data, wanted,
               fmin(t->tolerance, BF16_TOLERANCE) * wanted);
    if (index == 0) for_each_parameter(t, gradients, "gradient", backend);
    const rpi_optimizer_rates rates = {
        .learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 5e-4f};
    rpi_optimizer_at(0)->update(&rates, (uint64_t)index, count, values, gradients,
                                (float *[]){t->momentum});
    rpi_weights_changed(t->weights, 0, count);
}

static void load_all(const training *t) {
    for (int i = 0; i < rpi_weights_parameter_count(t->weights); i++)
        load(t, rpi_weights_parameter(t->weights, i), rpi_weights_values(t->weights));
    for (int i = 0; i < rpi_weights_state_count(t->weights); i++)
        load(t, rpi_weights_state(t->weights, i), rpi_weights_states(t->weights));
    rpi_weights_changed(t->weights, 0, rpi_weights_count(t->weights));
}

static void check_model(const char *name,
                        rpi_value_id (*model)(rpi_graph *graph, rpi_value_id images),
                        const rpi_backend *backend) {
    training t = {0};
    REQUIRE_OK(open_training(name, model, backend, RP_F32, &t));
    load_all(&t);
    for (int i = 0; i < STEPS; i++) step(&t, i, backend);
    for_each_parameter(&t, rpi_weights_values(t.weights), "final", backend);
    for (int i = 0; i < rpi_weights_state_count(t.weights); i++)
        compare(&t, rpi_weights_state(t.weights, i), rpi_weights_states(t.weights), "final",
                backend);
    close_training(&t);
}

/* All gradients of the first step together, where each tensor by itself may be worse. */
static void compare_together(const training *t, const rpi_backend *backend) {
    double difference = 0, size = 0;
    for (int i = 0; i < rpi_weights_parameter_count(t->weights); i++) {
        const rpi_weight *weight = rpi_weights_parameter(t->weights, i);
        const float *got = rpi_weights_gradients(t->weights) + weight->first;
        rpi_tensor wanted;
        REQUIRE_OK(golden_tensor(&t->file, &wanted, "gradient/%s", weight->name));
        for (int64_t j = 0; j < weight->count; j++) {
            const double exact = (double)((float *)wanted.data)[j];
            difference += pow((double)got[j] - exact, 2);
            size += pow(exact, 2);
        }
    }
    const double error = sqrt(difference / size);
    CHECK_MSG(error <= fmin(t->tolerance, BF16_TOLERANCE),
              "%s: the gradients are off by %.2e together", backend->name, error);
}

/* The first step alone; later ones are of other weights. tolerance: of each tensor. */
static void check_first_step(const char *name,
                             rpi_value_id (*model)(rpi_graph *graph, rpi_value_id images),
                             const rpi_backend *backend, rp_dtype compute, double tolerance,
                             bool together) {
    training t = {0};
    REQUIRE_OK(open_training(name, model, backend, compute, &t));
    t.tolerance = tolerance;
    load_all(&t);
    step(&t, 0, backend);
    if (together) compare_together(&t, backend);
    close_training(&t);
}

static void check_model_in_bf16(const char *name,
                                rpi_value_id (*model)(rpi_graph *graph, rpi_value_id images),
                                const rpi_backend *backend, double tolerance, bool together) {
    if (rpi_backend_check_compute(backend, RP_BF16) == RP_OK)
        check_first_step(name, model, backend, RP_BF16, tolerance, together);
}

static void check_mlp(void) {
    for (int i = 0; rpi_backend_at(i); i++) {
        check_model("mlp", mlp, rpi_backend_at(i));
        check_model_in_bf16("mlp", mlp, rpi_backend_at(i), BF16_TOLERANCE, true);
    }
}

static void check_resnet(void) {
    for (int i = 0; rpi_backend_at(i); i++) {
        check_model("resnet", resnet, rpi_backend_at(i));
        check_model_in_bf16("resnet", resnet, rpi_backend_at(i), BF16_RESNET_TOLERANCE, false);
    }
}

static void check_resnet_group(void) {
    for (int i = 0; rpi_backend_at(i); i++) {
        check_model("resnet_group", resnet_group, rpi_backend_at(i));
        check_model_in_bf16("resnet_group", resnet_group, rpi_backend_at(i),
                            BF16_RESNET_TOLERANCE, false);
    }
}

/* PyTorch's own bf16 is off by about 1.3e-2 together. Of a shift between ReLU and the next norm
 * only what is closed tells in the gradient: few tensors, far off. */
static void check_resnet_open(void) {
    for (int i = 0; rpi_backend_at(i); i++) {
        check_first_step("resnet_open", resnet_open, rpi_backend_at(i), RP_F32, TOLERANCE,
                         true);
        check_model_in_bf16("resnet_open", resnet_open, rpi_backend_at(i), BF16_SHIFT_TOLERANCE,
                            true);
    }
}

CASES({"mlp", check_mlp}, {"resnet", check_resnet}, {"resnet_group", check_resnet_group},
      {"resnet_open", check_resnet_open})
