#include "train/parallel/replica.h"

#include "base/status.h"

#include <string.h>

void rpi_replica_inputs(const rpi_replica_setup *s, const rpi_source_batch *samples,
                        const rpi_loss_scales *scales, int64_t first,
                        const void *out_inputs[RPI_NETWORK_INPUTS]) {
    const rpi_task *task = s->network->task;
    for (int i = 0; i < task->input_count; i++) {
        size_t bytes = rpi_network_input_bytes(s->network, i);
        out_inputs[i] = (const char *)samples->inputs[i] + (size_t)first * bytes;
    }
    out_inputs[task->input_count] = &scales->label;
    out_inputs[task->input_count + 1] = &scales->sample;
    if (s->mixup->alpha == 0) return;
    const rpi_graph *graph = s->network->graph;
    out_inputs[rpi_graph_value(graph, s->network->mixed_labels)->index] =
        s->mixup->labels + first;
    out_inputs[rpi_graph_value(graph, s->network->mixed_scale)->index] = &scales->mixed;
}

rp_status rpi_replica_learn_nothing(const rpi_replica_setup *s) {
    int64_t count = rpi_weights_count(s->weights);
    memset(rpi_weights_gradients(s->weights), 0, (size_t)count * sizeof(float));
    return s->gradient_final(s->context, 0, count);
}

static rp_status read_number(const rpi_instance *instance, rpi_value_id value, double *out) {
    rpi_tensor tensor;
    RP_TRY(rpi_instance_result(instance, value, &tensor));
    *out = tensor.dtype == RP_I32 ? (double)*(const int32_t *)tensor.data
                                  : (double)*(const float *)tensor.data;
    return RP_OK;
}

static rp_status read_logits(const rpi_instance *instance, const rpi_network *n,
                             int64_t samples, rpi_replica_score *score) {
    rpi_tensor logits;
    RP_TRY(rpi_instance_result(instance, n->logits, &logits));
    score->logits = logits.data;
    score->each = rpi_shape_count(&logits.shape) / samples;
    return RP_OK;
}

rp_status rpi_replica_score_of(const rpi_replica_setup *s, const rpi_instance *instance,
                               int64_t samples, rpi_replica_score *out_score) {
    const rpi_network *n = s->network;
    bool has_two = n->task->sample_metric != NULL;
    *out_score = (rpi_replica_score){0};
    RP_TRY(read_number(instance, has_two ? n->label_loss : n->plain_loss, &out_score->loss));
    RP_TRY(read_number(instance, n->plain_correct, &out_score->correct));
    if (n->task->judges_logits) RP_TRY(read_logits(instance, n, samples, out_score));
    if (!has_two) return RP_OK;
    RP_TRY(read_number(instance, n->sample_loss, &out_score->sample_loss));
    return read_number(instance, n->sample_correct, &out_score->sample_correct);
}
