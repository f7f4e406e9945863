/* What a training that does not fit into the memory of its hosts could do instead: the words
 * that cost its speed least, of those with which it would. */
#ifndef RPI_TRAIN_MEMORY_REMEDIES_H
#define RPI_TRAIN_MEMORY_REMEDIES_H

#include "train/train.h"

enum { RPI_ZERO_STAGES = 4 };

typedef struct rpi_remedy_search {
    const rpi_train_options *options;
    int world;
    bool repeats;     /* the model may make activations again */
    int64_t together; /* samples of a run of the model, of which a replica makes */
    int64_t runs;     /* so many in a step */
    /* What this rank would need with options that are not refused, by each stage of ZeRO;
     * infinity: it cannot be counted. Local. */
    void (*need)(void *context, const rpi_train_options *changed, double out[RPI_ZERO_STAGES]);
    /* Do all ranks fit that need so much? Collective. */
    rp_status (*fits)(void *context, double need, bool *out_fits);
    void *context;
} rpi_remedy_search;

/* "--zero 3 and --recompute"; "" where nothing that is tried fits. Collective, as fits() is:
 * all ranks try the same in the same order. */
rp_status rpi_remedy_find(const rpi_remedy_search *search, char *text, size_t bytes);

#endif
