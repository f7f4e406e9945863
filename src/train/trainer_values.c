/* Parameters that are on other ranks, for whoever wants them between steps. */
#include "base/status.h"
#include "train/trainer.h"

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
