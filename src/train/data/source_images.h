/* The source of images that are held in memory. */
#ifndef RPI_TRAIN_SOURCE_IMAGES_H
#define RPI_TRAIN_SOURCE_IMAGES_H

#include "train/data/dataset.h"
#include "train/data/source.h"

/* The images of a source that yields them; NULL: it is of another kind. */
rpi_dataset *rpi_source_images_dataset(const rpi_source *source);

#endif
