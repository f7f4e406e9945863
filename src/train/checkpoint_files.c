#include "train/checkpoint_files.h"

#include "train/checkpoint.h"

#include <stdio.h>

const char *rpi_checkpoint_path(const char *folder, char *path, size_t bytes) {
    snprintf(path, bytes, "%s/model.safetensors", folder);
    return path;
}

void rpi_checkpoint_rank_path(const char *folder, int rank, int world, int64_t step,
                              char path[RPI_CHECKPOINT_PATH]) {
    snprintf(path, RPI_CHECKPOINT_PATH, "%s/rank-%d-of-%d-step-%lld.safetensors", folder, rank,
             world, (long long)step);
}

bool rpi_checkpoint_has_rank_files(const rpi_trainer *t, int64_t world, bool feedback) {
    return world > 1 && (feedback || rpi_weights_state_count(t->weights) > 0);
}

void rpi_checkpoint_shape_text(const rpi_trainer *t, char *text, size_t bytes) {
    const rpi_images *images = &t->dataset.train;
    snprintf(text, bytes, "%dx%dx%d images of %d classes", images->channels, images->height,
             images->width, t->dataset.classes);
}

void rpi_checkpoint_slot_name(const rpi_optimizer *optimizer, int slot, const char *parameter,
                              char name[RPI_CHECKPOINT_NAME]) {
    snprintf(name, RPI_CHECKPOINT_NAME, "optimizer.%s.%s", optimizer->slot_names[slot],
             parameter);
}

void rpi_checkpoint_entry_name(const char *kind, const char *parameter,
                               char name[RPI_CHECKPOINT_NAME]) {
    snprintf(name, RPI_CHECKPOINT_NAME, "%s.%s", kind, parameter);
}
