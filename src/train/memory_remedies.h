/* What to do if a training does not fit into the memory of its hosts: of the options with which
 * it would fit, those that slow it down least. */
#ifndef RPI_TRAIN_MEMORY_REMEDIES_H
#define RPI_TRAIN_MEMORY_REMEDIES_H

#include "train/train.h"

enum { RPI_ZERO_STAGES = 4 };

typedef struct rpi_remedy_search {
    const rpi_train_options *options;
    int world;
    bool repeats;     /* the model can recompute activations */
    int64_t together; /* samples of a run of the model */
    int64_t runs;     /* runs of a replica in a step */
    /* What this rank would need with changed options that are not refused, for each stage of
     * ZeRO; infinity: it cannot be counted. Local. */
    void (*need)(void *context, const rpi_train_options *changed, double out[RPI_ZERO_STAGES]);
    /* Do all ranks fit if each needs so much? Collective. */
    rp_status (*fits)(void *context, double need, bool *out_fits);
    void *context;
} rpi_remedy_search;

/* "--zero 3 and --recompute"; "" if nothing that is tried fits. Collective, like fits(): all
 * ranks try the same in the same order. */
rp_status rpi_remedy_find(const rpi_remedy_search *search, char *text, size_t bytes);

#endif
