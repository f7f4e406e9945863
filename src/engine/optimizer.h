/* The contract of an optimizer: what optimizers.c (the catalogue) lists. A new optimizer is one
 * file that exports one `const rpi_optimizer`, one row and one word in CMakeLists.txt.
 *
 * An optimizer is a pure function over a range of elements, so that it can run segment by
 * segment as gradients arrive: values, gradients and state slots are parallel f32 arrays, in
 * the order of the parameter arena, owned by the caller, who saves them in checkpoints. */
#ifndef RPI_ENGINE_OPTIMIZER_H
#define RPI_ENGINE_OPTIMIZER_H

#include "base/tensor.h"

#include <stdbool.h>

enum { RPI_OPTIMIZER_SLOTS = 4 };

/* What may differ from step to step and from decay group to decay group. */
typedef struct rpi_optimizer_rates {
    float learning_rate;
    float gradient_scale; /* what gradients are multiplied by first; 0: 1 */
    float weight_decay;
    float momentum; /* sgd; 0: none */
    bool nesterov;
    double beta1, beta2, epsilon; /* adamw, lamb */
    int threads;                  /* up to 1: one; changes no bit */
} rpi_optimizer_rates;

typedef struct rpi_optimizer {
    const char *name;                            /* "sgd" */
    const char *summary;                         /* the equations in one line */
    double usual_rate;                           /* where nobody says another */
    int slot_count;                              /* f32 arrays of state */
    const char *slot_names[RPI_OPTIMIZER_SLOTS]; /* in checkpoints: "momentum" */
    bool whole_tensors; /* a range is a tensor, all of it: its elements are not independent */

    /* RP_INVALID: rates that this kind does not take; those of all kinds have been checked. */
    rp_status (*check)(const rpi_optimizer_rates *rates);
    /* One step over `count` elements. `step` is 0 for the first step of the run. gradients:
     * what is left there means nothing. slots[i]: the range's part of slot i, zero before step
     * 0. Elements are independent unless `whole_tensors`: any cut into ranges gives the same
     * bits. */
    void (*update)(const rpi_optimizer_rates *rates, uint64_t step, int64_t count,
                   float *values, float *gradients, float *const *slots);
} rpi_optimizer;

/* What gradients are multiplied by. */
static inline float rpi_optimizer_gradient_scale(const rpi_optimizer_rates *rates) {
    return rates->gradient_scale == 0 ? 1 : rates->gradient_scale;
}

/* RP_INVALID: rates that no optimizer takes, or that this one does not. */
rp_status rpi_optimizer_check(const rpi_optimizer *optimizer, const rpi_optimizer_rates *rates);

/* Of kinds with running means of g and g^2: betas and epsilon, and no variant of sgd's. */
rp_status rpi_optimizer_check_means(const rpi_optimizer_rates *rates, const char *name);

/* The catalogue; NULL past the end. */
const rpi_optimizer *rpi_optimizer_at(int index);
/* RP_INVALID names those there are, and the nearest. */
rp_status rpi_optimizer_find(const char *name, const rpi_optimizer **out_optimizer);

#endif
