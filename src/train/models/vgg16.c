/* VGG-16: configuration D of Simonyan, Zisserman, "Very deep convolutional networks for
 * large-scale image recognition", 2014, and the same with batch norm.
 *
 *     features: 3x3 convolutions with ReLU, and five times a pooling that halves
 *     classifier: linear, ReLU, dropout; linear, ReLU, dropout; linear
 *
 * Names are torchvision's, whose indices count every layer. Of images of 224x224 the poolings
 * leave 7x7 for the first linear layer, as there; of others it has as many inputs as they
 * leave. Filters start Kaiming-normal by fan-out, linear layers normal with deviation 0.01,
 * biases at 0. */
#include "train/models/image_norm.h"

#include "base/status.h"
#include "engine/layers.h"

#include <stdio.h>

extern const rpi_model rpi_model_vgg16;
extern const rpi_model rpi_model_vgg16_bn;

enum { LONGEST_NAME = 32, POOL = 0, SMALLEST_IMAGE = 32 };
#define SPREAD 0.01

/* Channels, as multiples of the first's, and poolings; what those leave of 224x224. */
static const int features[] = {
    1, 1, POOL,       /* 112 */
    2, 2, POOL,       /* 56 */
    4, 4, 4,    POOL, /* 28 */
    8, 8, 8,    POOL, /* 14 */
    8, 8, 8,    POOL, /* 7 */
};
enum { FEATURES = sizeof features / sizeof features[0] };

typedef struct vgg_options {
    int64_t width, hidden;
    double dropout;
    rpi_image_norm norm; /* of vgg16-bn */
} vgg_options;

#define OPTIONS                                                                                \
    RPI_MODEL_OPTION("width", RPI_OPTION_COUNT, offsetof(vgg_options, width), "64", 1, 8192,   \
                     "N", "channels of the first convolution", NULL),                          \
        RPI_MODEL_OPTION("hidden", RPI_OPTION_COUNT, offsetof(vgg_options, hidden), "4096", 1, \
                         65536, "N", "width of the two hidden linear layers", NULL),           \
        RPI_MODEL_OPTION("dropout", RPI_OPTION_REAL, offsetof(vgg_options, dropout), "0.5", 0, \
                         1, "SHARE", "of the hidden linear layers' outputs", NULL)

static const rpi_option options[] = {OPTIONS, {0}};
static const rpi_option options_bn[] = {
    OPTIONS, RPI_IMAGE_NORM_OPTIONS(vgg_options, norm), {0}};

/* What is built: `layers` numbers the next one, as torchvision's nn.Sequential does. */
typedef struct sequence {
    const char *part;
    int layers;
    char name[LONGEST_NAME];
} sequence;

static const char *next_name(sequence *n) {
    snprintf(n->name, LONGEST_NAME, "%s.%d", n->part, n->layers++);
    return n->name;
}

static rpi_value_id add_features(rpi_builder *b, const vgg_options *o, bool has_norm,
                                 int channels, rpi_value_id x) {
    sequence n = {.part = "features"};
    rpi_max_pool2d_attributes halve = {.kernel = 2, .stride = 2};
    for (int i = 0; i < FEATURES; i++) {
        if (features[i] == POOL) {
            x = rpi_max_pool2d(b->graph, next_name(&n), x, halve);
            continue;
        }
        int out = features[i] * (int)o->width;
        x = rpi_block_biased_conv(b, next_name(&n), x, channels, out, 3, 1);
        if (has_norm)
            x = rpi_block_image_norm(b, &o->norm, next_name(&n), x, out, RPI_INIT_ONES);
        x = rpi_relu(b->graph, next_name(&n), x);
        channels = out;
    }
    return x;
}

static rpi_value_id classify(rpi_builder *b, const vgg_options *o, int64_t in, int classes,
                             rpi_value_id x) {
    enum { HIDDEN_LAYERS = 2 };
    sequence n = {.part = "classifier"};
    for (int i = 0; i < HIDDEN_LAYERS; i++) {
        x = rpi_block_normal_linear(b, next_name(&n), x, (int)in, (int)o->hidden, SPREAD);
        x = rpi_relu(b->graph, next_name(&n), x);
        x = rpi_dropout(b->graph, next_name(&n), x, (float)o->dropout);
        in = o->hidden;
    }
    return rpi_block_normal_linear(b, next_name(&n), x, (int)in, classes, SPREAD);
}

/* Are the images large enough, and what the poolings leave of them small enough? */
static rp_status check(const rpi_data_shape *shape, int64_t inputs) {
    if (shape->height < SMALLEST_IMAGE || shape->width < SMALLEST_IMAGE)
        return RP_FAIL(
            INVALID,
            "images are %dx%d; five poolings need at least %dx%d: use larger images, "
            "or a resnet",
            shape->height, shape->width, SMALLEST_IMAGE, SMALLEST_IMAGE);
    if (inputs > INT32_MAX)
        return RP_FAIL(INVALID, "images of %dx%d leave %lld inputs for the first linear layer",
                       shape->height, shape->width, (long long)inputs);
    return RP_OK;
}

static rpi_value_id build_with(rpi_builder *b, const vgg_options *o,
                               const rpi_data_shape *shape, bool has_norm,
                               rpi_value_id images) {
    int64_t rows = shape->height / SMALLEST_IMAGE, columns = shape->width / SMALLEST_IMAGE;
    int64_t inputs = rows * columns * features[FEATURES - 2] * o->width;
    rp_status status = check(shape, inputs);
    if (status != RP_OK) rpi_graph_fail(b->graph, status, "%s", rp_last_error()->message);
    rpi_value_id x = add_features(b, o, has_norm, shape->channels, images);
    x = rpi_flatten(b->graph, "flatten", x);
    return classify(b, o, inputs, shape->classes, x);
}

static rpi_value_id build(rpi_builder *b, const void *chosen, const rpi_data_shape *shape,
                          rpi_value_id images) {
    return build_with(b, chosen, shape, false, images);
}

static rpi_value_id build_bn(rpi_builder *b, const void *chosen, const rpi_data_shape *shape,
                             rpi_value_id images) {
    return build_with(b, chosen, shape, true, images);
}

const rpi_model rpi_model_vgg16 = {
    .name = "vgg16",
    .summary = "VGG-16, for images of 32x32 and more (138M parameters for ImageNet)",
    .task = "classification",
    .options = options,
    .build = build,
};

const rpi_model rpi_model_vgg16_bn = {
    .name = "vgg16-bn",
    .summary = "VGG-16 with batch norm, or group norm",
    .task = "classification",
    .options = options_bn,
    .build = build_bn,
};
