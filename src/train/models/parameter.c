#include "train/models/parameter.h"

#include "base/rng.h"

bool rpi_parameter_compresses(const rpi_parameter *parameter) {
    return parameter->shape.dims > 1 && !parameter->is_copied &&
           rpi_shape_count(&parameter->shape) >= RPI_EXACT_BELOW;
}

rpi_shard_record rpi_parameter_record(const rpi_parameter *parameter) {
    rpi_shard_record record = {
        .name = parameter->name, .dims = parameter->shape.dims, .shard = parameter->shard};
    for (int d = 0; d < record.dims; d++) record.shape[d] = parameter->shape.size[d];
    return record;
}

/* 32-bit words that one element takes of its parameter's stream. */
static uint64_t words_of(rpi_init_rule rule) {
    if (rule == RPI_INIT_NORMAL || rule == RPI_INIT_AROUND_ONE) return 2;
    return rule == RPI_INIT_UNIFORM;
}

void rpi_parameter_initialise(const rpi_parameter *parameter, uint64_t seed, int64_t first,
                              int64_t count, float *values) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_INIT, (uint64_t)parameter->index);
    float spread = (float)parameter->spread;
    rpi_rng_seek(&rng, words_of(parameter->init) * (uint64_t)first);
    for (int64_t i = 0; i < count; i++) {
        switch (parameter->init) {
        case RPI_INIT_ZEROS: values[i] = 0; break;
        case RPI_INIT_ONES: values[i] = 1; break;
        case RPI_INIT_NORMAL: values[i] = spread * rpi_rng_normal(&rng); break;
        case RPI_INIT_AROUND_ONE: values[i] = 1 + spread * rpi_rng_normal(&rng); break;
        case RPI_INIT_UNIFORM: values[i] = spread * (2 * rpi_rng_uniform(&rng) - 1); break;
        }
    }
}

int64_t rpi_parameters_total(const rpi_parameter *parameters, int count) {
    int64_t total = 0;
    for (int i = 0; i < count; i++)
        if (!parameters[i].is_state) total += rpi_shape_count(&parameters[i].shape);
    return total;
}
