#include "train/parallel/tensor_node.h"

#include "base/clock.h"
#include "base/status.h"

rp_codec rpi_tensor_node_codec(const rpi_one_tensor_node *node) {
    const rpi_tensor_meeting *all = node->all;
    rp_codec codec = rpi_activation_codec_now(all->activations);
    return rp_codec_is_exact(&codec, RP_F32) ? all->plain : codec;
}

rp_status rpi_tensor_node_measure(const rpi_one_tensor_node *node, int pass,
                                  const float *elements, size_t count) {
    rpi_link_way way = pass == RPI_NODE_FORWARD ? RPI_LINK_ACTIVATION : RPI_LINK_GRADIENT;
    if (!node->all->activations) return RP_OK;
    return rpi_activation_codec_measure(node->all->activations, way, elements, (int64_t)count);
}

rp_status rpi_tensor_node_wait(rpi_one_tensor_node *node, int pass) {
    rpi_tensor_meeting *all = node->all;
    int64_t begun = rpi_now_ns();
    rp_status status = rp_request_wait(&node->requests[pass]);
    int64_t ended = rpi_now_ns();
    all->traffic.wait_ns += ended - begun;
    if (all->waited) all->waited(all->context, begun, ended);
    return status;
}
