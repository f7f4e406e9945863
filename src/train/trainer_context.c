/* What a trainer has if several ranks share each sequence: the nodes in which they gather keys
 * and values, and this rank's tokens of each batch. */
#include "base/append.h"
#include "base/status.h"
#include "train/trainer.h"

static void waited(void *context, int64_t start_ns, int64_t end_ns) {
    rpi_trainer *t = context;
    rpi_step_picture_add(&t->picture, RPI_PICTURE_LAYERS, 0, -1, start_ns, end_ns);
}

rp_status rpi_trainer_open_context(rpi_trainer *t, rpi_context_split *out_split) {
    *out_split = (rpi_context_split){0};
    if (!rpi_trainer_shares_sequences(t)) return RP_OK;
    RP_TRY(rpi_context_nodes_create(t->comms.context, "keys", &t->context_nodes));
    rpi_context_nodes_hear(t->context_nodes, waited, t);
    t->comms.keys = rpi_context_nodes_comm(t->context_nodes);
    *out_split = rpi_context_nodes_split(t->context_nodes);
    t->pieces = rpi_context_pieces(out_split, t->source.shape.sequence);
    return RP_OK;
}

rp_status rpi_trainer_cut_batch(rpi_trainer *t, rpi_source_batch *batch) {
    return rpi_context_batch_cut(&t->context_batch, t->network.task, &t->source.shape,
                                 &t->pieces, batch);
}

bool rpi_trainer_has_sample_loss(const rpi_trainer *t) {
    return t->pieces.at[0] == 0;
}

bool rpi_trainer_has_label_loss(const rpi_trainer *t) {
    const rpi_task *task = t->network.task;
    return rpi_trainer_has_sample_loss(t) ||
           rpi_task_input_is_cut(&task->inputs[task->label_input]);
}

int64_t rpi_trainer_context_wait_ns(const rpi_trainer *t) {
    return t->context_nodes ? rpi_context_nodes_traffic(t->context_nodes).wait_ns : 0;
}

/* "2 ranks share each sequence: rank 0 has 64 of 128 tokens, in two pieces" */
void rpi_trainer_tell_context(const rpi_trainer *t, char *text, size_t bytes) {
    int ranks = t->place.grid.size[RPI_AXIS_CONTEXT], sequence = t->source.shape.sequence;
    const rpi_context_split split = {.ranks = ranks, .rank = (int)t->pieces.at[0]};
    text[0] = '\0';
    rpi_append(text, bytes,
               "%d ranks share each sequence: rank %d has %lld of %d tokens, in two pieces",
               ranks, t->place.rank, (long long)rpi_context_tokens(&split, sequence), sequence);
}

/* After the network, whose graph refers to them. */
void rpi_trainer_close_context(rpi_trainer *t) {
    rpi_context_nodes_destroy(t->context_nodes);
    rpi_context_batch_close(&t->context_batch);
    t->context_nodes = NULL;
    t->comms.keys = NULL;
}
