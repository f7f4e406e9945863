/* From options to the first step. */
#include "train/training.h"

#include "base/append.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/agree.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_folder.h"
#include "train/checkpoint/run_settings.h"
#include "train/huggingface/hf_weights.h"
#include "train/idle_options.h"
#include "train/replicas.h"
#include "train/same_samples.h"
#include "train/text_samples.h"

static rp_status resume(rpi_training *r) {
    if (!r->options->resume) return RP_OK;
    char note[4096];
    RP_TRY(rpi_checkpoint_load(&r->trainer, r->options->resume, note, sizeof note));
    if (note[0] && r->hooks->note) r->hooks->note(r->hooks->context, note);
    return RP_OK;
}

static rp_status load_weights(rpi_training *r) {
    rpi_trainer *t = &r->trainer;
    const char *folder = r->options->weights;
    char note[4096];
    if (!folder || r->options->resume) return RP_OK;
    RP_TRY(rpi_trainer_hold_values(t));
    RP_TRY(rpi_hf_load(folder, &t->network, t->weights, true, note, sizeof note));
    rpi_trainer_take_values(t);
    if (note[0] && r->hooks->note) r->hooks->note(r->hooks->context, note);
    return RP_OK;
}

/* With rounding to nearest, one bit of q sends a bucket's extremes and drops the rest: the
 * residual never settles. */
static void warn_of_one_bit(const rpi_training *r) {
    const rp_codec *codec = &r->trainer.codec.codec;
    char text[80];
    bool alone = r->trainer.place.holders < 2 || codec->rounding == RP_STOCHASTIC;
    bool is_q1 = codec->bits == 1 && rp_codec_text(codec, text, sizeof text)[0] == 'q';
    if (!is_q1 || alone || !r->trainer.residual || !r->hooks->note) return;
    r->hooks->note(r->hooks->context,
                   "one bit to nearest with error feedback grows its residual "
                   "without end; q2 has no such trouble");
}

/* "--split by-label, of 10 labels: rank 0 has 2, rank 1 has 3, ..." */
static void tell_split(const rpi_training *r) {
    enum { RANKS = 16 };
    const rpi_split_parts *parts = r->trainer.source.parts;
    char line[1024] = "";
    if (!parts || parts->world == 1 || !r->hooks->note) return;
    rpi_append(line, sizeof line, "--split %s, of %d labels:", r->options->split,
               parts->classes);
    for (int rank = 0; rank < parts->world && rank < RANKS; rank++) {
        int has = 0;
        for (int c = 0; c < parts->classes; c++)
            has += parts->of_labels[(int64_t)rank * parts->classes + c] > 0;
        rpi_append(line, sizeof line, "%s rank %d has %d", rank ? "," : "", rank, has);
    }
    if (parts->world > RANKS) rpi_append(line, sizeof line, ", ...");
    r->hooks->note(r->hooks->context, line);
}

/* Which stage has which layers, and which parameters this rank has of them. */
static void tell_layout(const rpi_training *r) {
    const rpi_trainer *t = &r->trainer;
    char line[160];
    if (!r->hooks->note) return;
    if (rpi_trainer_is_staged(t)) {
        if (t->stage_note[0]) r->hooks->note(r->hooks->context, t->stage_note);
        r->hooks->note(r->hooks->context, t->stage.text);
    }
    if (rpi_trainer_is_split(t)) {
        rpi_trainer_tell_tensor(t, line, sizeof line);
        r->hooks->note(r->hooks->context, line);
    }
    if (!rpi_trainer_shares_sequences(t)) return;
    rpi_trainer_tell_context(t, line, sizeof line);
    r->hooks->note(r->hooks->context, line);
}

static void tell_idle_options(const rpi_training *r) {
    const rpi_trainer *t = &r->trainer;
    rpi_grid model = t->place.grid;
    model.size[RPI_AXIS_DATA] = 1;
    const rpi_idle_layout layout = {.stages = model.size[RPI_AXIS_STAGE],
                                    .tensor_ranks = model.size[RPI_AXIS_TENSOR],
                                    .replica_ranks = rpi_grid_world(&model),
                                    .holders = t->place.holders,
                                    .keeps_copies = t->comms.hosts != NULL,
                                    .all_reduces = t->strategy->all_reduces};
    if (r->hooks->note)
        rpi_idle_options_tell(r->options, &layout, r->hooks->note, r->hooks->context);
}

/* Nothing is written before every rank has come this far. */
static rp_status open_output(rpi_training *r) {
    rpi_trainer *t = &r->trainer;
    RP_TRY(rp_barrier(t->comm));
    RP_TRY(rpi_run_folder_make(r->options, t->place.rank));
    if (t->place.rank == 0) RP_TRY(rpi_run_settings_write(r->options, t->place.world));
    if (t->place.rank == 0 && r->options->out)
        RP_TRY(rpi_metrics_open(r->options->out, rpi_run_folder_continues(r->options),
                                &r->metrics));
    return rpi_metrics_header(r->metrics, t);
}

/* The clock is rank 0's: those of other ranks may differ. */
static int wishes(void *context) {
    rpi_training *r = context;
    double every_s = r->options->checkpoint_time_s;
    bool due = every_s > 0 && rpi_seconds(rpi_now_ns() - r->saved_ns) >= every_s;
    int asked = rpi_training_asked(r);
    if (r->trainer.place.rank > 0) return asked;
    if (due && rpi_training_saves(r->options)) asked |= RPI_ASKED_SAVE;
    return rpi_return_look(&r->readmission.requests) ? asked | RPI_ASKED_ADMIT : asked;
}

static rp_status make_history(rpi_training *r) {
    const rpi_trainer *t = &r->trainer;
    int64_t left = t->total_steps > t->step ? t->total_steps - t->step : 0;
    size_t kept = left < RPI_MEDIAN_STEPS ? (size_t)left : RPI_MEDIAN_STEPS;
    RP_TRY(rpi_alloc_array(kept, sizeof *r->history, "metrics", &r->history));
    return rpi_alloc_array(kept, sizeof *r->scratch, "metrics", &r->scratch);
}

static void listen_to_wishes(rpi_training *r) {
    rpi_trainer *t = &r->trainer;
    t->wishes = wishes;
    t->wishes_context = r;
    if (r->options->profile) t->profile = &r->result.profile;
}

rp_status rpi_training_start(rpi_training *r, rp_comm *comm) {
    rpi_trainer *t = &r->trainer;
    RP_TRY(rpi_trainer_open(t, r->options, comm));
    listen_to_wishes(r);
    RP_TRY(load_weights(r));
    RP_TRY(resume(r));
    RP_TRY(rpi_train_agree(t, t->comm));
    RP_TRY(rpi_same_samples_check(t, t->comm));
    RP_TRY(rpi_replicas_check(t));
    if (t->place.rank == 0) RP_TRY(rpi_run_folder_check(r->options));
    RP_TRY(rpi_text_sample_check(t));
    if (t->step < t->total_steps) RP_TRY(rpi_trainer_compile(t));
    RP_TRY(open_output(r));
    warn_of_one_bit(r);
    tell_split(r);
    tell_layout(r);
    tell_idle_options(r);
    RP_TRY(rpi_readmission_open(t, &r->readmission));
    RP_TRY(make_history(r));
    r->saved_step = r->evaluated_step = r->sampled_step = -1;
    r->result.first_step = t->step + 1;
    if (r->hooks->started)
        r->hooks->started(
            r->hooks->context, t->step + 1, t->total_steps,
            rpi_parameters_total(t->network.parameters, t->network.parameter_count));
    RP_TRY(rp_barrier(comm)); /* times begin together */
    r->saved_ns = rpi_now_ns();
    rpi_timeline_start(t->timeline);
    rpi_step_picture_start(&t->picture);
    return RP_OK;
}

rp_status rpi_training_come_back(rpi_training *r) {
    rpi_trainer *t = &r->trainer;
    const rpi_train_returns *way = r->options->returns;
    rpi_run_state state;
    RP_TRY(rpi_trainer_open_apart(t, r->options, way->rank, way->world));
    listen_to_wishes(r);
    RP_TRY(rpi_trainer_compile(t));
    RP_TRY(rpi_readmission_open(t, &r->readmission));
    RP_TRY(make_history(r));
    RP_TRY(rpi_return(t, r->hooks, &r->readmission, &state, &r->result.is_late));
    RP_TRY(rpi_run_folder_make(r->options, t->place.rank));
    rpi_training_take_standing(r, &state.standing);
    r->result.steps = (int64_t)state.steps;
    r->result.first_step = t->step + 1 - r->result.steps;
    r->sampled_step = -1;
    r->saved_ns = rpi_now_ns();
    rpi_log(RP_LOG_INFO, "rank %d, started again for time %d, goes on behind step %lld",
            way->rank, way->generation, (long long)t->step);
    rpi_timeline_start(t->timeline);
    rpi_step_picture_start(&t->picture);
    return RP_OK;
}
