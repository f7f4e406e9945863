#include "train/models/resnet.h"

#include "base/status.h"
#include "engine/layers.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_NAME = 64 };

static rp_status check_stem(const char *text) {
    if (strcmp(text, "auto") == 0 || strcmp(text, "small") == 0 ||
        strcmp(text, "imagenet") == 0)
        return RP_OK;
    return RP_FAIL(INVALID, "'%s' is no stem; auto, small or imagenet", text);
}

const rpi_option rpi_resnet_options_table[] = {
    RPI_RESNET_WIDTH("64"),
    RPI_MODEL_OPTION("stem", RPI_OPTION_TEXT, offsetof(rpi_resnet_options, stem), "auto", 0, 0,
                     "auto|small|imagenet",
                     "small: 3x3; imagenet: 7x7 with stride 2 and a pooling; auto: imagenet "
                     "for images of 128x128 and more",
                     check_stem),
    RPI_MODEL_OPTION("zero-init-residual", RPI_OPTION_FLAG,
                     offsetof(rpi_resnet_options, zero_init_residual), "off", 0, 0, "on|off",
                     "the last norm of each block starts at 0, and the block as its shortcut",
                     NULL),
    RPI_IMAGE_NORM_OPTIONS(rpi_resnet_options, norm),
    {0},
};

static const char *join(char text[LONGEST_NAME], const char *prefix, const char *part) {
    snprintf(text, LONGEST_NAME, "%s%s", prefix, part);
    return text;
}

static const char *join_number(char text[LONGEST_NAME], const char *prefix, const char *part,
                               int number) {
    snprintf(text, LONGEST_NAME, "%s%s%d", prefix, part, number);
    return text;
}

/* What is built, and of which kind. */
typedef struct resnet {
    rpi_builder *builder;
    const rpi_resnet_options *options;
} resnet;

typedef struct convolution {
    int kernel, out, stride;
    rpi_init_rule scale; /* of the norm behind it */
} convolution;

static rpi_value_id conv_norm(const resnet *r, const char *conv, const char *norm,
                              rpi_value_id x, int in, convolution c) {
    x = rpi_block_conv(r->builder, conv, x, in, c.out, c.kernel, c.stride);
    return rpi_block_image_norm(r->builder, &r->options->norm, norm, x, c.out, c.scale);
}

/* A block's branch: convolutions with their norms, ReLU between them. */
enum { MOST_CONVOLUTIONS = 3 };
typedef struct branch {
    int count;
    convolution at[MOST_CONVOLUTIONS];
} branch;

/* Of `width` channels; the last norm begins with `scale`. */
static branch basic_branch(int width, int stride, rpi_init_rule scale) {
    return (branch){2, {{3, width, stride, RPI_INIT_ONES}, {3, width, 1, scale}}};
}

/* Less wide inside than outside: 3x3 of `width` channels between 1x1. The stride is that of the
 * 3x3, which loses less than on the first 1x1, where the paper has it. */
static branch bottleneck_branch(int width, int stride, rpi_init_rule scale) {
    enum { EXPANSION = 4 };
    return (branch){3,
                    {{1, width, 1, RPI_INIT_ONES},
                     {3, width, stride, RPI_INIT_ONES},
                     {1, width * EXPANSION, 1, scale}}};
}

/* relu(branch(x) + shortcut(x)); *in_out_width: of x, then of what is returned. */
static rpi_value_id residual_block(const resnet *r, const char *prefix, rpi_value_id x,
                                   int *in_out_width, int stride, const branch *path) {
    char conv[LONGEST_NAME], norm[LONGEST_NAME], name[LONGEST_NAME];
    rpi_graph *graph = r->builder->graph;
    rpi_value_id y = x;
    int in = *in_out_width, width = in;
    for (int i = 0; i < path->count; i++) {
        if (i > 0) y = rpi_relu(graph, join_number(name, prefix, ".relu", i), y);
        y = conv_norm(r, join_number(conv, prefix, ".conv", i + 1),
                      join_number(norm, prefix, ".bn", i + 1), y, width, path->at[i]);
        width = path->at[i].out;
    }
    if (stride != 1 || in != width)
        x = conv_norm(r, join(conv, prefix, ".downsample.0"),
                      join(norm, prefix, ".downsample.1"), x, in,
                      (convolution){1, width, stride, RPI_INIT_ONES});
    *in_out_width = width;
    y = rpi_add(graph, join(name, prefix, ".add"), y, x);
    return rpi_relu(graph, join_number(name, prefix, ".relu", path->count), y);
}

/* No stem: as the small networks of CIFAR's kind, which have none to choose. */
static bool has_large_stem(const rpi_resnet_options *options, const rpi_data_shape *shape) {
    enum { LARGE_IMAGE = 128 };
    if (!options->stem) return false;
    if (strcmp(options->stem, "auto") != 0) return strcmp(options->stem, "imagenet") == 0;
    return shape->height >= LARGE_IMAGE && shape->width >= LARGE_IMAGE;
}

static rpi_value_id stem(const resnet *r, const rpi_data_shape *shape, rpi_value_id x) {
    bool is_large = has_large_stem(r->options, shape);
    int channels = shape->channels;
    convolution small = {3, (int)r->options->width, 1, RPI_INIT_ONES};
    convolution large = {7, (int)r->options->width, 2, RPI_INIT_ONES};
    x = conv_norm(r, "conv1", "bn1", x, channels, is_large ? large : small);
    x = rpi_relu(r->builder->graph, "relu", x);
    if (!is_large) return x;
    rpi_max_pool2d_attributes pool = {.kernel = 3, .stride = 2, .padding = 1};
    return rpi_max_pool2d(r->builder->graph, "maxpool", x, pool);
}

rpi_value_id rpi_resnet_build(rpi_builder *b, const rpi_resnet_options *options,
                              const rpi_data_shape *shape, rpi_value_id images,
                              rpi_resnet_layout layout) {
    rpi_init_rule last = options->zero_init_residual ? RPI_INIT_ZEROS : RPI_INIT_ONES;
    branch (*form)(int, int, rpi_init_rule) =
        layout.is_bottleneck ? bottleneck_branch : basic_branch;
    const resnet r = {b, options};
    rpi_value_id x = stem(&r, shape, images);
    int width = (int)options->width;
    for (int stage = 0; stage < RPI_RESNET_STAGES; stage++) {
        for (int block = 0; block < layout.blocks[stage]; block++) {
            int stride = stage > 0 && block == 0 ? 2 : 1;
            branch path = form((int)options->width << stage, stride, last);
            char prefix[32];
            snprintf(prefix, sizeof prefix, "layer%d.%d", stage + 1, block);
            x = residual_block(&r, prefix, x, &width, stride, &path);
        }
    }
    x = rpi_global_avg_pool(b->graph, "avgpool", x);
    return rpi_block_linear(b, "fc", x, width, shape->classes);
}
