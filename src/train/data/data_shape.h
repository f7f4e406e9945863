/* What data ask of a model: the sizes of a sample. Those that a task does not have are 0. */
#ifndef RPI_TRAIN_DATA_SHAPE_H
#define RPI_TRAIN_DATA_SHAPE_H

#include <stdint.h>

typedef struct rpi_data_shape {
    int channels, height, width, classes; /* images */
    int sequence;                         /* tokens that a model sees at once */
    int vocabulary;                       /* their ids are below; 0: not known */
} rpi_data_shape;

/* The size of an axis by its name ("channels", "sequence", or "whole", which is the same where
 * these are all tokens), or of one whose name is a number
 * ("2"); 0: there is none such. */
int64_t rpi_data_axis(const rpi_data_shape *shape, const char *axis);

#endif
