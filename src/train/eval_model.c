#include "train/eval_model.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/checkpoint/run_settings.h"
#include "train/data/token_data.h"
#include "train/huggingface/hf_pictures.h"
#include "train/trained_model.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

enum { BATCH = 16, USUAL_LENGTH = 256 };

typedef struct evaluator {
    const rpi_eval_options *given;
    rpi_eval_result *result;
    rpi_train_options options;
    rpi_trained_model model;
    rpi_run_settings *settings;
    rp_comm *comm;
    rpi_trainer trainer;
} evaluator;

/* ---- the model, and what is known of its data ---- */

/* Takes the settings of a run; if they are lost the user gives them. */
static void take_settings(evaluator *e, const char *folder) {
    rpi_train_options *o = &e->options;
    if (rpi_run_settings_read(folder, &e->settings) != RP_OK) return;
    double sequence = rpi_run_settings_number(e->settings, "seq-length");
    if (!o->seq_length && sequence >= 1 && sequence <= 1 << 20)
        o->seq_length = (int64_t)sequence;
    double size = rpi_run_settings_number(e->settings, "image-size");
    if (size >= 1 && size <= RPI_PICTURE_SIZE_MOST) o->pictures.size = (int64_t)size;
    if (rpi_run_settings_number(e->settings, "skip-broken") > 0) o->pictures.skip_broken = true;
    if (e->given->data) return;
    o->seed = (int64_t)rpi_run_settings_number(e->settings, "seed"); /* for synthetic data */
    o->train_images = (int64_t)rpi_run_settings_number(e->settings, "train-images");
    o->test_images = (int64_t)rpi_run_settings_number(e->settings, "test-images");
    if (!o->data_dir) o->data_dir = rpi_run_settings_text(e->settings, "data-dir");
}

/* A model with memories reads one text: a batch of one row needs the least data. */
static rp_status choose_batch(evaluator *e) {
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(e->options.model, &choice));
    if (rpi_model_memory(&choice) > 0) e->options.batch_size = 1;
    return RP_OK;
}

/* The configuration of a Hugging Face folder gives the sizes that a run has in its settings. */
static rp_status choose_sizes(evaluator *e) {
    rpi_train_options *o = &e->options;
    rpi_model_choice choice;
    if (e->model.run) return RP_OK;
    RP_TRY(rpi_model_parse(o->model, &choice));
    int64_t side = rpi_model_number(&choice, "image");
    int64_t positions = rpi_model_number(&choice, "positions");
    if (side > 0 && side <= RPI_PICTURE_SIZE_MOST) o->pictures.size = side;
    if (!o->seq_length && positions > 0 && positions < USUAL_LENGTH) o->seq_length = positions;
    return rpi_hf_pictures_check(e->model.hf_folder, o->data);
}

static rp_status open_model(evaluator *e) {
    rpi_trained_model *model = &e->model;
    e->result->step = -1;
    RP_TRY(rpi_trained_model_open(e->given->model, model));
    if (e->given->memory) RP_TRY(rpi_model_set_memory(model->text, e->given->memory));
    snprintf(e->result->model, sizeof e->result->model, "%s", model->text);
    e->result->step = model->step;
    e->options.model = e->result->model;
    if (!e->options.data) e->options.data = model->data;
    if (model->run) take_settings(e, e->given->model);
    if (!e->options.data) return RP_FAIL(INVALID, "which data? --data, as of redpoll train");
    return RP_OK;
}

/* With `all`, the held-out samples are the same file once more, in full. */
static rp_status choose_data(evaluator *e) {
    rpi_token_data tokens;
    char *data = e->result->data;
    size_t room = sizeof e->result->data;
    snprintf(data, room, "%s", e->options.data);
    if (!e->given->all) return RP_OK;
    if (!rpi_token_data_is(data))
        return RP_FAIL(INVALID, "--all is for tokens:PATH; --data %s has a test set", data);
    RP_TRY(rpi_token_data_parse(e->options.data, &tokens));
    snprintf(data, room, "%s:%s,validation=%s", tokens.kind, tokens.train, tokens.train);
    return RP_OK;
}

static void set_options(evaluator *e) {
    const rpi_eval_options *given = e->given;
    e->options =
        (rpi_train_options){.data = given->data,
                            .data_dir = given->data_dir,
                            .seq_length = given->seq_length,
                            .steps = 1,
                            .batch_size = given->batch_size ? given->batch_size : BATCH,
                            .optimizer = "sgd",
                            .lr = 1,
                            .decay = "all",
                            .lr_schedule = "constant",
                            .strategy = "single",
                            .codec = "fp32",
                            .bucket_mb = 1,
                            .backend = given->backend,
                            .threads = given->threads,
                            .eval_images = given->samples,
                            .pictures = {.skip_broken = given->skip_broken},
                            .eval = true};
}

/* ---- all of it ---- */

static rp_status evaluate(evaluator *e) {
    rp_comm_options alone = RP_COMM_OPTIONS(.timeout_s = 60);
    rpi_trainer *t = &e->trainer;
    set_options(e);
    RP_TRY(open_model(e));
    RP_TRY(choose_data(e));
    RP_TRY(choose_batch(e));
    RP_TRY(choose_sizes(e));
    e->options.data = e->result->data;
    RP_TRY(rp_comm_create(NULL, 0, 1, &alone, &e->comm));
    RP_TRY(rpi_trainer_open(t, &e->options, e->comm));
    RP_TRY(rpi_trained_model_load(&e->model, &t->network, t->weights, e->result->note,
                                  sizeof e->result->note));
    RP_TRY(rpi_trainer_compile_evaluation(t));
    e->result->parameters =
        rpi_parameters_total(t->network.parameters, t->network.parameter_count);
    return rpi_trainer_evaluate(t, &e->result->evaluation);
}

rp_status rpi_eval(const rpi_eval_options *options, rpi_eval_result *out_result) {
    evaluator *e = NULL;
    *out_result = (rpi_eval_result){0};
    RP_TRY(rpi_alloc(sizeof *e, "an evaluation", &e));
    e->given = options;
    e->result = out_result;
    rp_status status = evaluate(e);
    rpi_kept_error why;
    rpi_error_keep(&why);
    rpi_trainer_close(&e->trainer);
    rp_comm_destroy(e->comm);
    rpi_run_settings_free(e->settings);
    rpi_trained_model_close(&e->model);
    rpi_free(e);
    rpi_error_put_back(&why);
    return status;
}
