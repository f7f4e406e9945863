#include "train/trained_model.h"

#include "base/regular_file.h"
#include "base/status.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/network_piece.h"
#include "train/huggingface/hf_config.h"
#include "train/huggingface/hf_weights.h"

#include <stdio.h>
#include <stdlib.h>

static rp_status open_run(const char *folder, rpi_trained_model *model) {
    char path[RPI_PATH_BYTES];
    rpi_checkpoint_path(folder, path, sizeof path);
    rp_status status = rpi_safetensors_open(path, &model->run);
    if (status == RP_NOT_FOUND)
        return RP_FAIL(NOT_FOUND,
                       "%s is missing: there is no run; name the folder that redpoll train "
                       "--out was given, or hf:FOLDER",
                       path);
    RP_TRY(status);
    const char *text = rpi_safetensors_metadata(model->run, "model");
    const char *step = rpi_safetensors_metadata(model->run, "step");
    if (!rpi_safetensors_is_verified(model->run) || !text || !step)
        return RP_FAIL(CORRUPT, "%s is no checkpoint of redpoll", path);
    snprintf(model->text, sizeof model->text, "%s", text);
    model->step = strtoll(step, NULL, 10);
    model->data = rpi_safetensors_metadata(model->run, "data");
    return rpi_piece_files_open(model->run, folder, &model->pieces);
}

rp_status rpi_trained_model_open(const char *name, rpi_trained_model *out_model) {
    rpi_trained_model model = {.step = -1, .hf_folder = rpi_hf_folder(name)};
    rp_status status = model.hf_folder ? rpi_hf_model_of(name, model.text, &model.hf_folder)
                                       : open_run(name, &model);
    if (status == RP_OK)
        *out_model = model;
    else
        rpi_trained_model_close(&model);
    return status;
}

void rpi_trained_model_close(rpi_trained_model *model) {
    rpi_piece_files_close(model->pieces);
    rpi_safetensors_close(model->run);
    *model = (rpi_trained_model){0};
}

rp_status rpi_trained_model_load(const rpi_trained_model *model, const rpi_network *network,
                                 rpi_weights *weights, char *note, size_t note_bytes) {
    note[0] = '\0';
    if (!model->hf_folder) return rpi_network_read(network, model->pieces, weights);
    return rpi_hf_load(model->hf_folder, network, weights, false, note, note_bytes);
}
