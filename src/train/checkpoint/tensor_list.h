/* Tensors of one checkpoint file, with room for names that no record has. */
#ifndef RPI_TRAIN_TENSOR_LIST_H
#define RPI_TRAIN_TENSOR_LIST_H

#include "train/checkpoint/checkpoint_files.h"

typedef struct rpi_tensor_list {
    rpi_named_tensor *tensors;
    char (*names)[RPI_CHECKPOINT_NAME];
    int count;
} rpi_tensor_list;

rp_status rpi_tensor_list_open(size_t most, rpi_tensor_list *list);
void rpi_tensor_list_close(rpi_tensor_list *list);

/* Room for the name of the next one. */
char *rpi_tensor_list_name(rpi_tensor_list *list);
/* Add it, under that name, of a parameter's shape. The elements are borrowed. */
void rpi_tensor_list_add(rpi_tensor_list *list, const rpi_parameter *parameter,
                         const float *elements);

#endif
