#include "train/models/resnet.h"

#include "engine/layers.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_NAME = 64 };

static const char *join(char text[LONGEST_NAME], const char *prefix, const char *part) {
    snprintf(text, LONGEST_NAME, "%s%s", prefix, part);
    return text;
}

static rpi_value_id conv_norm(rpi_builder *b, const char *conv, const char *norm,
                              rpi_value_id x, int in, int out, int kernel, int stride) {
    x = rpi_block_conv(b, conv, x, in, out, kernel, stride);
    return rpi_block_batch_norm(b, norm, x, out);
}

/* relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)) */
static rpi_value_id basic_block(rpi_builder *b, const char *prefix, rpi_value_id x, int in,
                                int out, int stride) {
    char conv[LONGEST_NAME], norm[LONGEST_NAME], name[LONGEST_NAME];
    rpi_value_id y = conv_norm(b, join(conv, prefix, ".conv1"), join(norm, prefix, ".bn1"), x,
                               in, out, 3, stride);
    y = rpi_relu(b->graph, join(name, prefix, ".relu1"), y);
    y = conv_norm(b, join(conv, prefix, ".conv2"), join(norm, prefix, ".bn2"), y, out, out, 3,
                  1);
    if (stride != 1 || in != out)
        x = conv_norm(b, join(conv, prefix, ".downsample.0"),
                      join(norm, prefix, ".downsample.1"), x, in, out, 1, stride);
    y = rpi_add(b->graph, join(name, prefix, ".add"), y, x);
    return rpi_relu(b->graph, join(name, prefix, ".relu2"), y);
}

static rpi_value_id stem(rpi_builder *b, const rpi_resnet_options *options, int channels,
                         rpi_value_id x) {
    bool is_large = options->stem && strcmp(options->stem, "imagenet") == 0;
    int width = (int)options->width;
    x = conv_norm(b, "conv1", "bn1", x, channels, width, is_large ? 7 : 3, is_large ? 2 : 1);
    x = rpi_relu(b->graph, "relu", x);
    if (!is_large) return x;
    rpi_max_pool2d_attributes pool = {.kernel = 3, .stride = 2, .padding = 1};
    return rpi_max_pool2d(b->graph, "maxpool", x, pool);
}

rpi_value_id rpi_resnet_build(rpi_builder *b, const rpi_resnet_options *options,
                              const rpi_data_shape *shape, rpi_value_id images, int stages,
                              int blocks) {
    rpi_value_id x = stem(b, options, shape->channels, images);
    int in = (int)options->width;
    for (int stage = 0; stage < stages; stage++) {
        int out = (int)options->width << stage;
        for (int block = 0; block < blocks; block++) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "layer%d.%d", stage + 1, block);
            x = basic_block(b, prefix, x, in, out, stage > 0 && block == 0 ? 2 : 1);
            in = out;
        }
    }
    x = rpi_global_avg_pool(b->graph, "avgpool", x);
    return rpi_block_linear(b, "fc", x, in, shape->classes);
}
