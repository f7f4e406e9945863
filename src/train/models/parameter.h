/* One record a parameter: the source of counting, initialising, sharding, checkpointing, and of
 * choosing what is compressed and what decays. States (running statistics) have one too.
 *
 * Where several tensor ranks hold a model together, a record's shape stays that of the whole
 * tensor, and its shard says which elements a rank has; the value in the graph, and the weights
 * of that name, are of the rank's own shape. A tensor of which a rank has nothing (a bias that
 * the first one adds) has no record there; `index` counts it nevertheless. */
#ifndef RPI_TRAIN_PARAMETER_H
#define RPI_TRAIN_PARAMETER_H

#include "engine/graph.h"
#include "plan/shard.h"

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
    rpi_shape shape;  /* of the whole tensor */
    rp_dtype dtype;
    bool is_state; /* no gradient: averaged over ranks where it must be one */
    rpi_decay_group decay_group;
    rpi_init_rule init;
    double spread; /* of the rule */
    rpi_value_id value;
    int index;       /* in the whole model, in order of declaration; set by rpi_declare() */
    rpi_shard shard; /* zeros: every tensor rank has all of it */
    /* The gradient of each rank that holds an element is a part of it, their sum the whole: of
     * what is shared by heads that several ranks have. Else each has the whole gradient. */
    bool adds;
    /* Several tensor ranks have elements of it that are the same: they must stay so, whatever
     * travels with them. Set by rpi_declare(). */
    bool is_copied;
} rpi_parameter;

/* Smaller tensors and vectors travel exact: they are cheap and delicate. So does what several
 * tensor ranks have, as each of them would round it in other company. */
enum { RPI_EXACT_BELOW = 10000 };

bool rpi_parameter_compresses(const rpi_parameter *parameter);

/* What planners of shards call it. Borrows the name. */
rpi_shard_record rpi_parameter_record(const rpi_parameter *parameter);

/* Write the initial elements [first, first + count) of the whole tensor: each is a pure
 * function of (seed, parameter's index, rule, element). */
void rpi_parameter_initialise(const rpi_parameter *parameter, uint64_t seed, int64_t first,
                              int64_t count, float *values);

/* Elements of all parameters, of the whole tensors; states do not count. */
int64_t rpi_parameters_total(const rpi_parameter *parameters, int count);

#endif
