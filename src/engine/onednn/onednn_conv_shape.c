#include "engine/onednn/onednn_conv_shape.h"

#include "base/status.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_algorithm.h"

extern const rpi_op rpi_op_batch_norm2d, rpi_op_group_norm;

enum { INPUT, WEIGHT, BIAS };
enum { FIRST_LAYER_CHANNELS = 3 }; /* oneDNN reads so few from a row-major image */

rpi_dnn_geometry rpi_dnn_conv_geometry(const rpi_dnn_session *session, const rpi_unit *unit) {
    const rpi_conv2d_attributes *attributes = unit->nodes[0]->attributes;
    const int64_t *input = unit->inputs[INPUT].shape.size;
    const int64_t *weight = unit->inputs[WEIGHT].shape.size;
    return (rpi_dnn_geometry){.batch = input[0],
                              .channels = input[1],
                              .height = input[2],
                              .width = input[3],
                              .filters = weight[0],
                              .window_height = weight[2],
                              .window_width = weight[3],
                              .stride = attributes->stride ? attributes->stride : 1,
                              .padding = attributes->padding,
                              .is_bf16 = unit->compute == RP_BF16,
                              .threads = session->threads};
}

void rpi_dnn_conv_of(const rpi_dnn_conv_shape *shape, const rpi_dnn_conv_layouts *layouts,
                     rpi_dnn_convs *out) {
    const rpi_dnn_geometry *geometry = &shape->geometry;
    rpi_dnn_conv forward = {.source = layouts->source,
                            .weights = layouts->any_weight,
                            .bias = layouts->bias,
                            .destination = layouts->destination};
    for (int i = 0; i < 2; i++) {
        forward.stride[i] = geometry->stride;
        forward.padding_before[i] = forward.padding_after[i] = geometry->padding;
    }
    for (int i = 0; i < RPI_DNN_DIRECTIONS; i++) out->of[i] = forward;
    rpi_dnn_conv *data = &out->of[RPI_DNN_BACKWARD_DATA];
    rpi_dnn_conv *weights = &out->of[RPI_DNN_BACKWARD_WEIGHTS];
    data->forward = weights->forward = &out->of[RPI_DNN_FORWARD];
    data->destination = weights->destination = layouts->grad_destination;
    data->source = layouts->grad_source;
    weights->weights = layouts->any_grad_weight;
}

/* Row-major images are read well where they have few channels, as those of the first layer. */
static int usual_layout(const rpi_unit *unit) {
    bool few = unit->inputs[INPUT].shape.size[1] <= FIRST_LAYER_CHANNELS;
    return few && !(unit->wanted >> INPUT & 1u) ? RPI_DNN_PLAIN : RPI_DNN_BLOCKED;
}

/* AMX has kernels for channels that lie together: twice as quick as Winograd in fp32 with 256
 * channels of 7 x 7 pixels and fewer of more (0.5 of the time with 64 of 28 x 28, all three
 * directions, one Sapphire Rapids core), and slower with 512 of 4 x 4, whose rows are too
 * short. */
static bool suits_amx(const rpi_unit *unit) {
    return unit->compute == RP_BF16 && rpi_dnn_has_amx() &&
           unit->outputs[0].shape.size[3] >= RPI_DNN_SHORTEST_ROW;
}

static rpi_dnn_conv_shape with_channels_last(const rpi_dnn_conv_shape *narrow) {
    rpi_dnn_conv_shape last = *narrow;
    last.inner = last.made = RPI_DNN_CHANNELS_LAST;
    return last;
}

/* Blocked images have room for, and zeros in, the channels that are counted besides. */
static rpi_dnn_conv_shape widen(const rpi_dnn_session *session, int inner,
                                const rpi_dnn_conv_shape *narrow) {
    rpi_dnn_conv_shape wide = *narrow;
    wide.outer = wide.inner = inner;
    if (inner == RPI_DNN_BLOCKED)
        wide.geometry.channels = rpi_dnn_padded_channels(session, narrow->channels);
    wide.geometry.filters = rpi_dnn_padded_channels(session, narrow->filters);
    return wide;
}

rp_status rpi_dnn_conv_layouts_make(const rpi_dnn_session *session, const rpi_unit *unit,
                                    const rpi_dnn_conv_shape *shape,
                                    rpi_dnn_conv_layouts *out) {
    const rpi_dnn_geometry *geometry = &shape->geometry;
    const int inner = shape->inner;
    const rpi_unit_value *input = &unit->inputs[INPUT];
    rpi_shape source = input->shape, destination = unit->outputs[0].shape;
    source.size[1] = geometry->channels;
    destination.size[1] = geometry->filters;
    const int64_t weight[] = {geometry->filters, geometry->channels, geometry->window_height,
                              geometry->window_width};
    const rpi_shape *output = &unit->outputs[0].shape;
    const rp_dtype compute = shape->compute;
    RP_TRY(rpi_dnn_image_md(session, &input->shape, compute, inner, &out->input));
    const int made = shape->made;
    const int lies = rpi_dnn_conv_input_layout(unit, shape->outer);
    const rp_dtype dtype = rpi_dnn_layout_dtype(lies);
    RP_TRY(rpi_dnn_image_md(session, &input->shape, dtype, lies, &out->outer_input));
    RP_TRY(rpi_dnn_image_md(session, &input->shape, dtype, lies, &out->outer_grad_input));
    RP_TRY(rpi_dnn_image_md(session, output, compute, made, &out->grad));
    RP_TRY(rpi_dnn_image_md(session, &source, compute, inner, &out->source));
    RP_TRY(rpi_dnn_image_md(session, &source, dtype, inner, &out->grad_source));
    const rp_dtype handed = rpi_dnn_layout_dtype(shape->output);
    RP_TRY(rpi_dnn_image_md(session, output, handed, shape->output, &out->outer_grad));
    RP_TRY(rpi_dnn_image_md(session, &destination, handed, made, &out->destination));
    RP_TRY(rpi_dnn_image_md(session, output, handed, shape->output, &out->outer_output));
    RP_TRY(rpi_dnn_image_md(session, &destination, compute, made, &out->grad_destination));
    RP_TRY(rpi_dnn_md_create(4, weight, RP_F32, dnnl_oihw, &out->weight));
    RP_TRY(rpi_dnn_md_create(4, weight, compute, dnnl_format_tag_any, &out->any_weight));
    RP_TRY(rpi_dnn_md_create(4, weight, RP_F32, dnnl_format_tag_any, &out->any_grad_weight));
    if (unit->input_count > BIAS)
        RP_TRY(rpi_dnn_flat_md(geometry->filters, RP_F32, &out->bias));
    return RP_OK;
}

void rpi_dnn_conv_layouts_destroy(rpi_dnn_conv_layouts *layouts) {
    rpi_dnn_md_destroy(layouts->outer_input);
    rpi_dnn_md_destroy(layouts->outer_grad_input);
    rpi_dnn_md_destroy(layouts->outer_grad);
    rpi_dnn_md_destroy(layouts->outer_output);
    rpi_dnn_md_destroy(layouts->grad);
    rpi_dnn_md_destroy(layouts->grad_source);
    rpi_dnn_md_destroy(layouts->grad_destination);
    rpi_dnn_md_destroy(layouts->any_grad_weight);
    rpi_dnn_md_destroy(layouts->input);
    rpi_dnn_md_destroy(layouts->source);
    rpi_dnn_md_destroy(layouts->destination);
    rpi_dnn_md_destroy(layouts->weight);
    rpi_dnn_md_destroy(layouts->any_weight);
    rpi_dnn_md_destroy(layouts->bias);
    *layouts = (rpi_dnn_conv_layouts){0};
}

bool rpi_dnn_conv_makes_half(const rpi_dnn_session *session, const rpi_unit *unit) {
    static const rpi_op *const readers[] = {&rpi_op_batch_norm2d, &rpi_op_group_norm, NULL};
    return rpi_dnn_makes_half(session, unit, readers);
}

int rpi_dnn_conv_input_layout(const rpi_unit *unit, int wanted) {
    const rpi_unit_value *input = &unit->inputs[INPUT];
    const bool is_half = input->layout.id == RPI_DNN_HALF && unit->compute == RP_BF16;
    return is_half && wanted == RPI_DNN_BLOCKED ? RPI_DNN_HALF
                                                : rpi_dnn_layout_for(input, wanted);
}

bool rpi_dnn_conv_wants(const rpi_unit *unit, rpi_dnn_direction direction) {
    if (direction == RPI_DNN_FORWARD) return true;
    if (direction == RPI_DNN_BACKWARD_DATA) return unit->wanted >> INPUT & 1u;
    return unit->wanted & (1u << WEIGHT | 1u << BIAS);
}

/* Is there a direction that oneDNN has nothing but reference code for? */
static rp_status lacks_kernel(const rpi_dnn_session *session, const rpi_unit *unit,
                              const rpi_dnn_conv_shape *shape, bool *out_lacks) {
    rpi_dnn_conv_layouts layouts = {0};
    *out_lacks = false;
    rp_status status = rpi_dnn_conv_layouts_make(session, unit, shape, &layouts);
    rpi_dnn_convs convs;
    rpi_dnn_conv_of(shape, &layouts, &convs);
    for (int i = 0; i < RPI_DNN_DIRECTIONS && status == RP_OK && !*out_lacks; i++)
        if (rpi_dnn_conv_wants(unit, (rpi_dnn_direction)i))
            status = rpi_dnn_conv_lacks_kernel(session, (rpi_dnn_direction)i, &convs.of[i],
                                               out_lacks);
    rpi_dnn_conv_layouts_destroy(&layouts);
    return status;
}

/* Tried in this order: in bf16 on AMX, channels last; the shape as it is; its channels counted
 * to whole blocks; and those over a blocked input. On AVX-512 there is but reference code for
 * blocked 3x3 convolutions of less than 16 channels, on AVX2 for the weights of a first layer
 * with one channel. */
rp_status rpi_dnn_conv_shape_choose(const rpi_dnn_session *session, const rpi_unit *unit,
                                    rpi_dnn_conv_shape *out) {
    const int usual = usual_layout(unit);
    rpi_dnn_conv_shape narrow = {
        .outer = usual,
        .inner = usual,
        .made = RPI_DNN_BLOCKED,
        .output = RPI_DNN_BLOCKED,
        .compute = unit->compute,
    };
    if (rpi_dnn_conv_makes_half(session, unit)) narrow.output = RPI_DNN_HALF;
    narrow.geometry = rpi_dnn_conv_geometry(session, unit);
    narrow.channels = narrow.geometry.channels;
    narrow.filters = narrow.geometry.filters;
    const rpi_dnn_conv_shape shapes[] = {
        with_channels_last(&narrow),
        narrow,
        widen(session, narrow.inner, &narrow),
        widen(session, RPI_DNN_BLOCKED, &narrow),
    };
    *out = narrow;
    for (size_t i = suits_amx(unit) ? 0 : 1; i < sizeof shapes / sizeof shapes[0]; i++) {
        bool lacks = false;
        RP_TRY(lacks_kernel(session, unit, &shapes[i], &lacks));
        if (lacks) continue;
        *out = shapes[i];
        break;
    }
    return RP_OK;
}
