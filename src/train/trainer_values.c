/* Parameters of other ranks, for callers that need them between steps. */
#include "base/status.h"
#include "train/parallel/host_group.h"
#include "train/trainer.h"

int rpi_trainer_host_ranks(const rpi_trainer *t) {
    bool keeps = t->options->host_shards && rpi_trainer_passes_values(t) && t->comm;
    return keeps ? rpi_host_group_ranks(rpi_trainer_replicas(t)) : 0;
}

rp_status rpi_trainer_open_hosts(rpi_trainer *t) {
    if (t->comms.hosts || !rpi_trainer_host_ranks(t)) return RP_OK;
    return rpi_host_group_open(rpi_trainer_replicas(t), &t->comms.hosts);
}

rp_status rpi_trainer_hold_values(rpi_trainer *t) {
    if (!rpi_trainer_passes_values(t)) return RP_OK;
    RP_TRY(rpi_trainer_complete(t));
    RP_TRY(rpi_weights_open_values(t->weights));
    return t->strategy->gather_values(t->strategy_self);
}

void rpi_trainer_release_values(rpi_trainer *t) {
    if (rpi_trainer_passes_values(t)) rpi_weights_close_values(t->weights);
}

void rpi_trainer_take_values(rpi_trainer *t) {
    if (!rpi_trainer_passes_values(t)) return;
    t->optimizer.has_values = false;
    rpi_optimizer_state_keep_values(&t->optimizer);
    rpi_weights_changed(t->weights, 0, rpi_weights_count(t->weights));
    rpi_trainer_release_values(t);
}
