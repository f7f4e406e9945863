/* What graphs and kernels have in common of rotary positions. */
#ifndef RPI_ENGINE_ROPE_STRETCH_H
#define RPI_ENGINE_ROPE_STRETCH_H

#include <stdbool.h>
#include <stdint.h>

/* How angles of rotary positions are stretched. factor: they are divided by it; 0 and 1: they
 * are not. With `original`, which is the tokens of a text when the model was trained, only
 * those are that turn by less than `low` circles within it, those of more than `high` circles
 * are not, and between the two the share of the stretched angle falls linearly: in circles
 * (LLaMA-3.1's rule), or, with `yarn`, in the index of an angle (Peng et al., "YaRN: efficient
 * context window extension of large language models", 2023). There the two indices are rounded
 * outwards unless `is_exact`, and cosines and sines are multiplied by `attention`; 0:
 * 0.1 ln(factor) + 1. */
typedef struct rpi_rope_stretch {
    double factor, low, high;
    int64_t original; /* 0: all alike */
    bool yarn, is_exact;
    double attention;
} rpi_rope_stretch;

#endif
