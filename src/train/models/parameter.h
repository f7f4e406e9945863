/* One record a parameter: the source of counting, initialising, sharding, checkpointing, and of
 * choosing what is compressed and what decays. States (running statistics) have one too. */
#ifndef RPI_TRAIN_PARAMETER_H
#define RPI_TRAIN_PARAMETER_H

#include "engine/graph.h"

typedef enum rpi_init_rule {
    RPI_INIT_ZEROS,
    RPI_INIT_ONES,
    RPI_INIT_NORMAL,     /* mean 0, deviation `spread` */
    RPI_INIT_AROUND_ONE, /* normal, mean 1, deviation `spread` */
    RPI_INIT_UNIFORM,    /* in [-spread, spread) */
} rpi_init_rule;

typedef enum rpi_decay_group {
    RPI_DECAY_WEIGHT, /* matrices and filters */
    RPI_DECAY_VECTOR, /* biases, scales and shifts */
} rpi_decay_group;

typedef struct rpi_parameter {
    const char *name; /* as torchvision names it: "layer1.0.conv1.weight" */
    rpi_shape shape;
    rp_dtype dtype;
    bool is_state; /* no gradient: averaged over ranks where it must be one */
    rpi_decay_group decay_group;
    rpi_init_rule init;
    double spread; /* of the rule */
    rpi_value_id value;
} rpi_parameter;

/* Smaller tensors and vectors travel exact: they are cheap and delicate. */
enum { RPI_EXACT_BELOW = 10000 };

bool rpi_parameter_compresses(const rpi_parameter *parameter);

/* Write the initial elements: a pure function of (seed, index, rule). index: of the parameter
 * in its record. */
void rpi_parameter_initialise(const rpi_parameter *parameter, uint64_t seed, int index,
                              float *values);

/* Elements of all parameters; states do not count. */
int64_t rpi_parameters_total(const rpi_parameter *parameters, int count);

#endif
