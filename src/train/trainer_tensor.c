/* The parts of a trainer for layers that several ranks share: the nodes in which they exchange
 * values, and the gradients of which each makes a part. */
#include "base/append.h"
#include "base/clock.h"
#include "base/status.h"
#include "train/trainer.h"

/* With products of bf16, activations have no more bits than those that are sent then. */
static rp_status codec_of(const rpi_trainer *t, rp_codec *out_codec) {
    const rpi_backend *backend = NULL;
    rp_dtype compute = RP_F32;
    *out_codec = (rp_codec){0};
    RP_TRY(rpi_trainer_backend(t, &backend, &compute));
    return compute == RP_BF16 ? rp_codec_parse("bf16", out_codec) : RP_OK;
}

static void waited(void *context, int64_t start_ns, int64_t end_ns) {
    rpi_trainer *t = context;
    rpi_step_picture_add(&t->picture, RPI_PICTURE_LAYERS, 0, -1, start_ns, end_ns);
}

rp_status rpi_trainer_open_split(rpi_trainer *t, rpi_tensor_split *out_split) {
    *out_split = (rpi_tensor_split){0};
    if (!rpi_trainer_is_split(t)) return RP_OK;
    rpi_tensor_nodes_options options = {.codec = &t->activations,
                                        .name = "layers",
                                        .cuts_tokens = t->options->sequence_parallel,
                                        .waited = waited,
                                        .context = t};
    RP_TRY(codec_of(t, &options.plain));
    RP_TRY(rpi_tensor_nodes_create(t->comms.tensor, &options, &t->tensor_nodes));
    t->comms.layers = rpi_tensor_nodes_comm(t->tensor_nodes);
    *out_split = rpi_tensor_nodes_split(t->tensor_nodes);
    return RP_OK;
}

rp_status rpi_trainer_open_tensor_sums(rpi_trainer *t) {
    if (!rpi_trainer_is_split(t)) return RP_OK;
    return rpi_tensor_sums_create(t->comms.tensor, &t->network, t->weights, &t->tensor_sums);
}

rp_status rpi_trainer_sum_tensors(rpi_trainer *t, int64_t first, int64_t count) {
    if (!t->tensor_sums) return RP_OK;
    int64_t start = rpi_now_ns();
    RP_TRY(rpi_tensor_sums_final(t->tensor_sums, first, count));
    t->waited_ns += rpi_now_ns() - start;
    return RP_OK;
}

int64_t rpi_trainer_tensor_wait_ns(const rpi_trainer *t) {
    return t->tensor_nodes ? rpi_tensor_nodes_traffic(t->tensor_nodes).wait_ns : 0;
}

/* "2 ranks share each layer: rank 0 has 61,234 of 113,456 parameters"; "each layer, and the
 * tokens between them" */
void rpi_trainer_tell_tensor(const rpi_trainer *t, char *text, size_t bytes) {
    text[0] = '\0';
    rpi_append(
        text, bytes, "%d ranks share each layer%s: rank %d has %lld of %lld parameters",
        t->place.grid.size[RPI_AXIS_TENSOR],
        t->options->sequence_parallel ? ", and the tokens between them" : "", t->place.rank,
        (long long)rpi_weights_count(t->weights),
        (long long)rpi_parameters_total(t->network.parameters, t->network.parameter_count));
}

void rpi_trainer_close_sums(rpi_trainer *t) {
    rpi_partial_sums_close(&t->sums);
    rpi_tensor_sums_destroy(t->tensor_sums);
    t->tensor_sums = NULL;
}

/* After the network, whose graph names them. */
void rpi_trainer_close_split(rpi_trainer *t) {
    rpi_tensor_nodes_destroy(t->tensor_nodes);
    t->tensor_nodes = NULL;
    t->comms.layers = NULL;
}
