/* The contract of a model, which models.c lists. A new model is one file that exports one
 * `const rpi_model`, one row in models.c and one word in CMakeLists.txt. */
#ifndef RPI_TRAIN_MODEL_H
#define RPI_TRAIN_MODEL_H

#include "train/data/data_shape.h"
#include "train/models/blocks.h"

enum { RPI_MODEL_HIDDEN = 8, RPI_MODEL_TEXT = 128 };

/* What a user may choose behind the name: "mlp:hidden=512x256", "resnet18:width=32". */
typedef struct rpi_model_options {
    int hidden[RPI_MODEL_HIDDEN]; /* widths of an MLP's hidden layers */
    int hidden_count;
    int width;          /* channels of a ResNet's first stage */
    bool imagenet_stem; /* 7x7 with stride 2 and a pooling, for images of 224 x 224 */
} rpi_model_options;

typedef enum rpi_model_takes {
    RPI_TAKES_HIDDEN = 1,
    RPI_TAKES_WIDTH = 2,
    RPI_TAKES_STEM = 4,
} rpi_model_takes;

typedef struct rpi_model {
    const char *name, *summary;
    const char *task; /* whose first input it reads */
    rpi_model_options defaults;
    unsigned takes; /* mask of rpi_model_takes */
    /* Add the nodes between the task's first input (images) and the logits (batch x classes),
     * and return these. */
    rpi_value_id (*build)(rpi_builder *builder, const rpi_model_options *options,
                          const rpi_data_shape *shape, rpi_value_id input);
} rpi_model;

/* The catalogue; NULL past the end. */
const rpi_model *rpi_model_at(int index);
/* Parse "name" or "name:option=value,...". RP_INVALID names what is wrong, with the nearest. */
rp_status rpi_model_parse(const char *text, const rpi_model **out_model,
                          rpi_model_options *out_options);

#endif
